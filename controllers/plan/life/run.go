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
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
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
	was, at := make([]observed.Seen, len(rows)), make(map[types.UID]int, len(rows))
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
	for row, i := range rows {
		m.Rows[row].Kind = p.Steps[i].Object.Kind
	}
	keepRowSteps(&p, at, m)
	return run, m, p
}

// CountRows returns a run whose rows are counted, and the first of them named.
func CountRows(run *v1alpha1.Run, l *Ledger) *v1alpha1.Run {
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
	return len(`{"row":"","outcome":},`) + runrow.StoredBytes(o.Row) + runrow.StoredBytes(string(o.Outcome))
}

// FinishRun is the run with its result: counts and the first rows with their outcomes stand in the place of the rows. Without one that is
// given it is Completed, unless something of it is unknown. A result that it has never changes.
func FinishRun(run *v1alpha1.Run, m *Memory, result v1alpha1.Result, message string, now time.Time) *v1alpha1.Run {
	if run.Result != "" {
		return run.DeepCopy()
	}
	out, finished := CountRows(run, &m.Ledger), metav1.NewTime(now)
	if result == "" {
		result = v1alpha1.ResultCompleted
		if slices.ContainsFunc(out.Counts, func(c v1alpha1.Count) bool { return c.Outcome == v1alpha1.OutcomeUnknown }) {
			result, message = v1alpha1.ResultPartial, "the outcome of some objects is unknown"
		}
	}
	out.Result, out.Message, out.FinishedAt = result, m.describeAgain(message), &finished
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
	if r, err := runrow.ParseRow(row); err == nil {
		resource = observed.ResourceName(r.Resource)
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
	case rel == nil || rel.State == observed.ReleaseUnknown:
		return v1alpha1.OutcomeUnknown
	case rel.State == observed.ReleaseGone && u.Uninstalled:
		return v1alpha1.OutcomeDeleted
	case rel.State == observed.ReleaseGone:
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
func isRewritten(rel *observed.Release, h *v1alpha1.HelmRelease) bool {
	return rel.Revision != h.Revision || string(rel.UID) != h.UID || !sameRelease(rel, h) ||
		!rel.HasBegun() && h.Digest != "" && rel.Digest != h.Digest
}

// installedAnew reports whether a release is not the recorded one, but a later one of the same name. Its record is another object then:
// in the same object, a client has changed the content.
func installedAnew(rel *observed.Release, h *v1alpha1.HelmRelease) bool {
	return !sameRelease(rel, h) && string(rel.UID) != h.UID
}

// sameRelease says that a release is the one that was recorded, at whatever revision. What is recorded has the
// precision of a microsecond.
func sameRelease(rel *observed.Release, h *v1alpha1.HelmRelease) bool {
	return rel.FirstDeployed.Truncate(time.Microsecond).Equal(h.FirstDeployed.Truncate(time.Microsecond))
}

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
	Release *observed.Release
	// PartlyUninstalled says that the release was uninstalling for this run when it was looked at last.
	PartlyUninstalled bool
	// ReviewedAt is when the author was found to be allowed to uninstall Release; zero: not since it was read. Reviewed are the
	// rights that were asked about; empty if none were.
	ReviewedAt time.Time
	Reviewed   []observed.Right
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
func NewMemory(number int64, was []observed.Seen, now time.Time) *Memory {
	m := &Memory{Ledger: Ledger{Number: number, AllAnswered: true, Rows: make([]Entry, 0, len(was)), LastRequest: now}, ConfirmedAt: now}
	for _, seen := range was {
		m.Rows = append(m.Rows, Entry{Checked: true, Was: seen})
	}
	return m
}

// NewPass forgets what only serves within one pass.
func (m *Memory) NewPass() {
	m.forgetRelease()
	m.RowsRead = false
}

// EndWaits has all that failed tried again now: the author asks for it.
func (m *Memory) EndWaits() {
	for i := range m.Rows {
		m.Rows[i].Due, m.Rows[i].backoff = time.Time{}, 0
	}
	m.Due, m.Uninstall.backoff = time.Time{}, 0
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
func (u *Uninstall) RecordRelease(run *v1alpha1.Run, rel observed.Release, now time.Time) {
	u.forgetRelease()
	u.Release, u.unread = &rel, 0
	u.PartlyUninstalled = u.isOurs(run)
	if rel.State == observed.ReleasePending {
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
func (u *Uninstall) RecordReview(by []observed.Right, now time.Time) {
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
	return run.Helm != nil && u.Release != nil && u.Release.State == observed.ReleaseUninstalling &&
		u.Release.Revision == run.Helm.Revision && string(u.Release.UID) == run.Helm.UID && sameRelease(u.Release, run.Helm)
}

// isOurs reports whether this operator has begun to uninstall the release for the run. The release's status alone proves nothing: every
// user who may write the record can write it.
func (u *Uninstall) isOurs(run *v1alpha1.Run) bool { return u.isUnderWay(run) && u.Release.HasBegun() }

// keepRowSteps removes the steps that are no actions on the objects of rows, or come after such a step, or after one on the object of a
// row that is left alone: a dependency is never cut. It returns the rows that lose a step; nothing is done to their objects.
func keepRowSteps(p *plan.Plan, at map[types.UID]int, m *Memory) (dropped map[int]bool) {
	l := &leftSteps{out: make([]bool, len(p.Steps)), followers: make([][]int, len(p.Steps)), ofRow: map[int][]int{}, dropped: map[int]bool{}}
	var first []int
	for n := range p.Steps {
		s := &p.Steps[n]
		i, recorded := at[s.Object.UID]
		if !s.IsChange() || recorded && m.Rows[i].isDone() {
			continue // it holds nothing up
		}
		for _, before := range s.After {
			l.followers[before] = append(l.followers[before], n)
		}
		if recorded {
			l.ofRow[i] = append(l.ofRow[i], n)
		}
		if !recorded || m.Rows[i].State != RowOpen {
			first = append(first, n)
		}
	}
	l.leaveSteps(first, func(n int) (int, bool) { i, recorded := at[p.Steps[n].Object.UID]; return i, recorded })
	p.Steps = plan.KeepSteps(p.Steps, func(n int) bool { return !l.out[n] && p.Steps[n].IsChange() })
	return l.dropped
}

// BeforeBatch returns what a batch of a Cleaner with a sink needs before its first action: the Cleaner must be held, the outcome of the
// batch before must be known, a full run must have made room, and then the rows of the batch must be recorded.
func BeforeBatch(c v1alpha1.Owner, l *Ledger) Request {
	s := c.State()
	rows := []int(nil)
	if s.Run != nil {
		rows = l.UnknownRows(s.Run)
	}
	switch {
	case !View{Cleaner: c}.hasFinalizer():
		return Request{Kind: AddFinalizer}
	case len(rows) > 0:
		return Request{Kind: LookRows, Rows: rows}
	case s.Run != nil && IsRunFull(s.Run) && s.Unsent == nil:
		return Request{Kind: MoveToUnsent}
	default:
		return Request{Kind: Record}
	}
}

// AtRest returns the request for the run of a Recurring Cleaner with a sink while there is nothing else to do: to finish it, if there is
// room.
func AtRest(c v1alpha1.Owner, l *Ledger) Request {
	s := c.State()
	if s.Run == nil || s.Run.Result != "" || IsPaused(c.Common()) {
		return Request{Kind: Idle}
	}
	return View{Cleaner: c}.requestFinish(s.Run, l)
}

// IsRunFull says that a run counts so many objects that it is time to report them.
func IsRunFull(run *v1alpha1.Run) bool {
	n := int64(len(run.Rows))
	for _, c := range run.Counts {
		n += c.Count
	}
	return n >= maxRun
}

// BeginBatch is the run with the rows of a batch that is about to begin. Those of the batch before are counted. Of an earlier
// run that is finished, or of none, it makes a new one.
func BeginBatch(s *v1alpha1.CleanerStatus, l *Ledger, fingerprint string, rows []runrow.Row, withheld []v1alpha1.Withheld, now time.Time) (*v1alpha1.Run, *Ledger) {
	run := &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: s.Runs + 1, DecidedAt: metav1.NewTime(now)}
	if s.Run != nil && s.Run.Result == "" {
		run = CountRows(s.Run, l)
	}
	run.Decides, run.Withheld = fingerprint, addWithheld(run.Withheld, withheld)
	for _, row := range rows {
		run.Rows = append(run.Rows, row.String())
	}
	m := newLedger(run, now)
	for i := range rows {
		m.Rows[len(run.Rows)-len(rows)+i].Kind = rows[i].Kind
	}
	return run, m
}

// addWithheld is what was withheld at any time of a run, each once, as far as there is room.
func addWithheld(all, more []v1alpha1.Withheld) []v1alpha1.Withheld {
	known, room := make(map[v1alpha1.Withheld]bool, len(all)), plan.MaxWithheldBytes
	for _, w := range all {
		known[w] = true
		room -= withheldBytes(w)
	}
	for _, w := range more {
		if known[w] || len(all) == plan.MaxWithheld {
			continue
		}
		if room -= withheldBytes(w); room > 0 {
			known[w] = true
			all = append(all, w)
		}
	}
	return all
}

// withheldBytes is how many bytes an entry takes where it is stored.
func withheldBytes(w v1alpha1.Withheld) int {
	return len(`{"object":,"because":},`) + runrow.StoredBytes(w.Object) + runrow.StoredBytes(w.Because)
}

// leftSteps are the steps of a plan that are left out, and what is left out with them.
type leftSteps struct {
	out       []bool
	followers [][]int       // the actions that come after a step
	ofRow     map[int][]int // the actions on the object of a row
	dropped   map[int]bool
}

// leaveSteps leaves steps out, and what comes after them, and all else on the objects of their rows. It looks at each step once.
func (l *leftSteps) leaveSteps(next []int, findRow func(step int) (row int, recorded bool)) {
	for len(next) > 0 {
		n := next[len(next)-1]
		next = next[:len(next)-1]
		if l.out[n] {
			continue
		}
		l.out[n] = true
		next = append(next, l.followers[n]...)
		if i, recorded := findRow(n); recorded && !l.dropped[i] {
			l.dropped[i] = true
			next = append(next, l.ofRow[i]...)
		}
	}
}
