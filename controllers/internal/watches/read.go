// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Read answers from what is watched, without any request. A query that no Cleaner wants is never Complete.
func (e *Engine) Read(_ context.Context, q snapshot.Query) plan.Target {
	t, near, f := e.find(&q)
	for _, o := range near { // stored objects never change, so that they are compared without the lock
		if matches(&q, t.Namespaced, f, o) {
			found := *o
			if q.MetadataOnly {
				found.Value = nil
			}
			t.Objects = append(t.Objects, found)
		}
	}
	byName(t.Objects)
	return t
}

// find returns the state of a query, and the objects that may match it.
func (e *Engine) find(q *snapshot.Query) (t plan.Target, near []*plan.Object, f fieldLabels) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	state, detail, i := e.look(q)
	if i != nil {
		if g, ok := groupOf(i.scope.resource.Resource, q); ok && i.groups[g] == nil {
			e.mu.RUnlock()
			e.gather(q, g)
			e.mu.RLock()
			state, detail, i = e.look(q) // much may have changed meanwhile
		}
	}
	t.State, t.Detail = state, detail
	k := e.kinds[kindKeyOf(q)]
	if k == nil || k.resource == nil {
		return t, nil, f
	}
	r := k.resource
	t.Resource, t.Namespaced = r.GVR, r.Namespaced
	if state == plan.Complete {
		near = i.near(q, namespaceIn(r.Resource, *q))
	}
	return t, near, r.fields
}

// look says how far a query can be answered, and by which informer when it is Complete.
func (e *Engine) look(q *snapshot.Query) (plan.TargetState, string, *informer) {
	k := e.kinds[kindKeyOf(q)]
	if k == nil {
		return plan.Unsynced, "nobody watches it", nil
	}
	if k.resource == nil {
		return k.state, k.detail, nil
	}
	r := k.resource
	full := needsValue(q.Fields) || !q.MetadataOnly
	if !r.allFields && needsValue(q.Fields) {
		if r.fieldsTrouble != "" {
			return plan.Failed, r.fieldsTrouble, nil
		}
		return plan.Unsynced, r.reading(), nil
	}
	if wrong := r.fields.check(r.Resource, q.Fields); wrong != "" {
		return plan.Failed, wrong, nil
	}
	if !r.Watchable {
		return plan.Failed, fmt.Sprintf("%s cannot be listed and watched", r.GVR.GroupResource()), nil
	}
	for key, more := (scopeKey{}), true; more; key, more = r.below(key, q) {
		s := r.scopes[key]
		switch {
		case s == nil || s.access == unchecked:
			return plan.Unsynced, r.reading(), nil
		case s.access == uncheckable:
			return plan.Failed, s.detail, nil
		case s.access == denied:
			if _, more := r.below(key, q); !more {
				return plan.Forbidden, forbidden("the operator", s.detail, r.Resource, namespaceIn(r.Resource, *q), q.Name), nil
			}
			continue
		}
		switch i := s.serving(full); {
		case i == nil:
			return plan.Unsynced, r.reading(), nil
		case i.failing != "":
			return plan.Failed, i.failing, nil
		case !i.synced:
			return plan.Unsynced, r.reading(), nil
		default:
			return plan.Complete, "", i
		}
	}
	return plan.Unsynced, r.reading(), nil
}

// reading says that a resource is being read, for people.
func (r *resource) reading() string { return fmt.Sprintf("%s are being read", r.GVR.GroupResource()) }

// tell wakes the owner of a want when it does not know of its state yet. To be still read is no news.
func (e *Engine) tell(w *want) {
	state, _, _ := e.look(&w.query)
	if state == plan.Unsynced || state == w.told {
		return
	}
	w.told = state
	if w.owner == (Owner{}) {
		return
	}
	e.woken = append(e.woken, w.owner)
}

func (e *Engine) tellAll(wants map[*want]struct{}) {
	for w := range wants {
		e.tell(w)
	}
}
