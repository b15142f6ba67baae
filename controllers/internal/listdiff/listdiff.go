// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package listdiff compares a list of objects with those that were known before. It asks the API server for nothing.
package listdiff

import (
	"slices"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
)

// Difference is an object as it was and as it is. One of them may be nil.
type Difference struct{ Before, Now *cachedobjects.Object }

// Diff is a list, and how it differs from what was known.
type Diff struct {
	// Objects are those of the list, by namespace, and Groups are those of them with many labels.
	Objects map[string]cachedobjects.Shelf
	Groups  map[labelgroups.Group]*labelgroups.Members
	// Changes are in no order, and ChangedIn are their namespaces.
	Changes   []Difference
	ChangedIn []string
	// More is how many more objects there are than before, and Bytes is about how much memory they take.
	More, Bytes int
	// renews says that the objects take the place of those of the same version.
	renews bool
}

// CompareObjects compares a list, which it sorts, with what was known in each namespace. An object of the same version stays the one that is known,
// unless the list renews all objects, because other parts of them are kept. Of an object that is there twice, one stays.
func CompareObjects(before map[string]cachedobjects.Shelf, list []*cachedobjects.Object, renews bool) *Diff {
	slices.SortFunc(list, cachedobjects.CompareNames)
	list = slices.CompactFunc(list, func(a, b *cachedobjects.Object) bool { return cachedobjects.CompareNames(a, b) == 0 })
	d := &Diff{Objects: map[string]cachedobjects.Shelf{}, Groups: map[labelgroups.Group]*labelgroups.Members{}, renews: renews}
	many := map[labelgroups.Group]cachedobjects.SortedObjects{}
	for len(list) > 0 {
		namespace, n := list[0].Namespace, 0
		for n < len(list) && list[n].Namespace == namespace {
			n++
		}
		objects := list[:n]
		list = list[n:]
		d.compareNamespace(namespace, before[namespace].AppendTo(nil), objects)
		for _, o := range objects {
			d.Bytes += o.Bytes
			if len(o.Labels) > labelgroups.MaxLabels {
				for g := range labelgroups.ListGroups(o) {
					many[g] = append(many[g], o)
				}
			}
		}
		d.Objects[namespace] = cachedobjects.NewShelf(objects)
	}
	for namespace, objects := range before {
		if _, still := d.Objects[namespace]; !still {
			d.compareNamespace(namespace, objects.AppendTo(nil), nil)
		}
	}
	for g, objects := range many {
		d.Groups[g] = &labelgroups.Members{Shelf: cachedobjects.NewShelf(objects)}
	}
	return d
}

// compareNamespace compares the objects of a namespace, both in order, and has those stay in the list of now that are the same, unless it
// renews all.
func (d *Diff) compareNamespace(namespace string, before, now cachedobjects.SortedObjects) {
	same := len(d.Changes)
	defer func() {
		if len(d.Changes) > same {
			d.ChangedIn = append(d.ChangedIn, namespace)
		}
	}()
	d.More += len(now) - len(before)
	for n, o := range now {
		for len(before) > 0 && cachedobjects.CompareNames(before[0], o) < 0 {
			d.Changes = append(d.Changes, Difference{Before: before[0]})
			before = before[1:]
		}
		var known *cachedobjects.Object
		if len(before) > 0 && cachedobjects.CompareNames(before[0], o) == 0 {
			known, before = before[0], before[1:]
		}
		if known != nil && known.ResourceVersion == o.ResourceVersion {
			if !d.renews {
				now[n] = known
			}
			continue
		}
		o.InheritContent(known)
		d.Changes = append(d.Changes, Difference{known, o})
	}
	for _, o := range before {
		d.Changes = append(d.Changes, Difference{Before: o})
	}
}

// AddChange adds a change that came after the list.
func (d *Diff) AddChange(before, now *cachedobjects.Object) {
	d.Changes = append(d.Changes, Difference{before, now})
	in := now
	if in == nil {
		in = before
	}
	if !slices.Contains(d.ChangedIn, in.Namespace) {
		d.ChangedIn = append(d.ChangedIn, in.Namespace)
	}
}
