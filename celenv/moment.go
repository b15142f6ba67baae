// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"time"

	"github.com/google/cel-go/common/types"
)

// FindTrueTime looks for the first whole second after in.Time, and not after until, at which all conditions are true of what
// they see now. It takes the author's word that conditions that are true stay true as time passes: without that it may
// find a later moment, or none, where there is an earlier one. What it finds is always a second at which they are true.
//
// results are what the conditions gave at in.Time. An error among them, or a false condition that does not read the
// time, is the end of it: only an event can help. Else it evaluates what reads the time at until, and, if that is
// true, halves the span until a second is left. These are about log₂ of the seconds of the span, at most 37, and they
// share one set of Limits: when those are used up it gives the earliest second it knows. An error at a moment counts as
// not true then.
//
// guess is what was found before, or zero: if it is still right, it takes three evaluations to see that.
func (p *Programs) FindTrueTime(ctx context.Context, in Input, results []Result, guess, until time.Time) (at time.Time, found bool) {
	for i, r := range results {
		if r.Err != nil || !r.Value && !p.conditions[i].readsTime {
			return time.Time{}, false
		}
	}
	low, high := in.Time.Unix(), until.Unix() // not true at low, maybe at high
	if high <= low {
		return time.Time{}, false
	}
	e, interrupted := p.beginSearch(ctx, in)
	if interrupted != nil { // who is interrupted has found nothing
		return time.Time{}, false
	}
	defer e.Close()
	look := func(second int64) bool {
		e.setTime(time.Unix(second, 0).UTC())
		if !e.allTrue() {
			low = second
			return false
		}
		high, found = second, true
		return true
	}
	if !look(high) {
		return time.Time{}, false
	}
	if g := guess.Unix(); low < g && g < high && look(g) && low < g-1 {
		look(g - 1)
	}
	for high-low > 1 && p.meter.Stopped == nil {
		look(low + (high-low)/2)
	}
	return time.Unix(high, 0).UTC(), found
}

// setTime has expressions see another time.
func (e *Evaluation) setTime(now time.Time) {
	e.values[nameTime] = now
	e.ahead.resetForesight()
	for _, v := range e.p.variables {
		if v.expression.readsTime {
			e.memos[v.slot] = memo{}
		}
	}
}

// allTrue says whether the conditions that read the time are true.
func (e *Evaluation) allTrue() bool {
	for _, c := range e.p.conditions {
		if !c.readsTime {
			continue
		}
		if out, failure, problem := c.attemptIn(e, &e.sharedBudget); problem != nil || failure != nil || out != types.True {
			return false
		}
	}
	return true
}
