// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// coverage is how far a query can be answered, and by which informers when it is Complete: by one, or by one for each of the
// namespaces that it names, in their order.
type coverage struct {
	state     plan.TargetState
	detail    string
	informers []*informer
}

// mergeWith is the coverage of two queries that have to be answered both: the worse of the two. What people can do something about
// comes before what passes by itself.
func (l coverage) mergeWith(other coverage) coverage {
	for _, worst := range []plan.TargetState{plan.Forbidden, plan.NoSuchKind, plan.Failed, plan.Unsynced} {
		switch worst {
		case l.state:
			return coverage{state: l.state, detail: l.detail}
		case other.state:
			return coverage{state: other.state, detail: other.detail}
		}
	}
	for _, i := range other.informers {
		if len(l.informers) == 0 || l.informers[len(l.informers)-1] != i {
			l.informers = append(l.informers, i)
		}
	}
	return l
}

// checkCoverageIn says how far what a query asks for in a namespace is known.
func (r *resource) checkCoverageIn(q *snapshot.Query, namespace string) coverage {
	full := snapshot.NeedsValue(q.Fields) || !q.MetadataOnly
	for key, more := (scopeKey{}), true; more; key, more = r.narrowScope(key, namespace, q.Name) {
		s := r.scopes[key]
		switch {
		case s == nil || s.access == unchecked:
			return coverage{state: plan.Unsynced, detail: r.readingDetail()}
		case s.access == uncheckable:
			return coverage{state: plan.Failed, detail: s.detail}
		case s.access == denied:
			if _, more := r.narrowScope(key, namespace, q.Name); !more {
				return coverage{state: plan.Forbidden, detail: served.ForbiddenDetail("the operator", s.detail, r.Resource, namespace, q.Name)}
			}
			continue
		}
		switch i := s.informerFor(full); {
		case i == nil:
			return coverage{state: plan.Unsynced, detail: r.readingDetail()}
		case i.failure != "":
			return coverage{state: plan.Failed, detail: i.failure}
		case !i.synced:
			return coverage{state: plan.Unsynced, detail: r.readingDetail()}
		default:
			return coverage{state: plan.Complete, informers: []*informer{i}}
		}
	}
	return coverage{state: plan.Unsynced, detail: r.readingDetail()}
}

// readingDetail says that a resource is being read, for people.
func (r *resource) readingDetail() string {
	return fmt.Sprintf("waiting for the first list of %s", r.GVR.GroupResource())
}
