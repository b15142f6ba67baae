// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

const (
	// MaxBatch is how many objects one batch of a Cleaner with a sink acts on: their rows are written before.
	MaxBatch = 500
	// maxRun is how many objects a run of a Cleaner that stays counts before it is finished.
	maxRun = 500
	// maxLooks is how often it is tried to read what became of an object.
	maxLooks = 5
)

// Ledger is what one process remembers of the rows of an open run of a Cleaner that stays: what became of each. Losing
// it costs reads.
type Ledger struct {
	// Number is the run that it is about; 0 is none.
	Number int64
	// Rows are what became of the rows of the run, in their order.
	Rows []Entry

	recorded []string    // the rows, as the run has them: those of another batch are as many, maybe
	blind    map[int]int // how often a row could not be read
}

// Entry is what became of a row.
type Entry struct {
	// Known says that this process has sent the request and got the answer, or has not sent it.
	Known bool
	// Outcome is what came of it; empty: nothing was done.
	Outcome v1alpha1.Outcome
}

// of says that the ledger is about the rows of a run.
func (l *Ledger) of(run *v1alpha1.Run) bool {
	return run != nil && l.Number == run.Number && slices.Equal(l.recorded, run.Rows)
}

// Unknown lists the rows of a run of which it is not known what became of them: after a crash, or when an answer was
// lost.
func (l *Ledger) Unknown(run *v1alpha1.Run) []int {
	if !l.of(run) {
		return indexes(len(run.Rows))
	}
	var out []int
	for i, e := range l.Rows {
		if !e.Known {
			out = append(out, i)
		}
	}
	return out
}

// Saw takes live reads of rows of which nothing was known. What is gone, terminating or made anew counts as done. Nothing was
// done to an object that is as it was recorded, such as one of which a deletion was refused. The rest is unknown for good;
// and so is what could not be read, after some attempts.
func (l *Ledger) Saw(run *v1alpha1.Run, sights map[int]Sight) {
	if !l.of(run) {
		*l = Ledger{Number: run.Number, Rows: make([]Entry, len(run.Rows)), recorded: run.Rows}
	}
	for i, s := range sights {
		if s.Failed != "" && l.failed(i) < maxLooks {
			continue
		}
		l.Rows[i] = Entry{Known: true, Outcome: v1alpha1.OutcomeUnknown}
		row, err := ParseRow(run.Rows[i])
		switch {
		case err != nil || s.Failed != "":
		case s.Missing || s.Terminating || s.UID != row.UID:
			l.Rows[i].Outcome = v1alpha1.OutcomeGone
		case s.ResourceVersion == row.ResourceVersion:
			l.Rows[i].Outcome = ""
		}
	}
}

// failed counts how often a row could not be read.
func (l *Ledger) failed(i int) int {
	if l.blind == nil {
		l.blind = map[int]int{}
	}
	l.blind[i]++
	return l.blind[i]
}

// Answered takes the answer to a request about the object of a row, and what the request does with it. A refusal, and a
// conflict, leave the object as it was.
func (l *Ledger) Answered(i int, a AnswerKind, did v1alpha1.Outcome) {
	e := &l.Rows[i]
	switch {
	case a == AnswerLost:
		*e = Entry{}
	case a == AnswerDeleted:
		*e = Entry{Known: true, Outcome: did}
	case (a == AnswerNotFound || a == AnswerReplaced) && e.Outcome == "":
		*e = Entry{Known: true, Outcome: v1alpha1.OutcomeGone}
	}
}

// NextRecurring says what comes next for a Cleaner that stays, apart from its batches. It carries a run that it left behind
// to its end, too, when the Cleaner has become one that cleans once.
func NextRecurring(v View, l *Ledger) Request {
	s, sink := v.Cleaner.State(), v.Cleaner.Common().CloudEventSink != ""
	switch {
	case !sink && (s.Run != nil || s.Unsent != nil):
		return Request{Kind: ClearRecord}
	case v.deleted() && !v.hasFinalizer():
		return Request{Kind: Idle, Reason: v1alpha1.ReasonTerminating}
	case !sink && v.hasFinalizer():
		return Request{Kind: RemoveFinalizer}
	case s.Unsent != nil && v.Delivered:
		return Request{Kind: ClearUnsent}
	case v.deleted():
		return v.leaving(s, l)
	case s.Run != nil && (s.Run.Result != "" || !v.Cleaner.Common().Recurs()):
		return v.settled(s, l)
	default:
		return Request{Kind: Evaluate}
	}
}

// BeforeBatch says what a batch of a Cleaner with a sink needs before its first deed: that the Cleaner is held, that what
// became of the batch before is known and a full run has made room, and then that its own rows are recorded.
func BeforeBatch(c v1alpha1.Owner, l *Ledger) Request {
	s := c.State()
	rows := []int(nil)
	if s.Run != nil {
		rows = l.Unknown(s.Run)
	}
	switch {
	case !View{Cleaner: c}.hasFinalizer():
		return Request{Kind: AddFinalizer}
	case len(rows) > 0:
		return Request{Kind: LookRows, Rows: rows}
	case s.Run != nil && Full(s.Run) && s.Unsent == nil:
		return Request{Kind: MoveToUnsent}
	default:
		return Request{Kind: Record}
	}
}

// AtRest says what is to be done with the run of a Cleaner that stays, with a sink, while nothing else is: it is finished,
// if there is room for it.
func AtRest(c v1alpha1.Owner, l *Ledger) Request {
	s := c.State()
	if s.Run == nil || s.Run.Result != "" || Held(c.Common()) {
		return Request{Kind: Idle}
	}
	return View{Cleaner: c}.settled(s, l)
}

// settled finishes a run of a Cleaner that does not stay any more. One that has a result, as somebody wrote it, is sent as
// it is: no batch goes over it.
func (v View) settled(s *v1alpha1.CleanerStatus, l *Ledger) Request {
	if s.Unsent != nil {
		return Request{Kind: Idle, Reason: v1alpha1.ReasonDelivering}
	}
	if rows := l.Unknown(s.Run); len(rows) > 0 {
		return Request{Kind: LookRows, Rows: rows}
	}
	return Request{Kind: MoveToUnsent}
}

// leaving is the end of a Cleaner that stays: somebody deleted it.
func (v View) leaving(s *v1alpha1.CleanerStatus, l *Ledger) Request {
	switch run := s.Run; {
	case run != nil && run.Result == "":
		if rows := l.Unknown(run); len(rows) > 0 && !v.graceOver() {
			return Request{Kind: LookRows, Rows: rows}
		}
		return Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: "the Cleaner was deleted"}
	case run == nil && s.Unsent == nil:
		return Request{Kind: RemoveFinalizer}
	case run != nil && s.Unsent == nil && v.Delivered:
		return Request{Kind: ClearRecord}
	case v.graceOver():
		return Request{Kind: GiveUp}
	default:
		return v.until(time.Time{}, v1alpha1.ReasonDelivering)
	}
}

// Full says that a run counts so many objects that it is time to report them.
func Full(run *v1alpha1.Run) bool {
	n := int64(len(run.Rows))
	for _, c := range run.Counts {
		n += c.Count
	}
	return n >= maxRun
}

// Batch is the run with the rows of a batch that is about to begin. Those of the batch before are counted. Of an earlier
// run that is finished, or of none, it makes a new one.
func Batch(s *v1alpha1.CleanerStatus, l *Ledger, decides string, rows []Row, withheld []v1alpha1.Withheld, now time.Time) (*v1alpha1.Run, *Ledger) {
	run := &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: s.Runs + 1, DecidedAt: metav1.NewTime(now)}
	if s.Run != nil && s.Run.Result == "" {
		run = Settled(s.Run, l)
	}
	run.Decides, run.Withheld = decides, addWithheld(run.Withheld, withheld)
	for _, row := range rows {
		run.Rows = append(run.Rows, row.String())
	}
	entries := make([]Entry, len(rows))
	for i := range entries {
		entries[i].Known = true // nothing was sent yet
	}
	return run, &Ledger{Number: run.Number, Rows: entries, recorded: run.Rows}
}

// addWithheld is what was withheld at any time of a run, each once, as far as there is room.
func addWithheld(all, more []v1alpha1.Withheld) []v1alpha1.Withheld {
	known := make(map[v1alpha1.Withheld]bool, len(all))
	for _, w := range all {
		known[w] = true
	}
	for _, w := range more {
		if !known[w] && len(all) < maxWithheld {
			known[w] = true
			all = append(all, w)
		}
	}
	return all
}

// Settled is a run whose rows are counted, and the first of them named.
func Settled(run *v1alpha1.Run, l *Ledger) *v1alpha1.Run {
	out := run.DeepCopy()
	out.Rows = nil
	counts := newTally(out.Counts)
	for i, text := range run.Rows {
		outcome := v1alpha1.OutcomeUnknown
		if l.of(run) && l.Rows[i].Known {
			outcome = l.Rows[i].Outcome
		}
		if outcome == "" {
			continue
		}
		counts.add(text, outcome)
		if len(out.Outcomes) < maxOutcomes {
			out.Outcomes = append(out.Outcomes, v1alpha1.RowOutcome{Row: text, Outcome: outcome})
		}
	}
	out.Counts = counts.list()
	return out
}

// Finished is a run of a Cleaner that stays with its result. It is Completed unless something of it is unknown. A result
// that it has never changes.
func Finished(run *v1alpha1.Run, l *Ledger, result v1alpha1.Result, message string, now time.Time) *v1alpha1.Run {
	if run.Result != "" {
		return run.DeepCopy()
	}
	out, finished := Settled(run, l), metav1.NewTime(now)
	if result == "" {
		result = v1alpha1.ResultCompleted
		if slices.ContainsFunc(out.Counts, func(c v1alpha1.Count) bool { return c.Outcome == v1alpha1.OutcomeUnknown }) {
			result, message = v1alpha1.ResultPartial, "the outcome of some objects is unknown"
		}
	}
	out.Result, out.Message, out.FinishedAt = result, message, &finished
	return out
}

// Holding are the targets in which an object stands, as whichever resource.
func (s Snapshot) Holding(o *Object) []int {
	var out []int
	for t := range s {
		if n, there := search(s[t].Objects, o.Namespace, o.Name); there && s[t].Objects[n].identity() == o.identity() {
			out = append(out, t)
		}
	}
	return out
}

// Objects is how many objects a plan is about.
func (p *Plan) Objects() int {
	seen := make(map[types.UID]bool, len(p.Steps))
	for i := range p.Steps {
		seen[p.Steps[i].Object.UID] = true
	}
	return len(seen)
}

// First is the plan with the steps on its first objects, at most so many. It has all that one of them comes after.
func (p Plan) First(objects int) Plan {
	seen := map[types.UID]bool{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if !s.Deed() {
			continue
		}
		if !seen[s.Object.UID] && len(seen) == objects {
			p.Steps = p.Steps[:i]
			break
		}
		seen[s.Object.UID] = true
	}
	return p
}

// Without is the plan without some items. A step that stands for others too is there, for those.
func (p Plan) Without(waits func(ItemKey) bool) Plan {
	at := make([]int, len(p.Steps))
	var steps []Step
	for i, s := range p.Steps {
		keys := slices.DeleteFunc(slices.Clone(s.Keys), func(key string) bool { return waits(ItemKey{Rule: s.Rule, Key: key}) })
		if len(keys) == 0 && len(s.Keys) > 0 {
			continue
		}
		after := s.After
		s.Keys, s.After = keys, nil
		for _, before := range after {
			if at[before] > 0 {
				s.After = append(s.After, at[before]-1)
			}
		}
		steps = append(steps, s)
		at[i] = len(steps)
	}
	p.Steps = steps
	return p
}

// Again is what may be done at once by a plan that was made anew because objects of an earlier one have changed: deeds on
// objects of the earlier one, at the versions that they have now. Another object, that stands where one of them stood, was
// not recorded: it is for the next batch.
func Again(earlier, anew Plan) Plan {
	objects := map[types.UID]bool{}
	for i := range earlier.Steps {
		if s := &earlier.Steps[i]; s.Deed() {
			objects[s.Object.UID] = true
		}
	}
	wanted := anew
	wanted.Steps = slices.DeleteFunc(slices.Clone(anew.Steps), func(s Step) bool { return s.Deed() && !objects[s.Object.UID] })
	return Intersect(wanted, anew)
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

func (t tally) add(row string, outcome v1alpha1.Outcome) {
	resource := unreadable
	if r, err := ParseRow(row); err == nil {
		resource = ResourceName(r.Resource)
	}
	t[v1alpha1.Count{Resource: resource, Outcome: outcome}]++
}

// list gives the counts in the order of resources and outcomes.
func (t tally) list() []v1alpha1.Count {
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
