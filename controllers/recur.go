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
	"github.com/vtex/cleaner/controllers/plan"
)

// recordTick records the time of the schedule that was over last, unless it is recorded.
func (p *recurrence) recordTick(ctx context.Context) error {
	last := metav1.NewTime(p.lastTick())
	if at := p.read.State().LastScheduleTime; last.IsZero() || at != nil && !last.After(at.Time) {
		return nil
	}
	if err := p.finishRecurring(ctx); err != nil { // as it was to be when the time was over
		return err
	}
	return p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.LastScheduleTime = &last })
}

// endTick records that a time of the schedule is over, if a decision says so: not while something is waited for that may
// come, and would be done then.
func (p *recurrence) endTick(ctx context.Context, d plan.Plan) error {
	if !p.overWith(d) {
		return nil
	}
	p.mem.ticked = latestTime(p.mem.ticked, p.tick)
	p.tick, p.mem.asking = time.Time{}, time.Time{}
	p.declareInterests() // to nothing, until the next one
	return p.recordTick(ctx)
}

func latestTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// doBatches does one batch after the other until nothing is left to do, or until it is the turn of others. It returns the
// last decision.
func (p *recurrence) doBatches(ctx context.Context, in plan.Input, d plan.Plan) (plan.Plan, error) {
	p.forgetOld()
	p.forgetReports(d)
	touched := map[types.UID]bool{}
	var marks map[plan.Sum]uint64
	if p.isDryRun() {
		marks = d.MarkItems()
		p.mem.rehearsed.forgetOthers(marks)
	}
	todo := p.leaveOutHeld(d)
	again := func() {
		in = p.observeInput(ctx, in.Programs)
		d = p.decideAndRemember(ctx, in)
		p.forgetReports(d)
		todo = p.leaveOutHeld(d)
	}
	for p.asksForDeeds(todo) && !p.r.clock.Now().Before(p.mem.retryAt) {
		b := &batch{deeds: deeds{openRun: p.openRun, in: in}, marks: marks}
		acted, why, err := b.carryBatch(ctx, todo)
		switch {
		case errors.Is(err, errLooked): // what is gone is known now, and is wanted no more
			again()
			continue
		case err != nil:
			return d, err
		}
		if why.Reason != "" { // nothing could be confirmed
			return why, p.endTick(ctx, why)
		}
		p.mem.disagreed = 0
		switch now := p.r.clock.Now(); {
		case !now.Before(p.ends), !acted && !b.doubted:
			d.Next = earliestTime(d.Next, now.Add(p.r.opts.MinInterval))
			if p.isDryRun() {
				d = p.describeRehearsal(d)
			}
			return d, nil
		case !acted, p.isDryRun(): // nothing was changed by what it was about, and there may be more
			todo = p.leaveOutHeld(d)
			continue
		}
		for i := range b.acted {
			touched[b.acted[i].Object.UID] = true
		}
		again()
		if p.asksForDeeds(todo) && !slices.ContainsFunc(todo.Steps, func(s plan.Step) bool { return !touched[s.Object.UID] }) {
			// A rule that calls for itself is not let run as fast as it can.
			d.Next = earliestTime(d.Next, p.r.clock.Now().Add(p.r.opts.MinInterval))
			return d, nil
		}
	}
	if err := checkTurn(p.share); err != nil { // nobody knows what is left to do
		return d, err
	}
	if p.asksForDeeds(todo) {
		return p.mem.held, nil
	}
	if !p.asksForDeeds(d) && p.overWith(d) {
		p.mem.ticked = latestTime(p.mem.ticked, p.tick) // also if what follows cannot be recorded
	}
	if err := p.finishRecurring(ctx); err != nil {
		return d, err
	}
	switch {
	case p.asksForDeeds(d) && len(p.mem.rehearsed) > 0:
		d = p.describeRehearsal(d)
		d.Next = earliestTime(p.mem.unconfirmed.NextAttempt(), d.Next)
		return d, p.endTick(ctx, d)
	case p.asksForDeeds(d):
		return p.describeHeld(d), nil
	}
	p.mem.retryAt, p.mem.disagreed = time.Time{}, 0
	return d, p.endTick(ctx, d)
}

// leaveOutHeld is what a decision wants of items that need not wait for live reads to say the same.
func (p *recurrence) leaveOutHeld(d plan.Plan) plan.Plan {
	if p.isDryRun() {
		d = p.mem.rehearsed.leaveOutRehearsed(d)
	}
	if len(p.mem.unconfirmed) == 0 {
		return d
	}
	if d.Asked || d.Reason == v1alpha1.ReasonConditionsNotMet { // else nobody knows what is wanted
		p.mem.unconfirmed.KeepWanted(d.ListItems())
	}
	now := p.r.clock.Now()
	return d.WithoutItems(func(item plan.ItemKey) bool { return p.mem.unconfirmed.IsWaiting(item, now) })
}

// describeHeld is what is said of a decision when all that is left of it waits for live reads to say the same.
func (p *recurrence) describeHeld(d plan.Plan) plan.Plan {
	say := p.mem.held
	say.Next = earliestTime(p.mem.unconfirmed.NextAttempt(), d.Next)
	say.Pending, say.Withheld = d.Pending, d.Withheld
	say.Deferred, say.Stuck, say.Refused = d.Deferred, d.Stuck, d.Refused
	if len(say.Errors) == 0 {
		say.Errors = d.Errors
	}
	return say
}

// asksForDeeds says that a decision asks for something: reports that were made already are nothing.
func (p *recurrence) asksForDeeds(d plan.Plan) bool {
	deeds := slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.IsDeed() })
	return d.Verdict == v1alpha1.VerdictAct && (deeds || len(p.leaveOutTold(d).Steps) > 0)
}

// forgetOld drops what does not matter any more of what is remembered for rules.
func (p *openRun) forgetOld() {
	now, perSecond, per := p.r.clock.Now(), int64(0), time.Hour
	if l := p.work.Limits; l != nil {
		perSecond = l.ActionsPerSecond
		if read, err := l.Per.Parse(per); err == nil {
			per = read
		}
	}
	p.mem.done = p.mem.done.DropOlder(now, per)
	p.mem.backoff.DropExpired(now)
	p.mem.remade.DropExpired(now)
	p.mem.patches.DropExpired(now)
	if limit := actuate.NewRateLimiter(perSecond); p.mem.pace == nil || p.mem.pace.Limit() != limit.Limit() {
		p.mem.pace = limit
	}
}

// forgetReports drops the reports of items that are not wanted any more, such as those of objects that are gone: what is
// wanted anew is told anew. Where something is wrong with a rule nobody knows what it wants.
func (p *recurrence) forgetReports(d plan.Plan) {
	if d.Asked || d.Reason == v1alpha1.ReasonConditionsNotMet { // else nobody knows what is found
		p.wanted = &d
	}
	if p.mem.told.IsEmpty() || !d.Asked {
		return
	}
	wanted, wrong := d.ListItems(), map[string]bool{}
	for _, item := range d.Deferred {
		wanted[item] = true
	}
	for i := range d.Errors {
		wrong[d.Errors[i].Rule] = true
	}
	p.mem.told.KeepWanted(wanted, wrong)
}

func earliestTime(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// finishRecurring ends the run that counts what was done, when there is nothing left to do and the sink has taken the one
// before. A run in which nothing was done, because all of it was refused, goes on counting: there is nothing to tell.
func (p *recurrence) finishRecurring(ctx context.Context) error {
	for p.c.Common().CloudEventSink != "" {
		req := plan.AtRest(p.c, &p.mem.run.Ledger)
		nothing := req.Kind == plan.MoveToUnsent && len(plan.SettleRun(p.c.State().Run, &p.mem.run.Ledger).Counts) == 0
		if req.Kind == plan.Idle || nothing {
			break
		}
		if err := p.doRequest(ctx, req); err != nil {
			return err
		}
	}
	return nil
}

// lookUnknown reads the objects of rows of which nobody knows what became of them. What could not be read is tried again
// by another pass, for a while.
func (p *openRun) lookUnknown(ctx context.Context) error {
	run := p.c.State().Run
	rows := p.mem.run.UnknownRows(run)
	if len(rows) == 0 {
		return nil
	}
	sights := p.lookRows(ctx, rows)
	p.mem.run.TakeSights(run, sights, p.r.clock.Now())
	p.rememberGone(run, sights)
	if left := p.mem.run.UnknownRows(run); len(left) > 0 {
		return fmt.Errorf("cannot find out what became of %s: %s", countOf(len(left), "object"), sights[left[0]].Failed)
	}
	return nil
}

// rememberGone notes which objects were found to be gone, for the time until the watches show it: what is counted as gone is
// not to be deleted, and counted, again.
func (p *openRun) rememberGone(run *v1alpha1.Run, sights map[int]plan.Sight) {
	for i, sight := range sights {
		row, err := plan.ParseRow(run.Rows[i])
		if err == nil && sight.Failed == "" && (sight.Missing || sight.UID != row.UID) {
			p.mem.overlay.NoteAnswer(plan.Object{Ref: row.Ref}, nil)
		}
	}
}
