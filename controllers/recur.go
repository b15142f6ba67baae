// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/rehearsed"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/limits"
)

// recurrence is a Recurring Cleaner between its runs.
type recurrence struct{ *pass }

// recordTick records the time of the schedule that was over last, unless it is recorded.
func (p *recurrence) recordTick(ctx context.Context) error {
	last := metav1.NewTime(p.triggers.LastTick())
	if at := p.store.Read.State().LastScheduleTime; last.IsZero() || at != nil && !last.After(at.Time) {
		return nil
	}
	if err := p.finishRecurring(ctx); err != nil { // as it would have been when its time was over
		return err
	}
	return p.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.LastScheduleTime = &last })
}

// endTick records that a time of the schedule is over, if a decision says so: not while something is waited for that may
// come, and would be done then.
func (p *recurrence) endTick(ctx context.Context, d plan.Plan) error {
	if !p.triggers.OverWith(d) {
		return nil
	}
	p.triggers.EndTicks()
	p.evaluator.declareInterests() // to nothing, until the next one
	return p.recordTick(ctx)
}

// batchEnd says what follows a batch.
type batchEnd int

const (
	// moreToDo: the next batch does what is left to do.
	moreToDo batchEnd = iota
	// allDecided: the pass ends, and reports the last decision.
	allDecided
	// restIsLeft: the pass ends, and the next one continues soon.
	restIsLeft
	// notConfirmed: the pass ends, and reports why nothing could be confirmed.
	notConfirmed
)

// doBatches does one batch after the other until nothing is left to do, or until it is the turn of others. It returns the decision to
// report.
func (p *recurrence) doBatches(ctx context.Context, in plan.Input, d plan.Plan) (reportedPlan, error) {
	p.openRun.forgetOld()
	w := &batches{pass: p.pass, touched: map[types.UID]bool{}}
	if p.isDryRun() {
		w.marks = rehearsed.MarkItems(d)
		p.mem.Rehearsed.ForgetOthers(w.marks)
	}
	w.takeDecision(in, d)
	for ; p.asksForDeeds(w.todo) && !p.r.clock.Now().Before(p.mem.retryAt); w.later = true {
		end, err := w.doBatch(ctx)
		switch {
		case err != nil, end == allDecided:
			return reportedPlan{w.decision}, err
		case end == restIsLeft:
			return p.leaveRest(w.decision), nil
		case end == notConfirmed:
			return w.obstacle, p.endTick(ctx, w.obstacle.Plan)
		}
	}
	return p.endBatches(ctx, w.decision, w.todo)
}

// batches are those of one pass.
type batches struct {
	*pass
	in plan.Input
	// decision is the last one on the watches, and todo what of it need not wait for live reads to say the same.
	decision, todo plan.Plan
	// obstacle says why nothing could be confirmed.
	obstacle reportedPlan
	// marks are those of the first decision, where mode is DryRun.
	marks rehearsed.Items
	// touched are the objects that were changed.
	touched map[types.UID]bool
	// later says that there was a batch before.
	later bool
}

// takeDecision records a decision on the watches.
func (w *batches) takeDecision(in plan.Input, d plan.Plan) {
	w.in, w.decision = in, d
	w.recurrence.forgetReports(d)
	w.todo = w.recurrence.leaveOutHeld(d)
}

// decideAgain reads the watches and decides again.
func (w *batches) decideAgain(ctx context.Context) {
	in := w.evaluator.observeInput(ctx, w.in.Programs)
	w.takeDecision(in, w.evaluator.decideAndRemember(ctx, in))
}

// doBatch does one batch, and says what follows.
func (w *batches) doBatch(ctx context.Context) (batchEnd, error) {
	b := &batch{pass: w.pass, executor: &executor{pass: w.pass, in: w.in}, marks: w.marks, later: w.later}
	acted, obstacle, err := b.carryBatch(ctx, w.todo)
	switch {
	case errors.Is(err, errOver), errors.Is(err, errLooked) && w.isOver():
		return restIsLeft, nil
	case errors.Is(err, errLooked): // objects that are gone are known now, and no longer wanted
		w.decideAgain(ctx)
		return moreToDo, nil
	case err != nil:
		return moreToDo, err
	case obstacle.Reason != "":
		w.obstacle = obstacle
		return notConfirmed, nil
	}
	w.mem.disagreed = 0
	switch {
	case w.isOver(), !acted && !b.doubted:
		return restIsLeft, nil
	case !acted, w.isDryRun(): // nothing was changed by what it was about, and there may be more
		w.todo = w.recurrence.leaveOutHeld(w.decision)
		return moreToDo, nil
	}
	return w.decideAfter(ctx, b), nil
}

// decideAfter decides again after a batch that has changed something.
func (w *batches) decideAfter(ctx context.Context, b *batch) batchEnd {
	for i := range b.executor.acted {
		w.touched[b.executor.acted[i].Object.UID] = true
	}
	w.decideAgain(ctx)
	if w.callsForItself() { // throttle it to MinInterval
		w.decision.Next = earliestTime(w.decision.Next, w.r.clock.Now().Add(w.r.opts.MinInterval))
		return allDecided
	}
	return moreToDo
}

// callsForItself reports whether every remaining step is for an object that this pass has just changed: a rule that triggers itself.
func (w *batches) callsForItself() bool {
	return w.recurrence.asksForDeeds(w.todo) && !slices.ContainsFunc(w.todo.Steps, func(s plan.Step) bool { return !w.touched[s.Object.UID] })
}

// endBatches ends the work on a decision when no more than todo is done of it now. It returns the decision to report.
func (p *recurrence) endBatches(ctx context.Context, d, todo plan.Plan) (reportedPlan, error) {
	if err := checkTurn(p.share); err != nil { // it is unknown what is left to do
		return reportedPlan{d}, err
	}
	if p.asksForDeeds(todo) {
		return p.mem.held, nil
	}
	if !p.asksForDeeds(d) && p.triggers.OverWith(d) {
		p.triggers.PassTick() // also if what follows cannot be recorded
	}
	if err := p.finishRecurring(ctx); err != nil {
		return reportedPlan{d}, err
	}
	switch {
	case p.asksForDeeds(d) && len(p.mem.Rehearsed) > 0:
		d = p.describeRehearsal(d)
		d.Next = earliestTime(p.mem.Unconfirmed.NextAttempt(), d.Next)
		return reportedPlan{d}, p.endTick(ctx, d)
	case p.asksForDeeds(d):
		return p.describeHeld(d), nil
	}
	p.mem.retryAt, p.mem.disagreed = time.Time{}, 0
	return reportedPlan{d}, p.endTick(ctx, d)
}

// leaveRest returns what to report of a decision that this pass does not finish: the next pass begins soon.
func (p *recurrence) leaveRest(d plan.Plan) reportedPlan {
	d.Next = earliestTime(d.Next, p.r.clock.Now().Add(p.r.opts.MinInterval))
	if p.isDryRun() {
		d = p.describeRehearsal(d)
	}
	return reportedPlan{d}
}

// leaveOutHeld is what a decision wants of items that need not wait for live reads to say the same.
func (p *recurrence) leaveOutHeld(d plan.Plan) plan.Plan {
	if p.isDryRun() {
		d = p.mem.Rehearsed.LeaveOut(d)
	}
	if len(p.mem.Unconfirmed) == 0 {
		return d
	}
	if d.Asked || d.Reason == v1alpha1.ReasonConditionsNotMet { // otherwise it is unknown what is wanted
		p.mem.Unconfirmed.KeepWanted(d.ListItems())
	}
	now := p.r.clock.Now()
	return life.WithoutItems(d, func(item plan.ItemKey) bool { return p.mem.Unconfirmed.IsWaiting(item, now) })
}

// describeHeld returns what to report when all remaining items wait for live reads to confirm them.
func (p *recurrence) describeHeld(d plan.Plan) reportedPlan {
	out := p.mem.held
	out.Next = earliestTime(p.mem.Unconfirmed.NextAttempt(), d.Next)
	out.Pending, out.Withheld = d.Pending, d.Withheld
	out.Deferred, out.Stuck, out.Refused = d.Deferred, d.Stuck, d.Refused
	if len(out.Errors) == 0 {
		out.Errors = d.Errors
	}
	return out
}

// asksForDeeds reports whether a decision has steps left, not counting reports that were already made.
func (p *recurrence) asksForDeeds(d plan.Plan) bool {
	deeds := slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.IsDeed() })
	return d.Verdict == v1alpha1.VerdictAct && (deeds || len(p.mem.Told.LeaveOut(d, p.r.clock.Now()).Steps) > 0)
}

// forgetOld drops what no longer matters of what is remembered for rules.
func (p *openRun) forgetOld() {
	now, perSecond := p.r.clock.Now(), int64(0)
	if p.assignment.Work.Limits != nil {
		perSecond = p.assignment.Work.Limits.ActionsPerSecond
	}
	per, err := limits.ParsePer(p.assignment.Work.Limits)
	if err != nil { // nothing is decided then
		per = limits.DefaultPer
	}
	p.mem.Done = p.mem.Done.DropOlder(now, per)
	p.mem.Backoff.DropExpired(now)
	p.mem.Remade.DropExpired(now)
	p.mem.Patches.DropExpired(now)
	if limit := actuate.NewRateLimiter(perSecond); p.mem.pace == nil || p.mem.pace.Limit() != limit.Limit() {
		p.mem.pace = limit
	}
}

// forgetReports forgets the reports of items that are no longer wanted, such as those of deleted objects: when they are wanted again,
// they are reported again. While a rule gives errors it is unknown what it wants.
func (p *recurrence) forgetReports(d plan.Plan) {
	if d.Asked || d.Reason == v1alpha1.ReasonConditionsNotMet { // otherwise it is unknown what is found
		p.wanted = &d
	}
	if p.mem.Told.IsEmpty() || !d.Asked {
		return
	}
	wanted, wrong := d.ListItems(), map[string]bool{}
	for _, item := range d.Deferred {
		wanted[item] = true
	}
	for i := range d.Errors {
		wrong[d.Errors[i].Rule] = true
	}
	p.mem.Told.KeepWanted(wanted, wrong)
}

func earliestTime(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// finishRecurring finishes a run when there is nothing left to do and the sink has accepted the event before. A run without a successful
// action is not finished, and continues to count: it has nothing to report.
func (p *recurrence) finishRecurring(ctx context.Context) error {
	for p.store.Cleaner.Common().CloudEventSink != "" {
		req := life.AtRest(p.store.Cleaner, &p.mem.run.Ledger)
		nothing := req.Kind == life.MoveToUnsent && len(life.SettleRun(p.store.Cleaner.State().Run, &p.mem.run.Ledger).Counts) == 0
		if req.Kind == life.Idle || nothing {
			break
		}
		if err := p.openRun.doRequest(ctx, req); err != nil {
			return err
		}
	}
	return nil
}

// lookUnknown reads the objects of rows with an unknown outcome. What cannot be read is tried again by other passes, for a while.
func (p *openRun) lookUnknown(ctx context.Context) error {
	run := p.store.Cleaner.State().Run
	rows := p.mem.run.UnknownRows(run)
	if len(rows) == 0 {
		return nil
	}
	sights := p.lookRows(ctx, rows)
	p.mem.run.TakeSights(run, sights, p.r.clock.Now())
	p.rememberGone(run, sights)
	if left := p.mem.run.UnknownRows(run); len(left) > 0 {
		return fmt.Errorf("cannot find out whether %s of the last batch still exist: %s", shown.CountOf(len(left), "object"), sights[left[0]].Failed)
	}
	return nil
}

// rememberGone notes which objects were found to be gone, for the time until the watches show it: what is counted as gone is
// not to be deleted, and counted, again.
func (p *openRun) rememberGone(run *v1alpha1.Run, sights map[int]life.Sight) {
	for i, sight := range sights {
		row, err := plan.ParseRow(run.Rows[i])
		if err == nil && sight.Failed == "" && (sight.Missing || sight.UID != row.UID) {
			p.mem.Overlay.NoteAnswer(plan.Object{Ref: row.Ref}, nil)
		}
	}
}
