// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/vtex/cleaner/controllers/internal/alarms"
	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
	"github.com/vtex/cleaner/controllers/internal/nameturns"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// scopeKey is a part of a resource: all of it, a namespace, or one object; and of these all, or those that a filter selects.
type scopeKey struct {
	namespace, name string
	filter          cachedobjects.Filter
}

// access is what the operator may do with a scope.
type access int

const (
	unchecked access = iota
	allowed
	denied
	uncheckable
	tooLarge // its objects take more memory than there is
	unneeded // narrower scopes serve all its wants at less cost
	opening  // it is being listed, and narrower scopes serve its wants until that is done
)

// scope is a part of a resource that may be watched. Wants hang on the widest one that is allowed, and on all above it,
// so that they move up when a wider one is allowed later. A want of several namespaces hangs on one for each of them, where
// it may not have them all at once.
type scope struct {
	scopeKey
	resource *resource
	wants    map[*want]struct{}
	// demands are the groups that the wants ask for.
	demands labelgroups.Demands
	// reads is what those of the wants read for which metadata is not enough.
	reads keptparts.Wants
	// payers is how many of the wants are those of each Cleaner, and asked how many ask for each part of it: a namespace, or a name; "": for all.
	payers map[Owner]int
	asked  map[string]int
	// parent is the scope that it is a part of, nil if there is none, and parts are those of it that wants hang on.
	parent *scope
	parts  map[*scope]struct{}

	access access
	detail string
	// excess is what is known of one that is tooLarge.
	excess excess
	// denials counts how often in a row it was denied while narrower scopes served all its wants.
	denials int
	// full holds whole objects, and serves those who want metadata too. meta is there until full has taken over. next lists and watches aside,
	// because more is read than full keeps, and takes over from full; nil if nothing does. pace bounds how often there is one.
	full, meta, next *informer
	// asideExcess says why what next would have is too much, until it is tried again.
	asideExcess string
	pace        keptparts.Pace

	// alarm rings when access has to be checked, for the first time or again. A single object is asked for at the pace of the namespaces
	// whose Cleaners name it, and inLine says that it waits for its turn.
	alarm  alarms.Alarm
	inLine bool
	// cancel ends what waits for the alarm. Of a single object that is the line of all names, in which it stands at a place; -1: it does not.
	cancel context.CancelFunc
	place  int
}

// isClosed says that a scope is not watched, so that narrower ones are.
func (s *scope) isClosed() bool {
	return s.access == denied || s.access == tooLarge || s.access == unneeded || s.access == opening
}

// listInformers lists the informers of a scope that run.
func (s *scope) listInformers() []*informer {
	return slices.DeleteFunc([]*informer{s.full, s.meta, s.next}, func(i *informer) bool { return i == nil })
}

// addWant takes one more want, and says whether it is the first one of its Cleaner.
func (s *scope) addWant(w *want) (first bool) {
	if _, known := s.wants[w]; known {
		return false
	}
	s.wants[w] = struct{}{}
	s.addDemand(w)
	if w.full {
		s.reads.AddQuery(w.query.Reads)
	}
	for _, part := range s.listAsked(&w.query) {
		s.asked[part]++
	}
	s.payers[w.owner]++
	return s.payers[w.owner] == 1
}

// dropWant removes a want, and reports whether it was the last one of its Cleaner.
func (s *scope) dropWant(w *want) (last bool) {
	delete(s.wants, w)
	s.dropDemand(w)
	if w.full {
		s.reads.DropQuery(w.query.Reads)
	}
	for _, part := range s.listAsked(&w.query) {
		if s.asked[part]--; s.asked[part] == 0 {
			delete(s.asked, part)
		}
	}
	if s.payers[w.owner]--; s.payers[w.owner] > 0 {
		return false
	}
	delete(s.payers, w.owner)
	return true
}

// widestScope returns the widest scope that is watched for what is asked for in a namespace. Secrets and ConfigMaps are watched in the
// namespaces only that Cleaners ask for: what they hold is large, or concerns no other namespace. What a filter selects is watched for itself.
func (r *resource) widestScope(q *snapshot.Query, namespace string) scopeKey {
	k := scopeKey{filter: cachedobjects.FilterOf(q)}
	if r.Namespaced && r.GVR.Group == "" && (r.GVR.Resource == "secrets" || r.GVR.Resource == "configmaps") {
		k.namespace = namespace
	}
	return k
}

// narrowScope returns the next smaller scope that has what is asked for in a namespace.
func (r *resource) narrowScope(k scopeKey, namespace, name string) (scopeKey, bool) {
	switch {
	case k.name != "":
		return k, false
	case r.Namespaced && k.namespace == "":
		return scopeKey{namespace: namespace, filter: k.filter}, namespace != ""
	default:
		return scopeKey{namespace: k.namespace, name: name, filter: k.filter}, name != ""
	}
}

// placement finds out what the operator may watch, and hangs each want on the widest scopes that serve it.
type placement struct {
	*background
	access  authorizationv1client.SelfSubjectAccessReviewInterface
	names   *nameturns.Turns[*scope]
	alarms  *alarms.Line[*scope]
	answers *answers
	feeds   *feeds
	// few is in how many namespaces a kind is watched each for itself, and fewNames how many objects of one are.
	few, fewNames int
}

// placeWant hangs a want on the scopes from the cluster down to the first that is not denied, and off all others.
func (p *placement) placeWant(w *want) {
	r := w.kind.resource
	var scopes []*scope
	for _, namespace := range r.namespacesFor(&w.query) {
		parent, waits := (*scope)(nil), false
		for k, more := r.widestScope(&w.query, namespace), true; more; k, more = r.narrowScope(k, namespace, w.query.Name) {
			s := r.scopes[k]
			if s == nil && waits {
				break
			}
			if s == nil {
				s = p.newScope(r, k, parent)
			}
			if !slices.Contains(scopes, s) {
				scopes = append(scopes, s)
				if s.addWant(w) && s.inLine {
					p.setAlarm(s, p.clock.Now()) // it may have an earlier turn
				}
				breadth{p}.noteWant(s)
			}
			if s.isOpen() {
				p.feeds.ensureInformer(s, w.full)
				s.full.widenFor(w, p.clock.Now())
			}
			if !s.isClosed() {
				break
			}
			parent, waits = s, waits || (breadth{p}).mayWait(s)
		}
	}
	p.detachFromScopes(w, scopes)
	p.hastenChecks(w)
}

// maxDenialWait is, in times of retryEvery, how long it may take until the access to a scope is checked again that nothing needs.
const maxDenialWait = 20

// waitAfterDenial returns how long to wait until the access to a scope is checked again: longer each time where narrower scopes serve all
// its wants, since the operator only watches more widely then.
func (p *placement) waitAfterDenial(s *scope) time.Duration {
	if p.isNeeded(s) {
		s.denials = 0
		return p.retryEvery
	}
	s.denials++
	return p.retryEvery * time.Duration(min(1<<min(s.denials, 16), maxDenialWait))
}

// isNeeded reports whether no scope serves one of the wants of a scope.
func (p *placement) isNeeded(s *scope) bool {
	needed := s.name != "" // nothing is narrower
	for w := range s.wants {
		needed = needed || p.needsWider(w)
	}
	return needed
}

// needsWider reports whether no scope serves a want that the operator may watch.
func (p *placement) needsWider(w *want) bool {
	state := p.answers.checkCoverage(&w.query).state
	return state == observed.Forbidden || state == observed.Failed
}

// hastenChecks has the access to the scopes of a want checked soon if it needs one of them.
func (p *placement) hastenChecks(w *want) {
	soon := p.clock.Now().Add(p.retryEvery)
	for _, s := range w.scopes {
		if s.name == "" && s.access == denied && s.alarm.Due.After(soon) && p.needsWider(w) {
			s.denials = 0
			p.setAlarm(s, soon)
		}
	}
}

// detachFromScopes removes a want from all scopes but these, which are now its own.
func (p *placement) detachFromScopes(w *want, keep []*scope) {
	for _, s := range w.scopes {
		if slices.Contains(keep, s) {
			continue
		}
		if s.dropWant(w) {
			p.names.LeaveLine(s, w.owner)
		}
		if len(s.wants) == 0 {
			delete(s.resource.scopes, s.scopeKey)
			if s.parent != nil {
				delete(s.parent.parts, s)
			}
			s.cancel()
			p.feeds.stopInformers(s)
			continue
		}
		breadth{p}.noteLeave(s)
	}
	w.scopes = keep
}

// newScope makes a scope that is a part of another one, if that is not nil.
func (p *placement) newScope(r *resource, k scopeKey, parent *scope) *scope {
	s := &scope{scopeKey: k, resource: r, wants: map[*want]struct{}{}, demands: labelgroups.Demands{}, payers: map[Owner]int{}, parent: parent, pace: keptparts.Pace{Every: p.retryEvery / listsPerRetry}, place: -1}
	r.scopes[k] = s
	if parent != nil {
		parent.parts[s] = struct{}{}
	}
	if k.name != "" { // anybody may name as many as there is room for: they share a few goroutines
		s.cancel = func() { p.alarms.SetAlarm(s, time.Time{}) }
		p.setAlarm(s, p.clock.Now())
		return s
	}
	s.asked, s.parts, s.alarm = map[string]int{}, map[*scope]struct{}{}, alarms.New(p.clock.Now())
	s.cancel = p.runInBackground(func(ctx context.Context) {
		for s.alarm.WaitDue(ctx, p.clock, p.mu.RLocker()) {
			if p.mayCheckAccess(s) {
				p.checkAccess(ctx, s)
			}
		}
	})
	return s
}

// setAlarm sets when to check the access to a scope; zero: never.
func (p *placement) setAlarm(s *scope, due time.Time) {
	if s.name != "" {
		p.alarms.SetAlarm(s, due)
		return
	}
	s.alarm.SetDue(due)
}

// checkNames checks the access to single objects whose alarm is due.
func (p *placement) checkNames(ctx context.Context) {
	for p.alarms.First.WaitDue(ctx, p.clock, p.mu.RLocker()) {
		if s := p.takeName(); s != nil && p.mayCheckAccess(s) {
			p.checkAccess(ctx, s)
		}
	}
}

// takeName returns the single object whose alarm is due; nil if another goroutine has taken it.
func (p *placement) takeName() *scope {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alarms.TakeDue(p.clock.Now())
}

// mayCheckAccess says that it is the turn of a scope to be asked for, and that there is room for what it has. Else its alarm is set for then.
func (p *placement) mayCheckAccess(s *scope) bool {
	p.mu.Lock()
	defer p.unlockAndWake()
	if s.name == "" && !(breadth{p}).mayOpen(s) {
		return false
	}
	switch {
	case s.access == tooLarge && !(pressure{p}).mayReopen(s):
		p.setAlarm(s, p.clock.Now().Add(p.retryEvery))
		return false
	case len(s.wants) == 0: // no target names it now
		return false
	case s.name == "":
		return true
	case s.access == unchecked && s.parent != nil && (breadth{p}).mayWait(s.parent): // which will have it
		breadth{p}.noteWant(s.parent)
		p.setAlarm(s, p.clock.Now().Add(p.retryEvery/refusalShare))
		return false
	case s.parent != nil && s.parent.access == unneeded && !(breadth{p}).needsAll(s.parent): // it is one of few, and not denied more
		p.names.LeaveLines(s, maps.Keys(s.payers))
		s.inLine = false
		return true
	}
	at, may := p.names.TakeTurn(s, maps.Keys(s.payers), p.clock.Now())
	if s.inLine = !may; s.inLine {
		p.setAlarm(s, at)
	}
	return may
}

// checkAccess finds out what the operator may do with a scope.
func (p *placement) checkAccess(ctx context.Context, s *scope) {
	var missing []string
	var err error
	if p := contain.CatchPanic(func() {
		missing, err = served.FindMissingVerbs(ctx, p.access, s.resource.Resource, s.namespace, s.name)
	}); p != nil {
		err = p
	}
	p.mu.Lock()
	defer p.unlockAndWake()
	if ctx.Err() == nil && s.resource.scopes[s.scopeKey] == s {
		p.recordAccess(s, missing, err)
	}
}

// recordAccess records what the operator may do with a scope.
func (p *placement) recordAccess(s *scope, missing []string, err error) {
	before := s.access
	switch {
	case err != nil:
		p.setAlarm(s, p.clock.Now().Add(s.alarm.NextBackoff(p.retryEvery)))
		switch before {
		case denied, tooLarge:
			return
		case unneeded:
			if s.alarm.Failures > 1 { // once may be an accident, and many may wait
				s.detail = err.Error()
				p.repositionWants(s)
			}
			return
		}
		p.setAccess(s, uncheckable, err.Error())
	case len(missing) > 0:
		p.setAlarm(s, p.clock.Now().Add(p.waitAfterDenial(s)))
		p.setAccess(s, denied, strings.Join(missing, " and "))
	case s.name == "" && (s.isClosed() || !(breadth{p}).needsAll(s)):
		breadth{p}.open(s)
		return
	default:
		p.setAlarm(s, time.Time{})
		p.setAccess(s, allowed, "")
	}
	if s.access != before {
		p.repositionWants(s)
	}
	breadth{p}.noteLeave(s)
}

// setAccess sets what the operator may do with a scope. Where that changes its wants may be served by other informers from then on: those that narrower
// scopes serve before and after are not.
func (p *placement) setAccess(s *scope, a access, detail string) {
	if s.access != a {
		for w := range s.wants {
			if isServed := p.answers.isServedBy(w, s); isServed != (a == allowed) { // it is served by another one before or after
				p.answers.noteLoss(w)
			}
		}
	}
	s.access, s.detail = a, detail
}

// markDenied records that the operator may not, or may no longer, watch a scope.
func (p *placement) markDenied(s *scope) {
	p.setAccess(s, denied, "list and watch")
	p.feeds.stopInformers(s)
	p.setAlarm(s, p.clock.Now().Add(s.alarm.NextBackoff(p.retryEvery)))
	p.repositionWants(s)
}

// repositionWants assigns scopes to all wants of a scope again, because its access changed.
func (p *placement) repositionWants(s *scope) {
	wants := make([]*want, 0, len(s.wants))
	for w := range s.wants {
		wants = append(wants, w)
	}
	for _, w := range wants {
		p.placeWant(w)
		if l := p.answers.checkCoverage(&w.query); l.state == observed.Complete && !w.lost.IsZero() {
			w.reportedState = observed.Unknown // what happened before it came here was not seen
		}
		p.answers.reportState(w)
	}
}
