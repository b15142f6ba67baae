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

// below is the next smaller scope that has what is asked for in a namespace.
func (r *resource) below(k scopeKey, namespace, name string) (scopeKey, bool) {
	switch {
	case k.name != "":
		return k, false
	case r.Namespaced && k.namespace == "":
		return scopeKey{namespace: namespace}, namespace != ""
	default:
		return scopeKey{namespace: k.namespace, name: name}, name != ""
	}
}

// place hangs a want on the scopes from the cluster down to the first that is not denied, and off all others.
func (e *Engine) place(w *want) {
	r := w.kind.resource
	var scopes []*scope
	for _, namespace := range r.places(&w.query) {
		for k, more := (scopeKey{}), true; more; k, more = r.below(k, namespace, w.query.Name) {
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
				e.inform(s, w.full)
			}
			break
		}
	}
	e.displace(w, scopes)
}

// displace takes a want off all scopes but these, which are now its own.
func (e *Engine) displace(w *want, keep []*scope) {
	for _, s := range w.scopes {
		if slices.Contains(keep, s) {
			continue
		}
		delete(s.wants, w)
		if len(s.wants) == 0 {
			s.cancel()
			e.stop(s)
			delete(s.resource.scopes, s.scopeKey)
		}
	}
	w.scopes = keep
}

func (e *Engine) newScope(r *resource, k scopeKey) *scope {
	s := &scope{scopeKey: k, resource: r, wants: map[*want]struct{}{}, alarm: newAlarm(e.clock.Now())}
	r.scopes[k] = s
	s.cancel = e.launch(func(ctx context.Context) {
		for e.await(ctx, &s.alarm) {
			e.check(ctx, s)
		}
	})
	return s
}

// check finds out what the operator may do with a scope.
func (e *Engine) check(ctx context.Context, s *scope) {
	var missing []string
	var err error
	if p := contain.Catch(func() { missing, err = e.missing(ctx, s) }); p != nil {
		err = p
	}
	e.mu.Lock()
	defer e.unlock()
	if ctx.Err() == nil {
		e.checked(s, missing, err)
	}
}

// missing asks which of the verbs that an informer needs the operator lacks.
func (e *Engine) missing(ctx context.Context, s *scope) ([]string, error) {
	var missing []string
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: s.resource.GVR.Group, Version: s.resource.GVR.Version, Resource: s.resource.GVR.Resource, Namespace: s.namespace, Name: s.name,
			},
		}}
		answer, err := e.access.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot find out whether the operator may %s %s: %w", verb, where(s.resource.Resource, s.namespace, s.name), err)
		}
		if !answer.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	return missing, nil
}

// checked takes note of what the operator may do with a scope.
func (e *Engine) checked(s *scope, missing []string, err error) {
	before := s.access
	switch {
	case err != nil:
		s.alarm.due = e.clock.Now().Add(s.alarm.backOff(e.retryEvery))
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
		e.replace(s)
	}
}

// refused takes note that a scope may not be watched after all, or not any more.
func (e *Engine) refused(s *scope) {
	e.stop(s)
	s.access, s.detail = denied, "list and watch"
	s.alarm.set(e.clock.Now().Add(s.alarm.backOff(e.retryEvery)))
	e.replace(s)
}

// replace places all wants of a scope anew, because its access changed.
func (e *Engine) replace(s *scope) {
	wants := make([]*want, 0, len(s.wants))
	for w := range s.wants {
		wants = append(wants, w)
	}
	for _, w := range wants {
		e.place(w)
		if l := e.look(&w.query); l.state == plan.Complete {
			w.told = plan.Unknown // what happened before it came here was not seen
		}
		e.tell(w)
	}
}
