// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"maps"
	"slices"

	"github.com/vtex/cleaner/controllers/internal/held"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// maxGroups bounds the groups of one informer. When there are as many, all are dropped, and built again on demand.
const maxGroups = 1 << 16

// maxGroupedLabels is how many labels an object in groups has at most. Those with more are in one group of their own, which is looked
// through with each other.
const maxGroupedLabels = 64

// groups are the objects of an informer by a label that a query asks for, so that a query costs what it finds and not
// what there is. A group is made when it is first asked for, and kept up to date from then on.
type groups map[group]held.SortedObjects

// group is a label with a value, in a namespace or, if that is empty, anywhere. A group without a key has the objects with many labels.
type group struct{ namespace, key, value string }

// ofManyLabels is the group of the same namespace that has the objects with many labels.
func (g group) ofManyLabels() group { return group{namespace: g.namespace} }

// hasObject says that an object of the group's namespace is in it.
func (g group) hasObject(o *held.Object) bool {
	if many := len(o.Labels) > maxGroupedLabels; many || g.key == "" {
		return many && g.key == ""
	}
	v, ok := o.Labels[g.key]
	return ok && v == g.value
}

// groupOf is a group that has all objects of a resource that match a query, if there is one.
func groupOf(r served.Resource, q *snapshot.Query) (group, bool) {
	if q.Name != "" {
		return group{}, false
	}
	for _, l := range snapshot.CompileSelector(q.Labels).RequiredLabels() {
		if len(l.Values) == 1 {
			return group{served.NamespaceFor(r, *q), l.Key, l.Values[0]}, true
		}
	}
	return group{}, false
}

// missingGroup is the group that a query asks for, if one of the informers that answer it has to make it.
func (l coverage) missingGroup(q *snapshot.Query) (group, bool) {
	if len(l.informers) == 0 {
		return group{}, false
	}
	g, ok := groupOf(l.informers[0].scope.resource.Resource, q)
	return g, ok && slices.ContainsFunc(l.informers, func(i *informer) bool {
		_, made := i.groups[g]
		return !made
	})
}

func (i *informer) buildGroup(g group) {
	if _, made := i.groups[g]; made {
		return
	}
	if i.groups == nil || len(i.groups) >= maxGroups {
		i.groups = groups{}
	}
	if g.key != "" {
		i.buildGroup(g.ofManyLabels())
	}
	namespaces := []string{g.namespace}
	if g.namespace == "" {
		namespaces = slices.Sorted(maps.Keys(i.objects))
	}
	members := held.SortedObjects{}
	for _, namespace := range namespaces {
		for _, o := range i.objects[namespace] {
			if g.hasObject(o) {
				members = append(members, o)
			}
		}
	}
	i.groups[g] = members
}

// moveObject moves an object between groups; before or now may be nil.
func (x groups) moveObject(before, now *held.Object) {
	if len(x) == 0 {
		return
	}
	for g := range groupsWith(before) {
		members, made := x[g]
		if !made || now != nil && g.hasObject(now) { // else now takes its place
			continue
		}
		x[g] = members.DeleteObject(before.Namespace, before.Name)
	}
	for g := range groupsWith(now) {
		if members, made := x[g]; made {
			x[g] = members.PutObject(now)
		}
	}
}

// groupsWith are all groups that an object can be in: few, however many labels it has.
func groupsWith(o *held.Object) func(yield func(group) bool) {
	return func(yield func(group) bool) {
		if o == nil {
			return
		}
		if len(o.Labels) > maxGroupedLabels {
			_ = yield(group{namespace: o.Namespace}) && (o.Namespace == "" || yield(group{}))
			return
		}
		for key, value := range o.Labels {
			if !yield(group{o.Namespace, key, value}) || o.Namespace != "" && !yield(group{"", key, value}) {
				return
			}
		}
	}
}
