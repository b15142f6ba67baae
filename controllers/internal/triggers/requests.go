// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package triggers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/schedule"
	"github.com/vtex/cleaner/controllers/rights"
)

// fastClock is by how much the clock of the webhook, which signs requests, may be ahead of this one.
const fastClock = 5 * time.Minute

// dropped is a request that the operator dropped, with the reason and message of condition RequestDropped.
type dropped struct{ request, reason, message string }

// seeRequest records a request, and what the Cleaner does. A request that is older than what the Cleaner does now no longer counts: its
// user had the rights to the former, and may lack those to the latter.
func (m *Memory) seeRequest(request, about string, now time.Time) {
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

// isOpen reports whether a request is due.
func (m *Memory) isOpen(request string, now time.Time) bool {
	return request != "" && request != m.answered && (request != m.deferred || !now.Before(m.deferredUntil))
}

// dropRequest marks a request as dropped: the operator starts nothing more for it.
func (m *Memory) dropRequest(request string, why dropped) {
	if m.answered, m.dropped = request, why; m.asks == request {
		m.asking = time.Time{}
	}
	m.dropped.request = request
}

func outlivedReason() dropped {
	return dropped{reason: v1alpha1.ReasonRequestOutlived, message: "The operator dropped the last request to evaluate: the spec or its template has changed since."}
}

func notAllowedReason(who author.Author, missing []rights.Right) dropped {
	return dropped{reason: v1alpha1.ReasonRequestNotAllowed, message: "The operator dropped the last request to evaluate: " + identity.DescribeLack(who.String()+", who made it,", missing)}
}

func expiredReason(madeAt time.Time) dropped {
	return dropped{reason: v1alpha1.ReasonRequestExpired, message: fmt.Sprintf(
		"The operator dropped the last request to evaluate: it was made at %s, and startingDeadline has passed.", madeAt.UTC().Format(time.RFC3339))}
}

func unsignedReason() dropped {
	return dropped{reason: v1alpha1.ReasonRequestNotSigned, message: "The operator dropped the last request to evaluate: the operator's webhook has not signed it for this spec."}
}

// SeeRequest records a request for an evaluation before anything can keep the Cleaner from being evaluated. To suspend or resume a
// Cleaner does not change what a request is about.
func (p *Triggers) SeeRequest(version string) error {
	about := p.mem.about
	if about == "" || p.mem.aboutVersion != version {
		own, err := author.FingerprintSpec(p.of.Draft)
		if err != nil {
			return err
		}
		about = own + "/" + resolvedspec.TemplateOf(version)
	}
	p.mem.seeRequest(p.of.RequestedAt(), about, p.LaggingNow())
	p.mem.aboutVersion = version
	return nil
}

// JudgeRequest finds out which request for an evaluation is not over: for startingDeadline from when it was made, whatever keeps the
// Cleaner from being evaluated meanwhile. Without a schedule there is nothing to ask for: the Cleaner acts at any time.
func (p *Triggers) JudgeRequest(ctx context.Context) {
	if p.work.Schedule == "" {
		return
	}
	now, at := p.LaggingNow(), p.of.RequestedAt()
	if at != p.of.Stored.State().LastRequestedAt && p.mem.isOpen(at, p.of.API.Clock.Now()) {
		switch made, why := p.readRequest(now); {
		case why.reason != "":
			p.mem.dropRequest(at, why)
		case schedule.IsMissed(p.work, made.Time, now):
			p.mem.dropRequest(at, expiredReason(made.Time))
		case made.Template == resolvedspec.TemplateOf(p.mem.aboutVersion):
			p.mem.asking, p.mem.asks = made.Time, at
		case !isCurrent(ctx, p.of.API.Live, p.of.Draft, made.Template): // else it waits for the watch to show the template
			p.mem.dropRequest(at, outlivedReason())
		}
	}
	made, state := p.mem.asking, p.of.Stored.State()
	if made.IsZero() || !schedule.IsMissed(p.work, made, now) {
		return
	}
	if run := state.Run; run != nil && run.Result == "" && run.Lifecycle != v1alpha1.LifecycleRecurring && state.LastRequestedAt == p.mem.asks {
		p.mem.asking = time.Time{} // the run that it has begun continues
		return
	}
	p.mem.dropRequest(p.mem.asks, expiredReason(made))
}

// readRequest returns when the current request was made, and for which template; or why it does not count: then the rights of its user to
// what the Cleaner does were never reviewed. Where no webhook signs requests, a request is made when it is first seen.
func (p *Triggers) readRequest(now time.Time) (author.Request, dropped) {
	made, err := author.ReadRequest(p.of.Ring, p.of.Draft)
	switch {
	case err != nil && !p.policy.ActWithoutAuthor, err == nil && made.Time.After(now.Add(fastClock)):
		return author.Request{}, unsignedReason()
	case err != nil && p.mem.outlived == p.mem.request:
		return author.Request{}, outlivedReason()
	case err != nil:
		return author.Request{Time: p.mem.seenAt, Template: resolvedspec.TemplateOf(p.mem.aboutVersion)}, dropped{}
	}
	return made, dropped{}
}

// FindLacks returns the rights that a user lacks to ask for an evaluation of another author's Cleaner.
type FindLacks func(ctx context.Context, who author.Author) ([]rights.Right, error)

// RefuseAsker reports whether the request is refused because its user may not do all that the Cleaner does. The webhook has reviewed this
// too, but signs for every client that can reach it. For a user who is not the author, the rights are those that the webhook reviews.
func (p *Triggers) RefuseAsker(ctx context.Context, findLacks FindLacks) bool {
	if p.mem.asking.IsZero() || p.policy.ActWithoutAuthor {
		return false
	}
	made, err := author.ReadRequest(p.of.Ring, p.of.Draft)
	if err != nil {
		p.mem.dropRequest(p.mem.asks, unsignedReason())
		return true
	}
	if who, err := author.Read(p.of.Ring, p.of.Draft); err == nil && equality.Semantic.DeepEqual(who.Author, made.Author) {
		return false // those of the author are reviewed anyway
	}
	missing, err := findLacks(ctx, made.Author)
	switch {
	case err != nil:
		logf.FromContext(ctx).Info("Cannot review the rights of the user who requested an evaluation yet", "user", made.Author.Username, "error", err.Error())
		p.mem.asking, p.mem.deferred, p.mem.deferredUntil = time.Time{}, p.mem.asks, p.of.API.Clock.Now().Add(rights.RetryAfter)
		return true
	case len(missing) > 0:
		p.mem.dropRequest(p.mem.asks, notAllowedReason(made.Author, missing))
		return true
	}
	return false
}

// isCurrent reports whether a template is the one that a Cleaner names now, or whether that cannot be read.
func isCurrent(ctx context.Context, live client.Reader, c v1alpha1.Owner, template string) bool {
	use, t := c.Common().TemplateRef, &v1alpha1.CleanerTemplate{}
	if use == nil {
		return false
	}
	err := live.Get(ctx, client.ObjectKey{Name: use.Name}, t)
	return client.IgnoreNotFound(err) != nil || err == nil && author.FingerprintTemplate(t) == template
}

// RecordRequest records that a request for an evaluation is answered, before acting on it. Otherwise a user who makes a Cleaner so large
// that this cannot be recorded would have each restart answer it again.
func (p *Triggers) RecordRequest(ctx context.Context) error {
	asks := p.mem.asks
	if p.mem.asking.IsZero() || asks == p.of.Stored.State().LastRequestedAt {
		return nil
	}
	err := p.of.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.LastRequestedAt = asks })
	if err == nil {
		p.of.Draft.State().LastRequestedAt = asks // or the report would put it back
	}
	return err
}

// NextCheck is when a request wants to be looked at next; zero: never.
func (p *Triggers) NextCheck(now time.Time) (next time.Time) {
	if ends := p.endOfRequest().Add(time.Millisecond); ends.After(now) { // status says so then
		next = ends
	}
	if p.mem.deferredUntil.After(now) {
		next = monotime.ChooseEarlier(next, p.mem.deferredUntil)
	}
	return next
}

// endOfRequest is when the request that asks is over; zero if none asks.
func (p *Triggers) endOfRequest() time.Time {
	if p.mem.asking.IsZero() {
		return time.Time{}
	}
	return schedule.EndOf(p.work, p.mem.asking).Add(p.of.API.Clock.Now().Sub(p.LaggingNow()))
}

// AnswerRequest records the request for an evaluation as answered.
func (p *Triggers) AnswerRequest() {
	p.mem.answered = p.of.RequestedAt()
	p.of.Draft.State().LastRequestedAt = p.mem.answered
}

// PassOverRequest records a request as answered without an evaluation, where there is no schedule: its user needed no rights then, and it
// must not have a schedule that is written later act at once.
func (p *Triggers) PassOverRequest() {
	if p.of.Draft.Common().Schedule == "" {
		p.AnswerRequest()
	}
}

// RepeatAnswer drafts that a request is answered that was answered before, also where that could not be recorded.
func (p *Triggers) RepeatAnswer() {
	if at := p.mem.answered; at != "" && at == p.of.RequestedAt() {
		p.of.Draft.State().LastRequestedAt = at
	}
}

// Conditions drafts conditions of a status.
type Conditions interface {
	SetCondition(kind string, status metav1.ConditionStatus, reason, message string)
	RemoveConditions(kinds ...string)
}

// ReportRequest drafts what became of a request for an evaluation that nothing more is begun on, until there is another one.
func (p *Triggers) ReportRequest(r Conditions) {
	switch why, at := p.mem.dropped, p.of.RequestedAt(); {
	case at != "" && at == why.request:
		r.SetCondition(v1alpha1.ConditionRequestDropped, metav1.ConditionTrue, why.reason, why.message)
		p.of.Draft.State().LastRequestedAt = at
	case at == "", at == p.mem.asks, at != p.of.Draft.State().LastRequestedAt:
		r.RemoveConditions(v1alpha1.ConditionRequestDropped)
	}
}
