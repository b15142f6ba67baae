// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

// ticks are the times at which a Cleaner with a schedule is evaluated.
type ticks struct {
	*stored
	spec *v1alpha1.Work
	mem  *timing
	// tick is the time of the schedule that is due, and nextTick the one after it; zero if there is none.
	tick, nextTick time.Time
}

// timing is what this process remembers of a schedule. Losing it makes up for a time of the schedule once more.
type timing struct {
	// ticked is the time of the schedule that was over last.
	ticked time.Time
	requests
}

// waitsForSchedule says that the schedule is not due, so that nothing is evaluated. A time that is due stays so until what is to
// be done then is over, or startingDeadline has passed: a crash loses none, nor a watch that is only beginning.
func (p *ticks) waitsForSchedule() (waits bool) {
	if p.spec.Schedule == "" || p.c.Common().Suspend {
		return false
	}
	due, tick, next, err := plan.IsDue(p.spec, p.lastTick(), p.createdAt(), p.laggingNow())
	if err != nil { // validation says so, when it is evaluated
		return false
	}
	if p.nextTick = next; due {
		p.tick = tick
	}
	return !p.isTicking()
}

// waitsFor says that a rule waits until something has held for long enough: that is looked at between the times of a schedule too.
func (p *ticks) waitsFor() bool {
	return slices.ContainsFunc(p.spec.Rules, func(r v1alpha1.Rule) bool { return r.For != "" })
}

// lastTick is the time of the schedule that was over last; zero if none was. It need not be recorded yet: who can make a Cleaner so
// large that no more can be recorded must not make it act again.
func (p *ticks) lastTick() time.Time {
	if at := p.c.State().LastScheduleTime; at != nil && at.After(p.mem.ticked) {
		return at.Time
	}
	return p.mem.ticked
}

// isTicking says that the schedule is due, or that the author asks for what it stands for.
func (p *ticks) isTicking() bool { return !p.tick.IsZero() || !p.mem.asking.IsZero() }

// overWith says that nothing of a decision is waited for that was to be done at a time of the schedule, or on request.
func (p *ticks) overWith(d plan.Plan) bool {
	if !p.isTicking() || len(d.Pending) > 0 || len(d.Deferred) > 0 {
		return false
	}
	switch d.Reason {
	case v1alpha1.ReasonNotSynced, v1alpha1.ReasonReadFailed, v1alpha1.ReasonAccessDenied, v1alpha1.ReasonKindNotServed,
		v1alpha1.ReasonUnconfirmed, v1alpha1.ReasonClockSkewSuspected:
		return false
	}
	return true
}

// laggingNow is the moment that schedules and requests are held against: by the clock that is behind, of this process and the API server.
func (p *ticks) laggingNow() time.Time { return p.r.clock.Now().Add(-p.r.opts.Skew.ClockAhead()) }
