// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// RequestKind names the next thing to do for a Cleaner. Each stands for one kind of request to the API server, or for
// waiting.
type RequestKind int

const (
	// Idle waits until Request.Until, or for an event.
	Idle RequestKind = iota
	// Evaluate means that no run is open: look at targets and conditions, and commit a run if they say so.
	Evaluate
	// OpenAgain opens Request.Rows for one more DELETE: their objects are terminating although nothing holds them. It asks the
	// API server for nothing.
	OpenAgain
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
	// Settle reads Request.Rows live: their objects were deleted, but may still exist.
	Settle
	// AskSlot queues the Cleaner for one of the slots that all uninstalls share. The release is read again once it has one.
	AskSlot
	// StartUninstall begins to uninstall the release.
	StartUninstall
	// FinishUninstall continues an uninstall that the run has begun.
	FinishUninstall
	// WriteResult records Request.Result.
	WriteResult
	// MoveToUnsent moves a finished run from status.run to status.unsent; without a sink, it drops the run.
	MoveToUnsent
	// ClearRecord drops status.run and status.unsent: there is no sink for them.
	ClearRecord
	// ClearUnsent drops status.unsent: it is delivered, or there is no sink for it.
	ClearUnsent
	// DeleteSelf deletes the Cleaner.
	DeleteSelf
	// RemoveFinalizer lets the Cleaner go, or takes off a finalizer that nothing needs.
	RemoveFinalizer
	// GiveUp says in the log and in a Warning what could not be delivered, and removes the finalizer.
	GiveUp
	// AddFinalizer holds a Recurring Cleaner before a batch is recorded.
	AddFinalizer
	// Record writes the rows of a batch into the run, and counts those of the batch before.
	Record
)

// String names the kind for people and tests.
func (k RequestKind) String() string {
	return [...]string{"Idle", "Evaluate", "OpenAgain", "LookRows", "LookRelease", "Recheck", "ReviewAuthor", "Act", "Settle", "AskSlot", "StartUninstall", "FinishUninstall",
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
	// InLine says that a slot is waited for. Without it none is wanted, and one that is there is given back.
	InLine bool
}

// Slot says whether there is a slot for the uninstall of a Cleaner.
type Slot int

const (
	// NoSlot: none was asked for.
	NoSlot Slot = iota
	// SlotAsked: it stands in line.
	SlotAsked
	// SlotHeld: it is there.
	SlotHeld
)

// View is a Cleaner as it was read, at a moment.
type View struct {
	Cleaner v1alpha1.Owner
	// Helm is the release of its spec; nil if there is none.
	Helm *v1alpha1.Helm
	// Decides is the fingerprint of the Cleaner's spec.
	Decides string
	// Delivered means that the sink has accepted the event of the run that UndeliveredRun returns.
	Delivered bool
	Now       time.Time
	// SettleFor is how long deleted objects may take to go before the run continues without them.
	SettleFor time.Duration
	// FinishGrace is how long after its deletionTimestamp a Cleaner is held to finish and to report.
	FinishGrace time.Duration
	// ClockSuspect says that nothing may be decided by the clock that Now comes from: no deletion follows.
	ClockSuspect bool
	// Slot is what there is for an uninstall.
	Slot Slot
}

// ClockRetry is how long after one look at a clock that cannot be trusted it is looked at again.
const ClockRetry = 10 * time.Second

// UndeliveredRun returns the finished run whose event must be delivered before any later event of the Cleaner; nil if there is none.
func UndeliveredRun(s *v1alpha1.CleanerStatus) *v1alpha1.Run {
	if s.Unsent != nil {
		return s.Unsent
	}
	if s.Run != nil && s.Run.Result != "" {
		return s.Run
	}
	return nil
}

// IsPaused says that nothing may be deleted for this Cleaner now, because its author said so.
func IsPaused(s *v1alpha1.CommonSpec) bool {
	return s.Suspend || s.Mode == v1alpha1.ModeDryRun
}

// Next returns the next request for a Cleaner with either lifecycle, except the batches of a Recurring Cleaner. An open run from before a
// change of the lifecycle is carried to its end.
func Next(v View, m *Memory) Request {
	s := v.Cleaner.State()
	switch run := s.Run; {
	case v.isRecurring() && !v.hasSink() && (run != nil || s.Unsent != nil):
		return Request{Kind: ClearRecord}
	case s.Unsent != nil && (!v.hasSink() || v.Delivered):
		return Request{Kind: ClearUnsent}
	case run == nil:
		return v.withoutRun()
	case run.Result != "":
		return v.nextAfterResult(run)
	case v.isRecurring():
		return v.nextOfCountingRun(run, &m.Ledger)
	default:
		return v.nextOfOpenRun(run, m)
	}
}

// isRecurring reports whether the Cleaner is carried on as a Recurring Cleaner. An open run decides with its own lifecycle until it is
// over.
func (v View) isRecurring() bool {
	if run := v.Cleaner.State().Run; run != nil {
		return run.Lifecycle == v1alpha1.LifecycleRecurring
	}
	return v.Cleaner.Common().IsRecurring()
}

// hasSink reports whether events are sent.
func (v View) hasSink() bool { return v.Cleaner.Common().HasSink() }

// isDeleted reports whether the Cleaner has a deletionTimestamp.
func (v View) isDeleted() bool { return v.Cleaner.GetDeletionTimestamp() != nil }

// graceEnds is when a deleted Cleaner is held no longer.
func (v View) graceEnds() time.Time {
	return v.Cleaner.GetDeletionTimestamp().Add(v.FinishGrace)
}

// graceOver says that a deleted Cleaner has been held long enough.
func (v View) graceOver() bool { return v.isDeleted() && !v.Now.Before(v.graceEnds()) }

// hasFinalizer says that our finalizer holds the Cleaner.
func (v View) hasFinalizer() bool {
	for _, f := range v.Cleaner.GetFinalizers() {
		if f == v1alpha1.Finalizer {
			return true
		}
	}
	return false
}

// withoutRun returns the next request for a Cleaner without a run. A Recurring Cleaner with a sink keeps the finalizer for the next
// batch.
func (v View) withoutRun() Request {
	unsent, keeps := v.Cleaner.State().Unsent != nil, v.isRecurring() && v.hasSink() && !v.isDeleted()
	switch {
	case !unsent && v.hasFinalizer() && !keeps:
		return Request{Kind: RemoveFinalizer}
	case v.isDeleted() && !v.hasFinalizer():
		return Request{Kind: Idle, Reason: v1alpha1.ReasonTerminating}
	case v.graceOver():
		return Request{Kind: GiveUp}
	case v.isDeleted():
		return v.waitUntil(time.Time{}, v1alpha1.ReasonDelivering)
	default:
		return Request{Kind: Evaluate}
	}
}

// nextAfterResult returns the next request for a Cleaner whose run has a result. A Recurring Cleaner, or a run that left something
// behind, makes room for another run at once.
func (v View) nextAfterResult(run *v1alpha1.Run) Request {
	waiting := v.Cleaner.State().Unsent != nil
	delivered := !v.hasSink() || v.Delivered && !waiting
	switch {
	case v.isDeleted() && !v.hasFinalizer():
		return Request{Kind: Idle, Reason: v1alpha1.ReasonTerminating}
	case v.graceOver() && (waiting || !delivered):
		return Request{Kind: GiveUp}
	case waiting:
		return v.waitUntil(time.Time{}, v1alpha1.ReasonDelivering)
	case v.makesRoom(run):
		return Request{Kind: MoveToUnsent}
	case !delivered:
		return v.waitUntil(time.Time{}, v1alpha1.ReasonDelivering)
	case v.isDeleted() && v.isRecurring():
		return Request{Kind: ClearRecord}
	case v.isDeleted():
		return Request{Kind: RemoveFinalizer}
	default:
		return Request{Kind: DeleteSelf}
	}
}

// makesRoom reports whether a Cleaner whose run has a result starts another run.
func (v View) makesRoom(run *v1alpha1.Run) bool {
	switch {
	case v.isRecurring():
		return !v.isDeleted()
	case run.Result == v1alpha1.ResultAbandoned:
		return !v.isDeleted()
	default:
		return run.Result == v1alpha1.ResultPartial
	}
}

// nextOfCountingRun returns the next request for a Recurring Cleaner with an open run.
func (v View) nextOfCountingRun(run *v1alpha1.Run, l *Ledger) Request {
	switch {
	case v.isDeleted():
		if rows := l.UnknownRows(run); len(rows) > 0 && !v.graceOver() {
			return Request{Kind: LookRows, Rows: rows}
		}
		return Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: "the Cleaner was deleted"}
	case !v.Cleaner.Common().IsRecurring():
		return v.requestFinish(run, l)
	default:
		return Request{Kind: Evaluate}
	}
}

// requestFinish finishes a run that counts, when there is room for it.
func (v View) requestFinish(run *v1alpha1.Run, l *Ledger) Request {
	if v.Cleaner.State().Unsent != nil {
		return Request{Kind: Idle, Reason: v1alpha1.ReasonDelivering}
	}
	if rows := l.UnknownRows(run); len(rows) > 0 {
		return Request{Kind: LookRows, Rows: rows}
	}
	return Request{Kind: MoveToUnsent}
}

// nextOfOpenRun is the life of a Cleaner with an open run.
func (v View) nextOfOpenRun(run *v1alpha1.Run, m *Memory) Request {
	if !m.isOf(run) {
		return Request{Kind: LookRows, Rows: rowIndexes(len(run.Rows))}
	}
	if m.Busy && v.graceOver() { // its context is done, and it wakes the Cleaner when it has ended
		return Request{Kind: Idle, Reason: v1alpha1.ReasonUninstalling}
	}
	if m.Busy {
		return v.waitUntil(time.Time{}, v1alpha1.ReasonUninstalling)
	}
	stop := m.Stop
	if v.Decides != run.Decides {
		stop = "the spec was edited"
	}
	switch {
	case v.isDeleted():
		return v.endRun(run, m, v1alpha1.ResultAbandoned, "the Cleaner was deleted")
	case stop != "":
		return v.endRun(run, m, v1alpha1.ResultPartial, stop)
	case IsPaused(v.Cleaner.Common()):
		return Request{Kind: Idle, Reason: v1alpha1.ReasonSuspended}
	case v.ClockSuspect:
		return v.waitUntil(v.Now.Add(ClockRetry), v1alpha1.ReasonClockSkewSuspected)
	}
	if open := m.rowsIn(RowOpen); len(open) > 0 {
		return v.requestRows(run, m, open)
	}
	if left := len(m.rowsIn(RowKept)) + len(m.rowsIn(RowReplaced)); left > 0 {
		return v.endRun(run, m, v1alpha1.ResultPartial, fmt.Sprintf("%d of %d objects were not deleted", left, len(m.Rows)))
	}
	return v.afterRows(run, m)
}

// endRun brings an open run to a result without another deletion. It first finishes an uninstall that the run has begun, but never one
// that another client has begun.
func (v View) endRun(run *v1alpha1.Run, m *Memory, result v1alpha1.Result, message string) Request {
	if unread := run.Helm != nil && m.Release == nil; unread && m.unread < maxReleaseLooks && !v.graceOver() {
		if v.Now.Before(m.Due) {
			return v.waitUntil(m.Due, m.uninstallWaits())
		}
		return Request{Kind: LookRelease}
	}
	if m.isOurs(run) && !v.graceOver() {
		if IsPaused(v.Cleaner.Common()) {
			return v.waitUntil(time.Time{}, v1alpha1.ReasonSuspended)
		}
		if v.ClockSuspect {
			return v.waitUntil(v.Now.Add(ClockRetry), v1alpha1.ReasonClockSkewSuspected)
		}
		return v.requestUninstall(m, FinishUninstall)
	}
	if left := m.rowsLeft(); len(left) > 0 && !m.RowsRead {
		return Request{Kind: LookRows, Rows: left}
	}
	return Request{Kind: WriteResult, Result: result, Message: message + describeRelease(run, m)}
}

// describeRelease says what becomes of the release of a run that ends: words that continue a sentence, or none.
func describeRelease(run *v1alpha1.Run, m *Memory) string {
	switch {
	case run.Helm != nil && m.Release == nil && m.unread > 0:
		return fmt.Sprintf("; the state of release %q is unknown: %s", run.Helm.Name, m.Failed)
	case m.PartlyUninstalled && m.Failed != "":
		return fmt.Sprintf("; release %q is left partly uninstalled: %s", run.Helm.Name, m.Failed)
	case m.PartlyUninstalled:
		return fmt.Sprintf("; release %q is left partly uninstalled", run.Helm.Name)
	case m.isUnderWay(run):
		return fmt.Sprintf("; another client is uninstalling release %q", run.Helm.Name)
	}
	return ""
}

// requestUninstall begins or continues the uninstall of the release that was read, once there is a slot for it. The author of the current
// spec must have the rights for it, even if another author wrote the spec that the run was committed with.
func (v View) requestUninstall(m *Memory, kind RequestKind) Request {
	switch {
	case v.Now.Before(m.Due):
		return v.waitUntil(m.Due, m.uninstallWaits())
	case v.Slot == NoSlot:
		return Request{Kind: AskSlot}
	case v.Slot == SlotAsked:
		wait := v.waitUntil(time.Time{}, v1alpha1.ReasonUninstalling)
		wait.InLine = true
		return wait
	case !m.AuthorMay(v.Now):
		return Request{Kind: ReviewAuthor}
	default:
		return Request{Kind: kind}
	}
}

// waitUntil waits for an event or a moment; a deleted Cleaner at most until its grace is over.
func (v View) waitUntil(at time.Time, reason string) Request {
	if v.isDeleted() {
		at = monotime.ChooseEarlier(at, v.graceEnds())
	}
	return Request{Kind: Idle, Until: at, Reason: reason}
}

// requestRows acts on the open rows that are due, those of rules first. A row is read first if it was not compared with the spec yet, or
// if nothing was wanted of it then.
func (v View) requestRows(run *v1alpha1.Run, m *Memory, open []int) Request {
	var due, unchecked []int
	next := time.Time{}
	for _, i := range open {
		switch r := &m.Rows[i]; {
		case v.Now.Before(r.Due):
			next = monotime.ChooseEarlier(next, r.Due)
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
		return v.waitUntil(next, m.waitsFor(open))
	}
	rules := ofRules(run, due)
	switch {
	case len(rules) == 0 && m.blocksTargets(ofRules(run, open)): // rules go first
		return v.waitUntil(next, m.waitsFor(open))
	case !m.IsConfirmed(v.Now) && v.Now.Before(m.Due):
		return v.waitUntil(m.Due, v1alpha1.ReasonUnconfirmed)
	case !m.IsConfirmed(v.Now):
		return Request{Kind: Recheck}
	case len(rules) > 0:
		return Request{Kind: Act, Rows: rules}
	default:
		return Request{Kind: Act, Rows: due}
	}
}

// afterRows is what remains when every row is done: to wait until the objects are gone, then the release.
func (v View) afterRows(run *v1alpha1.Run, m *Memory) Request {
	settled := m.LastRequest.Add(v.SettleFor)
	if left := m.unsettledRows(); len(left) > 0 && v.Now.Before(settled) {
		if v.Now.Before(m.Due) {
			return v.waitUntil(monotime.ChooseEarlier(m.Due, settled), v1alpha1.ReasonTerminating)
		}
		return Request{Kind: Settle, Rows: left}
	}
	if rows := m.strandedRows(); len(rows) > 0 {
		return Request{Kind: OpenAgain, Rows: rows}
	}
	if run.Helm == nil {
		return Request{Kind: WriteResult, Result: v1alpha1.ResultCompleted}
	}
	if h := v.Helm; h == nil || !h.Delete || h.Release != run.Helm.Name { // a status is not believed
		return Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: fmt.Sprintf("spec.helm does not request the uninstall of release %q", run.Helm.Name)}
	}
	if m.Release == nil {
		if v.Now.Before(m.Due) {
			return v.waitUntil(m.Due, m.uninstallWaits())
		}
		return Request{Kind: LookRelease}
	}
	return v.afterObjects(run, m)
}

// afterObjects is what remains when only the release is left.
func (v View) afterObjects(run *v1alpha1.Run, m *Memory) Request {
	switch rel := m.Release; {
	case rel.State == observed.ReleaseGone, installedAnew(rel, run.Helm):
		return Request{Kind: WriteResult, Result: v1alpha1.ResultCompleted}
	case rel.State == observed.ReleasePending:
		return v.waitUntil(m.Due, v1alpha1.ReasonReleasePending)
	case isRewritten(rel, run.Helm):
		return Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: fmt.Sprintf("release %q has changed and is now at revision %d", rel.Name, rel.Revision)}
	case rel.HasBegun():
		return v.requestUninstall(m, FinishUninstall)
	case v.Slot == SlotHeld && !m.IsConfirmed(v.Now) && !v.Now.Before(m.Due):
		return Request{Kind: Recheck}
	default:
		return v.requestUninstall(m, StartUninstall)
	}
}

// ofRules lists those of some rows that rules have made.
func ofRules(run *v1alpha1.Run, rows []int) []int {
	var out []int
	for _, i := range rows {
		if row, err := runrow.ParseRow(run.Rows[i]); err == nil && row.IsOfRule() {
			out = append(out, i)
		}
	}
	return out
}

func rowIndexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
