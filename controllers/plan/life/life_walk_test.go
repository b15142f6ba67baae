// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
	"github.com/vtex/cleaner/test/lifemodel"
)

// machine is life.Next, or a broken one.
type machine func(life.View, *life.Memory) life.Request

// process is the real side of an operator process of the model.
type process struct {
	memory life.Memory
	read   *v1alpha1.Cleaner
	// request is what the process has made up its mind to send.
	request life.Request
	// batch holds the rows of an Act that are not sent yet, and course how far their steps are.
	batch  []int
	course *life.Course
	failed map[int]bool
	// follows says that an object has changed, so that it is decided anew at once.
	follows bool
	// todo is what was decided last for the run.
	todo plan.Plan
	// run, remembered and plan are what it is about to commit.
	run        *v1alpha1.Run
	remembered *life.Memory
	plan       plan.Plan
}

// walk drives the real machine through the model: the walk chooses what others, time and the API server do and when a
// process has its turn, and the machine chooses the request.
type walk struct {
	*world
	next    machine
	rng     *rand.Rand
	s       lifemodel.State
	now     time.Time
	cleaner *v1alpha1.Cleaner // as the API server has it; nil when it is gone
	procs   [2]process
	trace   []string
	asked   map[life.RequestKind]int
}

// errBounds ends a walk that has left what the model counts.
var errBounds = fmt.Errorf("the walk has left the bounds of the model")

func newWalk(w *world, next machine, seed uint64) *walk {
	out := &walk{
		world: w, next: next, rng: rand.New(rand.NewPCG(seed, 0)),
		s: w.model.Init(), now: w.epoch, cleaner: w.cleaner(), asked: map[life.RequestKind]int{},
	}
	out.procs[0].read = out.cleaner.DeepCopy()
	return out
}

// run takes steps at random, and then only those that happen by themselves until an end is reached.
func (w *walk) run() error {
	const steps, patience = 80, 1500
	disturbance := 0.05 + w.rng.Float64()/2
	for range steps {
		if err := w.step(disturbance); err != nil {
			return err
		}
		if !w.s.C.Exists {
			return nil
		}
	}
	w.note("-- from here on nobody disturbs")
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

func (w *walk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// step is one step of the first part of a walk.
func (w *walk) step(disturbance float64) error {
	others := w.steps(func(s *lifemodel.Step) bool { return !request(s.Label) })
	if len(others) > 0 && w.rng.Float64() < disturbance {
		return w.take(pick(w, others))
	}
	_, err := w.turn(w.rng.IntN(2)).play(false)
	return err
}

// settle is one step of the second part: repairs, then the leader, and time when the leader waits.
func (w *walk) settle() error {
	repairs := w.steps(func(s *lifemodel.Step) bool { return s.Fair && !request(s.Label) && s.Label.Who != lifemodel.Time })
	if len(repairs) > 0 {
		return w.take(repairs[0])
	}
	leader := slices.IndexFunc(w.s.P[:], func(p lifemodel.Process) bool { return p.Role == lifemodel.Leader })
	idle, err := w.turn(leader).play(true)
	if err != nil || idle == nil {
		return err
	}
	switch {
	case idle.Until.After(w.now):
		return w.tick(idle.Until)
	case w.s.C.Deleted && !w.s.Grace:
		return w.tick(w.cleaner.DeletionTimestamp.Add(finishGrace))
	default:
		return w.tick(w.now.Add(time.Second))
	}
}

// request says that a step is a request of a process.
func request(l lifemodel.Label) bool { return l.Who >= 0 && l.What <= lifemodel.GiveUp }

// steps are the model's next steps of a kind.
func (w *walk) steps(is func(*lifemodel.Step) bool) []lifemodel.Step {
	var out []lifemodel.Step
	for _, s := range w.model.Succ(w.s) {
		if is(&s) {
			out = append(out, s)
		}
	}
	return out
}

func pick[T any](w *walk, list []T) T { return list[w.rng.IntN(len(list))] }

// turn is the turn of one process of a walk.
type turn struct {
	w *walk
	i int
	p *lifemodel.Process
	q *process // its real side
}

func (w *walk) turn(i int) turn { return turn{w, i, &w.s.P[i], &w.procs[i]} }

// play gives the process its turn. It returns the request if that was to wait.
func (t turn) play(fair bool) (*life.Request, error) {
	mine := t.w.steps(func(s *lifemodel.Step) bool {
		return s.Label.Who == lifemodel.Actor(t.i) && request(s.Label) && (s.Fair || !fair)
	})
	switch {
	case t.q.follows:
		t.q.follows, t.q.batch = false, nil
		if t.offers(lifemodel.Recheck) { // if nobody has given another order
			return nil, t.recheck()
		}
		return nil, nil
	case len(t.q.batch) > 0:
		return nil, t.sendNext(fair)
	case t.p.At != lifemodel.AtStart && t.p.At.Uninstalling():
		if err := t.busy(); err != nil || len(mine) == 0 {
			return nil, err
		}
		return nil, t.w.take(pick(t.w, mine))
	case t.p.At != lifemodel.AtStart:
		if len(mine) == 0 { // an old leader, whose requests are not sent
			return nil, nil
		}
		return nil, t.w.take(pick(t.w, mine))
	case t.p.Role != lifemodel.Leader, t.waits():
		return nil, nil
	}
	beside := slices.DeleteFunc(mine, func(s lifemodel.Step) bool {
		return s.Label.What != lifemodel.Read && s.Label.What != lifemodel.Send
	})
	if len(beside) > 0 && t.w.rng.IntN(2) == 0 {
		step := pick(t.w, beside)
		if owed := life.UndeliveredRun(&t.q.read.Status); step.Label.What == lifemodel.Send && (owed == nil || owed.Number != int64(step.Label.Run)) {
			return nil, fmt.Errorf("%v: Outstanding is %v", step.Label, owed)
		}
		return nil, t.w.take(step)
	}
	return t.ask()
}

// waits says that a DELETE of the process is in flight.
func (t turn) waits() bool {
	return slices.ContainsFunc(t.w.s.Flights[:], func(f lifemodel.Flight) bool { return f.By == int8(t.i+1) })
}

// view is what a process sees.
func (t turn) view() (life.View, error) {
	c := t.q.read.DeepCopy()
	decides, err := life.FingerprintWork(c.Work())
	owed := life.UndeliveredRun(&c.Status)
	return life.View{
		Cleaner: c, Helm: c.Spec.Helm, Decides: decides, Now: t.w.now, SettleFor: settleFor, FinishGrace: finishGrace,
		Delivered: owed != nil && owed.Number == int64(t.p.Delivered),
		Slot:      life.SlotHeld, // to wait for one delays, and decides nothing
	}, err
}

// busy asks a machine whose uninstall is under way: it may deliver, and nothing else.
func (t turn) busy() error {
	v, err := t.view()
	if err != nil {
		return err
	}
	memory := t.q.memory
	req := t.w.next(v, &memory)
	if run := v.Cleaner.State().Run; run == nil || run.Result != "" { // somebody else has ended it
		return nil
	}
	if req.Kind != life.Idle && req.Kind != life.ClearUnsent {
		return fmt.Errorf("P%d asks for %v while it uninstalls", t.i, req.Kind)
	}
	return nil
}

// ask asks the machine for its next request, and takes the step of the model that it stands for. It returns the request
// if that is to wait.
func (t turn) ask() (*life.Request, error) {
	if t.q.read == nil {
		return &life.Request{}, nil
	}
	if t.w.rng.IntN(3) == 0 {
		t.w.note("P%d begins a pass", t.i)
		t.q.memory.NewPass()
	}
	v, err := t.view()
	if err != nil {
		return nil, err
	}
	req := t.w.next(v, &t.q.memory)
	t.w.asked[req.Kind]++
	t.q.request = req
	switch req.Kind {
	case life.Idle:
		if t.w.rng.IntN(2) == 0 && req.Until.After(t.w.now) {
			return nil, t.w.tick(req.Until)
		}
		return &req, nil
	case life.Evaluate:
		return t.evaluate()
	case life.LookRows:
		if t.offers(lifemodel.LookRows) {
			return nil, t.look(lifemodel.LookRows)
		}
		return nil, t.lookUnwanted()
	case life.Settle:
		if err := t.look(lifemodel.Settle); err != nil {
			return nil, err
		}
		t.q.memory.RecordSettleLook(t.w.now)
		return nil, nil
	case life.LookRelease:
		return nil, t.lookRelease()
	case life.Recheck:
		return nil, t.recheck()
	case life.ReviewAuthor:
		return nil, t.review()
	case life.Act:
		return nil, t.act()
	}
	chosen := map[life.RequestKind]lifemodel.What{
		life.StartUninstall: lifemodel.StartUninstall, life.FinishUninstall: lifemodel.FinishUninstall, life.WriteResult: lifemodel.WriteResult,
		life.MoveToUnsent: lifemodel.MoveToUnsent, life.ClearUnsent: lifemodel.ClearUnsent, life.DeleteSelf: lifemodel.DeleteSelf,
		life.RemoveFinalizer: lifemodel.RemoveFinalizer, life.GiveUp: lifemodel.GiveUp,
	}
	what, known := chosen[req.Kind]
	if !known {
		return nil, fmt.Errorf("P%d asks for %v, which the walk does not know", t.i, req.Kind)
	}
	step, err := t.find(what)
	if err != nil {
		return nil, err
	}
	if want := string(req.Result); what == lifemodel.WriteResult && step.Label.Result.String() != want {
		return nil, fmt.Errorf("P%d asks to write %s, and the model %v", t.i, want, step.Label.Result)
	}
	t.q.memory.Busy = req.Kind == life.StartUninstall || req.Kind == life.FinishUninstall
	return nil, t.w.take(step)
}

// offers says that the model lets a process send such a request now.
func (t turn) offers(what lifemodel.What) bool {
	_, err := t.find(what)
	return err == nil
}

// find finds the step of the model that a request stands for.
func (t turn) find(what lifemodel.What) (lifemodel.Step, error) {
	var may []string
	for _, s := range t.w.steps(func(s *lifemodel.Step) bool { return s.Label.Who == lifemodel.Actor(t.i) && request(s.Label) }) {
		if s.Label.What == what {
			return s, nil
		}
		may = append(may, s.Label.String())
	}
	req := &t.q.request
	return lifemodel.Step{}, fmt.Errorf("P%d asks for %v (%q), and the model allows only: %s", t.i, req.Kind, req.Message, strings.Join(may, "; "))
}

// evaluate decides on live reads whether a run begins.
func (t turn) evaluate() (*life.Request, error) {
	p := plan.ComputePlan(ctx(), t.w.input(&t.w.s, t.q.read, t.w.now))
	steps := t.w.steps(func(s *lifemodel.Step) bool {
		return s.Label.Who == lifemodel.Actor(t.i) && s.Label.Answer == lifemodel.Chosen && (s.Label.What == lifemodel.AddFinalizer || s.Label.What == lifemodel.Commit)
	})
	acts := p.Verdict == v1alpha1.VerdictAct
	if acts != (len(steps) == 1) {
		return nil, fmt.Errorf("P%d decides %s (%s), and the model begins %d runs", t.i, p.Verdict, p.Message, len(steps))
	}
	if !acts {
		return &life.Request{Kind: life.Evaluate}, nil
	}
	decides, err := life.FingerprintWork(t.q.read.Work())
	if err != nil {
		return nil, err
	}
	t.q.run, t.q.remembered, t.q.plan = life.CommitRun(&t.q.read.Status, t.w.input(&t.w.s, t.q.read, t.w.now), decides, p)
	return nil, t.w.take(steps[0])
}

// lookUnwanted lets the machine read rows of which nothing is wanted.
func (t turn) lookUnwanted() error {
	for _, n := range t.q.request.Rows {
		k, _, err := readRow(t.q.read.Status.Run.Rows[n])
		if err != nil {
			return err
		}
		steps := t.w.steps(func(s *lifemodel.Step) bool {
			return s.Label.Who == lifemodel.Actor(t.i) && s.Label.What == lifemodel.KeepRow && int(s.Label.Row) == k
		})
		t.q.memory.RecordSights(t.q.read.Status.Run, map[int]life.Sight{n: t.w.sight(&t.w.s, k)}, t.w.now)
		t.q.memory.RowsRead = t.p.Looked
		if len(steps) == 0 {
			return fmt.Errorf("P%d looks at row %d, and the model does not", t.i, k)
		}
		t.w.note("%v", steps[0].Label)
		t.w.s = steps[0].To
	}
	return t.w.compare()
}

// look lets the machine read rows.
func (t turn) look(what lifemodel.What) error {
	step, err := t.find(what)
	if err != nil {
		return err
	}
	sights := map[int]life.Sight{}
	for _, n := range t.q.request.Rows {
		k, _, err := readRow(t.q.read.Status.Run.Rows[n])
		if err != nil {
			return err
		}
		sights[n] = t.w.sight(&t.w.s, k)
	}
	t.q.memory.RecordSights(t.q.read.Status.Run, sights, t.w.now)
	return t.w.take(step)
}

func (t turn) lookRelease() error {
	if t.w.s.Rel.Locked {
		t.w.note("P%d may not look at the release", t.i)
		t.q.memory.RecordReleaseUnread("403", t.w.now)
		if step, err := t.find(lifemodel.LookRelease); err == nil {
			return t.w.take(step)
		}
		return nil
	}
	step, err := t.find(lifemodel.LookRelease)
	if err != nil {
		return err
	}
	if t.w.rng.IntN(10) == 0 {
		t.w.note("P%d cannot look at the release", t.i)
		t.q.memory.RecordReleaseUnread("500", t.w.now)
		return nil
	}
	t.q.memory.RecordRelease(t.q.read.Status.Run, t.w.release(&t.w.s, t.q.read.Status.Run.Number), t.w.now)
	return t.w.take(step)
}

func (t turn) review() error {
	step, err := t.find(lifemodel.ReviewAuthor)
	if err != nil {
		return err
	}
	if step.Label.Answer == lifemodel.Refused {
		t.q.memory.RecordReviewRefused(v1alpha1.ReasonAuthorLacksRights, "may not", t.w.now.Add(30*time.Second))
	} else {
		t.q.memory.RecordReview(nil, t.w.now)
	}
	return t.w.take(step)
}

func (t turn) recheck() error {
	step, err := t.find(lifemodel.Recheck)
	if err != nil {
		return err
	}
	run := t.q.read.Status.Run
	in := t.w.input(&t.w.s, t.q.read, t.w.now)
	if t.w.rng.IntN(10) == 0 {
		t.w.note("P%d cannot read what a re-check needs", t.i)
		in.Snapshot[len(in.Snapshot)-1].State = observed.Failed
		t.q.memory.RecordJudgement(life.JudgeRun(ctx(), in, run, &t.q.memory), t.w.now)
		return nil
	}
	answers := map[life.JudgeOutcome]lifemodel.Answer{
		life.JudgeTrue: lifemodel.Yes, life.JudgeFalse: lifemodel.No, life.JudgeUndecidable: lifemodel.Undecidable,
	}
	got := life.JudgeRun(ctx(), in, run, &t.q.memory)
	if a, ok := answers[got.Outcome]; !ok || a != step.Label.Answer {
		return fmt.Errorf("P%d re-checks and gets outcome %d (%s), the model: %v", t.i, got.Outcome, got.Why, step.Label.Answer)
	}
	t.q.memory.RecordJudgement(got, t.w.now)
	t.q.todo = got.Plan
	if err := t.w.take(step); err != nil || t.p.Stop {
		return err
	}
	return t.compareVerdicts()
}

// compareVerdicts holds what a re-check wants of each open row, and at which version, against the model.
func (t turn) compareVerdicts() error {
	for n, text := range t.q.read.Status.Run.Rows {
		k, row, err := readRow(text)
		if err != nil {
			return err
		}
		entry := &t.q.memory.Rows[n]
		if entry.State != life.RowOpen {
			continue
		}
		if got, want := entry.Unwanted != "", t.p.Unwanted.Has(k); got != want {
			return fmt.Errorf("P%d re-checks, and wants nothing of row %d: real %t (%q), model %t", t.i, k, got, entry.Unwanted, want)
		}
		want := t.p.Later[k]
		if want == (lifemodel.Version{}) {
			want = t.p.Read.Run.Rows[k]
		}
		if got := t.q.memory.DecidedVersion(n, row); got != strconv.Itoa(int(want.RV)) && entry.Unwanted == "" {
			return fmt.Errorf("P%d re-checks, and wants row %d at version %s, and the model at %d", t.i, k, got, want.RV)
		}
	}
	return nil
}

// act takes a batch: its steps are sent one after the other, as the model must allow.
func (t turn) act() error {
	rows, due := map[types.UID]int{}, map[types.UID]bool{}
	for n, text := range t.q.read.Status.Run.Rows {
		k, row, err := readRow(text)
		if err != nil {
			return err
		}
		rows[row.UID] = n
		if slices.Contains(t.q.request.Rows, n) {
			if t.w.s.Flights[k] != (lifemodel.Flight{}) { // of a process that died: the model has one DELETE of a row at a time
				return nil
			}
			due[row.UID] = true
		}
	}
	t.q.batch, t.q.course, t.q.failed = t.q.request.Rows, t.q.memory.CourseOfRows(t.q.todo, rows, due), map[int]bool{}
	t.w.note("P%d takes a batch of %d rows", t.i, len(t.q.batch))
	return nil
}

// deletes are the model's DELETEs of one row by one process.
func (t turn) deletes(k int, fair bool) []lifemodel.Step {
	return t.w.steps(func(s *lifemodel.Step) bool {
		l := s.Label
		return l.Who == lifemodel.Actor(t.i) && l.What == lifemodel.DeleteRow && int(l.Row) == k && (s.Fair || !fair)
	})
}

// sendNext sends the next DELETE of a batch, unless orders have changed.
func (t turn) sendNext(fair bool) error {
	due, broken := t.q.course.NextSteps()
	if len(due) == 0 {
		return t.settleBatch()
	}
	due = slices.DeleteFunc(due, func(n int) bool { return t.w.s.Flights[targetOf(&t.q.course.Steps[n])] != lifemodel.Flight{} })
	if len(due) == 0 { // the answers have not come
		return nil
	}
	of := due[0]
	if broken[of] {
		t.q.course.MarkFailed(of)
		return nil
	}
	o, k := &t.q.course.Steps[of].Object, targetOf(&t.q.course.Steps[of])
	steps := t.deletes(k, fair)
	if len(steps) == 0 {
		if may := t.deletes(k, false); len(may) == 0 && t.mayAct() {
			return fmt.Errorf("P%d deletes %s, and the model does not allow it", t.i, o)
		}
		t.w.note("P%d does not send the DELETE of row %d", t.i, k)
		t.q.batch = nil
		return nil
	}
	want := t.p.Later[k]
	if want == (lifemodel.Version{}) {
		want = t.p.Read.Run.Rows[k]
	}
	if got := o.ResourceVersion; got != strconv.Itoa(int(want.RV)) {
		return fmt.Errorf("P%d would delete %s at version %s, the model at %d", t.i, o, got, want.RV)
	}
	return t.w.take(pick(t.w, steps))
}

// targetOf is the target of the model that a step is about.
func targetOf(s *plan.Step) int { return slices.Index(targetNames[:], s.Object.Name) }

// mayAct says that orders of the model let a process act at all: else its requests are not sent.
func (t turn) mayAct() bool {
	c := &t.w.s.C
	return t.p.Role == lifemodel.Leader && t.p.Confirmed && c.Exists && !c.Deleted && !c.Suspended && c.Decides == t.p.Read.Run.Decides
}

// settleBatch ends a batch: what comes after a step that was not taken has failed with it.
func (t turn) settleBatch() error {
	for _, n := range t.q.batch {
		_, row, err := readRow(t.q.read.Status.Run.Rows[n])
		if err != nil {
			return err
		}
		if r := &t.q.memory.Rows[n]; r.State == life.RowOpen && !t.q.failed[n] && t.q.course.IsAbout(row.UID) && !t.q.course.IsObjectDone(row.UID) {
			t.q.memory.RecordAnswer(n, life.RowAnswer{Failed: "an action that comes before it was not done"}, t.w.now)
		}
	}
	t.q.batch = nil
	return nil
}

// take takes a step of the model, and makes the real side follow.
func (w *walk) take(step lifemodel.Step) error {
	l := step.Label
	if step.Breaks.Fault() {
		return fmt.Errorf("%v breaks %v", l, step.Breaks)
	}
	if step.Breaks == lifemodel.OutOfBounds {
		return errBounds
	}
	w.note("%v", l)
	before := w.s
	w.s = step.To
	var err error
	switch {
	case l.Who == lifemodel.Time:
		return w.passed(l.What)
	case l.Who == lifemodel.Server:
		if by := before.Flights[l.Row].By; by > 0 {
			err = w.answered(int(by-1), int(l.Row), l.Answer)
		}
	case l.Who >= 0 && request(l):
		err = w.served(int(l.Who), before.P[l.Who].At, l)
	default:
		w.happened(l)
	}
	if err != nil {
		return err
	}
	return w.compare()
}

// happened is what others do to the Cleaner and to processes.
func (w *walk) happened(l lifemodel.Label) {
	switch l.What {
	case lifemodel.Edit:
		edit(w.cleaner, w.s.C.Decides)
	case lifemodel.Suspend:
		w.cleaner.Spec.Suspend = w.s.C.Suspended
	case lifemodel.SetSink:
		setSink(w.cleaner, w.s.C.Sink)
	case lifemodel.KubectlDelete:
		w.deleted()
	case lifemodel.Crash, lifemodel.Exit:
		w.procs[l.Who] = process{}
	case lifemodel.Pause:
		w.procs[1-l.Who] = process{}
	}
}

// deleted is what the API server does with a DELETE of the Cleaner.
func (w *walk) deleted() {
	if len(w.cleaner.Finalizers) == 0 {
		w.cleaner = nil
		return
	}
	at := metav1.NewTime(w.now)
	w.cleaner.DeletionTimestamp = &at
}

// answered gives a process the answer to its DELETE, with the live read that follows a conflict.
func (w *walk) answered(i, k int, a lifemodel.Answer) error {
	q := &w.procs[i]
	for n, text := range q.read.Status.Run.Rows {
		of, row, err := readRow(text)
		if err != nil {
			return err
		}
		if of != k {
			continue
		}
		w.answeredRow(i, n, row, a)
	}
	return nil
}

func (w *walk) answeredRow(i, n int, row runrow.Row, a lifemodel.Answer) {
	q := &w.procs[i]
	k, _, _ := readRow(row.String())
	seen, done := w.sight(&w.s, k), true
	switch {
	case a == lifemodel.OK:
		q.memory.RecordAnswer(n, life.RowAnswer{Did: v1alpha1.OutcomeDeleted}, w.now)
	case a == lifemodel.NotFound, a == lifemodel.Conflict && seen.Missing:
		q.memory.RecordAnswer(n, life.RowAnswer{Did: v1alpha1.OutcomeGone}, w.now)
	case a == lifemodel.Conflict && seen.UID != row.UID:
		q.memory.RecordAnswer(n, life.RowAnswer{Replaced: true}, w.now)
		done = false
	case a == lifemodel.Conflict && seen.Terminating:
		q.memory.RecordAnswer(n, life.RowAnswer{Did: v1alpha1.OutcomeGone, Terminating: true, Finalizers: seen.Finalizers}, w.now)
	case a == lifemodel.Conflict:
		q.memory.VoidConfirmation()
		q.memory.RecordAnswer(n, life.RowAnswer{Cut: true}, w.now)
		q.follows = true
		return
	default:
		q.memory.RecordAnswer(n, life.RowAnswer{Failed: a.String(), Lost: a == lifemodel.Lost}, w.now)
		done, q.failed[n] = false, true
	}
	for s := range q.batchSteps() {
		switch {
		case q.course.Steps[s].Object.UID != row.UID:
		case done:
			q.course.MarkSucceeded(s)
		default:
			q.course.MarkFailed(s)
		}
	}
}

// batchSteps are the steps of the batch, if there is one.
func (q *process) batchSteps() []plan.Step {
	if q.course == nil {
		return nil
	}
	return q.course.Steps
}

// served is what a request of a process does to the Cleaner, and what the process learns.
func (w *walk) served(i int, from lifemodel.Place, l lifemodel.Label) error {
	q := &w.procs[i]
	served := l.Answer == lifemodel.OK || l.Answer == lifemodel.Lost
	switch {
	case from.Uninstalling():
		if w.s.P[i].At == lifemodel.AtStart { // the pool has come to an end, and wakes the Cleaner
			q.memory.NewPass()
			why := ""
			if l.What != lifemodel.DeleteRelease || l.Answer != lifemodel.OK {
				why = l.String()
			}
			q.memory.RecordUninstall(why, w.now)
		}
		return nil
	case l.What == lifemodel.DeleteRow && l.Answer != lifemodel.Sent:
		return w.answered(i, int(l.Row), l.Answer)
	case !served:
		return nil
	}
	switch l.What {
	case lifemodel.AddFinalizer:
		w.cleaner.Finalizers = append(w.cleaner.Finalizers, v1alpha1.Finalizer)
	case lifemodel.Commit:
		w.cleaner.Status.Run, w.cleaner.Status.Runs = q.run, q.run.Number
		if l.Answer == lifemodel.OK {
			q.memory, q.todo = *q.remembered, q.plan
		}
	case lifemodel.WriteResult:
		w.cleaner.Status.Run = life.FinishRun(q.read.Status.Run, &q.memory, q.request.Result, q.request.Message, w.now)
		if l.Answer == lifemodel.OK {
			q.memory = life.Memory{}
		}
	case lifemodel.MoveToUnsent:
		w.cleaner.Status.Unsent, w.cleaner.Status.Run = nil, nil
		if q.read.Spec.CloudEventSink != "" {
			w.cleaner.Status.Unsent = q.read.Status.Run
		}
	case lifemodel.ClearUnsent:
		w.cleaner.Status.Unsent = nil
	case lifemodel.DeleteSelf:
		w.deleted()
	case lifemodel.RemoveFinalizer, lifemodel.GiveUp:
		w.cleaner.Finalizers = nil
		if w.cleaner.DeletionTimestamp != nil {
			w.cleaner = nil
		}
	}
	return nil
}

// passed makes the real clock follow a step of time.
func (w *walk) passed(what lifemodel.What) error {
	if what == lifemodel.GraceEnds {
		if end := w.cleaner.DeletionTimestamp.Add(finishGrace); end.After(w.now) {
			return w.tick(end)
		}
		return w.compare()
	}
	return w.tick(w.now.Add(life.ConfirmationServes))
}

// tick moves the real clock, and makes the model follow.
func (w *walk) tick(to time.Time) error {
	w.now = to
	for i := range w.s.P {
		if w.s.P[i].Confirmed && !w.confirmed(i) || w.s.P[i].Reviewed && !w.procs[i].memory.AuthorMay(w.now) {
			return w.lapse(lifemodel.TenSeconds)
		}
	}
	if w.s.C.Deleted && !w.s.Grace && !w.now.Before(w.cleaner.DeletionTimestamp.Add(finishGrace)) {
		return w.lapse(lifemodel.GraceEnds)
	}
	return w.compare()
}

// confirmed says whether the real process still has its confirmation: of the open run, or of the one to be committed.
func (w *walk) confirmed(i int) bool {
	q, p := &w.procs[i], &w.s.P[i]
	if p.At == lifemodel.AtAddFinalizer || p.At == lifemodel.AtCommit {
		return q.remembered.IsConfirmed(w.now)
	}
	return q.memory.IsConfirmed(w.now)
}

// lapse takes a step of time because the real clock has moved on. In the model 10 s pass for all processes at once.
func (w *walk) lapse(what lifemodel.What) error {
	if what == lifemodel.TenSeconds {
		w.now = w.now.Add(life.ConfirmationServes)
	}
	steps := w.steps(func(s *lifemodel.Step) bool { return s.Label.What == what })
	w.note("%v", steps[0].Label)
	w.s = steps[0].To
	return w.tick(w.now)
}

// compare holds what is recorded and what processes know against the model, after each step.
func (w *walk) compare() error {
	got, err := w.abstract(w.cleaner)
	if err != nil {
		return err
	}
	if got != w.s.C {
		return fmt.Errorf("the Cleaner is not as the model says: -model +real:\n%s", cmp.Diff(w.s.C, got))
	}
	for i := range w.s.P {
		p := &w.s.P[i]
		if p.Read == w.s.C {
			w.procs[i].read = w.cleaner.DeepCopy()
		}
		if p.Role != lifemodel.Leader || p.Run == 0 || p.Run != p.Read.Run.Number || p.Read.Run.Result != lifemodel.Open {
			continue
		}
		if err := w.compareMemory(i); err != nil {
			return err
		}
	}
	return nil
}

// known is what a process knows of an open run, in the words of the model.
type known struct {
	Run                    uint8
	Done, Replaced, Left   lifemodel.Rows
	Confirmed, Stop, Whole bool
}

func (w *walk) compareMemory(i int) error {
	p, m := &w.s.P[i], &w.procs[i].memory
	want := known{Run: p.Run, Done: p.Done, Replaced: p.Replaced, Confirmed: p.Confirmed, Stop: p.Stop, Whole: p.Whole}
	got := known{Run: uint8(m.Number), Confirmed: m.IsConfirmed(w.now), Stop: m.Stop != "", Whole: m.AllAnswered}
	for n, text := range w.procs[i].read.Status.Run.Rows {
		k, _, err := readRow(text)
		if err != nil {
			return err
		}
		set := lifemodel.Rows(1) << k
		if !(p.Done | p.Replaced).Has(k) {
			want.Left |= set
		}
		if n >= len(m.Rows) {
			continue
		}
		switch m.Rows[n].State {
		case life.RowDeleted, life.RowGone:
			got.Done |= set
		case life.RowReplaced:
			got.Replaced |= set
		default:
			got.Left |= set
		}
	}
	if got != want {
		return fmt.Errorf("P%d does not know what the model's does: -model +real:\n%s", i, cmp.Diff(want, got))
	}
	return nil
}
