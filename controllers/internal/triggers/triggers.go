// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package triggers tracks what has a Cleaner with a schedule be evaluated: the times of its schedule, and requests of people. It evaluates
// nothing.
package triggers

import (
	"slices"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/schedule"
)

// Triggers are those of one pass over a Cleaner.
type Triggers struct {
	of     *cleanerstore.Store
	work   *v1alpha1.Work
	policy Policy
	mem    *Memory
	// tick is the time of the schedule that is due, and nextTick the one after it; zero if there is none.
	tick, nextTick time.Time
}

// Policy is what an administrator sets, and what is measured.
type Policy struct {
	// ActWithoutAuthor lets requests count that no webhook has signed.
	ActWithoutAuthor bool
	// Ahead is how far the clock may be ahead of the API server's.
	Ahead func() time.Duration
}

// Memory is what this process remembers of the times of a schedule and of requests. Losing it makes up for a time of the schedule once more.
// What is signed of a request says when it was made; without the webhook, only this process knows since when it is there.
type Memory struct {
	// ticked is the time of the schedule that was over last.
	ticked time.Time
	// answered is the last one that was answered: recorded, or about to be.
	answered string
	// asking is since when the one that asks is not over; zero if none is.
	asking time.Time
	asks   string
	// dropped is the last one that nothing more is begun on.
	dropped dropped
	// deferred is a request whose user's rights could not be reviewed, and deferredUntil when they are reviewed again.
	deferred      string
	deferredUntil time.Time
	// request is the last request, and seenAt when it was first seen. outlived is a request from before the Cleaner's work changed.
	request, outlived string
	seenAt            time.Time
	// about is what the Cleaner does, and aboutVersion a version of it.
	about, aboutVersion string
}

// New returns the Triggers of a Cleaner and its resolved spec.
func New(of *cleanerstore.Store, work *v1alpha1.Work, policy Policy, mem *Memory) *Triggers {
	return &Triggers{of: of, work: work, policy: policy, mem: mem}
}

// WaitsForSchedule reports whether the schedule is not due, so that nothing is evaluated. A time that is due stays due until its work is
// over, or startingDeadline has passed: neither a crash nor a watch that is still starting loses one.
func (p *Triggers) WaitsForSchedule() (waits bool) {
	if p.work.Schedule == "" || p.of.Draft.Common().Suspend {
		return false
	}
	due, tick, next, err := schedule.IsDue(p.work, p.LastTick(), p.of.CreatedAt(), p.LaggingNow())
	if err != nil { // validation says so, when it is evaluated
		return false
	}
	if p.nextTick = next; due {
		p.tick = tick
	}
	return !p.IsTicking()
}

// IgnoresChanges reports whether changes of targets need no evaluation: there is a schedule, it is not due, and no rule waits until something
// has held for long enough, which is looked at between the times of a schedule too.
func (p *Triggers) IgnoresChanges() bool {
	return p.work.Schedule != "" && !p.IsTicking() && !slices.ContainsFunc(p.work.Rules, func(r v1alpha1.Rule) bool { return r.For != "" })
}

// LastTick is the time of the schedule that was over last; zero if none was. It need not be recorded yet: who can make a Cleaner so
// large that no more can be recorded must not make it act again.
func (p *Triggers) LastTick() time.Time {
	if at := p.of.Draft.State().LastScheduleTime; at != nil && at.After(p.mem.ticked) {
		return at.Time
	}
	return p.mem.ticked
}

// IsTicking reports whether a scheduled time is due, or a requestedAt annotation is pending.
func (p *Triggers) IsTicking() bool { return !p.tick.IsZero() || !p.mem.asking.IsZero() }

// OverWith reports whether nothing is left to wait for in a decision that was due by the schedule, or on request.
func (p *Triggers) OverWith(d plan.Plan) bool {
	if !p.IsTicking() || len(d.Pending) > 0 || len(d.Deferred) > 0 {
		return false
	}
	switch d.Reason {
	case v1alpha1.ReasonNotSynced, v1alpha1.ReasonReadFailed, v1alpha1.ReasonAccessDenied, v1alpha1.ReasonKindNotServed, v1alpha1.ReasonTooLarge,
		v1alpha1.ReasonUnconfirmed, v1alpha1.ReasonClockSkewSuspected:
		return false
	}
	return true
}

// PassTick ends the time of the schedule that is due, whether or not it can be recorded.
func (p *Triggers) PassTick() {
	if p.tick.After(p.mem.ticked) {
		p.mem.ticked = p.tick
	}
}

// EndTicks ends the time of the schedule that is due, and the open request.
func (p *Triggers) EndTicks() {
	p.PassTick()
	p.tick, p.mem.asking = time.Time{}, time.Time{}
}

// NextTick is the next time of the schedule; zero if there is none.
func (p *Triggers) NextTick() time.Time { return p.nextTick }

// LaggingNow is the current time for schedules and requests, by the slower clock: of this process or of the API server.
func (p *Triggers) LaggingNow() time.Time { return p.of.API.Clock.Now().Add(-p.policy.Ahead()) }
