// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan"
)

// scopeKey is a part of a resource: all of it, a namespace, or one object.
type scopeKey struct{ namespace, name string }

// access is what the operator may do with a scope.
type access int

const (
	unchecked access = iota
	allowed
	denied
	uncheckable
)

// scope is a part of a resource that may be watched. Wants hang on the widest one that is allowed, and on all above it,
// so that they move up when a wider one is allowed later. A want of several namespaces hangs on one for each of them, where
// it may not have them all at once.
type scope struct {
	scopeKey
	resource *resource
	wants    map[*want]struct{}

	access access
	detail string
	// full holds whole objects, and serves those who want metadata too. meta is there until full has taken over.
	full, meta *informer

	// alarm rings when access has to be checked, for the first time or again.
	alarm  alarm
	cancel context.CancelFunc
}

// narrowScope returns the next smaller scope that has what is asked for in a namespace.
func (r *resource) narrowScope(k scopeKey, namespace, name string) (scopeKey, bool) {
	switch {
	case k.name != "":
		return k, false
	case r.Namespaced && k.namespace == "":
		return scopeKey{namespace: namespace}, namespace != ""
	default:
		return scopeKey{namespace: k.namespace, name: name}, name != ""
	}
}

// placeWant hangs a want on the scopes from the cluster down to the first that is not denied, and off all others.
func (e *Engine) placeWant(w *want) {
	r := w.kind.resource
	var scopes []*scope
	for _, namespace := range r.namespacesFor(&w.query) {
		for k, more := (scopeKey{}), true; more; k, more = r.narrowScope(k, namespace, w.query.Name) {
			s := r.scopes[k]
			if s == nil {
				s = e.newScope(r, k)
			}
			if !slices.Contains(scopes, s) {
				scopes = append(scopes, s)
				s.wants[w] = struct{}{}
			}
			if s.access == denied {
				continue
			}
			if s.access == allowed {
				e.ensureInformer(s, w.full)
			}
			break
		}
	}
	e.detachFromScopes(w, scopes)
}

// detachFromScopes takes a want off all scopes but these, which are now its own.
func (e *Engine) detachFromScopes(w *want, keep []*scope) {
	for _, s := range w.scopes {
		if slices.Contains(keep, s) {
			continue
		}
		delete(s.wants, w)
		if len(s.wants) == 0 {
			s.cancel()
			e.stopInformers(s)
			delete(s.resource.scopes, s.scopeKey)
		}
	}
	w.scopes = keep
}

func (e *Engine) newScope(r *resource, k scopeKey) *scope {
	s := &scope{scopeKey: k, resource: r, wants: map[*want]struct{}{}, alarm: newAlarm(e.clock.Now())}
	r.scopes[k] = s
	s.cancel = e.runInBackground(func(ctx context.Context) {
		for e.waitForAlarm(ctx, &s.alarm) {
			e.checkAccess(ctx, s)
		}
	})
	return s
}

// checkAccess finds out what the operator may do with a scope.
func (e *Engine) checkAccess(ctx context.Context, s *scope) {
	var missing []string
	var err error
	if p := contain.CatchPanic(func() { missing, err = e.findMissingVerbs(ctx, s) }); p != nil {
		err = p
	}
	e.mu.Lock()
	defer e.unlockAndWake()
	if ctx.Err() == nil {
		e.recordAccess(s, missing, err)
	}
}

// findMissingVerbs asks which of the verbs that an informer needs the operator lacks.
func (e *Engine) findMissingVerbs(ctx context.Context, s *scope) ([]string, error) {
	var missing []string
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: s.resource.GVR.Group, Version: s.resource.GVR.Version, Resource: s.resource.GVR.Resource, Namespace: s.namespace, Name: s.name,
			},
		}}
		answer, err := e.access.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot find out whether the operator may %s %s: %w", verb, describeScope(s.resource.Resource, s.namespace, s.name), err)
		}
		if !answer.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	return missing, nil
}

// recordAccess takes note of what the operator may do with a scope.
func (e *Engine) recordAccess(s *scope, missing []string, err error) {
	before := s.access
	switch {
	case err != nil:
		s.alarm.due = e.clock.Now().Add(s.alarm.nextBackoff(e.retryEvery))
		if before == denied {
			return
		}
		s.access, s.detail = uncheckable, err.Error()
	case len(missing) > 0:
		s.alarm.due = e.clock.Now().Add(e.retryEvery)
		s.access, s.detail = denied, strings.Join(missing, " and ")
	default:
		s.alarm.due = time.Time{}
		s.access, s.detail = allowed, ""
	}
	if s.access != before {
		e.repositionWants(s)
	}
}

// markDenied takes note that a scope may not be watched after all, or not any more.
func (e *Engine) markDenied(s *scope) {
	e.stopInformers(s)
	s.access, s.detail = denied, "list and watch"
	s.alarm.setDue(e.clock.Now().Add(s.alarm.nextBackoff(e.retryEvery)))
	e.repositionWants(s)
}

// repositionWants places all wants of a scope anew, because its access changed.
func (e *Engine) repositionWants(s *scope) {
	wants := make([]*want, 0, len(s.wants))
	for w := range s.wants {
		wants = append(wants, w)
	}
	for _, w := range wants {
		e.placeWant(w)
		if l := e.checkCoverage(&w.query); l.state == plan.Complete {
			w.reportedState = plan.Unknown // what happened before it came here was not seen
		}
		e.reportState(w)
	}
}
