// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// RequestKind names the next thing to do for a Cleaner. Each stands for one kind of request to the API server, or for
// waiting.
type RequestKind int

const (
	// Idle waits until Request.Until, or for an event.
	Idle RequestKind = iota
	// Evaluate means that no run is open: look at targets and conditions, and commit a run if they say so.
	Evaluate
	// LookRows reads Request.Rows live.
	LookRows
	// LookRelease reads the state of the run's Helm release.
	LookRelease
	// Recheck asks conditions, rules and targets on live reads what they want of the rows.
	Recheck
	// ReviewAuthor asks whether the author may uninstall the release that was looked at.
	ReviewAuthor
	// Act carries out what was decided last for Request.Rows.
	Act
	// Settle reads Request.Rows live, which are deleted and maybe not gone.
	Settle
	// StartUninstall begins to uninstall the release.
	StartUninstall
	// FinishUninstall goes on with an uninstall that the run has begun.
	FinishUninstall
	// WriteResult records Request.Result.
	WriteResult
	// MoveToUnsent takes a finished run out of status.run: into status.unsent if there is a sink.
	MoveToUnsent
	// ClearRecord drops status.run and status.unsent: nobody wants them any more.
	ClearRecord
	// ClearUnsent drops status.unsent: it is delivered, or nobody wants it any more.
	ClearUnsent
	// DeleteSelf deletes the Cleaner.
	DeleteSelf
	// RemoveFinalizer lets the Cleaner go, or takes off a finalizer that nothing needs.
	RemoveFinalizer
	// GiveUp says in the log and in a Warning what could not be delivered, and removes the finalizer.
	GiveUp
	// AddFinalizer holds the Cleaner before a batch of one that stays is recorded.
	AddFinalizer
	// Record writes the rows of a batch into the run, and counts those of the batch before.
	Record
)

// String names the kind for people and tests.
func (k RequestKind) String() string {
	return [...]string{"Idle", "Evaluate", "LookRows", "LookRelease", "Recheck", "ReviewAuthor", "Act", "Settle", "StartUninstall", "FinishUninstall",
		"WriteResult", "MoveToUnsent", "ClearRecord", "ClearUnsent", "DeleteSelf", "RemoveFinalizer", "GiveUp", "AddFinalizer", "Record"}[k]
}

// Request is what comes next.
type Request struct {
	Kind RequestKind
	// Rows are indexes into status.run.rows.
	Rows []int
	// Result and Message are what WriteResult records.
	Result  v1alpha1.Result
	Message string
	// Until is when an Idle Cleaner has to be looked at again without an event; zero: only for an event.
	Until time.Time
	// Reason says what is waited for, as a reason of api/v1alpha1.
	Reason string
}

// View is a Cleaner as it was read, at a moment.
type View struct {
	Cleaner v1alpha1.Owner
	// Helm is the release of its spec; nil if there is none.
	Helm *v1alpha1.Helm
	// Decides is the fingerprint of the Cleaner's spec.
	Decides string
	// Delivered says that the sink has taken the event of the run that Outstanding returns.
	Delivered bool
	Now       time.Time
	// SettleFor is how long deleted objects may take to go before the run goes on without them.
	SettleFor time.Duration
	// FinishGrace is how long after its deletionTimestamp a Cleaner is held to finish and to report.
	FinishGrace time.Duration
	// ClockSuspect says that nothing may be decided by the clock that Now comes from: no deletion follows.
	ClockSuspect bool
}

// ClockRetry is how long after one look at a clock that cannot be trusted it is looked at again.
const ClockRetry = 10 * time.Second

// Outstanding is the finished run whose event has to be delivered before anything else of this Cleaner is; nil if none.
func Outstanding(s *v1alpha1.CleanerStatus) *v1alpha1.Run {
	if s.Unsent != nil {
		return s.Unsent
	}
	if s.Run != nil && s.Run.Result != "" {
		return s.Run
	}
	return nil
}

// Held says that nothing may be deleted for this Cleaner now, because its author said so.
func Held(s *v1alpha1.CommonSpec) bool {
	return s.Suspend || s.Mode == v1alpha1.ModeDryRun
}

// Next says what comes next for a Cleaner, of either life, apart from the batches of one that stays. A run that it has left behind, when
// it was of the other life, is carried to its end.
func Next(v View, m *Memory) Request {
	s := v.Cleaner.State()
	switch run := s.Run; {
	case v.stays() && !v.sink() && (run != nil || s.Unsent != nil):
		return Request{Kind: ClearRecord}
	case s.Unsent != nil && (!v.sink() || v.Delivered):
		return Request{Kind: ClearUnsent}
	case run == nil:
		return v.withoutRun()
	case run.Result != "":
		return v.finished(run)
	case v.stays():
		return v.counting(run, &m.Ledger)
	default:
		return v.open(run, m)
	}
}

// stays says by which life the Cleaner is carried on: that of Cleaners that stay, unless a run of the other kind is not over yet.
func (v View) stays() bool {
	if run := v.Cleaner.State().Run; run != nil {
		return run.Lifecycle == v1alpha1.LifecycleRecurring
	}
	return v.Cleaner.Common().Recurs()
}

// sink says that somebody is to be told.
func (v View) sink() bool { return v.Cleaner.Common().CloudEventSink != "" }

// deleted says that somebody deleted the Cleaner.
func (v View) deleted() bool { return v.Cleaner.GetDeletionTimestamp() != nil }

// graceEnds is when a deleted Cleaner is held no longer.
func (v View) graceEnds() time.Time {
	return v.Cleaner.GetDeletionTimestamp().Add(v.FinishGrace)
}

// graceOver says that a deleted Cleaner has been held long enough.
func (v View) graceOver() bool { return v.deleted() && !v.Now.Before(v.graceEnds()) }

// hasFinalizer says that our finalizer holds the Cleaner.
func (v View) hasFinalizer() bool {
	for _, f := range v.Cleaner.GetFinalizers() {
		if f == v1alpha1.Finalizer {
			return true
		}
	}
	return false
}

// withoutRun is the life of a Cleaner that waits. One that stays keeps the finalizer for the next batch, if somebody is to be told.
func (v View) withoutRun() Request {
	unsent, keeps := v.Cleaner.State().Unsent != nil, v.stays() && v.sink() && !v.deleted()
	switch {
	case !unsent && v.hasFinalizer() && !keeps:
		return Request{Kind: RemoveFinalizer}
	case v.deleted() && !v.hasFinalizer():
		return Request{Kind: Idle, Reason: v1alpha1.ReasonTerminating}
	case v.graceOver():
		return Request{Kind: GiveUp}
	case v.deleted():
		return v.until(time.Time{}, v1alpha1.ReasonDelivering)
	default:
		return Request{Kind: Evaluate}
	}
}

// finished is the life of a Cleaner whose run has a result: Delivering. One that stays, or that has left something behind, makes room
// for another run at once.
func (v View) finished(run *v1alpha1.Run) Request {
	waiting := v.Cleaner.State().Unsent != nil
	delivered := !v.sink() || v.Delivered && !waiting
	goesOn := !v.deleted() && (v.stays() || run.Result == v1alpha1.ResultAbandoned) || !v.stays() && run.Result == v1alpha1.ResultPartial
	switch {
	case v.deleted() && !v.hasFinalizer():
		return Request{Kind: Idle, Reason: v1alpha1.ReasonTerminating}
	case v.graceOver() && (waiting || !delivered):
		return Request{Kind: GiveUp}
	case waiting:
		return v.until(time.Time{}, v1alpha1.ReasonDelivering)
	case goesOn:
		return Request{Kind: MoveToUnsent}
	case !delivered:
		return v.until(time.Time{}, v1alpha1.ReasonDelivering)
	case v.deleted() && v.stays():
		return Request{Kind: ClearRecord}
	case v.deleted():
		return Request{Kind: RemoveFinalizer}
	default:
		return Request{Kind: DeleteSelf}
	}
}

// counting is the life of a Cleaner whose run counts what its batches do.
func (v View) counting(run *v1alpha1.Run, l *Ledger) Request {
	switch {
	case v.deleted():
		if rows := l.Unknown(run); len(rows) > 0 && !v.graceOver() {
			return Request{Kind: LookRows, Rows: rows}
		}
		return Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: "the Cleaner was deleted"}
	case !v.Cleaner.Common().Recurs():
		return v.settled(run, l)
	default:
		return Request{Kind: Evaluate}
	}
}

// settled finishes a run that counts, when there is room for it.
func (v View) settled(run *v1alpha1.Run, l *Ledger) Request {
	if v.Cleaner.State().Unsent != nil {
		return Request{Kind: Idle, Reason: v1alpha1.ReasonDelivering}
	}
	if rows := l.Unknown(run); len(rows) > 0 {
		return Request{Kind: LookRows, Rows: rows}
	}
	return Request{Kind: MoveToUnsent}
}

// open is the life of a Cleaner with an open run.
func (v View) open(run *v1alpha1.Run, m *Memory) Request {
	if !m.of(run) {
		return Request{Kind: LookRows, Rows: indexes(len(run.Rows))}
	}
	if m.Busy && v.graceOver() { // it is told to end, and wakes the Cleaner when it has
		return Request{Kind: Idle, Reason: v1alpha1.ReasonUninstalling}
	}
	if m.Busy {
		return v.until(time.Time{}, v1alpha1.ReasonUninstalling)
	}
	stop := m.Stop
	if v.Decides != run.Decides {
		stop = "the spec was edited"
	}
	switch {
	case v.deleted():
		return v.ending(run, m, v1alpha1.ResultAbandoned, "the Cleaner was deleted")
	case stop != "":
		return v.ending(run, m, v1alpha1.ResultPartial, stop)
	case Held(v.Cleaner.Common()):
		return Request{Kind: Idle, Reason: v1alpha1.ReasonSuspended}
	case v.ClockSuspect:
		return v.until(v.Now.Add(ClockRetry), v1alpha1.ReasonClockSkewSuspected)
	}
	if open := m.in(RowOpen); len(open) > 0 {
		return v.rows(run, m, open)
	}
	if left := len(m.in(RowKept)) + len(m.in(RowReplaced)); left > 0 {
		return v.ending(run, m, v1alpha1.ResultPartial, fmt.Sprintf("%d of %d objects were kept", left, len(m.Rows)))
	}
	return v.afterRows(run, m)
}

// ending brings an open run to a result without another deletion, but for an uninstall that the run has begun: that is
// finished first. One that somebody else has begun is left to them.
func (v View) ending(run *v1alpha1.Run, m *Memory, result v1alpha1.Result, message string) Request {
	unread := run.Helm != nil && m.Release == nil
	if unread && m.unread < maxReleaseLooks && !v.graceOver() {
		if v.Now.Before(m.Due) {
			return v.until(m.Due, m.uninstallWaits())
		}
		return Request{Kind: LookRelease}
	}
	if m.begun(run) && !v.graceOver() {
		if Held(v.Cleaner.Common()) {
			return v.until(time.Time{}, v1alpha1.ReasonSuspended)
		}
		if v.ClockSuspect {
			return v.until(v.Now.Add(ClockRetry), v1alpha1.ReasonClockSkewSuspected)
		}
		return v.uninstall(m, FinishUninstall)
	}
	if left := m.left(); len(left) > 0 && !m.Looked {
		return Request{Kind: LookRows, Rows: left}
	}
	switch {
	case unread && m.unread > 0:
		message = fmt.Sprintf("%s; the state of release %q is unknown: %s", message, run.Helm.Name, m.Failed)
	case m.Half && m.Failed != "":
		message = fmt.Sprintf("%s; release %q is left partly uninstalled: %s", message, run.Helm.Name, m.Failed)
	case m.Half:
		message = fmt.Sprintf("%s; release %q is left partly uninstalled", message, run.Helm.Name)
	case m.uninstalling(run):
		message = fmt.Sprintf("%s; release %q is being uninstalled by somebody else", message, run.Helm.Name)
	}
	return Request{Kind: WriteResult, Result: result, Message: message}
}

// uninstall begins or goes on with the uninstall of the release that was looked at, once it is known that the author of the spec
// that there is now may do that, whoever was it when the run was committed.
func (v View) uninstall(m *Memory, kind RequestKind) Request {
	switch {
	case v.Now.Before(m.Due):
		return v.until(m.Due, m.uninstallWaits())
	case !m.AuthorMay(v.Now):
		return Request{Kind: ReviewAuthor}
	default:
		return Request{Kind: kind}
	}
}

// until waits for an event or a moment; a deleted Cleaner at most until its grace is over.
func (v View) until(at time.Time, reason string) Request {
	if v.deleted() {
		at = earlier(at, v.graceEnds())
	}
	return Request{Kind: Idle, Until: at, Reason: reason}
}

// rows acts on the open rows that are due, those of rules first. One that was not held against the spec yet, or of which nothing is
// wanted any more, is read first.
func (v View) rows(run *v1alpha1.Run, m *Memory, open []int) Request {
	var due, unchecked []int
	next := time.Time{}
	for _, i := range open {
		switch r := &m.Rows[i]; {
		case v.Now.Before(r.Due):
			next = earlier(next, r.Due)
		case !r.Checked:
			unchecked = append(unchecked, i)
		default:
			due = append(due, i)
		}
	}
	switch {
	case len(unchecked) > 0:
		return Request{Kind: LookRows, Rows: unchecked}
	case len(due) == 0:
		return v.until(next, m.waitsFor(open))
	}
	rules := ofRules(run, due)
	switch {
	case len(rules) == 0 && m.holdsUp(ofRules(run, open)): // rules go first
		return v.until(next, m.waitsFor(open))
	case !m.Confirmed(v.Now) && v.Now.Before(m.Due):
		return v.until(m.Due, v1alpha1.ReasonUnconfirmed)
	case !m.Confirmed(v.Now):
		return Request{Kind: Recheck}
	case len(rules) > 0:
		return Request{Kind: Act, Rows: rules}
	default:
		return Request{Kind: Act, Rows: due}
	}
}

// afterRows is what remains when every row is done: to wait until the objects are gone, then the release.
func (v View) afterRows(run *v1alpha1.Run, m *Memory) Request {
	over := m.LastDeed.Add(v.SettleFor)
	if left := m.unsettled(); len(left) > 0 && v.Now.Before(over) {
		if v.Now.Before(m.Due) {
			return v.until(earlier(m.Due, over), v1alpha1.ReasonTerminating)
		}
		return Request{Kind: Settle, Rows: left}
	}
	if run.Helm == nil {
		return Request{Kind: WriteResult, Result: v1alpha1.ResultCompleted}
	}
	if h := v.Helm; h == nil || !h.Delete || h.Release != run.Helm.Name { // a status is not believed
		return Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: fmt.Sprintf("the spec does not ask to uninstall release %q", run.Helm.Name)}
	}
	if m.Release == nil {
		if v.Now.Before(m.Due) {
			return v.until(m.Due, m.uninstallWaits())
		}
		return Request{Kind: LookRelease}
	}
	switch rel := m.Release; {
	case rel.State == ReleaseGone, installedAnew(rel, run.Helm):
		return Request{Kind: WriteResult, Result: v1alpha1.ResultCompleted}
	case rel.State == ReleasePending:
		return v.until(m.Due, v1alpha1.ReasonReleasePending)
	case rewritten(rel, run.Helm):
		return Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: fmt.Sprintf("release %q was changed and is at revision %d now", rel.Name, rel.Revision)}
	case rel.begun():
		return v.uninstall(m, FinishUninstall)
	case !m.Confirmed(v.Now) && !v.Now.Before(m.Due):
		return Request{Kind: Recheck}
	default:
		return v.uninstall(m, StartUninstall)
	}
}

// ofRules lists those of some rows that rules have made.
func ofRules(run *v1alpha1.Run, rows []int) []int {
	var out []int
	for _, i := range rows {
		if row, err := ParseRow(run.Rows[i]); err == nil && !strings.HasPrefix(row.Rule, targetRule) {
			out = append(out, i)
		}
	}
	return out
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
