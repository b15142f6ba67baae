// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/plan"
)

// fastClock is by how much the clock of the webhook, which signs requests, may be ahead of this one.
const fastClock = 5 * time.Minute

// requests is what this process remembers of requests for an evaluation besides those of the schedule. What is signed of a request
// says when it was made; without the webhook, only this process knows since when it is there.
type requests struct {
	// answered is the last one that was answered: recorded, or about to be.
	answered string
	// asking is since when the one that asks is not over; zero if none is.
	asking time.Time
	asks   string
	// dropped is the last one that nothing more is begun on.
	dropped dropped
	// request is the last one that was seen, seenAt when that was for the first time, and outlived the one that something else is
	// to be done than when it was seen.
	request, outlived string
	seenAt            time.Time
	// about is what is to be done, and aboutVersion a version of that.
	about, aboutVersion string
}

// dropped is a request that nothing more is begun on, and why.
type dropped struct{ request, reason, message string }

// seeRequest takes note of a request, and of what is to be done. One that is older than that has outlived what it was about: whoever made it
// had the rights to that, and nobody knows whether they have those to this.
func (m *requests) seeRequest(request, about string, now time.Time) {
	if m.about != "" && m.about != about {
		m.outlived = m.request
		if !m.asking.IsZero() {
			m.dropRequest(m.asks, outlivedReason())
		}
	}
	if m.request != request {
		m.request, m.seenAt = request, now
	}
	m.about = about
}

// dropRequest has nothing more be begun on a request.
func (m *requests) dropRequest(request string, why dropped) {
	if m.answered, m.dropped = request, why; m.asks == request {
		m.asking = time.Time{}
	}
	m.dropped.request = request
}

func outlivedReason() dropped {
	return dropped{reason: v1alpha1.ReasonRequestOutlived, message: "Nothing more is begun on the last request: the spec or its template has changed since it was made."}
}

func expiredReason(madeAt time.Time) dropped {
	return dropped{reason: v1alpha1.ReasonRequestExpired, message: fmt.Sprintf(
		"Nothing more is begun on the last request: it was made at %s, and startingDeadline has passed.", madeAt.UTC().Format(time.RFC3339))}
}

func unsignedReason() dropped {
	return dropped{reason: v1alpha1.ReasonRequestNotSigned, message: "Nothing is begun on the last request: the operator's webhook has not signed it for this spec."}
}

// seeRequest takes note of a request for an evaluation before anything can keep the Cleaner from being looked at. To suspend a
// Cleaner, and to let it go on, changes nothing of what it is about.
func (p *ticks) seeRequest(version string) error {
	about := p.mem.about
	if about == "" || p.mem.aboutVersion != version {
		own, err := author.FingerprintSpec(p.c)
		if err != nil {
			return err
		}
		about = own + "/" + templateOf(version)
	}
	p.mem.seeRequest(p.requestedAt(), about, p.laggingNow())
	p.mem.aboutVersion = version
	return nil
}

// judgeRequest finds out which request for an evaluation is not over: for startingDeadline from when it was made, whatever keeps the
// Cleaner from being evaluated meanwhile. Without a schedule there is nothing to ask for: the Cleaner acts at any time.
func (p *ticks) judgeRequest(ctx context.Context) {
	if p.spec.Schedule == "" {
		return
	}
	now, at := p.laggingNow(), p.requestedAt()
	if at != "" && at != p.read.State().LastRequestedAt && at != p.mem.answered {
		switch made, why := p.readRequest(now); {
		case why.reason != "":
			p.mem.dropRequest(at, why)
		case plan.IsMissed(p.spec, made.Time, now):
			p.mem.dropRequest(at, expiredReason(made.Time))
		case made.Template == templateOf(p.mem.aboutVersion):
			p.mem.asking, p.mem.asks = made.Time, at
		case !p.isCurrent(ctx, made.Template): // else it waits for the watch to show the template
			p.mem.dropRequest(at, outlivedReason())
		}
	}
	made, state := p.mem.asking, p.read.State()
	if made.IsZero() || !plan.IsMissed(p.spec, made, now) {
		return
	}
	if run := state.Run; run != nil && run.Result == "" && run.Lifecycle != v1alpha1.LifecycleRecurring && state.LastRequestedAt == p.mem.asks {
		p.mem.asking = time.Time{} // the run that it has begun goes on
		return
	}
	p.mem.dropRequest(p.mem.asks, expiredReason(made))
}

// readRequest reads when the request that is there was made, and for which template; or why it does not count: nobody has reviewed the
// rights of who made it to what is to be done. Where no webhook signs anything, a request is made when it is seen.
func (p *ticks) readRequest(now time.Time) (author.Request, dropped) {
	made, err := author.ReadRequest(p.ring, p.c)
	switch {
	case err != nil && !p.r.opts.ActWithoutAuthor, err == nil && made.Time.After(now.Add(fastClock)):
		return author.Request{}, unsignedReason()
	case err != nil && p.mem.outlived == p.mem.request:
		return author.Request{}, outlivedReason()
	case err != nil:
		return author.Request{Time: p.mem.seenAt, Template: templateOf(p.mem.aboutVersion)}, dropped{}
	}
	return made, dropped{}
}

// isCurrent says that a template is the one that the Cleaner stands for now, or that nobody can say.
func (p *ticks) isCurrent(ctx context.Context, template string) bool {
	use, t := p.c.Common().TemplateRef, &v1alpha1.CleanerTemplate{}
	if use == nil {
		return false
	}
	err := p.r.live.Get(ctx, client.ObjectKey{Name: use.Name}, t)
	return client.IgnoreNotFound(err) != nil || err == nil && author.FingerprintTemplate(t) == template
}

// recordRequest records that a request for an evaluation is answered, before anything is done on it: whoever can make a Cleaner so
// large that this cannot be recorded would have each restart answer it again.
func (p *ticks) recordRequest(ctx context.Context) error {
	asks := p.mem.asks
	if p.mem.asking.IsZero() || asks == p.read.State().LastRequestedAt {
		return nil
	}
	err := p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.LastRequestedAt = asks })
	if err == nil {
		p.c.State().LastRequestedAt = asks // or the report would put it back
	}
	return err
}

// requestEnds is when the request that asks is over; zero if none asks.
func (p *ticks) requestEnds() time.Time {
	if p.mem.asking.IsZero() {
		return time.Time{}
	}
	return plan.EndOf(p.spec, p.mem.asking).Add(p.r.clock.Now().Sub(p.laggingNow()))
}
