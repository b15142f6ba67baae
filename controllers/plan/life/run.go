// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// maxOutcomes and maxOutcomeBytes bound the rows that a finished run still names. Bytes are those of JSON.
	maxOutcomes     = 200
	maxOutcomeBytes = 128 << 10
	// unreadable stands for the resource of a row that this version cannot read.
	unreadable = "unreadable"
)

// CommitRun is the run that records a plan, before anything of it is done, and what the process that records it remembers.
// The plan was decided on live reads that were begun no earlier than in.Now. What of it is carried out is in todo.
func CommitRun(before *v1alpha1.CleanerStatus, in plan.Input, fingerprint string, p plan.Plan) (run *v1alpha1.Run, m *Memory, todo plan.Plan) {
	run = &v1alpha1.Run{
		Number:    before.Runs + 1,
		Decides:   fingerprint,
		DecidedAt: metav1.NewTime(in.Now),
		Withheld:  addWithheld(nil, p.ListForbidden()),
		Data:      p.Data,
	}
	rows, seen, helm := p.ListRowSteps(), in.ListSeenObjects(), in.Spec.Helm
	was, at := make([]plan.Seen, len(rows)), make(map[types.UID]int, len(rows))
	for row, i := range rows {
		o := &p.Steps[i].Object
		run.Rows = append(run.Rows, p.Steps[i].MakeRow().String())
		was[row], at[o.UID] = seen[o.Identify()], row
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
	m.recorded = run.Rows
	keepRowSteps(&p, at, m)
	return run, m, p
}

// SettleRun is a run whose rows are counted, and the first of them named.
func SettleRun(run *v1alpha1.Run, l *Ledger) *v1alpha1.Run {
	bare := *run
	bare.Rows = nil
	out, known := bare.DeepCopy(), l.isOf(run)
	counts, room := newTally(out.Counts), maxOutcomeBytes
	for _, o := range out.Outcomes {
		room -= outcomeBytes(o)
	}
	for i, text := range run.Rows {
		outcome := v1alpha1.OutcomeUnknown
		switch {
		case !known:
		case run.Lifecycle == v1alpha1.LifecycleRecurring:
			outcome = l.Rows[i].recurringOutcome()
		default:
			outcome = l.Rows[i].onceOutcome()
		}
		if outcome == "" {
			continue
		}
		counts.addRow(text, outcome)
		if len(out.Outcomes) == maxOutcomes {
			continue
		}
		o := v1alpha1.RowOutcome{Row: text, Outcome: outcome}
		if room -= outcomeBytes(o); room > 0 {
			out.Outcomes = append(out.Outcomes, o)
		}
	}
	out.Counts = counts.listCounts()
	return out
}

// outcomeBytes is how many bytes an outcome takes where it is stored.
func outcomeBytes(o v1alpha1.RowOutcome) int {
	return len(`{"row":"","outcome":},`) + plan.StoredBytes(o.Row) + plan.StoredBytes(string(o.Outcome))
}

// FinishRun is the run with its result: counts and the first rows with their outcomes stand in the place of the rows. Without one that is
// given it is Completed, unless something of it is unknown. A result that it has never changes.
func FinishRun(run *v1alpha1.Run, m *Memory, result v1alpha1.Result, message string, now time.Time) *v1alpha1.Run {
	if run.Result != "" {
		return run.DeepCopy()
	}
	out, finished := SettleRun(run, &m.Ledger), metav1.NewTime(now)
	if result == "" {
		result = v1alpha1.ResultCompleted
		if slices.ContainsFunc(out.Counts, func(c v1alpha1.Count) bool { return c.Outcome == v1alpha1.OutcomeUnknown }) {
			result, message = v1alpha1.ResultPartial, "the outcome of some objects is unknown"
		}
	}
	out.Result, out.Message, out.FinishedAt = result, message, &finished
	if run.Helm != nil {
		out.Helm.Outcome = m.releaseOutcome(run)
	}
	return out
}

// tally counts rows by resource and outcome.
type tally map[v1alpha1.Count]int64

func newTally(counts []v1alpha1.Count) tally {
	t := tally{}
	for _, c := range counts {
		t[v1alpha1.Count{Resource: c.Resource, Outcome: c.Outcome}] += c.Count
	}
	return t
}

func (t tally) addRow(row string, outcome v1alpha1.Outcome) {
	resource := unreadable
	if r, err := plan.ParseRow(row); err == nil {
		resource = plan.ResourceName(r.Resource)
	}
	t[v1alpha1.Count{Resource: resource, Outcome: outcome}]++
}

// listCounts gives the counts in the order of resources and outcomes.
func (t tally) listCounts() []v1alpha1.Count {
	var out []v1alpha1.Count
	for k, n := range t {
		k.Count = n
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b v1alpha1.Count) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Outcome, b.Outcome))
	})
	return out
}

// releaseOutcome is what became of the release, as far as it was read.
func (u *Uninstall) releaseOutcome(run *v1alpha1.Run) v1alpha1.Outcome {
	rel := u.Release
	switch {
	case rel == nil || rel.State == plan.ReleaseUnknown:
		return v1alpha1.OutcomeUnknown
	case rel.State == plan.ReleaseGone && u.Uninstalled:
		return v1alpha1.OutcomeDeleted
	case rel.State == plan.ReleaseGone:
		return v1alpha1.OutcomeGone
	case installedAnew(rel, run.Helm):
		return v1alpha1.OutcomeReplaced
	case u.isOurs(run):
		return v1alpha1.OutcomeTerminating
	default:
		return v1alpha1.OutcomeKept
	}
}

// isRewritten reports whether the record of a release, whose uninstall is not ours, differs from what the run recorded. Older versions
// recorded no digest. A release whose uninstall is ours still belongs to the run: the uninstaller compares the digest, and reports a
// difference.
func isRewritten(rel *plan.Release, h *v1alpha1.HelmRelease) bool {
	return rel.Revision != h.Revision || string(rel.UID) != h.UID || !sameRelease(rel, h) ||
		!rel.HasBegun() && h.Digest != "" && rel.Digest != h.Digest
}

// installedAnew reports whether a release is not the recorded one, but a later one of the same name. Its record is another object then:
// in the same object, a client has changed the content.
func installedAnew(rel *plan.Release, h *v1alpha1.HelmRelease) bool {
	return !sameRelease(rel, h) && string(rel.UID) != h.UID
}

// sameRelease says that a release is the one that was recorded, at whatever revision. What is recorded has the
// precision of a microsecond.
func sameRelease(rel *plan.Release, h *v1alpha1.HelmRelease) bool {
	return rel.FirstDeployed.Truncate(time.Microsecond).Equal(h.FirstDeployed.Truncate(time.Microsecond))
}
