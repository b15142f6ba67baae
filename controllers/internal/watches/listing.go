// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"slices"
	"time"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
)

// listing is a whole list of an informer, and how it differs from what was known.
type listing struct {
	objects map[string]cachedobjects.Shelf
	// groups are those of objects with many labels.
	groups  map[labelgroups.Group]*labelgroups.Members
	changes []difference
	// changedIn are the namespaces of the changes.
	changedIn []string
	// missedSince is since when these may have been, where another informer has missed them; zero: since the last list, or the watch after it.
	missedSince time.Time
	// more is how many more objects there are than before.
	more int
	// bytes is about how much memory the objects take.
	bytes int
	// version is the version of the list. missed counts the changes that the watch has shown after it and that are among the changes.
	version string
	missed  int
	// renews says that the objects take the place of those of the same version.
	renews bool
}

// difference is an object as it was and as it is. One of them may be nil.
type difference struct{ before, now *cachedobjects.Object }

// noteMissed adds a change that the watch has shown after the list, and that owners hear of later. If there are too many it only counts.
func (l *listing) noteMissed(before, now *cachedobjects.Object) {
	if l.missed++; l.missed > maxMissed {
		return
	}
	l.changes = append(l.changes, difference{before, now})
	in := now
	if in == nil {
		in = before
	}
	if !slices.Contains(l.changedIn, in.Namespace) {
		l.changedIn = append(l.changedIn, in.Namespace)
	}
}

// compareLists compares a list with what was known. An object of the same version stays the one that is known, unless the list renews all
// objects, because other parts of them are kept.
func compareLists(before map[string]cachedobjects.Shelf, list []*cachedobjects.Object, renews bool) *listing {
	slices.SortFunc(list, cachedobjects.CompareNames)
	list = slices.CompactFunc(list, func(a, b *cachedobjects.Object) bool { return cachedobjects.CompareNames(a, b) == 0 })
	l := &listing{objects: map[string]cachedobjects.Shelf{}, groups: map[labelgroups.Group]*labelgroups.Members{}, renews: renews}
	many := map[labelgroups.Group]cachedobjects.SortedObjects{}
	for len(list) > 0 {
		namespace, n := list[0].Namespace, 0
		for n < len(list) && list[n].Namespace == namespace {
			n++
		}
		objects := list[:n]
		list = list[n:]
		l.compareNamespace(namespace, before[namespace].AppendTo(nil), objects)
		for _, o := range objects {
			l.bytes += o.Bytes
			if len(o.Labels) > labelgroups.MaxLabels {
				for g := range labelgroups.ListGroups(o) {
					many[g] = append(many[g], o)
				}
			}
		}
		l.objects[namespace] = cachedobjects.NewShelf(objects)
	}
	for namespace, objects := range before {
		if _, still := l.objects[namespace]; !still {
			l.compareNamespace(namespace, objects.AppendTo(nil), nil)
		}
	}
	for g, objects := range many {
		l.groups[g] = &labelgroups.Members{Shelf: cachedobjects.NewShelf(objects)}
	}
	return l
}

// compareNamespace compares the objects of a namespace, both in order, and has those stay in the list of now that are the same, unless it
// renews all.
func (l *listing) compareNamespace(namespace string, before, now cachedobjects.SortedObjects) {
	same := len(l.changes)
	defer func() {
		if len(l.changes) > same {
			l.changedIn = append(l.changedIn, namespace)
		}
	}()
	l.more += len(now) - len(before)
	for n, o := range now {
		for len(before) > 0 && cachedobjects.CompareNames(before[0], o) < 0 {
			l.changes = append(l.changes, difference{before: before[0]})
			before = before[1:]
		}
		var known *cachedobjects.Object
		if len(before) > 0 && cachedobjects.CompareNames(before[0], o) == 0 {
			known, before = before[0], before[1:]
		}
		if known != nil && known.ResourceVersion == o.ResourceVersion {
			if !l.renews {
				now[n] = known
			}
			continue
		}
		o.InheritContent(known)
		l.changes = append(l.changes, difference{known, o})
	}
	for _, o := range before {
		l.changes = append(l.changes, difference{before: o})
	}
}
