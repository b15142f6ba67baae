// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"maps"
	"slices"

	"github.com/vtex/cleaner/controllers/snapshot"
)

// maxGroups bounds the groups of one informer. When there are as many, all are dropped, and made anew as they are asked
// for.
const maxGroups = 1 << 16

// groups are the objects of an informer by a label that a query asks for, so that a query costs what it finds and not
// what there is. A group is made when it is first asked for, and kept up to date from then on.
type groups map[group]sortedObjects

// group is a label of a value, in a namespace or, where that is empty, anywhere.
type group struct{ namespace, key, value string }

// groupOf is a group that has all objects of a resource that match a query, if there is one.
func groupOf(r Resource, q *snapshot.Query) (group, bool) {
	if q.Name != "" {
		return group{}, false
	}
	for _, l := range snapshot.CompileSelector(q.Labels).RequiredLabels() {
		if len(l.Values) == 1 {
			return group{namespaceFor(r, *q), l.Key, l.Values[0]}, true
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

// buildGroups makes a group of the informers that answer a query.
func (e *Engine) buildGroups(q *snapshot.Query, g group) {
	e.mu.Lock()
	defer e.unlockAndWake()
	for _, i := range e.checkCoverage(q).informers {
		i.buildGroup(g)
	}
}

func (i *informer) buildGroup(g group) {
	if _, made := i.groups[g]; made {
		return
	}
	if i.groups == nil || len(i.groups) >= maxGroups {
		i.groups = groups{}
	}
	namespaces := []string{g.namespace}
	if g.namespace == "" {
		namespaces = slices.Sorted(maps.Keys(i.objects))
	}
	members := sortedObjects{}
	for _, namespace := range namespaces {
		for _, o := range i.objects[namespace] {
			if hasLabel(o, g.key, g.value) {
				members = append(members, o)
			}
		}
	}
	i.groups[g] = members
}

// moveObject moves an object between groups; before or now may be nil.
func (x groups) moveObject(before, now *object) {
	if len(x) == 0 {
		return
	}
	for g := range groupsWith(before) {
		members, made := x[g]
		if !made || now != nil && hasLabel(now, g.key, g.value) { // else now takes its place
			continue
		}
		x[g] = members.deleteObject(before.Namespace, before.Name)
	}
	for g := range groupsWith(now) {
		if members, made := x[g]; made {
			x[g] = members.putObject(now)
		}
	}
}

func hasLabel(o *object, key, value string) bool {
	v, ok := o.Labels[key]
	return ok && v == value
}

// groupsWith are all groups that an object can be in.
func groupsWith(o *object) func(yield func(group) bool) {
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
