// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forecast predicts what a Cleaner will do, and when, if nothing else changes. It makes the operator's plan for a moment, carries
// out its steps in a simulated cluster, and goes to the moment at which, by that plan, time alone may change the answer; and so on.
//
// It never acts, and it never guesses: what happens at a moment that cannot be predicted is marked.
package forecast

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/planjson"
	"github.com/vtex/cleaner/controllers/plan/schedule"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// MaxSteps is how many steps of one Cleaner are listed; more are counted.
	MaxSteps = 5000
	// maxStates bounds how many states of one Cleaner are listed, maxEvaluations how many moments are looked at, and maxRounds how often one
	// moment is: some rules undo what others do.
	maxStates      = 500
	maxEvaluations = 20000
	maxRounds      = 100
)

// Input is what a forecast is made from.
type Input struct {
	// Decision is the Cleaner and its circumstances. Times.At is where the forecast begins.
	Decision planning.Decision
	// Objects are those of the cluster now. They are not changed.
	Objects *snapshot.Objects
	// Until is the last moment that is predicted.
	Until time.Time
	// LastTick is the time of the schedule that was over last; zero if that is not known: then the times before the forecast are.
	LastTick time.Time
	// Waiting is what waits for the end of its `for` by the status of the Cleaner. Timers that are not listed begin at Times.Since.
	Waiting []v1alpha1.Pending
	// IsLate reports whether no time is left to look further ahead.
	IsLate func() bool
	// OnMoment is called with each moment that is looked at; nil: none.
	OnMoment func(time.Time)
}

// simulation is the Cleaner and its cluster at a moment.
type simulation struct {
	Input
	out   *Cleaner
	world *world
	work  *v1alpha1.Work
	// period is the longest time between two evaluations of the operator.
	period time.Duration
	now    time.Time
	// evaluated counts evaluations.
	evaluated int

	begun    bool
	holds    fortimers.Holds
	done     limits.Done
	reported map[reportID]bool
	// lastTick is the time of the schedule that was over last, and nextTick the next one.
	lastTick, nextTick time.Time
	blur               blur
	ended              bool
}

// Predict predicts what a Cleaner does.
func Predict(ctx context.Context, in Input) Cleaner {
	s := &simulation{Input: in, world: newWorld(in.Objects), now: in.Decision.Times.At, lastTick: in.LastTick}
	s.out = &Cleaner{
		Mode: cmp.Or(in.Decision.Cleaner.Work.Mode, v1alpha1.ModeEnforce), Until: planjson.Moment{Time: in.Until}, Steps: []Step{}, States: []State{}, Unpredictable: []Unpredictable{}, Warnings: []string{},
	}
	if s.lastTick.IsZero() {
		s.lastTick = s.now.Add(-time.Second)
	}
	if problem := s.stretchPeriod(); problem != "" {
		s.cutForecast(problem)
		return *s.out
	}
	for !s.ended {
		if s.OnMoment != nil {
			s.OnMoment(s.now)
		}
		next := s.passMoment(ctx)
		switch {
		case s.ended || next.IsZero() || next.After(s.Until):
			s.ended = true
		case !next.After(s.now):
			s.cutForecast("The plan names no later moment.")
		case ctx.Err() != nil || s.evaluated >= maxEvaluations || s.IsLate():
			s.cutForecast("The forecast takes too long.")
		default:
			s.now = next
		}
	}
	return *s.out
}

// stretchPeriod has the plans look ahead to the end of the forecast. The operator evaluates no later than after retry.period, which changes
// nothing where the moment of the next change is known.
func (s *simulation) stretchPeriod() (problem string) {
	work := *s.Decision.Cleaner.Work
	period, err := work.RetryPeriod()
	if err != nil {
		return err.Error()
	}
	s.period = period
	retry := v1alpha1.Retry{}
	if work.Retry != nil {
		retry = *work.Retry
	}
	retry.Period = v1alpha1.Duration(fmt.Sprintf("%ds", max(int64((s.Until.Sub(s.now)+time.Hour)/time.Second), int64(period/time.Second))))
	work.Retry = &retry
	s.work = &work
	return ""
}

// cutForecast ends the forecast before its end.
func (s *simulation) cutForecast(why string) {
	s.ended, s.out.Cut, s.out.Until = true, why, planjson.Moment{Time: s.now}
}

// passMoment does all that is done at the current moment, and returns the next one; zero if there is none.
func (s *simulation) passMoment(ctx context.Context) time.Time {
	for range maxRounds {
		due, ok := s.seeSchedule()
		if !ok {
			return s.nextTick
		}
		in := s.makeInput(ctx)
		p := plan.ComputePlan(ctx, in)
		s.evaluated++
		s.holds = p.Holds
		s.begun = true
		switch {
		case ctx.Err() != nil:
			s.cutForecast("The forecast takes too long.")
			return time.Time{}
		case !due:
		case p.Verdict == v1alpha1.VerdictWait:
			s.reported = nil
		case p.Verdict != v1alpha1.VerdictAct: // blocked steps are still wanted
		case s.carryOut(&in, &p):
			continue // it is evaluated again at once
		case s.ended:
			return time.Time{}
		}
		s.noteState(&p, due)
		next := s.findNext(&p, due)
		s.blur.noteUnpredictable(s, &p)
		return next
	}
	s.cutForecast("The Cleaner changes objects again and again: after each change, its rules want another one.")
	return time.Time{}
}

// makeInput is what the next plan is made from. The objects are the truth itself: nothing of them is read once more.
func (s *simulation) makeInput(ctx context.Context) plan.Input {
	d := s.Decision
	owner := d.BuildOwner()
	d.Times.At = s.now
	in := d.MakeInput(ctx, s.world)
	in.Owner, in.Spec, in.Confirmed, in.Holds, in.Done = owner, s.work, in.Snapshot.LiveReads(), s.holds, s.done
	if !s.begun {
		first := plan.ComputePlan(ctx, in)
		in.Holds = planning.ContinueHolds(&in, &first, s.Decision.Times.Since, s.Waiting)
	}
	return in
}

// seeSchedule reports whether the Cleaner may act now. It is not ok if it is not even evaluated.
func (s *simulation) seeSchedule() (due, ok bool) {
	if s.work.Schedule == "" || s.work.Suspend {
		return true, true
	}
	due, _, next, err := schedule.IsDue(s.work, s.lastTick, s.Decision.BuildOwner().Created, s.now)
	if err != nil { // validation has refused it
		return true, true
	}
	s.nextTick = next
	return due, due || s.holdsBetweenTicks()
}

// holdsBetweenTicks reports whether rules are evaluated between the times of the schedule too: `for` counts there.
func (s *simulation) holdsBetweenTicks() bool {
	return slices.ContainsFunc(s.work.Rules, func(r v1alpha1.Rule) bool { return r.For != "" })
}

// findNext returns the moment after the current one at which there is something to look at; zero if there is none.
func (s *simulation) findNext(p *plan.Plan, due bool) time.Time {
	next := p.NextEvaluation()
	if p.Unpredictable.IsAny() { // NextCheck may be any moment: the operator looks at `for` often then
		next = monotime.ChooseEarlier(p.Next, p.FirstChange)
		if s.isWatched() {
			next = monotime.ChooseEarlier(next, s.now.Add(s.period))
		}
	}
	if s.work.Schedule == "" || s.work.Suspend {
		return next
	}
	waits := len(p.Pending) > 0 || slices.Contains([]string{
		v1alpha1.ReasonReadFailed, v1alpha1.ReasonAccessDenied, v1alpha1.ReasonKindNotServed, v1alpha1.ReasonTooLarge, v1alpha1.ReasonUnconfirmed,
	}, p.Reason)
	if due && !waits {
		s.lastTick = s.now
		due = false
	}
	if !due && !s.holdsBetweenTicks() {
		return s.nextTick
	}
	return monotime.ChooseEarlier(next, s.nextTick)
}

// isWatched reports whether the operator evaluates the Cleaner at moments other than those of its schedule.
func (s *simulation) isWatched() bool { return s.work.Schedule == "" || s.holdsBetweenTicks() }

// noteState lists what is decided from now on.
func (s *simulation) noteState(p *plan.Plan, due bool) {
	state := State{From: planjson.Moment{Time: s.now}, Verdict: p.Verdict, Reason: p.Reason, Message: p.Message}
	if !due {
		state.Verdict, state.Reason, state.Message = v1alpha1.VerdictWait, v1alpha1.ReasonWaitingForSchedule, "Waiting for the next scheduled time."
	}
	if n := len(s.out.States); n > 0 {
		last := &s.out.States[n-1]
		if n == maxStates || last.Verdict == state.Verdict && last.Reason == state.Reason && last.Message == state.Message {
			return
		}
	}
	s.out.States = append(s.out.States, state)
}
