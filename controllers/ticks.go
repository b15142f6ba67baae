// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
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
	// ticked is the time of the schedule that was over last, and answered the last request for an evaluation that was answered:
	// recorded, or about to be.
	ticked   time.Time
	answered string
	// asking is since when an evaluation that the author asked for, besides those of the schedule, is not over; zero if it is.
	asking time.Time
	// request is the last request for an evaluation, requestFor what was to be done when it was made, and requestVersion a version
	// of that.
	request, requestFor, requestVersion string
}

// endRequest ends a request for an evaluation when something else is to be done than when it was made: whoever made it had the
// rights to that, and nobody knows whether they have those to this.
func (m *timing) endRequest(spec, request string) {
	if m.requestFor != "" && m.requestFor != spec {
		m.asking = time.Time{}
		if m.request == request {
			m.answered = request
		}
	}
	m.request, m.requestFor = request, spec
}

// scheduled says that the schedule is not due, so that nothing is evaluated. A time that is due stays so until what is to
// be done then is over, or startingDeadline has passed: a crash loses none, nor a watch that is only beginning.
func (p *ticks) scheduled() (waits bool) {
	if p.spec.Schedule == "" || p.c.Common().Suspend {
		return false
	}
	now := p.r.clock.Now().Add(-p.r.opts.Skew.ClockAhead())
	due, tick, next, err := plan.Due(p.spec, p.lastTick(), p.created(), now)
	if err != nil { // validation says so, when it is evaluated
		return false
	}
	if p.nextTick = next; due {
		p.tick = tick
	}
	if at, asked := p.findRequest(now); asked {
		p.mem.asking = at
	}
	if !p.mem.asking.IsZero() && plan.Missed(p.spec, p.mem.asking, now) { // as a time of the schedule that was not over would be
		p.mem.asking, p.mem.answered = time.Time{}, p.requestedAt()
	}
	return !p.ticking()
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

// ticking says that the schedule is due, or that the author asks for what it stands for.
func (p *ticks) ticking() bool { return !p.tick.IsZero() || !p.mem.asking.IsZero() }

// overWith says that nothing of a decision is waited for that was to be done at a time of the schedule, or on request.
func (p *ticks) overWith(d plan.Plan) bool {
	if !p.ticking() || len(d.Pending) > 0 || len(d.Deferred) > 0 {
		return false
	}
	switch d.Reason {
	case v1alpha1.ReasonNotSynced, v1alpha1.ReasonReadFailed, v1alpha1.ReasonAccessDenied, v1alpha1.ReasonKindNotServed,
		v1alpha1.ReasonUnconfirmed, v1alpha1.ReasonClockSkewSuspected:
		return false
	}
	return true
}

// findRequest finds a request for an evaluation that is not answered, and when it was made. One that is not signed for this spec is
// none: nobody has reviewed the rights of whoever made it. Where no webhook signs anything, a request is made when it is seen.
func (p *ticks) findRequest(now time.Time) (madeAt time.Time, asked bool) {
	at := p.requestedAt()
	if at == "" || at == p.read.State().LastRequestedAt || at == p.mem.answered {
		return time.Time{}, false
	}
	if p.r.opts.ActWithoutAuthor {
		return now, true
	}
	const fastClock = 5 * time.Minute // by how much the clock of the webhook may be ahead of this one
	madeAt, err := author.ReadRequest(p.ring, p.c)
	if err != nil || madeAt.After(now.Add(fastClock)) {
		p.mem.answered = at
		return time.Time{}, false
	}
	return madeAt, true
}

// endOldRequest ends a request for an evaluation that was made when something else was to be done. To suspend a Cleaner, and to
// let it go on, changes nothing of that.
func (p *ticks) endOldRequest(version string) error {
	spec := p.mem.requestFor
	if spec == "" || p.mem.requestVersion != version {
		own, err := author.FingerprintSpec(p.c)
		if err != nil {
			return err
		}
		_, template, _ := strings.Cut(version, "/")
		spec = own + "/" + template
	}
	p.mem.endRequest(spec, p.requestedAt())
	p.mem.requestVersion = version
	return nil
}

// recordRequest records that a request for an evaluation is answered, before anything is done on it: whoever can make a Cleaner so
// large that this cannot be recorded would have each restart answer it again.
func (p *ticks) recordRequest(ctx context.Context) error {
	at := p.requestedAt()
	if p.mem.asking.IsZero() || at == "" || at == p.read.State().LastRequestedAt {
		return nil
	}
	return p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.LastRequestedAt = at })
}
