// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"k8s.io/apimachinery/pkg/selection"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// maxGroups bounds the groups of one informer. When there are as many, all are dropped, and made anew as they are asked
// for.
const maxGroups = 1 << 16

// groups are the objects of an informer by a label that a query asks for, so that a query costs what it finds and not
// what there is. A group is made when it is first asked for, and kept up to date from then on.
type groups map[group]map[scopeKey]*plan.Object

// group is a label of a value, in a namespace or, where that is empty, anywhere.
type group struct{ namespace, key, value string }

// groupOf is a group that has all objects of a resource that match a query, if there is one.
func groupOf(r Resource, q *snapshot.Query) (group, bool) {
	if q.Name != "" {
		return group{}, false
	}
	requirements, _ := q.Labels.Requirements()
	for i := range requirements {
		switch requirement := &requirements[i]; requirement.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := requirement.ValuesUnsorted(); len(values) == 1 {
				return group{namespaceIn(r, *q), requirement.Key(), values[0]}, true
			}
		}
	}
	return group{}, false
}

// gather makes a group of the informer that answers a query.
func (e *Engine) gather(q *snapshot.Query, g group) {
	e.mu.Lock()
	defer e.unlock()
	_, _, i := e.look(q)
	if i == nil || i.groups[g] != nil {
		return
	}
	if i.groups == nil || len(i.groups) >= maxGroups {
		i.groups = groups{}
	}
	members := map[scopeKey]*plan.Object{}
	collect := func(objects map[string]*plan.Object) {
		for _, o := range objects {
			if value, ok := o.Labels[g.key]; ok && value == g.value {
				members[scopeKey{o.Namespace, o.Name}] = o
			}
		}
	}
	if i.scope.resource.Namespaced && g.namespace != "" {
		collect(i.objects[g.namespace])
	} else {
		for _, objects := range i.objects {
			collect(objects)
		}
	}
	i.groups[g] = members
}

// changed moves an object between groups; before or now may be nil.
func (x groups) changed(before, now *plan.Object) {
	if len(x) == 0 {
		return
	}
	for g := range groupsWith(before) {
		delete(x[g], scopeKey{before.Namespace, before.Name})
	}
	for g := range groupsWith(now) {
		if members := x[g]; members != nil {
			members[scopeKey{now.Namespace, now.Name}] = now
		}
	}
}

// groupsWith are all groups that an object can be in.
func groupsWith(o *plan.Object) func(yield func(group) bool) {
	return func(yield func(group) bool) {
		if o == nil {
			return
		}
		for key, value := range o.Labels {
			if !yield(group{o.Namespace, key, value}) || o.Namespace != "" && !yield(group{"", key, value}) {
				return
			}
		}
	}
}
