// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/internal/passreads"
	"github.com/vtex/cleaner/controllers/internal/rehearsed"
	"github.com/vtex/cleaner/controllers/liveconfirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// batchEnd says what follows a batch.
type batchEnd int

const (
	// moreToDo: the next batch does what is left to do.
	moreToDo batchEnd = iota
	// allDecided: the pass ends, and reports the last decision.
	allDecided
	// workIsLeft: the pass ends, and the next one continues soon.
	workIsLeft
	// notConfirmed: the pass ends, and reports why nothing could be confirmed.
	notConfirmed
)

// recurrence is a Recurring Cleaner between its runs.
type recurrence struct{ pass *pass }

// doBatches does one batch after the other until nothing is left to do, or until its time is over. It returns the decision to
// report.
func (r *recurrence) doBatches(ctx context.Context, in plan.Input, d plan.Plan) (reportedPlan, error) {
	r.pass.mem.Idle.KeepUsed(d.ListIdle(), r.pass.r.clock.Now())
	r.pass.mem.forgetOld(r.pass.assignment.Work.Limits, r.pass.r.clock.Now())
	w := &batches{pass: r.pass, size: life.SizeFirstBatch(r.pass.assignment.Work, r.pass.store.Draft.Common().HasSink(), r.pass.isDryRun(), int(r.pass.r.quickBatch.Load())), touched: map[types.UID]bool{}}
	if r.pass.isDryRun() {
		w.marks = rehearsed.MarkItems(d)
		r.pass.mem.Rehearsed.ForgetOthers(w.marks)
	}
	w.recordDecision(in, d)
	for ; r.hasStepsLeft(w.todo) && !r.pass.r.clock.Now().Before(r.pass.mem.retryAt); w.later = true {
		end, err := w.doBatch(ctx)
		switch {
		case err != nil, end == allDecided:
			return reportedPlan{w.decision}, err
		case end == workIsLeft:
			return r.describeUnfinished(w.decision), nil
		case end == notConfirmed:
			return w.obstacle, r.endTick(ctx, w.obstacle.Plan)
		}
	}
	return r.endBatches(ctx, w.decision, w.todo)
}

// batches are those of one pass.
type batches struct {
	pass *pass
	in   plan.Input
	// decision is the latest plan from the watches, and todo that plan without the items that live reads did not confirm and that still wait.
	decision, todo plan.Plan
	// obstacle says why nothing could be confirmed.
	obstacle reportedPlan
	// marks are those of the first decision, where mode is DryRun.
	marks rehearsed.Items
	// size is how many items the next batch confirms at most.
	size life.BatchSize
	// touched are the objects that were changed.
	touched map[types.UID]bool
	// later says that there was a batch before.
	later bool
}

// recordDecision records a decision on the watches.
func (w *batches) recordDecision(in plan.Input, d plan.Plan) {
	w.in, w.decision = in, d
	w.pass.recurrence.forgetReports(d)
	w.todo = w.pass.recurrence.leaveOutUnconfirmed(d)
}

// forgetReports forgets the reports of items that are no longer wanted, such as those of deleted objects: when they are wanted again,
// they are reported again. While a rule gives errors it is unknown what it wants.
func (r *recurrence) forgetReports(d plan.Plan) {
	if d.RulesEvaluated || d.Reason == v1alpha1.ReasonConditionsNotMet { // otherwise it is unknown what is found
		r.pass.wanted = &d
	}
	if r.pass.mem.Told.IsEmpty() || !d.RulesEvaluated {
		return
	}
	wanted, wrong := d.ListItems(), map[string]bool{}
	for _, item := range d.Deferred {
		wanted[item] = true
	}
	for i := range d.Errors {
		wrong[d.Errors[i].Rule] = true
	}
	r.pass.mem.Told.KeepWanted(wanted, wrong)
}

// doBatch does one batch, and says what follows.
func (w *batches) doBatch(ctx context.Context) (batchEnd, error) {
	b := &batch{pass: w.pass, executor: &executor{pass: w.pass, in: w.in}, size: w.size, marks: w.marks, later: w.later}
	acted, obstacle, err := b.carryBatch(ctx, w.todo)
	if isFull := b.executor.in.Chosen != nil; acted && isFull {
		before := w.size
		if w.size = before.Resize(b.executor.acted, monotime.ElapsedTime(b.executor.in.Now, w.pass.r.clock.Now())); w.size.IsQuick && w.size != before {
			w.pass.r.quickBatch.Store(int64(w.size.Next))
		}
	}
	switch {
	case errors.Is(err, errOver), errors.Is(err, errLooked) && w.pass.isOver():
		return workIsLeft, nil
	case errors.Is(err, errLooked): // objects that are gone are known now, and no longer wanted
		w.decideAgain(ctx)
		return moreToDo, nil
	case err != nil:
		return moreToDo, err
	case obstacle.Reason != "":
		w.obstacle = obstacle
		return notConfirmed, nil
	}
	w.pass.mem.disagreed = 0
	switch {
	case w.pass.isOver(), !acted && !b.doubted:
		return workIsLeft, nil
	case !acted, w.pass.isDryRun(): // nothing was changed by what it was about, and there may be more
		w.todo = w.pass.recurrence.leaveOutUnconfirmed(w.decision)
		return moreToDo, nil
	}
	return w.decideAfter(ctx, b), nil
}

// batch is one round of actions of a Recurring Cleaner: what was decided on the watches is confirmed by live reads and decided again,
// recorded if there is a sink, and carried out.
type batch struct {
	pass     *pass
	executor *executor
	// size is how many items it confirms at most.
	size life.BatchSize
	// rows are the places of objects in the rows of the run, if the Cleaner has a sink.
	rows map[types.UID]int
	// marks are those of the decision on the watches, where mode is DryRun.
	marks rehearsed.Items
	// doubted says that live reads confirmed nothing of what they were asked about, so that all of it waits.
	doubted bool
	// later says that the pass has carried out another batch before: if it ends before this one is confirmed, that is no news.
	later bool
}

// carryBatch carries out what a decision on the watches wants. acted reports whether anything was done. obstacle, if it has a reason,
// says why nothing could be confirmed. What live reads did not confirm waits, and delays nothing else.
func (b *batch) carryBatch(ctx context.Context, first plan.Plan) (acted bool, obstacle reportedPlan, err error) {
	if obstacle, ok, err := b.mayBegin(ctx); !ok || err != nil {
		return false, obstacle, err
	}
	todo, obstacle, err := b.confirmSteps(ctx, first)
	switch {
	case err != nil, obstacle.Reason != "", len(todo.Steps) == 0:
		return false, obstacle, err
	case b.pass.isDryRun():
		b.executor.rehearseSteps(ctx, b.reportAlone(ctx, todo.Steps), b.marks)
		return true, reportedPlan{}, nil
	}
	if todo, err = b.recordBatch(ctx, todo); err != nil {
		return false, reportedPlan{}, err
	}
	acted, err = b.carrySteps(ctx, first, todo)
	return acted, reportedPlan{}, err
}

// confirmInSlot is confirmLive with the slot that it may need, which is given back also after a panic.
func (b *batch) confirmInSlot(ctx context.Context, first plan.Plan) (last plan.Plan, inTime bool) {
	defer b.pass.evaluator.reserveSlot(ctx)()
	return b.confirmLive(ctx, first)
}

// confirmSteps gives the steps of a decision on the watches that live reads confirm, without the reports that were made already. What they do
// not confirm waits. With a reason, obstacle says why nothing could be confirmed.
func (b *batch) confirmSteps(ctx context.Context, first plan.Plan) (todo plan.Plan, obstacle reportedPlan, err error) {
	last, inTime := b.confirmInSlot(ctx, first)
	if err := checkMemory(b.pass.share); err != nil {
		return plan.Plan{}, reportedPlan{}, err
	}
	now := b.pass.r.clock.Now()
	switch {
	case !inTime && b.later && b.pass.isOver():
		return plan.Plan{}, reportedPlan{}, errOver
	case !inTime, monotime.ElapsedTime(b.executor.in.Now, now) >= life.ConfirmationServes:
		last.Verdict, last.Reason, last.Message = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, takesNoAction+passreads.SlowReads+"."
		return plan.Plan{}, b.pass.mem.backOffReads(last, &b.pass.mem.disagreed, b.pass.retryPeriod(), now), nil
	}
	if len(last.Errors) == 0 { // those of items that are not of this batch
		last.Errors = first.Errors
	}
	b.pass.mem.Holds = last.Holds
	if last.Verdict == v1alpha1.VerdictBlocked { // it was judged as a whole
		return plan.Plan{}, b.pass.mem.backOffReads(last, &b.pass.mem.disagreed, b.pass.retryPeriod(), now), nil
	}
	last.Withheld = first.Withheld // no batch has protected objects
	todo = plan.IntersectPlans(first, last)
	some := b.postponeUnconfirmed(first, last, todo, now)
	todo = b.leaveOutLagging(first, todo)
	if todo = b.pass.mem.Told.LeaveOut(todo, b.pass.r.clock.Now()); len(todo.Steps) == 0 {
		b.doubted = some
	}
	return todo, reportedPlan{}, nil
}

// confirmLive reads live what the decision depends on, and decides again, until nothing is left to be read, or no time is left.
func (b *batch) confirmLive(ctx context.Context, first plan.Plan) (last plan.Plan, inTime bool) {
	b.executor.in.Now = b.pass.r.clock.Now() // before the reads: a confirmation is as old as the oldest of them
	b.executor.in.Batch, b.executor.in.Reads, b.executor.in.Chosen = b.size.Next, plan.MaxReads, life.ChooseItems(first, b.size.Next, b.pass.mem.lastNamespace)
	b.executor.in.Only = first.ListItems() // what turns up meanwhile is for the next batch
	readers := liveconfirm.Readers{Live: b.pass.reads.MeterLive(b.pass.clients.Live, endOfPass(b.pass)), Definitions: b.pass.clients.Definitions}
	last, b.executor.in, inTime = liveconfirm.Decide(ctx, readers, b.executor.in, first, func(ctx context.Context, in plan.Input) plan.Plan {
		in.Clock = b.pass.r.clockTrust() // the reads have measured it
		return b.pass.evaluator.computePlan(ctx, in)
	}, b.executor.isLate)
	return last, inTime
}

// leaveOutLagging leaves out the items that wait for `for` if live reads show their objects at other versions than the watches, unless the
// watches have been behind for a short time only.
func (b *batch) leaveOutLagging(watched, todo plan.Plan) plan.Plan {
	versions := make(map[types.UID]string, len(watched.Steps))
	for i := range watched.Steps {
		versions[watched.Steps[i].Object.UID] = watched.Steps[i].Object.ResourceVersion
	}
	behind := map[plan.ItemKey]bool{}
	for i := range todo.Steps {
		s := &todo.Steps[i]
		if shown := versions[s.Object.UID]; shown != s.Object.ResourceVersion && b.executor.isBlind(s) {
			b.pass.mem.Lagging.NoteLag(s, s.Object.ResourceVersion, b.executor.in.Now, shown)
			for _, item := range s.ListItems() {
				behind[item] = true
			}
		}
	}
	if len(behind) == 0 {
		return todo
	}
	return life.WithoutItems(todo, func(item plan.ItemKey) bool { return behind[item] })
}

// postponeUnconfirmed has the items wait that live reads were asked about and did not confirm, and says whether there are any.
// What is beyond the batch was not asked about.
func (b *batch) postponeUnconfirmed(first, last, agreed plan.Plan, now time.Time) bool {
	if !b.pass.mem.Unconfirmed.PostponeLeft(first, last, agreed, b.pass.retryPeriod(), now) {
		return false
	}
	if last.Verdict == v1alpha1.VerdictAct {
		last.Verdict, last.Reason, last.Message = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, "According to the watches, there are items to act on, but reads from the API server have not confirmed that yet."
	}
	b.pass.mem.paused = reportedPlan{last}
	return true
}

// mayBegin checks with live reads that the Cleaner is unchanged, that its ServiceAccount exists, and that its namespace is not
// terminating.
func (b *batch) mayBegin(ctx context.Context) (obstacle reportedPlan, ok bool, err error) {
	now := v1alpha1.NewOwner(b.pass.store.Key.Namespace)
	if err := b.pass.r.live.Get(ctx, b.pass.store.Key, now); err != nil {
		return reportedPlan{}, false, err
	}
	if now.GetUID() != b.pass.store.Draft.GetUID() || now.GetGeneration() != b.pass.store.Draft.GetGeneration() || now.GetDeletionTimestamp() != nil {
		return reportedPlan{}, false, cleanerstore.ErrOutdated
	}
	if refusal := b.pass.authority.findObstacle(ctx, nil); refusal.IsRefusal() {
		wait := plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: refusal.Reason, Message: refusal.Message}
		return b.pass.mem.backOffReads(wait, &b.pass.mem.disagreed, b.pass.retryPeriod(), b.pass.r.clock.Now()), false, nil
	}
	return reportedPlan{}, true, nil
}

// recordBatch writes the steps into the run, if there is a sink, and returns those that fit into one batch.
func (b *batch) recordBatch(ctx context.Context, todo plan.Plan) (plan.Plan, error) {
	if err := b.pass.triggers.RecordRequest(ctx); err != nil {
		return plan.Plan{}, err
	}
	if !b.pass.store.Draft.Common().HasSink() {
		return todo, nil
	}
	todo = life.FirstObjects(todo, life.MaxBatch, life.MaxBatchBytes)
	b.rows = map[types.UID]int{}
	var rows []runrow.Row
	for i := range todo.Steps {
		s := &todo.Steps[i]
		if _, known := b.rows[s.Object.UID]; s.Verb == plan.VerbReport || known {
			continue
		}
		b.rows[s.Object.UID] = len(rows)
		rows = append(rows, s.MakeRow())
	}
	if len(rows) == 0 {
		return todo, nil
	}
	faults.PassPoint("decided")
	if err := b.makeReady(ctx); err != nil {
		return plan.Plan{}, err
	}
	faults.PassPoint("held by the finalizer")
	fingerprint, err := b.pass.mem.fingerprintWork(&b.pass.assignment, &b.pass.r.opts)
	if err != nil {
		return plan.Plan{}, err
	}
	run, ledger := life.BeginBatch(b.pass.store.Stored.State(), &b.pass.mem.run.Ledger, fingerprint, rows, todo.ListForbidden(), b.executor.in.Now)
	run.ServiceAccountName = b.pass.clients.Account.RecordedName(b.pass.store.Draft)
	err = b.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run, s.Runs = run, run.Number })
	switch {
	case apierrors.IsConflict(err), errors.Is(err, cleanerstore.ErrNotOwner):
		return plan.Plan{}, err
	case err != nil: // the write may or may not have succeeded, and the same rows may be in both batches
		b.pass.mem.run = life.Memory{}
		return plan.Plan{}, err
	}
	faults.PassPoint("committed")
	b.pass.mem.run, b.executor.number = life.Memory{Ledger: *ledger}, run.Number
	return todo, nil
}

// errLooked ends a batch that was planned before the outcome of the previous one was known: it would delete and count objects again that are
// gone but still in the watch cache.
var errLooked = errors.New("what became of the batch before had to be found out first")

// errOver ends a batch before its first action, because the time of the pass is up.
var errOver = errors.New("the pass is over")

// makeReady does what has to be done before rows are recorded.
func (b *batch) makeReady(ctx context.Context) error {
	for {
		var err error
		switch req := life.BeforeBatch(b.pass.store.Draft, &b.pass.mem.run.Ledger); req.Kind {
		case life.Record:
			return nil
		case life.AddFinalizer:
			err = b.pass.store.WriteMetadata(ctx, func(c v1alpha1.Owner) { controllerutil.AddFinalizer(c, v1alpha1.Finalizer) })
		case life.LookRows:
			if err = b.pass.openRun.doRequest(ctx, req); err == nil {
				err = errLooked
			}
		default:
			err = b.pass.openRun.doRequest(ctx, req)
		}
		if err != nil {
			return err
		}
	}
}

// carrySteps carries out confirmed steps. acted reports whether anything was changed, or was found to be no change.
func (b *batch) carrySteps(ctx context.Context, first, todo plan.Plan) (acted bool, err error) {
	b.executor.watched, b.executor.versions = map[types.UID]observed.Object{}, map[types.UID]string{}
	for i := range first.Steps {
		b.executor.watched[first.Steps[i].Object.UID] = first.Steps[i].Object
	}
	b.executor.runCourse(ctx, life.NewCourse(todo), batchFollower{b.executor})
	for uid, i := range b.rows {
		if a := b.executor.answers[uid]; a != nil {
			b.pass.mem.run.RecordAnswer(i, *a, b.pass.r.clock.Now())
		}
	}
	b.pass.journal.TellSteps(ctx, b.executor.acted)
	if b.executor.unsent && len(b.executor.acted) == 0 {
		return false, cleanerstore.ErrOutdated
	}
	return b.executor.learned || slices.ContainsFunc(b.executor.acted, func(s plan.Step) bool { return s.IsChange() }), nil
}

// decideAfter decides again after a batch that has changed something.
func (w *batches) decideAfter(ctx context.Context, b *batch) batchEnd {
	for i := range b.executor.acted {
		w.touched[b.executor.acted[i].Object.UID] = true
	}
	w.decideAgain(ctx)
	if w.callsForItself() { // throttle it to MinInterval
		w.pass.callsItself = true
		w.decision.Next = monotime.ChooseEarlier(w.decision.Next, w.pass.r.clock.Now().Add(w.pass.r.opts.MinInterval))
		return allDecided
	}
	return moreToDo
}

// decideAgain reads the watches and decides again.
func (w *batches) decideAgain(ctx context.Context) {
	w.recordDecision(w.pass.evaluator.decideOnWatched(ctx, w.in.Programs))
}

// callsForItself reports whether every remaining step is for an object that this pass has just changed: a rule that triggers itself.
func (w *batches) callsForItself() bool {
	return w.pass.recurrence.hasStepsLeft(w.todo) && !slices.ContainsFunc(w.todo.Steps, func(s plan.Step) bool { return !w.touched[s.Object.UID] })
}

// endBatches ends the work on a decision when no more than todo is done of it now. It returns the decision to report.
func (r *recurrence) endBatches(ctx context.Context, d, todo plan.Plan) (reportedPlan, error) {
	if err := checkMemory(r.pass.share); err != nil { // it is unknown what is left to do
		return reportedPlan{d}, err
	}
	if r.hasStepsLeft(todo) {
		return r.pass.mem.paused, nil
	}
	if !r.hasStepsLeft(d) && r.pass.triggers.OverWith(d) {
		r.pass.triggers.PassTick() // also if what follows cannot be recorded
	}
	if err := r.finishRecurring(ctx); err != nil {
		return reportedPlan{d}, err
	}
	switch {
	case r.hasStepsLeft(d) && len(r.pass.mem.Rehearsed) > 0:
		d = r.pass.mem.Rehearsed.DescribeIn(d, r.pass.mem.refusal)
		d.Next = monotime.ChooseEarlier(r.pass.mem.Unconfirmed.NextAttempt(), d.Next)
		return reportedPlan{d}, r.endTick(ctx, d)
	case r.hasStepsLeft(d):
		return r.describeUnconfirmed(d), nil
	}
	r.pass.mem.retryAt, r.pass.mem.disagreed = time.Time{}, 0
	return reportedPlan{d}, r.endTick(ctx, d)
}

// finishRecurring finishes a run when there is nothing left to do and the sink has accepted the event before. A run without a successful
// action is not finished, and continues to count: it has nothing to report.
func (r *recurrence) finishRecurring(ctx context.Context) error {
	for r.pass.store.Draft.Common().HasSink() {
		req := life.AtRest(r.pass.store.Draft, &r.pass.mem.run.Ledger)
		nothing := req.Kind == life.MoveToUnsent && len(life.CountRows(r.pass.store.Draft.State().Run, &r.pass.mem.run.Ledger).Counts) == 0
		if req.Kind == life.Idle || nothing {
			break
		}
		if err := r.pass.openRun.doRequest(ctx, req); err != nil {
			return err
		}
	}
	return nil
}

// describeUnfinished returns what to report of a decision that this pass does not finish: the next pass begins soon.
func (r *recurrence) describeUnfinished(d plan.Plan) reportedPlan {
	d.Next = monotime.ChooseEarlier(d.Next, r.pass.r.clock.Now().Add(r.pass.r.opts.MinInterval))
	if r.pass.isDryRun() {
		d = r.pass.mem.Rehearsed.DescribeIn(d, r.pass.mem.refusal)
	}
	return reportedPlan{d}
}

// recordTick records the time of the schedule that was over last, unless it is recorded.
func (r *recurrence) recordTick(ctx context.Context) error {
	last := metav1.NewTime(r.pass.triggers.LastTick())
	if at := r.pass.store.Stored.State().LastScheduleTime; last.IsZero() || at != nil && !last.After(at.Time) {
		return nil
	}
	if err := r.finishRecurring(ctx); err != nil { // as it would have been when its time was over
		return err
	}
	next := r.pass.triggers.NextTick()
	return r.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) {
		s.LastScheduleTime = &last
		if !next.IsZero() { // in one write: else the report would be another one
			s.NextScheduledEvaluation = &metav1.Time{Time: next}
		}
	})
}

// endTick records that a time of the schedule is over, if a decision says so: not while something is waited for that may
// come, and would be done then.
func (r *recurrence) endTick(ctx context.Context, d plan.Plan) error {
	if !r.pass.triggers.OverWith(d) {
		return nil
	}
	r.pass.triggers.EndTicks()
	r.pass.evaluator.declareInterests(ctx) // to nothing, until the next one
	return r.recordTick(ctx)
}

// leaveOutUnconfirmed is what a decision wants of items that need not wait for live reads to say the same.
func (r *recurrence) leaveOutUnconfirmed(d plan.Plan) plan.Plan {
	if r.pass.isDryRun() {
		d = r.pass.mem.Rehearsed.LeaveOut(d, r.pass.r.clock.Now())
	}
	if len(r.pass.mem.Unconfirmed) == 0 {
		return d
	}
	if d.RulesEvaluated || d.Reason == v1alpha1.ReasonConditionsNotMet { // otherwise it is unknown what is wanted
		r.pass.mem.Unconfirmed.KeepWanted(d.ListItems())
	}
	now := r.pass.r.clock.Now()
	return life.WithoutItems(d, func(item plan.ItemKey) bool { return r.pass.mem.Unconfirmed.IsWaiting(item, now) })
}

// describeUnconfirmed returns what to report when all remaining items wait for live reads to confirm them.
func (r *recurrence) describeUnconfirmed(d plan.Plan) reportedPlan {
	out := r.pass.mem.paused
	out.Next = monotime.ChooseEarlier(r.pass.mem.Unconfirmed.NextAttempt(), d.Next)
	out.Pending, out.Withheld = d.Pending, d.Withheld
	out.Deferred, out.DeferReason, out.DeferDetail = d.Deferred, d.DeferReason, d.DeferDetail
	if len(out.Errors) == 0 {
		out.Errors = d.Errors
	}
	return out
}

// hasStepsLeft reports whether a decision has steps left, not counting reports that were already made.
func (r *recurrence) hasStepsLeft(d plan.Plan) bool {
	changes := slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.IsChange() })
	return d.Verdict == v1alpha1.VerdictAct && (changes || len(r.pass.mem.Told.LeaveOut(d, r.pass.r.clock.Now()).Steps) > 0)
}
