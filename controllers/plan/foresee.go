// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"time"

	"github.com/vtex/cleaner/celenv"
)

// ahead tells when a decision is to be made again.
type ahead struct{ *Input }

// byOurClock is when Now will be that moment of the API server's clock; zero stays zero.
func (in ahead) byOurClock(moment time.Time) time.Time {
	if moment.IsZero() {
		return moment
	}
	return moment.Add(in.Clock.Ahead)
}

// foreseeHolds is the plan with until when time alone changes nothing of what holds. If nobody knows it is looked at again soon, as decideRules
// says.
func (in ahead) foreseeHolds(p Plan, f celenv.Foresight) Plan {
	soon, until := p.NextCheck, in.byOurClock(f.Until)
	p.NextCheck = time.Time{}
	switch {
	case !p.RulesEvaluated:
	case f.Unknown:
		p.Steady, p.NextCheck = in.Now, soon
	case until.IsZero():
		p.Steady = in.Now.Add(always)
	default:
		p.Steady = until
	}
	return p
}

// nextBackstop is when conditions that were evaluated at a moment are evaluated again in any case.
func (in ahead) nextBackstop(at time.Time) time.Time {
	period, err := in.Spec.RetryPeriod()
	if err != nil { // ComputePlan has rejected it
		return at
	}
	return at.Add(period)
}

// whenTrue is when time alone makes the conditions true, if that is before the period ends; zero if not. Nothing is
// deleted for it: they are evaluated again at that moment.
func (in ahead) whenTrue(ctx context.Context, see celenv.Input, results []celenv.Result) time.Time {
	at, found := in.Programs.FindTrueTime(ctx, see, results, in.Expected.Add(-in.Clock.Ahead), in.nextBackstop(see.Time))
	if !found {
		return time.Time{}
	}
	return in.byOurClock(at)
}
