// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

const (
	// ConfirmationServes is how long the live reads of a confirmation justify a deletion.
	ConfirmationServes = 10 * time.Second
	// firstRetry and lastRetry bound the wait after a failure: doubled each time.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// settlePoll bounds the wait between two looks at what is deleted and not gone.
	settlePoll = 30 * time.Second
	// maxReleaseLooks is how often in a row a run that was stopped tries to read its release: for about 9 minutes.
	maxReleaseLooks = 10
)

// RowState is what this process knows of a row.
type RowState int

const (
	// RowOpen has to be deleted.
	RowOpen RowState = iota
	// RowDeleted was deleted by this process.
	RowDeleted
	// RowGone was gone, or terminating, when this process came to it.
	RowGone
	// RowReplaced has another UID now, and is left alone.
	RowReplaced
	// RowKept is left alone.
	RowKept
)

// RowMemory is what this process remembers of a row.
type RowMemory struct {
	State RowState
	// Checked says that the row was held against the spec: by the decision that committed it, or by a live read.
	Checked bool
	// Settled says that the object was seen to be gone.
	Settled bool
	// Finalizers are what held the object when it was seen last.
	Finalizers []string
	// Now is the version that was decided on last; empty: the recorded one.
	Now string
	// Was is the object as conditions and rules saw it before this process did anything to it.
	Was Seen
	// Left is the version at which this process has left the object, after it has changed it; empty if it has not, or if nobody
	// knows.
	Left string
	// Unwanted says why nothing is wanted of it any more; empty while something is. It is left alone unless a live read shows
	// that it is gone.
	Unwanted string
	// Failed says why the last attempt failed, for people.
	Failed string
	// Unstable says that the object changed each time that it was to be acted on, when it was tried last.
	Unstable bool
	// Due is when the row may be tried again.
	Due time.Time
	// Did is what was done to the object, if it was not deleted: all that was wanted, or a part of it while the row is open.
	Did v1alpha1.Outcome

	backoff time.Duration
	blind   bool // the look before the result failed
}

// done says that all that was wanted of the object was done, or that it is gone.
func (r *RowMemory) done() bool { return r.State == RowDeleted || r.State == RowGone }

// acted says that the object is not as it was because of this process, and that it is known how this has left it.
func (r *RowMemory) acted() bool {
	return r.Left != "" || r.State == RowDeleted && r.Did != v1alpha1.OutcomePatched
}

// Memory is what one process remembers of the open run of a Cleaner. Losing it costs reads, and never deletes more.
type Memory struct {
	// Number is the run that it is about; 0 is none.
	Number int64
	// Whole says that this process committed the run and got the answer to each of its deletions.
	Whole bool
	Rows  []RowMemory
	// ConfirmedAt is when the conditions were found to hold on live reads; zero: not at all, or it no longer counts.
	ConfirmedAt time.Time
	// Stop says why the run must not go on; empty while it may.
	Stop string
	// Release is the release as read in this pass; nil when it was not.
	Release *Release
	// Half says that the release was uninstalling for this run when it was looked at last.
	Half bool
	// ReviewedAt is when the author was found to be allowed to uninstall Release; zero: not since it was read. Reviewed are the
	// rights that were asked about; empty if none were.
	ReviewedAt time.Time
	Reviewed   []Right
	// Refused is the reason of api/v1alpha1 for which the release must not be uninstalled for the author; empty if there is none.
	Refused string
	// Busy says that an uninstall is under way, whose answer has not come.
	Busy bool
	// Swept says that this process has uninstalled the release.
	Swept bool
	// Looked says that the rows left were read in this pass, so that a result may be written.
	Looked bool
	// LastDeed is when the last deletion was sent, or when this process came to the run.
	LastDeed time.Time
	// Due is when a re-check, an uninstall or a look at what is not gone may be tried again.
	Due time.Time
	// Failed says why the last of those failed, for people.
	Failed string

	backoff time.Duration
	// unread counts the looks at the release that have failed since one did not.
	unread int
}

// NewMemory is the memory of the process that has committed a run: each row was held against the spec by the decision
// of the moment, and was is how the conditions saw the objects.
func NewMemory(number int64, was []Seen, now time.Time) *Memory {
	m := &Memory{Number: number, Whole: true, Rows: make([]RowMemory, len(was)), ConfirmedAt: now, LastDeed: now}
	for i := range m.Rows {
		m.Rows[i] = RowMemory{Checked: true, Was: was[i]}
	}
	return m
}

// NewPass forgets what only serves within one pass.
func (m *Memory) NewPass() {
	m.forgetRelease()
	m.Looked = false
}

// forgetRelease drops what was read of the release, and found out about it.
func (m *Memory) forgetRelease() {
	m.Release, m.ReviewedAt, m.Reviewed = nil, time.Time{}, nil
}

// Confirmed says that the conditions were found to hold recently enough to delete now.
func (m *Memory) Confirmed(now time.Time) bool {
	return !m.ConfirmedAt.IsZero() && Elapsed(m.ConfirmedAt, now) < ConfirmationServes
}

// Version is the resourceVersion at which a row may be deleted now.
func (m *Memory) Version(i int, row Row) string {
	if m.Rows[i].Now != "" {
		return m.Rows[i].Now
	}
	return row.ResourceVersion
}

// Sight is what a live read of a row's object showed.
type Sight struct {
	// Failed says why it showed nothing; empty otherwise.
	Failed string
	// Missing says that the API server named the object as not found.
	Missing         bool
	UID             types.UID
	ResourceVersion string
	Terminating     bool
	Finalizers      []string
	// Refused says why the object must not be touched: no target of the spec stands for it, or it is protected.
	Refused string
}

// Saw takes live reads of rows: the first look of a process, the look before a result, or the look at what is not gone
// yet. A row that cannot be read, because somebody made it up or another version wrote it, is left alone.
func (m *Memory) Saw(run *v1alpha1.Run, sights map[int]Sight, now time.Time) {
	if m.Number != run.Number || len(m.Rows) != len(run.Rows) {
		*m = Memory{Number: run.Number, Rows: make([]RowMemory, len(run.Rows)), LastDeed: now}
	}
	for i, s := range sights {
		row, err := ParseRow(run.Rows[i])
		if err != nil {
			m.Rows[i].State, m.Rows[i].Failed = RowKept, err.Error()
			continue
		}
		m.saw(i, row.UID, s, now)
	}
	m.Looked = true
}

func (m *Memory) saw(i int, uid types.UID, s Sight, now time.Time) {
	r := &m.Rows[i]
	r.blind = s.Failed != ""
	if r.blind {
		m.failRow(r, s.Failed, now)
		return
	}
	r.Finalizers = s.Finalizers
	done := r.State == RowDeleted || r.State == RowGone
	switch {
	case s.Missing, done && s.UID != uid:
		r.Settled = true
		if !done {
			r.State = RowGone
		}
	case s.UID != uid:
		r.State = RowReplaced
	case s.Terminating:
		if !done {
			r.State = RowGone
		}
	case s.Refused != "":
		r.State, r.Failed = RowKept, s.Refused
	case r.Unwanted != "":
		r.State, r.Failed = RowKept, r.Unwanted
	default:
		r.Checked = true
	}
}

// Settled takes the outcome of a look at what is not gone yet: it is looked again a little later.
func (m *Memory) Settled(now time.Time) {
	if len(m.unsettled()) == 0 {
		m.calm()
		return
	}
	m.backoff = min(doubled(m.backoff), settlePoll)
	m.Due = now.Add(m.backoff)
}

// AnswerKind is what the API server answered to a request that changes an object.
type AnswerKind int

const (
	// AnswerDeleted is any 2xx.
	AnswerDeleted AnswerKind = iota
	// AnswerNotFound is a 404 that names the object, or a conflict after which a live read does not find it.
	AnswerNotFound
	// AnswerReplaced is a conflict after which a live read shows another object of its name.
	AnswerReplaced
	// AnswerConflict is another 409: the object has changed.
	AnswerConflict
	// AnswerRefused is any other answer: the object is there as it was.
	AnswerRefused
	// AnswerLost is none: the request may or may not have been served.
	AnswerLost
	// AnswerUnsent means that the request was not sent.
	AnswerUnsent
)

// Answer is what came of a request.
type Answer struct {
	Kind AnswerKind
	// Sight is what the live read after a conflict showed.
	Sight Sight
	// Why says what went wrong, for people.
	Why string
	// RetryAfter is for how long the API server asks not to be asked again; zero if it does not.
	RetryAfter time.Duration
}

// RowAnswer is what came of the steps on the object of a row, of which all or some were taken.
type RowAnswer struct {
	// Did is what the last step that was taken has done; empty if none was.
	Did v1alpha1.Outcome
	// Left is the version at which the object was left; empty if nobody knows, or if it is gone.
	Left string
	// Gone says that the object is proven to be gone, and Replaced that another one has its name. Terminating says that it is on its
	// way, and Finalizers what holds it.
	Gone, Replaced, Terminating bool
	Finalizers                  []string
	// Failed says why a step was not taken; empty if all were. Lost says that nobody knows whether it was.
	Failed string
	Lost   bool
	// Unstable says that it failed because the object changed each time.
	Unstable bool
	// Cut says that the other steps were not tried: they go on with another decision, or in another pass.
	Cut bool
	// RetryAfter is for how long the API server asks not to be asked again.
	RetryAfter time.Duration
}

// Acted takes what came of the steps on the object of a row. A row is done when the last of them is.
func (m *Memory) Acted(i int, a RowAnswer, now time.Time) {
	r := &m.Rows[i]
	m.LastDeed = now
	m.Looked = false // what was read before the requests does not show what became of it
	m.Whole = m.Whole && !a.Lost
	if a.Did != "" && a.Did != v1alpha1.OutcomeGone {
		r.Did, r.Left = a.Did, a.Left
	}
	switch {
	case a.Cut:
	case a.Replaced:
		r.State, r.Failed = RowReplaced, ""
	case a.Failed != "":
		m.failRow(r, a.Failed, now)
		r.postpone(a.RetryAfter, now)
		r.Unstable = a.Unstable
	case a.Did == v1alpha1.OutcomeGone:
		r.State, r.Failed, r.Settled, r.Finalizers = RowGone, "", !a.Terminating, a.Finalizers
	case a.Did == v1alpha1.OutcomeDeleted:
		r.State, r.Failed, r.Did, r.Left, r.Settled = RowDeleted, "", "", "", a.Gone
	default:
		r.State, r.Failed, r.Settled = RowDeleted, "", true
	}
}

// Changed takes that the object of a row has changed: what was decided does not count any more.
func (m *Memory) Changed() { m.ConfirmedAt = time.Time{} }

func (m *Memory) failRow(r *RowMemory, why string, now time.Time) {
	r.Failed, r.Unstable = why, false
	r.backoff = doubled(r.backoff)
	r.Due = now.Add(r.backoff)
}

// postpone has a row wait at least for as long as the API server asks, but for longer than any back-off never.
func (r *RowMemory) postpone(by time.Duration, now time.Time) {
	if at := now.Add(min(by, lastRetry)); at.After(r.Due) {
		r.Due = at
	}
}

// patience is how long the back-off of a row of a rule grows before the rows of targets go on without it.
const patience = 8 * time.Second

// holdsUp says that one of these rows of rules is still to be done before those of targets. One that is refused again and
// again is not: nobody knows whether it will ever be.
func (m *Memory) holdsUp(rows []int) bool {
	return slices.ContainsFunc(rows, func(i int) bool { return m.Rows[i].backoff < patience })
}

// LookedAtRelease takes the state of the release. A pending one is looked at again later.
func (m *Memory) LookedAtRelease(run *v1alpha1.Run, rel Release, now time.Time) {
	m.forgetRelease()
	m.Release, m.unread = &rel, 0
	m.Half = m.begun(run)
	if rel.State == ReleasePending {
		m.Fail("another client is changing the release", now)
	}
}

// ReleaseUnread takes the failure of a look at the release: it is tried again later, by a run that was stopped
// maxReleaseLooks times in a row.
func (m *Memory) ReleaseUnread(why string, now time.Time) {
	m.unread++
	m.Fail(why, now)
}

// AuthorReviewed takes that the release may be uninstalled for the author, by these rights.
func (m *Memory) AuthorReviewed(by []Right, now time.Time) {
	m.ReviewedAt, m.Reviewed = now, by
	if m.Refused != "" {
		m.calm()
	}
}

// AuthorRefused takes for which reason the release must not be uninstalled for the author. It is asked again at a moment.
func (m *Memory) AuthorRefused(reason, why string, again time.Time) {
	m.calm()
	m.Refused, m.Failed, m.Due = reason, why, again
}

// AuthorMay says that the author was found to be allowed to uninstall the release recently enough to do that now.
func (m *Memory) AuthorMay(now time.Time) bool {
	return !m.ReviewedAt.IsZero() && Elapsed(m.ReviewedAt, now) < ConfirmationServes
}

// uninstallWaits says why the uninstall is not tried now.
func (m *Memory) uninstallWaits() string {
	if m.Refused != "" {
		return m.Refused
	}
	return v1alpha1.ReasonUninstallFailed
}

// Fail takes the failure of a re-check or of an uninstall: it is tried again later.
func (m *Memory) Fail(why string, now time.Time) {
	m.Failed, m.Refused = why, ""
	m.backoff = doubled(m.backoff)
	m.Due = now.Add(m.backoff)
}

// calm takes a success of what Fail takes the failures of.
func (m *Memory) calm() { m.Failed, m.Refused, m.backoff, m.Due = "", "", 0, time.Time{} }

// Uninstalled takes the end of an uninstall, with the reason why it did not come to its end; empty if it did.
func (m *Memory) Uninstalled(why string, now time.Time) {
	m.Busy = false
	m.forgetRelease()
	m.LastDeed = now
	if why != "" {
		m.Fail(why, now)
		return
	}
	m.calm()
}

// uninstalling says that the release is that of the run, and being uninstalled by somebody.
func (m *Memory) uninstalling(run *v1alpha1.Run) bool {
	return run.Helm != nil && m.Release != nil && m.Release.State == ReleaseUninstalling &&
		m.Release.Revision == run.Helm.Revision && string(m.Release.UID) == run.Helm.UID && sameRelease(m.Release, run.Helm)
}

// begun says that the release is being uninstalled, and that this operator has begun that for the run. Its status alone says
// nothing: whoever may write the record writes that.
func (m *Memory) begun(run *v1alpha1.Run) bool { return m.uninstalling(run) && m.Release.begun() }

// waitsFor says why rows are not tried now: because they were refused, or because all of them change too fast.
func (m *Memory) waitsFor(rows []int) string {
	for _, i := range rows {
		if !m.Rows[i].Unstable {
			return v1alpha1.ReasonDeletionRefused
		}
	}
	return v1alpha1.ReasonTargetUnstable
}

// rows lists the rows in a state.
func (m *Memory) rows(s RowState) []int {
	return m.where(func(r *RowMemory) bool { return r.State == s })
}

// left lists the rows that are neither done nor replaced, which a result calls kept.
func (m *Memory) left() []int {
	return m.where(func(r *RowMemory) bool { return r.State == RowOpen || r.State == RowKept })
}

// unsettled lists the rows that are done and were not seen to be gone.
func (m *Memory) unsettled() []int {
	return m.where(func(r *RowMemory) bool { return (r.State == RowDeleted || r.State == RowGone) && !r.Settled })
}

func (m *Memory) where(is func(*RowMemory) bool) []int {
	var out []int
	for i := range m.Rows {
		if is(&m.Rows[i]) {
			out = append(out, i)
		}
	}
	return out
}

func doubled(d time.Duration) time.Duration {
	return min(max(2*d, firstRetry), lastRetry)
}
