// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/monotime"
)

const (
	// ConfirmationServes is how long the live reads of a confirmation justify a deletion.
	ConfirmationServes = 10 * time.Second
	// settlePoll bounds the wait between two looks at what is deleted and not gone.
	settlePoll = 30 * time.Second
	// maxReleaseLooks is how often in a row a run that was stopped tries to read its release: for about 9 minutes.
	maxReleaseLooks = 10
)

// Memory is what one process remembers of the open run of a Cleaner: its rows, what was decided last, and the release. Losing it costs
// reads, and never deletes more.
type Memory struct {
	Ledger
	Uninstall
	// ConfirmedAt is when the conditions were found to hold on live reads; zero: not at all, or it no longer counts.
	ConfirmedAt time.Time
	// Stop says why the run must not continue; empty while it may.
	Stop string
}

// Uninstall is what one process remembers of the release of an open run, and of re-checks that failed.
type Uninstall struct {
	// Release is the release as read in this pass; nil when it was not.
	Release *plan.Release
	// PartlyUninstalled says that the release was uninstalling for this run when it was looked at last.
	PartlyUninstalled bool
	// ReviewedAt is when the author was found to be allowed to uninstall Release; zero: not since it was read. Reviewed are the
	// rights that were asked about; empty if none were.
	ReviewedAt time.Time
	Reviewed   []plan.Right
	// Refused is the reason of api/v1alpha1 for which the release must not be uninstalled for the author; empty if there is none.
	Refused string
	// Busy says that an uninstall is under way, whose answer has not come.
	Busy bool
	// Uninstalled says that this process has uninstalled the release.
	Uninstalled bool
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
func NewMemory(number int64, was []plan.Seen, now time.Time) *Memory {
	m := &Memory{Ledger: Ledger{Number: number, AllAnswered: true, Rows: make([]Entry, len(was)), LastRequest: now}, ConfirmedAt: now}
	for i := range m.Rows {
		m.Rows[i] = Entry{Checked: true, Was: was[i]}
	}
	return m
}

// NewPass forgets what only serves within one pass.
func (m *Memory) NewPass() {
	m.forgetRelease()
	m.RowsRead = false
}

// forgetRelease drops what was read of the release, and found out about it.
func (u *Uninstall) forgetRelease() {
	u.Release, u.ReviewedAt, u.Reviewed = nil, time.Time{}, nil
}

// IsConfirmed says that the conditions were found to hold recently enough to delete now.
func (m *Memory) IsConfirmed(now time.Time) bool {
	return !m.ConfirmedAt.IsZero() && monotime.ElapsedTime(m.ConfirmedAt, now) < ConfirmationServes
}

// RecordSights takes live reads of rows; see Ledger.RecordSights. What is remembered of another run is forgotten.
func (m *Memory) RecordSights(run *v1alpha1.Run, sights map[int]Sight, now time.Time) {
	if !m.isOf(run) {
		*m = Memory{}
	}
	m.Ledger.RecordSights(run, sights, now)
}

// RecordSettleLook records a look at the objects that are not gone yet. If some are left, the next look is a little later.
func (m *Memory) RecordSettleLook(now time.Time) {
	if len(m.unsettledRows()) == 0 {
		m.forgetFailures()
		return
	}
	m.backoff = min(backoff.DoubleWait(m.backoff), settlePoll)
	m.Due = now.Add(m.backoff)
}

// VoidConfirmation records that the object of a row has changed: the confirmation no longer counts.
func (m *Memory) VoidConfirmation() { m.ConfirmedAt = time.Time{} }

// RecordRelease records the state of the release. A pending release is read again later.
func (u *Uninstall) RecordRelease(run *v1alpha1.Run, rel plan.Release, now time.Time) {
	u.forgetRelease()
	u.Release, u.unread = &rel, 0
	u.PartlyUninstalled = u.isOurs(run)
	if rel.State == plan.ReleasePending {
		u.RecordFailure("another client is changing the release", now)
	}
}

// RecordReleaseUnread records that the release could not be read. It is read again later, but by a run that was stopped at most maxReleaseLooks
// times in a row.
func (u *Uninstall) RecordReleaseUnread(why string, now time.Time) {
	u.unread++
	u.RecordFailure(why, now)
}

// RecordReview records that the author has the rights to uninstall the release, and which.
func (u *Uninstall) RecordReview(by []plan.Right, now time.Time) {
	u.ReviewedAt, u.Reviewed = now, by
	if u.Refused != "" {
		u.forgetFailures()
	}
}

// RecordReviewRefused takes for which reason the release must not be uninstalled for the author. It is asked again at a moment.
func (u *Uninstall) RecordReviewRefused(reason, why string, again time.Time) {
	u.forgetFailures()
	u.Refused, u.Failed, u.Due = reason, why, again
}

// AuthorMay says that the author was found to be allowed to uninstall the release recently enough to do that now.
func (u *Uninstall) AuthorMay(now time.Time) bool {
	return !u.ReviewedAt.IsZero() && monotime.ElapsedTime(u.ReviewedAt, now) < ConfirmationServes
}

// uninstallWaits says why the uninstall is not tried now.
func (u *Uninstall) uninstallWaits() string {
	if u.Refused != "" {
		return u.Refused
	}
	return v1alpha1.ReasonUninstallFailed
}

// RecordFailure records that a re-check or an uninstall failed: it is tried again later.
func (u *Uninstall) RecordFailure(why string, now time.Time) {
	u.Failed, u.Refused = why, ""
	u.backoff = backoff.DoubleWait(u.backoff)
	u.Due = now.Add(u.backoff)
}

// forgetFailures records a success of what RecordFailure is for.
func (u *Uninstall) forgetFailures() { u.Failed, u.Refused, u.backoff, u.Due = "", "", 0, time.Time{} }

// RecordUninstall records that an uninstall has ended, and why it is not finished; empty if it is.
func (m *Memory) RecordUninstall(why string, now time.Time) {
	m.Busy = false
	m.forgetRelease()
	m.LastRequest = now
	if why != "" {
		m.RecordFailure(why, now)
		return
	}
	m.forgetFailures()
}

// isUnderWay reports whether the release belongs to the run and is being uninstalled, by whatever client.
func (u *Uninstall) isUnderWay(run *v1alpha1.Run) bool {
	return run.Helm != nil && u.Release != nil && u.Release.State == plan.ReleaseUninstalling &&
		u.Release.Revision == run.Helm.Revision && string(u.Release.UID) == run.Helm.UID && sameRelease(u.Release, run.Helm)
}

// isOurs reports whether this operator has begun to uninstall the release for the run. The release's status alone proves nothing: every
// user who may write the record can write it.
func (u *Uninstall) isOurs(run *v1alpha1.Run) bool { return u.isUnderWay(run) && u.Release.HasBegun() }
