// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/limits"
)

// recurrence is a Recurring Cleaner between its runs.
type recurrence struct{ pass *pass }

// recordTick records the time of the schedule that was over last, unless it is recorded.
func (r *recurrence) recordTick(ctx context.Context) error {
	last := metav1.NewTime(r.pass.triggers.LastTick())
	if at := r.pass.store.Read.State().LastScheduleTime; last.IsZero() || at != nil && !last.After(at.Time) {
		return nil
	}
	if err := r.finishRecurring(ctx); err != nil { // as it would have been when its time was over
		return err
	}
	return r.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.LastScheduleTime = &last })
}

// endTick records that a time of the schedule is over, if a decision says so: not while something is waited for that may
// come, and would be done then.
func (r *recurrence) endTick(ctx context.Context, d plan.Plan) error {
	if !r.pass.triggers.OverWith(d) {
		return nil
	}
	r.pass.triggers.EndTicks()
	r.pass.evaluator.declareInterests() // to nothing, until the next one
	return r.recordTick(ctx)
}

// forgetOld drops what no longer matters of what is remembered for rules.
func (o *openRun) forgetOld() {
	now, perSecond := o.pass.r.clock.Now(), int64(0)
	if o.pass.assignment.Work.Limits != nil {
		perSecond = o.pass.assignment.Work.Limits.ActionsPerSecond
	}
	per, err := limits.ParsePer(o.pass.assignment.Work.Limits)
	if err != nil { // nothing is decided then
		per = limits.DefaultPer
	}
	o.pass.mem.Done = o.pass.mem.Done.DropOlder(now, per)
	o.pass.mem.Backoff.DropExpired(now)
	o.pass.mem.Recreations.DropExpired(now)
	o.pass.mem.Patches.DropExpired(now)
	if limit := actuate.NewRateLimiter(perSecond); o.pass.mem.pace == nil || o.pass.mem.pace.Limit() != limit.Limit() {
		o.pass.mem.pace = limit
	}
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

// lookUnknown reads the objects of rows with an unknown outcome. What cannot be read is tried again by other passes, for a while.
func (o *openRun) lookUnknown(ctx context.Context) error {
	run := o.pass.store.Cleaner.State().Run
	rows := o.pass.mem.run.UnknownRows(run)
	if len(rows) == 0 {
		return nil
	}
	sights := o.lookRows(ctx, rows)
	o.pass.mem.run.RecordSights(run, sights, o.pass.r.clock.Now())
	o.rememberGone(run, sights)
	if left := o.pass.mem.run.UnknownRows(run); len(left) > 0 {
		return fmt.Errorf("cannot determine whether %s of the last batch still exist: %s", sanitize.CountOf(len(left), "object"), sights[left[0]].Failed)
	}
	return nil
}

// rememberGone notes which objects were found to be gone, for the time until the watches show it: what is counted as gone is
// not to be deleted, and counted, again.
func (o *openRun) rememberGone(run *v1alpha1.Run, sights map[int]life.Sight) {
	for i, sight := range sights {
		row, err := plan.ParseRow(run.Rows[i])
		if err == nil && sight.Failed == "" && (sight.Missing || sight.UID != row.UID) {
			o.pass.mem.Overlay.NoteAnswer(plan.Object{Ref: row.Ref}, nil)
		}
	}
}
