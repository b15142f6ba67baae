// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

const (
	// maxOutcomes bounds the rows that a finished run still names.
	maxOutcomes = 200
	// unreadable stands for the resource of a row that this version cannot read.
	unreadable = "unreadable"
)

// Commit is the run that records a plan, before anything of it is done, and what the process that records it remembers.
// The plan was decided on live reads that were begun no earlier than in.Now. What of it is carried out is in todo.
func Commit(before *v1alpha1.CleanerStatus, in Input, decides string, p Plan) (run *v1alpha1.Run, m *Memory, todo Plan) {
	run = &v1alpha1.Run{
		Number:    before.Runs + 1,
		Decides:   decides,
		DecidedAt: metav1.NewTime(in.Now),
		Withheld:  p.Forbidden(),
		Data:      p.Data,
	}
	rows, seen, helm := p.rows(), in.seen(), in.Spec.Helm
	was, at := make([]Seen, len(rows)), make(map[types.UID]int, len(rows))
	for row, i := range rows {
		o := &p.Steps[i].Object
		run.Rows = append(run.Rows, p.Steps[i].Row().String())
		was[row], at[o.UID] = seen[o.identity()], row
	}
	if p.Release != nil {
		run.Helm = &v1alpha1.HelmRelease{
			Name:          p.Release.Name,
			Revision:      p.Release.Revision,
			UID:           string(p.Release.UID),
			FirstDeployed: metav1.NewMicroTime(p.Release.FirstDeployed),
			DisableHooks:  helm != nil && helm.DisableHooks,
			Digest:        p.Release.Digest,
		}
	}
	m = NewMemory(run.Number, was, in.Now)
	p.ofRows(at, m)
	return run, m, p
}

// Forbidden is what a plan would do and may not, as it is recorded and shown to people.
func (p *Plan) Forbidden() []v1alpha1.Withheld {
	var out []v1alpha1.Withheld
	for i := range p.Withheld {
		w := &p.Withheld[i]
		out = append(out, v1alpha1.Withheld{Object: w.Object, Because: w.Because})
	}
	return out
}

// Finish is the run with its result: counts and the first rows with their outcomes stand in the place of the rows.
func Finish(run *v1alpha1.Run, m *Memory, result v1alpha1.Result, message string, now time.Time) *v1alpha1.Run {
	finished := metav1.NewTime(now)
	out := &v1alpha1.Run{
		Number: run.Number, Decides: run.Decides, DecidedAt: run.DecidedAt, Withheld: run.Withheld, Data: run.Data,
		ServiceAccountName: run.ServiceAccountName,
		Result:             result, FinishedAt: &finished, Message: message,
	}
	counts := newTally(nil)
	for i, text := range run.Rows {
		outcome := m.Rows[i].outcome()
		counts.add(text, outcome)
		if len(out.Outcomes) < maxOutcomes {
			out.Outcomes = append(out.Outcomes, v1alpha1.RowOutcome{Row: text, Outcome: outcome})
		}
	}
	out.Counts = counts.list()
	if run.Helm != nil {
		h := *run.Helm
		h.Outcome = m.releaseOutcome(run)
		out.Helm = &h
	}
	return out
}

func (r *RowMemory) outcome() v1alpha1.Outcome {
	held := !r.Settled && len(r.Finalizers) > 0
	switch {
	case r.State == RowDeleted && r.Did != "":
		return r.Did
	case (r.State == RowDeleted || r.State == RowGone) && held:
		return v1alpha1.OutcomeTerminating
	case r.State == RowDeleted:
		return v1alpha1.OutcomeDeleted
	case r.State == RowGone:
		return v1alpha1.OutcomeGone
	case r.State == RowReplaced:
		return v1alpha1.OutcomeReplaced
	case r.Did != "": // a part of what was wanted
		return r.Did
	case r.blind:
		return v1alpha1.OutcomeUnknown
	default:
		return v1alpha1.OutcomeKept
	}
}

// releaseOutcome is what became of the release, as far as it was read.
func (m *Memory) releaseOutcome(run *v1alpha1.Run) v1alpha1.Outcome {
	rel := m.Release
	switch {
	case rel == nil || rel.State == ReleaseUnknown:
		return v1alpha1.OutcomeUnknown
	case rel.State == ReleaseGone && m.Swept:
		return v1alpha1.OutcomeDeleted
	case rel.State == ReleaseGone:
		return v1alpha1.OutcomeGone
	case installedAnew(rel, run.Helm):
		return v1alpha1.OutcomeReplaced
	case m.begun(run):
		return v1alpha1.OutcomeTerminating
	default:
		return v1alpha1.OutcomeKept
	}
}

// rewritten says that the record of a release whose uninstall is not ours is not what was recorded of it. Older versions
// did not record a digest. One that is ours is no less that of the run: whoever finishes it compares, and says so.
func rewritten(rel *Release, h *v1alpha1.HelmRelease) bool {
	return rel.Revision != h.Revision || string(rel.UID) != h.UID || !sameRelease(rel, h) ||
		!rel.begun() && h.Digest != "" && rel.Digest != h.Digest
}

// installedAnew says that a release is another one than the one that was recorded. Its record is another object then: in the same
// one somebody has written.
func installedAnew(rel *Release, h *v1alpha1.HelmRelease) bool {
	return !sameRelease(rel, h) && string(rel.UID) != h.UID
}

// sameRelease says that a release is the one that was recorded, at whatever revision. What is recorded has the
// precision of a microsecond.
func sameRelease(rel *Release, h *v1alpha1.HelmRelease) bool {
	return rel.FirstDeployed.Truncate(time.Microsecond).Equal(h.FirstDeployed.Truncate(time.Microsecond))
}
