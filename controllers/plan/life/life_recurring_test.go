// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
	"github.com/vtex/cleaner/test/lifemodel"
	"github.com/vtex/cleaner/test/lifemodel/recurring"
)

// stays is the machine of a Cleaner that stays, or a broken one.
type stays struct {
	next     func(life.View, *life.Memory) life.Request
	before   func(v1alpha1.Owner, *life.Ledger) life.Request
	rest     func(v1alpha1.Owner, *life.Ledger) life.Request
	batch    func(*v1alpha1.CleanerStatus, *life.Ledger, string, []runrow.Row, []v1alpha1.Withheld, time.Time) (*v1alpha1.Run, *life.Ledger)
	finished func(*v1alpha1.Run, *life.Memory, v1alpha1.Result, string, time.Time) *v1alpha1.Run
	answered func(*life.Memory, int, life.RowAnswer)
}

func sound() stays {
	return stays{life.Next, life.BeforeBatch, life.AtRest, life.BeginBatch, life.FinishRun, func(m *life.Memory, i int, a life.RowAnswer) {
		m.RecordAnswer(i, a, time.Time{})
	}}
}

// padding is how many objects a run counts from the beginning, so that it is full when the model's is.
const padding = life.MaxBatch - 3

// stayer is the real side of an operator process of the model.
type stayer struct {
	read    *v1alpha1.Cleaner
	memory  life.Memory
	request life.Request
	// at are the rows of items in the batch that was recorded.
	at map[int]int
}

// stayWalk drives the real machine through the model of a Cleaner that stays.
type stayWalk struct {
	stays
	model   *recurring.Model
	decides map[string]uint8
	rng     *rand.Rand
	s       recurring.State
	epoch   time.Time
	cleaner *v1alpha1.Cleaner // as the API server has it; nil when it is gone
	procs   [2]stayer
	trace   []string
	asked   map[life.RequestKind]int
}

func newStayWalk(m *recurring.Model, machine stays, seed uint64) (*stayWalk, error) {
	w := &stayWalk{
		stays: machine, model: m, rng: rand.New(rand.NewPCG(seed, 0)), s: m.Init(), decides: map[string]uint8{},
		epoch: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), asked: map[life.RequestKind]int{},
	}
	w.cleaner = &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cleaner", UID: "cleaner-1"}}
	w.cleaner.Spec.Lifecycle = v1alpha1.LifecycleRecurring
	setSink(w.cleaner, m.Sink)
	for _, decides := range []uint8{2, 1} {
		edit(w.cleaner, decides)
		f, err := life.FingerprintWork(w.cleaner.Work())
		if err != nil {
			return nil, err
		}
		w.decides[f] = decides
	}
	w.procs[0].read = w.cleaner.DeepCopy()
	return w, nil
}

// run takes steps at random, and then only those that happen by themselves until an end is reached.
func (w *stayWalk) run() error {
	const steps, patience = 100, 600
	disturbance := 0.05 + w.rng.Float64()/2
	for range steps {
		others := w.steps(func(s *recurring.Step) bool { return !request(s.Label) })
		var err error
		if len(others) > 0 && w.rng.Float64() < disturbance {
			err = w.take(others[w.rng.IntN(len(others))])
		} else {
			_, err = w.turn(w.rng.IntN(2), false)
		}
		if err != nil || !w.s.C.Exists {
			return err
		}
	}
	w.trace = append(w.trace, "-- from here on nobody disturbs")
	for range patience {
		if w.model.AtEnd(&w.s) {
			return nil
		}
		if err := w.settle(); err != nil {
			return err
		}
	}
	return fmt.Errorf("no end was reached in %d steps", patience)
}

// settle is one step of the second part: repairs, then the leader, and time when the leader waits.
func (w *stayWalk) settle() error {
	repairs := w.steps(func(s *recurring.Step) bool {
		return s.Fair && !request(s.Label) && s.Label.Who != lifemodel.Time
	})
	if len(repairs) > 0 {
		return w.take(repairs[0])
	}
	leader := slices.IndexFunc(w.s.P[:], func(p recurring.Process) bool { return p.Role == lifemodel.Leader })
	idle, err := w.turn(leader, true)
	if err != nil || !idle {
		return err
	}
	if time := w.steps(func(s *recurring.Step) bool { return s.Label.Who == lifemodel.Time }); len(time) > 0 {
		return w.take(time[w.rng.IntN(len(time))])
	}
	return nil
}

func (w *stayWalk) steps(is func(*recurring.Step) bool) []recurring.Step {
	var out []recurring.Step
	for _, s := range w.model.Succ(w.s) {
		if is(&s) {
			out = append(out, s)
		}
	}
	return out
}

// turn gives a process its turn, and says whether it waits.
func (w *stayWalk) turn(i int, fair bool) (idle bool, err error) {
	p := &w.s.P[i]
	mine := w.steps(func(s *recurring.Step) bool {
		return s.Label.Who == lifemodel.Actor(i) && request(s.Label) && (s.Fair || !fair)
	})
	switch {
	case p.Role != lifemodel.Leader && p.At != recurring.AtDeeds, len(mine) == 0 && p.At != recurring.AtStart && p.At != recurring.AtRecord:
		return true, nil
	case p.At == recurring.AtDeeds, p.At == recurring.AtWrite:
		return false, w.take(mine[w.rng.IntN(len(mine))])
	case p.At == recurring.AtRecord:
		q := &w.procs[i]
		return false, w.do(i, w.before(q.read.DeepCopy(), &q.memory.Ledger), fair)
	case !w.s.C.Exists:
		return true, nil
	}
	sends := slices.DeleteFunc(mine, func(s recurring.Step) bool { return s.Label.What != lifemodel.Send })
	if len(sends) > 0 && w.rng.IntN(2) == 0 {
		step := sends[w.rng.IntN(len(sends))]
		if owed := life.UndeliveredRun(&w.procs[i].read.Status); owed == nil || owed.Number != int64(step.Label.Run) {
			return false, fmt.Errorf("%v: Outstanding is %v", step.Label, owed)
		}
		return false, w.take(step)
	}
	return w.pass(i, fair)
}

// now is the time as the grace needs it.
func (w *stayWalk) now() time.Time {
	if w.s.Grace {
		return w.epoch.Add(finishGrace)
	}
	return w.epoch
}

// pass asks the machine for its next request at the start of a pass.
func (w *stayWalk) pass(i int, fair bool) (idle bool, err error) {
	q := &w.procs[i]
	c := q.read.DeepCopy()
	owed := life.UndeliveredRun(&c.Status)
	req := w.next(life.View{
		Cleaner: c, Now: w.now(), FinishGrace: finishGrace, Delivered: owed != nil && owed.Number == int64(w.s.P[i].Delivered),
	}, &q.memory)
	if req.Kind == life.Evaluate {
		_, wants := w.s.Wants()
		switch {
		case wants && !c.Spec.Suspend:
			w.asked[life.Evaluate]++
			return false, w.takeOne(i, lifemodel.Confirm, lifemodel.OK, req)
		case c.Spec.CloudEventSink == "":
			return true, nil
		}
		req = w.rest(q.read.DeepCopy(), &q.memory.Ledger)
	}
	if req.Kind == life.Idle {
		w.asked[life.Idle]++
		return true, nil
	}
	return false, w.do(i, req, fair)
}

// do takes the step of the model that a request stands for.
func (w *stayWalk) do(i int, req life.Request, fair bool) error {
	w.asked[req.Kind]++
	w.procs[i].request = req
	whats := map[life.RequestKind]lifemodel.What{
		life.LookRows: lifemodel.LookRows, life.AddFinalizer: lifemodel.AddFinalizer, life.Record: lifemodel.Record,
		life.MoveToUnsent: lifemodel.MoveToUnsent, life.ClearUnsent: lifemodel.ClearUnsent, life.ClearRecord: lifemodel.ClearRecord,
		life.WriteResult: lifemodel.WriteResult, life.RemoveFinalizer: lifemodel.RemoveFinalizer, life.GiveUp: lifemodel.GiveUp,
	}
	what, known := whats[req.Kind]
	switch {
	case !known:
		return fmt.Errorf("P%d asks for %v, which the walk does not know", i, req.Kind)
	case req.Kind == life.LookRows:
		return w.takeOne(i, what, lifemodel.OK, req)
	case w.s.P[i].At == recurring.AtStart:
		return w.takeOne(i, what, lifemodel.Chosen, req)
	}
	steps := w.steps(func(s *recurring.Step) bool {
		return s.Label.Who == lifemodel.Actor(i) && s.Label.What == what && (s.Fair || !fair)
	})
	if len(steps) == 0 {
		return w.refused(i, req)
	}
	return w.take(steps[w.rng.IntN(len(steps))])
}

func (w *stayWalk) takeOne(i int, what lifemodel.What, a lifemodel.Answer, req life.Request) error {
	steps := w.steps(func(s *recurring.Step) bool {
		return s.Label.Who == lifemodel.Actor(i) && s.Label.What == what && s.Label.Answer == a
	})
	if len(steps) != 1 {
		return w.refused(i, req)
	}
	return w.take(steps[0])
}

func (w *stayWalk) refused(i int, req life.Request) error {
	var may []string
	for _, s := range w.steps(func(s *recurring.Step) bool { return s.Label.Who == lifemodel.Actor(i) && request(s.Label) }) {
		may = append(may, s.Label.String())
	}
	return fmt.Errorf("P%d asks for %v, and the model allows only: %s", i, req.Kind, strings.Join(may, "; "))
}

// take takes a step of the model, and makes the real side follow.
func (w *stayWalk) take(step recurring.Step) error {
	l := step.Label
	switch {
	case step.Breaks.Fault():
		return fmt.Errorf("%v breaks %v", l, step.Breaks)
	case step.Breaks == lifemodel.OutOfBounds:
		return errBounds
	}
	w.trace = append(w.trace, l.String())
	before := w.s
	w.s = step.To
	var err error
	if l.Who >= 0 && request(l) {
		err = w.served(int(l.Who), &before, l)
	} else {
		w.happened(l)
	}
	if err != nil {
		return err
	}
	return w.compare()
}

// happened is what others do to the Cleaner and to processes.
func (w *stayWalk) happened(l lifemodel.Label) {
	switch l.What {
	case lifemodel.Edit:
		edit(w.cleaner, w.s.C.Decides)
	case lifemodel.Suspend:
		w.cleaner.Spec.Suspend = w.s.C.Suspended
	case lifemodel.SetSink:
		setSink(w.cleaner, w.s.C.Sink)
	case lifemodel.KubectlDelete:
		if len(w.cleaner.Finalizers) == 0 {
			w.cleaner = nil
			return
		}
		w.cleaner.DeletionTimestamp = &metav1.Time{Time: w.epoch}
	case lifemodel.Crash, lifemodel.Exit:
		w.procs[l.Who] = stayer{}
	case lifemodel.Pause:
		w.procs[1-l.Who] = stayer{}
	}
}

// served is what a request of a process does to the Cleaner, and what the process learns.
func (w *stayWalk) served(i int, before *recurring.State, l lifemodel.Label) error {
	q := &w.procs[i]
	switch {
	case l.What == lifemodel.DeleteRow:
		w.answers(q, int(l.Row), l.Answer)
		return nil
	case l.What == lifemodel.LookRows:
		return w.look(q, before)
	case l.Answer != lifemodel.OK && l.Answer != lifemodel.Lost:
		return nil
	}
	status, was := &w.cleaner.Status, &q.read.Status
	switch l.What {
	case lifemodel.AddFinalizer:
		w.cleaner.Finalizers = []string{v1alpha1.Finalizer}
	case lifemodel.Record:
		w.record(q, &before.P[i])
		if l.Answer == lifemodel.Lost {
			q.memory = life.Memory{}
		}
	case lifemodel.MoveToUnsent:
		status.Unsent, status.Run = w.finished(was.Run, &q.memory, "", "", w.now()), nil
	case lifemodel.WriteResult:
		status.Run = w.finished(was.Run, &q.memory, q.request.Result, q.request.Message, w.now())
	case lifemodel.ClearUnsent:
		status.Unsent = nil
	case lifemodel.ClearRecord:
		status.Run, status.Unsent = nil, nil
	case lifemodel.RemoveFinalizer, lifemodel.GiveUp:
		w.cleaner.Finalizers = nil
		if w.cleaner.DeletionTimestamp != nil {
			w.cleaner = nil
		}
	}
	return nil
}

// record writes the rows of what a process has confirmed.
func (w *stayWalk) record(q *stayer, p *recurring.Process) {
	q.at = map[int]int{}
	var rows []runrow.Row
	for k, v := range p.Batch {
		if v.UID == 0 {
			continue
		}
		q.at[k] = len(rows)
		rows = append(rows, runrow.Row{Rule: "unused", Ref: observed.Ref{
			Resource: configMaps, Namespace: namespace, Name: targetNames[k], UID: uid(k, v.UID), ResourceVersion: strconv.Itoa(int(v.RV)),
		}})
	}
	run, ledger := w.batch(&q.read.Status, &q.memory.Ledger, "v1:x", rows, nil, w.now())
	if q.read.Status.Run == nil {
		run.Counts = append(run.Counts, v1alpha1.Count{Resource: "padding", Outcome: v1alpha1.OutcomeDeleted, Count: padding})
	}
	w.cleaner.Status.Run, w.cleaner.Status.Runs = run, run.Number
	q.memory = life.Memory{Ledger: *ledger}
}

// answers gives a process the answer to a deed.
func (w *stayWalk) answers(q *stayer, k int, a lifemodel.Answer) {
	answer := map[lifemodel.Answer]life.RowAnswer{
		lifemodel.OK: {Did: v1alpha1.OutcomeDeleted}, lifemodel.NotFound: {Did: v1alpha1.OutcomeGone}, lifemodel.Conflict: {Cut: true},
		lifemodel.Refused: {Failed: "403"}, lifemodel.Lost: {Failed: "lost", Lost: true},
	}[a]
	if q.read.Spec.CloudEventSink != "" {
		w.answered(&q.memory, q.at[k], answer)
	}
}

// look lets a process read the rows that it asked for.
func (w *stayWalk) look(q *stayer, s *recurring.State) error {
	sights := map[int]life.Sight{}
	for _, n := range q.request.Rows {
		k, _, err := readRow(q.read.Status.Run.Rows[n])
		if err != nil {
			return err
		}
		sights[n] = life.Sight{Missing: true}
		if t := &s.T[k]; t.Exists {
			sights[n] = life.Sight{UID: uid(k, t.UID), ResourceVersion: strconv.Itoa(int(t.RV))}
		}
	}
	q.memory.RecordSights(q.read.Status.Run, sights, w.now())
	return nil
}

// compare holds what is recorded and what processes know against the model, after each step.
func (w *stayWalk) compare() error {
	got, err := w.abstract(w.cleaner)
	if err != nil {
		return err
	}
	if got != w.s.C {
		return fmt.Errorf("the Cleaner is not as the model says: -model +real:\n%s", cmp.Diff(w.s.C, got))
	}
	for i := range w.s.P {
		p, q := &w.s.P[i], &w.procs[i]
		if p.Current && p.Read == w.s.C && w.cleaner != nil {
			q.read = w.cleaner.DeepCopy()
		}
		if p.Role != lifemodel.Leader || !p.Current || p.Read.Run.Number == 0 || p.Read.Run.Abandoned {
			continue
		}
		known, err := knowledge(q)
		if err != nil {
			return err
		}
		if known != p.Known {
			return fmt.Errorf("P%d does not know what the model's does: -model +real:\n%s", i, cmp.Diff(p.Known, known))
		}
	}
	return nil
}

// knowledge is what a process knows of the rows of the open run, in the words of the model.
func knowledge(q *stayer) (out [recurring.Items]recurring.Knowledge, err error) {
	run := q.read.Status.Run
	unknown := q.memory.UnknownRows(run)
	for n, text := range run.Rows {
		k, _, err := readRow(text)
		if err != nil {
			return out, err
		}
		switch {
		case slices.Contains(unknown, n):
			out[k] = recurring.Nothing
		case q.memory.Rows[n].Doubt:
			out[k] = recurring.Unclear
		case q.memory.Rows[n].Did == "" && q.memory.Rows[n].State == life.RowOpen:
			out[k] = recurring.NotDone
		default:
			out[k] = recurring.Done
		}
	}
	return out, nil
}

// abstract is a real Cleaner as the model sees it; nil is one that is gone.
func (w *stayWalk) abstract(c *v1alpha1.Cleaner) (recurring.Cleaner, error) {
	if c == nil {
		return recurring.Cleaner{}, nil
	}
	decides, err := life.FingerprintWork(c.Work())
	if err != nil {
		return recurring.Cleaner{}, err
	}
	out := recurring.Cleaner{
		Exists: true, Finalizer: slices.Contains(c.Finalizers, v1alpha1.Finalizer), Deleted: c.DeletionTimestamp != nil,
		Suspended: c.Spec.Suspend, Sink: c.Spec.CloudEventSink != "", Decides: w.decides[decides], Runs: uint8(c.Status.Runs),
	}
	if run := c.Status.Run; run != nil {
		out.Run = counted(run)
		for _, text := range run.Rows {
			k, row, err := readRow(text)
			if err != nil {
				return out, err
			}
			rv, err := strconv.ParseUint(row.ResourceVersion, 10, 8)
			if err != nil {
				return out, err
			}
			for n := range uint8(9) {
				if uid(k, n) == row.UID {
					out.Run.Rows[k] = lifemodel.Version{UID: n, RV: uint8(rv)}
				}
			}
		}
	}
	if run := c.Status.Unsent; run != nil {
		r := counted(run)
		out.Unsent = recurring.Report{Number: r.Number, Done: r.Done, Unknown: r.Unknown}
		if want := r.Unknown > 0; len(run.Rows) > 0 || want != (run.Result == v1alpha1.ResultPartial) || !want != (run.Result == v1alpha1.ResultCompleted) {
			return out, fmt.Errorf("unsent is %s, with %d rows, and %d objects are unknown", run.Result, len(run.Rows), r.Unknown)
		}
	}
	return out, nil
}

// counted is a real run as the model sees it, but for its rows.
func counted(run *v1alpha1.Run) recurring.Run {
	out := recurring.Run{Number: uint8(run.Number), Abandoned: run.Result == v1alpha1.ResultAbandoned}
	for _, c := range run.Counts {
		switch {
		case c.Resource == "padding":
		case c.Outcome == v1alpha1.OutcomeUnknown:
			out.Unknown += uint8(c.Count)
		default:
			out.Done += uint8(c.Count)
		}
	}
	return out
}

// stayScenarios are the model's worlds with more going on than could be explored whole.
func stayScenarios() map[string]recurring.Scenario {
	out := map[string]recurring.Scenario{}
	for _, s := range recurring.Scenarios() {
		s.Acts, s.Crashes, s.Losses = 8, 2, 3
		out[s.Name] = s
	}
	return out
}

// walkStaying takes one walk, and counts what the machine asked for.
func walkStaying(s recurring.Scenario, machine stays, seed uint64) (map[life.RequestKind]int, error) {
	walk, err := newStayWalk(&recurring.Model{Scenario: s}, machine, seed)
	if err != nil {
		return nil, err
	}
	if err := walk.run(); err != nil && !errors.Is(err, errBounds) {
		return walk.asked, fmt.Errorf("seed %d: %w\n%s", seed, err, strings.Join(walk.trace, "\n"))
	}
	return walk.asked, nil
}

// The real machine of a Cleaner that stays asks for nothing that the model does not allow, knows and records what the
// model does, and comes to an end.
func TestNextRecurringRefinesTheModel(t *testing.T) {
	walks := uint64(300)
	if os.Getenv("CLEANER_LIFE_MODEL") == "whole" {
		walks = 3000
	}
	var mu sync.Mutex
	asked := map[life.RequestKind]int{}
	t.Run("walks", func(t *testing.T) {
		for name, scenario := range stayScenarios() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for seed := range walks {
					kinds, err := walkStaying(scenario, sound(), seed)
					if err != nil {
						t.Fatal(err)
					}
					mu.Lock()
					for kind, n := range kinds {
						asked[kind] += n
					}
					mu.Unlock()
				}
			})
		}
	})
	for _, kind := range []life.RequestKind{
		life.Idle, life.Evaluate, life.LookRows, life.AddFinalizer, life.Record, life.MoveToUnsent, life.WriteResult, life.ClearRecord,
		life.ClearUnsent, life.RemoveFinalizer, life.GiveUp,
	} {
		if asked[kind] == 0 {
			t.Errorf("no walk came to %v", kind)
		}
	}
}

// A broken machine does not get through the walks.
func TestWalksCatchBrokenMachinesThatStay(t *testing.T) {
	const walks = 3000
	cases := map[string]struct {
		reason   string
		scenario string
		breaks   func(m *stays)
	}{
		"RowsBeforeFinalizer": {"Without the finalizer a deletion takes the run with it.", "orders", func(m *stays) {
			m.before = func(c v1alpha1.Owner, l *life.Ledger) life.Request {
				c.SetFinalizers([]string{v1alpha1.Finalizer})
				return life.BeforeBatch(c, l)
			}
		}},
		"CountsUnread": {"What nobody knows of a row must be looked at before it is counted.", "answers", func(m *stays) {
			m.before = func(c v1alpha1.Owner, l *life.Ledger) life.Request {
				if req := life.BeforeBatch(c, l); req.Kind != life.LookRows {
					return req
				}
				return life.Request{Kind: life.Record}
			}
		}},
		"NeverFull": {"A run that is full must make room.", "items", func(m *stays) {
			m.before = func(c v1alpha1.Owner, l *life.Ledger) life.Request {
				if req := life.BeforeBatch(c, l); req.Kind != life.MoveToUnsent {
					return req
				}
				return life.Request{Kind: life.Record}
			}
		}},
		"OverwritesUnsent": {"A run leaves status.run only when unsent is empty.", "sink", func(m *stays) {
			m.rest = func(c v1alpha1.Owner, l *life.Ledger) life.Request {
				c.State().Unsent = nil
				return life.AtRest(c, l)
			}
		}},
		"FinishesSuspended": {"A suspended Cleaner keeps its run.", "orders", func(m *stays) {
			m.rest = func(c v1alpha1.Owner, l *life.Ledger) life.Request {
				c.Common().Suspend = false
				return life.AtRest(c, l)
			}
		}},
		"ForgetsNumbers": {"Two runs must not have one number.", "items", func(m *stays) {
			m.batch = func(s *v1alpha1.CleanerStatus, l *life.Ledger, d string, r []runrow.Row, w []v1alpha1.Withheld, now time.Time) (*v1alpha1.Run, *life.Ledger) {
				s = s.DeepCopy()
				s.Runs = 0
				return life.BeginBatch(s, l, d, r, w, now)
			}
		}},
		"LostIsNoDeed": {"After a lost answer nobody knows what became of a row.", "answers", func(m *stays) {
			m.answered = func(l *life.Memory, i int, a life.RowAnswer) {
				if !a.Lost {
					l.RecordAnswer(i, a, time.Time{})
				}
			}
		}},
		"CallsUnknownCompleted": {"A run of which something is unknown is Partial.", "answers", func(m *stays) {
			m.finished = func(run *v1alpha1.Run, l *life.Memory, _ v1alpha1.Result, message string, now time.Time) *v1alpha1.Run {
				return life.FinishRun(run, l, v1alpha1.ResultCompleted, message, now)
			}
		}},
		"IgnoresTheDeletion": {"A deletion of the Cleaner must stop deeds.", "orders", func(m *stays) {
			m.next = func(v life.View, l *life.Memory) life.Request {
				v.Cleaner.SetDeletionTimestamp(nil)
				return life.Next(v, l)
			}
		}},
		"AbandonsUnread": {"A deletion, too, must look at what is not known.", "orders", func(m *stays) {
			m.next = func(v life.View, l *life.Memory) life.Request {
				req := life.Next(v, l)
				if req.Kind == life.LookRows {
					return life.Request{Kind: life.WriteResult, Result: v1alpha1.ResultAbandoned}
				}
				return req
			}
		}},
		"GivesUpTooEarly": {"An undelivered event must hold a deleted Cleaner for the grace.", "orders", func(m *stays) {
			m.next = func(v life.View, l *life.Memory) life.Request {
				v.FinishGrace = 0
				return life.Next(v, l)
			}
		}},
		"NeverGivesUp": {"It must not hold it for ever.", "sink", func(m *stays) {
			m.next = func(v life.View, l *life.Memory) life.Request {
				req := life.Next(v, l)
				if req.Kind == life.GiveUp || req.Kind == life.RemoveFinalizer {
					return life.Request{Kind: life.Idle}
				}
				return req
			}
		}},
		"DropsUndelivered": {"What the sink has not taken must not be dropped.", "orders", func(m *stays) {
			m.next = func(v life.View, l *life.Memory) life.Request {
				v.Delivered = true
				return life.Next(v, l)
			}
		}},
		"KeepsTheRecordWithoutASink": {"A sink that is removed takes the record with it.", "sink", func(m *stays) {
			m.next = func(v life.View, l *life.Memory) life.Request {
				setSink(v.Cleaner.(*v1alpha1.Cleaner), true)
				return life.Next(v, l)
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine, scenario := sound(), stayScenarios()[tc.scenario]
			tc.breaks(&machine)
			for seed := range uint64(walks) {
				_, err := walkStaying(scenario, machine, seed)
				if err == nil {
					continue
				}
				if _, broken := walkStaying(scenario, sound(), seed); broken != nil {
					t.Fatalf("the machine that is not broken fails too: %v", broken)
				}
				t.Logf("caught by %s", strings.SplitN(err.Error(), "\n", 2)[0])
				return
			}
			t.Errorf("\n%s\n%d walks caught nothing", tc.reason, walks)
		})
	}
}
