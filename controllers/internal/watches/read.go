// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"reflect"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// objectBytes is what an object takes in a list, and its place among candidates. What it points to is the informer's.
var objectBytes = int64(reflect.TypeFor[observed.Object]().Size() + reflect.TypeFor[*cachedobjects.Object]().Size()) //nolint:gochecknoglobals // never changes

// Read answers from what is watched, without any request. A query that no Cleaner wants is never Complete.
func (e *Engine) Read(ctx context.Context, q snapshot.Query) observed.Target {
	return e.readFrom(ctx, q, nil)
}

// ReadAt is Read, and Complete only if one informer answers, and knows all changes up to a version.
func (e *Engine) ReadAt(ctx context.Context, q snapshot.Query, version string) observed.Target {
	return e.readFrom(ctx, q, func(i *informer) bool { return i.hasReached(version) })
}

// ReadConfirmed is ReadAt where versions have no order: what one informer has must be what ConfirmList has compared at that version.
func (e *Engine) ReadConfirmed(ctx context.Context, q snapshot.Query, version string) observed.Target {
	return e.readFrom(ctx, q, func(i *informer) bool { return !i.isOutdated() && i.confirmed == version })
}

func (e *Engine) readFrom(ctx context.Context, q snapshot.Query, isNew func(*informer) bool) observed.Target {
	q.Compile()
	t, found, f := e.answers.findCandidates(&q, isNew)
	if t.IsChange {
		return cachedobjects.ListChanges(t, found[0].changed, &q)
	}
	keep := func(o *cachedobjects.Object) bool { return o.MatchesQuery(&q, t.Namespaced, f) }
	if q.Labels.Empty() && q.Fields.Empty() && q.Namespaces.Except == nil { // all that is near matches
		keep = nil
	}
	var near cachedobjects.SortedObjects
	for n := range found {
		c := &found[n]
		c.ChooseNamespaces(&q.Namespaces)
		if near == nil {
			near = c.ListObjects(keep)
		} else {
			near = append(near, c.ListObjects(keep)...)
		}
		if c.repeated != nil {
			e.answers.makeGroup(c.repeated.informer, c.repeated.Group)
		}
	}
	if len(near) == 0 {
		return t
	}
	if err := snapshot.TakeBytes(ctx, int64(len(near))*objectBytes); err != nil {
		t.State, t.Detail = observed.Failed, err.Error()
		return t
	}
	return near.ReadInto(t, &q)
}
