// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// again says how far the second DELETE for the object of a row is.
type again int

const (
	// notAgain: none was wanted.
	notAgain again = iota
	// openAgain: the row is open for it.
	openAgain
	// closedAgain: it was sent without success, or was no longer wanted.
	closedAgain
	// deletedAgain: it was carried out.
	deletedAgain
)

// isOpenAgain says that the row is open for a second DELETE, and for nothing else.
func (e *Entry) isOpenAgain() bool { return e.State == RowOpen && e.again == openAgain }

// closeAgain closes a row without a second DELETE: it is as before.
func (e *Entry) closeAgain() {
	e.State, e.again, e.looks = RowGone, closedAgain, 0
	if e.Did == v1alpha1.OutcomeDeleted {
		e.State = RowDeleted
	}
}

// recordAgain records what came of a second DELETE. Whatever came of it, there is no other one.
func (e *Entry) recordAgain(a RowAnswer) {
	deleted := a.Failed == "" && a.Did == v1alpha1.OutcomeDeleted
	e.closeAgain()
	e.Failed, e.Left = "", ""
	switch {
	case deleted:
		e.again, e.Settled = deletedAgain, a.Gone
	case a.Replaced:
		e.Settled = true
	case a.Failed == "" && a.Did == v1alpha1.OutcomeGone:
		e.Settled, e.Finalizers = !a.Terminating, a.Finalizers
	}
}

// strandedRows lists the rows whose objects this process has deleted, and that are terminating all the same although nothing holds them.
// A row is listed until it was opened for a second DELETE.
func (l *Ledger) strandedRows() []int {
	return l.rowsWhere(func(e *Entry) bool { return e.isDone() && !e.Settled && e.Asked && e.Stranded && e.again == notAgain })
}

// IsOpenAgain says that a row is open for a second DELETE, and for nothing else.
func (l *Ledger) IsOpenAgain(i int) bool { return l.Rows[i].isOpenAgain() }

// OpenAgain opens rows for a second DELETE, which is decided on live reads as each other one.
func (m *Memory) OpenAgain(rows []int) {
	for _, i := range rows {
		e := &m.Rows[i]
		e.State, e.again, e.Checked, e.Unwanted, e.Left, e.Due, e.looks = RowOpen, openAgain, true, "", "", time.Time{}, 0
	}
	m.forgetFailures()
	m.VoidConfirmation()
}

// recordJudgementAgain records a judgement on rows that are open for a second DELETE. What is not wanted now stays as it is: it was
// deleted before, so that this stops no run. What cannot be decided is decided later, a few times.
func (m *Memory) recordJudgementAgain(rows []int, j Judgement, at time.Time) {
	if j.Outcome == JudgeFailed {
		m.RecordFailure(j.Why, at)
	} else {
		m.forgetFailures()
	}
	if j.Outcome == JudgeTrue {
		m.ConfirmedAt = at
	}
	for _, i := range rows {
		e, v := &m.Rows[i], j.Rows[i]
		switch {
		case j.Outcome == JudgeFailed && e.looks+1 < maxLooks:
			e.looks++
		case j.Outcome == JudgeTrue && v.Version != "":
			e.Now = v.Version
		default:
			e.closeAgain()
		}
	}
}

// describeAgain adds to the message of a run for how many objects a second DELETE was carried out.
func (l *Ledger) describeAgain(message string) string {
	n := len(l.rowsWhere(func(e *Entry) bool { return e.again == deletedAgain }))
	if n == 0 {
		return message
	}
	text := fmt.Sprintf("a second DELETE removed %d of the objects, which were still terminating although nothing held them", n)
	if message != "" {
		text = message + "; " + text
	}
	return text
}

// withoutDeletion returns a list with some of the objects as if nothing had deleted them. An object that something holds now stays as it is.
func withoutDeletion(objects []observed.Object, some map[types.UID]bool) []observed.Object {
	out := slices.Clone(objects)
	for i := range out {
		if o := &out[i]; some[o.UID] && o.IsStranded() {
			out[i] = o.BeforeDeletion()
		}
	}
	return out
}

// keepDeletesAgain removes the steps other than DELETEs on the objects of rows that are open for a second DELETE: the first one has come
// after them.
func (j *judge) keepDeletesAgain(p *plan.Plan) {
	if !slices.ContainsFunc(j.m.Rows, func(e Entry) bool { return e.isOpenAgain() }) {
		return
	}
	p.Steps = plan.KeepSteps(p.Steps, func(n int) bool {
		s := &p.Steps[n]
		i, recorded := j.at[s.Object.UID]
		return s.Verb == plan.VerbDelete || !recorded || !j.m.Rows[i].isOpenAgain()
	})
}
