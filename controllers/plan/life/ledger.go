// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// maxLooks is how often it is tried to read what became of an object.
const maxLooks = 5

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

// Entry is what this process knows of a row.
type Entry struct {
	State RowState
	// Kind is the kind of the object, for messages. Empty while it is not known: the row does not have it.
	Kind string
	// Did is what was done to the object; empty: nothing, as far as it is known.
	Did v1alpha1.Outcome
	// Blind means that the outcome for the object is unknown and not read yet: after a restart, or when a response was lost.
	Blind bool
	// Doubt means that the object was read, but that does not show whether this run acted on it.
	Doubt bool
	// Checked means that the row was compared with the spec: when it was committed, or after a live read.
	Checked bool
	// Settled says that the object was seen to be gone.
	Settled bool
	// Finalizers are what held the object when it was seen last.
	Finalizers []string
	// Asked says that this process has sent a DELETE for the object at its version, and Stranded that the object was terminating all the
	// same when it was seen last, although its time was over and no finalizer held it.
	Asked, Stranded bool
	// Now is the version that was decided on last; empty: the recorded one.
	Now string
	// Was is the object as conditions and rules saw it before this process did anything to it.
	Was observed.Seen
	// Left is the version at which this process has left the object after it changed it; empty if it has not, or if that is unknown.
	Left string
	// Unwanted says why nothing is wanted of it now; empty while something is. Such an object is left alone unless a live read shows that
	// it is gone.
	Unwanted string
	// Failed says why the last attempt failed, for people, and FailedReason is the reason of conditions for that.
	Failed, FailedReason string
	// Unstable means that the object changed before each request of the last try.
	Unstable bool
	// Due is when the row may be tried again.
	Due time.Time

	again   again
	backoff time.Duration
	unread  bool // the last look failed
	looks   int  // how many looks have failed
}

// isDone says that all that was wanted of the object was done, or that it is gone.
func (e *Entry) isDone() bool { return e.State == RowDeleted || e.State == RowGone }

// hasActed says that the object is not as it was because of this process, and that it is known how this has left it.
func (e *Entry) hasActed() bool {
	return e.Left != "" || e.State == RowDeleted && e.Did != v1alpha1.OutcomePatched
}

// Ledger is what one process knows of the rows of an open run, of either life. Losing it costs reads, and never deletes more.
type Ledger struct {
	// Number is the run that it is about; 0 is none.
	Number int64
	// Rows are what is known of the rows of the run, in their order.
	Rows []Entry
	// AllAnswered says that this process committed the run and got the answer to each of its requests.
	AllAnswered bool
	// RowsRead says that the rows left were read in this pass, so that a result may be written.
	RowsRead bool
	// LastRequest is when the last request was sent, or when this process came to the run.
	LastRequest time.Time

	recorded []string // the rows, as the run has them: those of another batch are as many, maybe; nil if that cannot be
}

// newLedger returns the ledger of the process that has recorded the rows of a run, and has not acted on them yet.
func newLedger(run *v1alpha1.Run, now time.Time) *Ledger {
	return &Ledger{Number: run.Number, Rows: make([]Entry, len(run.Rows)), recorded: run.Rows, AllAnswered: true, LastRequest: now}
}

// isOf says that the ledger is about the rows of a run.
func (l *Ledger) isOf(run *v1alpha1.Run) bool {
	return run != nil && l.Number == run.Number && len(l.Rows) == len(run.Rows) && (l.recorded == nil || slices.Equal(l.recorded, run.Rows))
}

// UnknownRows lists the rows of a run with an unknown outcome: after a crash, or when an answer was lost.
func (l *Ledger) UnknownRows(run *v1alpha1.Run) []int {
	if !l.isOf(run) {
		return rowIndexes(len(run.Rows))
	}
	return l.rowsWhere(func(e *Entry) bool { return e.Blind })
}

// Sight is what a live read of a row's object showed.
type Sight struct {
	// Failed says why it showed nothing; empty otherwise.
	Failed string
	// Missing says that the API server named the object as not found.
	Missing bool
	// Kind is the kind of the object, for messages; empty if it is not known.
	Kind            string
	UID             types.UID
	ResourceVersion string
	Terminating     bool
	Finalizers      []string
	// Stranded says that it is terminating although its time is over and no finalizer holds it.
	Stranded bool
	// Refused says why the object must not be touched: no target of the spec stands for it, or it is protected.
	Refused string
}

// RecordSights records live reads of rows: the first look of a process, the look before a result, or the look at what is not gone yet. A
// row that cannot be read, because it is forged or another version wrote it, is left alone.
func (l *Ledger) RecordSights(run *v1alpha1.Run, sights map[int]Sight, now time.Time) {
	if !l.isOf(run) {
		*l = Ledger{Number: run.Number, Rows: make([]Entry, len(run.Rows)), recorded: run.Rows, LastRequest: now}
		for i := range l.Rows {
			l.Rows[i].Blind = true
		}
	}
	for i, s := range sights {
		row, err := runrow.ParseRow(run.Rows[i])
		if err != nil {
			l.Rows[i] = Entry{State: RowKept, Failed: err.Error(), Doubt: true}
			continue
		}
		l.Rows[i].recordSight(&row, s, now)
	}
	l.RowsRead = !slices.ContainsFunc(l.rowsLeft(), func(i int) bool { _, seen := sights[i]; return !seen })
}

// NameObject names the object of the entry's row in messages. A row that cannot be read stands for itself.
func (e *Entry) NameObject(text string) string {
	row, err := runrow.ParseRow(text)
	if err != nil {
		return text
	}
	row.Kind = e.Kind
	return row.Ref.String()
}

// recordUnread records that the object could not be read.
func (e *Entry) recordUnread(s Sight, now time.Time) {
	if e.looks++; e.looks >= maxLooks && e.Blind {
		e.Blind, e.Doubt = false, true
	}
	e.recordFailure(v1alpha1.ReasonReadFailed, s.Failed, now)
}

func (e *Entry) recordSight(row *runrow.Row, s Sight, now time.Time) {
	if e.isOpenAgain() {
		e.closeAgain()
	}
	if e.unread = s.Failed != ""; e.unread {
		e.recordUnread(s, now)
		return
	}
	blind := e.Blind
	e.Kind = cmp.Or(s.Kind, e.Kind)
	e.Stranded = s.Stranded && s.UID == row.UID
	e.Finalizers, e.Blind, e.looks = s.Finalizers, false, 0
	done := e.isDone()
	switch {
	case s.Missing, done && s.UID != row.UID:
		e.Settled = true
		if !done {
			e.State = RowGone
		}
	case s.UID != row.UID:
		e.State = RowReplaced
	case s.Terminating:
		if !done {
			e.State = RowGone
		}
	case s.Refused != "":
		e.State, e.Failed = RowKept, s.Refused
	case e.Unwanted != "":
		e.State, e.Failed = RowKept, e.Unwanted
	default:
		e.Checked, e.Doubt = true, e.Doubt || blind && s.ResourceVersion != row.ResourceVersion
	}
}

// AnswerKind is what the API server answered to a request that changes an object.
type AnswerKind int

const (
	// AnswerUnknown is the zero value: no request was judged. It never counts as success.
	AnswerUnknown AnswerKind = iota
	// AnswerDone is any 2xx, or that there was nothing to ask for.
	AnswerDone
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

// RowAnswer is the result of the steps on the object of a row, all or some of them.
type RowAnswer struct {
	// Did is what the last step that was taken has done; empty if none was.
	Did v1alpha1.Outcome
	// Left is the version at which the object was left; empty if that is unknown, or if it is gone.
	Left string
	// Gone says that the object is proven to be gone, and Replaced that another one has its name. Terminating says that it is on its
	// way, and Finalizers what holds it.
	Gone, Replaced, Terminating bool
	Finalizers                  []string
	// Asked says that a DELETE was sent, and not answered with a conflict.
	Asked bool
	// Failed says why a step failed, and FailedReason is the reason of conditions for that; empty if none did. Lost means that the outcome of
	// that step is unknown.
	Failed, FailedReason string
	Lost                 bool
	// Unstable says that it failed because the object changed each time.
	Unstable bool
	// Cut means that the other steps were not tried: they follow with another decision, or in another pass.
	Cut bool
	// RetryAfter is for how long the API server asks not to be asked again.
	RetryAfter time.Duration
}

// RecordAnswer records the result of the steps on the object of a row. A row is done when the last of them is.
func (l *Ledger) RecordAnswer(i int, a RowAnswer, now time.Time) {
	e := &l.Rows[i]
	l.LastRequest = now
	l.RowsRead = false // what was read before the requests does not show what became of it
	l.AllAnswered = l.AllAnswered && !a.Lost
	if a.Did != "" && (a.Did != v1alpha1.OutcomeGone || e.Did == "") {
		e.Did, e.Left = a.Did, a.Left
	}
	e.Blind, e.Asked = a.Lost, e.Asked || a.Asked
	switch {
	case a.Cut:
	case e.isOpenAgain():
		e.recordAgain(a)
	case a.Replaced:
		e.State, e.Failed = RowReplaced, ""
	case a.Failed != "":
		e.recordFailure(a.FailedReason, a.Failed, now)
		e.postponeTo(a.RetryAfter, now)
		e.Unstable = a.Unstable
	case a.Did == v1alpha1.OutcomeGone:
		e.State, e.Failed, e.Settled, e.Finalizers = RowGone, "", !a.Terminating, a.Finalizers
	case a.Did == v1alpha1.OutcomeDeleted:
		e.State, e.Failed, e.Left, e.Settled = RowDeleted, "", "", a.Gone
	default:
		e.State, e.Failed, e.Settled = RowDeleted, "", true
	}
}

func (e *Entry) recordFailure(reason, why string, now time.Time) {
	e.Failed, e.FailedReason, e.Unstable = why, reason, false
	e.backoff = backoff.DoubleWait(e.backoff)
	e.Due = now.Add(e.backoff)
}

// postponeTo has a row wait at least for as long as the API server asks, but for longer than any back-off never.
func (e *Entry) postponeTo(by time.Duration, now time.Time) {
	if at := now.Add(min(by, backoff.LongestWait)); at.After(e.Due) {
		e.Due = at
	}
}

// patience is how long the back-off of a row of a rule grows before the rows of targets no longer wait for it.
const patience = 8 * time.Second

// blocksTargets reports whether the rows of targets must wait for one of these rows of rules. They do not wait for rows that are refused again
// and again, because those may never succeed.
func (l *Ledger) blocksTargets(rows []int) bool {
	return slices.ContainsFunc(rows, func(i int) bool { return l.Rows[i].backoff < patience })
}

// DecidedVersion is the resourceVersion of a row's object that was decided on last.
func (l *Ledger) DecidedVersion(i int, row runrow.Row) string {
	if l.Rows[i].Now != "" {
		return l.Rows[i].Now
	}
	return row.ResourceVersion
}

// waitsFor says why rows are not tried now: because a request was refused, because they cannot be read or, if there is nothing else, because
// all of them change too fast.
func (l *Ledger) waitsFor(rows []int) string {
	reason := v1alpha1.ReasonTargetUnstable
	for _, i := range rows {
		switch e := &l.Rows[i]; {
		case e.Unstable:
		case plan.IsRefusal(e.FailedReason):
			return e.FailedReason
		default:
			reason = cmp.Or(e.FailedReason, v1alpha1.ReasonCleaning)
		}
	}
	return reason
}

// rowsIn lists the rows in a state.
func (l *Ledger) rowsIn(s RowState) []int {
	return l.rowsWhere(func(e *Entry) bool { return e.State == s })
}

// rowsLeft lists the rows that are neither done nor replaced, which a result calls kept.
func (l *Ledger) rowsLeft() []int {
	return l.rowsWhere(func(e *Entry) bool { return e.State == RowOpen || e.State == RowKept })
}

// unsettledRows lists the rows that are done and were not seen to be gone.
func (l *Ledger) unsettledRows() []int {
	return l.rowsWhere(func(e *Entry) bool { return e.isDone() && !e.Settled })
}

func (l *Ledger) rowsWhere(is func(*Entry) bool) []int {
	var out []int
	for i := range l.Rows {
		if is(&l.Rows[i]) {
			out = append(out, i)
		}
	}
	return out
}

// onceOutcome returns the outcome of a row as the run of a Once Cleaner reports it.
func (e *Entry) onceOutcome() v1alpha1.Outcome {
	held := !e.Settled && len(e.Finalizers) > 0
	switch {
	case e.State == RowDeleted && e.Did != "" && e.Did != v1alpha1.OutcomeDeleted:
		return e.Did
	case e.isDone() && held:
		return v1alpha1.OutcomeTerminating
	case e.State == RowDeleted:
		return v1alpha1.OutcomeDeleted
	case e.State == RowGone:
		return v1alpha1.OutcomeGone
	case e.State == RowReplaced:
		return v1alpha1.OutcomeReplaced
	case e.Did != "": // a part of what was wanted
		return e.Did
	case e.unread:
		return v1alpha1.OutcomeUnknown
	default:
		return v1alpha1.OutcomeKept
	}
}

// recurringOutcome returns the outcome of a row as the run of a Recurring Cleaner counts it; empty: none. A recreated object counts as
// gone.
func (e *Entry) recurringOutcome() v1alpha1.Outcome {
	switch {
	case e.Blind, e.Doubt:
		return v1alpha1.OutcomeUnknown
	case e.Did == "" && (e.isDone() || e.State == RowReplaced):
		return v1alpha1.OutcomeGone
	default:
		return e.Did
	}
}

// Course is how far the steps of a batch are: a step goes when all that it comes after have succeeded.
type Course struct {
	Steps  []plan.Step
	states []stepState
	on     map[types.UID][]int // the actions on each object
}

type stepState int

const (
	stepWaits stepState = iota
	stepSucceeded
	stepFailed
)

// NewCourse begins the steps of a plan.
func NewCourse(p plan.Plan) *Course {
	c := &Course{Steps: p.Steps, states: make([]stepState, len(p.Steps)), on: make(map[types.UID][]int, len(p.Steps))}
	for i := range c.Steps {
		if s := &c.Steps[i]; s.IsChange() {
			c.on[s.Object.UID] = append(c.on[s.Object.UID], i)
		}
	}
	return c
}

// CourseOfRows begins the steps that a judgement has left in a plan, as far as they are on the objects of due rows. Those of rows
// that are done have succeeded. The others are not taken in this batch, and neither is what comes after them.
func (m *Memory) CourseOfRows(p plan.Plan, rows map[types.UID]int, due map[types.UID]bool) *Course {
	c := NewCourse(p)
	for i := range c.Steps {
		uid := c.Steps[i].Object.UID
		switch n, recorded := rows[uid]; {
		case !recorded:
			c.MarkFailed(i)
		case m.Rows[n].isDone():
			c.MarkSucceeded(i)
		case !due[uid]:
			c.MarkFailed(i)
		}
	}
	return c
}

// MarkSucceeded records that a step has succeeded.
func (c *Course) MarkSucceeded(i int) { c.states[i] = stepSucceeded }

// FindVerb is what the first action on an object does; empty if there is none.
func (c *Course) FindVerb(uid types.UID) plan.Verb {
	if !c.IsAbout(uid) {
		return ""
	}
	return c.Steps[c.on[uid][0]].Verb
}

// MarkFailed records that a step has failed, or is not tried.
func (c *Course) MarkFailed(i int) { c.states[i] = stepFailed }

// NextSteps lists the steps that wait for no other, and of these the ones that come after one that has failed.
func (c *Course) NextSteps() (ready []int, broken map[int]bool) {
	broken = map[int]bool{}
	for i := range c.Steps {
		after := c.Steps[i].After
		if c.states[i] != stepWaits || slices.ContainsFunc(after, func(before int) bool { return c.states[before] == stepWaits }) {
			continue
		}
		ready = append(ready, i)
		if slices.ContainsFunc(after, func(before int) bool { return c.states[before] == stepFailed }) {
			broken[i] = true
		}
	}
	return ready, broken
}

// IsOver says that no step waits.
func (c *Course) IsOver() bool { return !slices.Contains(c.states, stepWaits) }

// ChangeFollows reports whether a step that changes something comes after a step.
func (c *Course) ChangeFollows(i int) bool {
	return slices.ContainsFunc(c.Steps, func(s plan.Step) bool { return s.IsChange() && slices.Contains(s.After, i) })
}

// IsObjectDone reports whether all actions on an object have succeeded.
func (c *Course) IsObjectDone(uid types.UID) bool {
	return !slices.ContainsFunc(c.on[uid], func(i int) bool { return c.states[i] != stepSucceeded })
}

// FailedItems are the items of steps that are not taken.
func (c *Course) FailedItems() map[plan.ItemKey]bool {
	out := map[plan.ItemKey]bool{}
	for i := range c.Steps {
		if c.states[i] == stepFailed {
			for _, item := range c.Steps[i].ListItems() {
				out[item] = true
			}
		}
	}
	return out
}

// IsAbout reports whether there are actions on an object.
func (c *Course) IsAbout(uid types.UID) bool { return len(c.on[uid]) > 0 }

// OutcomesOfVerbs says what a verb makes of an object.
func OutcomesOfVerbs() map[plan.Verb]v1alpha1.Outcome {
	return map[plan.Verb]v1alpha1.Outcome{
		plan.VerbDelete: v1alpha1.OutcomeDeleted, plan.VerbEvict: v1alpha1.OutcomeEvicted,
		plan.VerbPatch: v1alpha1.OutcomePatched, plan.VerbRemoveFinalizer: v1alpha1.OutcomePatched,
		plan.VerbHelmUninstall: v1alpha1.OutcomeUninstalling,
	}
}
