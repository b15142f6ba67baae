// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"slices"

	"github.com/vtex/cleaner/controllers/internal/held"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Read answers from what is watched, without any request. A query that no Cleaner wants is never Complete.
func (e *Engine) Read(_ context.Context, q snapshot.Query) plan.Target {
	q.Compile()
	t, found, f := e.answers.findCandidates(&q)
	var near held.SortedObjects
	for n := range found {
		if near == nil {
			near = found[n].listObjects()
		} else {
			near = append(near, found[n].listObjects()...)
		}
	}
	if !q.Labels.Empty() || !q.Fields.Empty() || q.Namespaces.Except != nil { // else all that is near matches
		near = slices.DeleteFunc(near, func(o *held.Object) bool { // stored objects never change, so that they are compared without the lock
			return !o.MatchesQuery(&q, t.Namespaced, f)
		})
	}
	if len(near) == 0 {
		return t
	}
	t.Objects = make([]plan.Object, len(near))
	for n, o := range near {
		t.Objects[n] = o.Object
		if !q.MetadataOnly || snapshot.NeedsValue(q.Fields) {
			var err error
			if t.Objects[n], err = o.ReadWhole(); err != nil {
				t.State, t.Detail, t.Objects = plan.Failed, err.Error(), nil
				return t
			}
		}
		if q.MetadataOnly {
			t.Objects[n].Value = nil
		}
	}
	return t
}
