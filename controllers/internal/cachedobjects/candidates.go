// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"slices"
	"strings"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Candidates are the objects that may match a query.
type Candidates struct {
	Shelves []PlacedShelf
	// Name is the only one that is meant, if there is one.
	Name string
	// Grouped says that the shelves are those of a group and of objects with many labels.
	Grouped bool
	// Namespaces are those that are meant, in order; nil stands for all that are there. If labels choose them, they do among ChosenAmong.
	Namespaces  []string
	ChosenAmong *Shelf
}

// PlacedShelf has objects of one namespace, or of a group.
type PlacedShelf struct {
	Namespace string
	Shelf
}

// PlaceShelves returns the objects of these namespaces, or of all when there is no list of them.
func PlaceShelves(objects map[string]Shelf, namespaces []string) (all []PlacedShelf) {
	if namespaces == nil {
		all = make([]PlacedShelf, 0, len(objects))
		for namespace, shelf := range objects {
			all = append(all, PlacedShelf{namespace, shelf})
		}
		return all
	}
	for _, namespace := range namespaces {
		if shelf, ok := objects[namespace]; ok {
			all = append(all, PlacedShelf{namespace, shelf})
		}
	}
	return all
}

// SortShelves sorts shelves by their namespaces.
func SortShelves(s []PlacedShelf) {
	slices.SortFunc(s, func(a, b PlacedShelf) int { return strings.Compare(a.Namespace, b.Namespace) })
}

// ChooseNamespaces finds out which namespaces are meant, if their labels choose them.
func (c *Candidates) ChooseNamespaces(n *snapshot.Namespaces) {
	if c.ChosenAmong == nil {
		return
	}
	c.Namespaces = []string{} // nil would be all of them
	for _, o := range c.ChosenAmong.AppendTo(nil) {
		if n.MatchesNamespace(o.Name, &o.Object) {
			c.Namespaces = append(c.Namespaces, o.Name)
		}
	}
}

// ListObjects returns the candidates in the selected namespaces that are wanted, sorted; nil wants all of them.
func (c *Candidates) ListObjects(wanted func(*Object) bool) SortedObjects {
	keep := wanted
	if c.Namespaces != nil {
		keep = func(o *Object) bool {
			_, in := slices.BinarySearch(c.Namespaces, o.Namespace)
			return in && (wanted == nil || wanted(o))
		}
	}
	SortShelves(c.Shelves)
	var all SortedObjects
	if keep == nil && c.Name == "" && !c.Grouped {
		all = make(SortedObjects, 0, CountObjects(c.Shelves))
	}
	for _, s := range c.Shelves {
		switch {
		case c.Name != "":
			if o := s.Get(s.Namespace, c.Name); o != nil && (keep == nil || keep(o)) {
				all = append(all, o)
			}
		case c.Grouped:
			all = all.MergeWith(s.AppendMatching(nil, keep))
		default:
			all = s.AppendMatching(all, keep)
		}
	}
	return all
}

// ReadInto returns a target with what a query reads of the objects. It has no moment if an object is decoded for it: a reader that keeps that
// takes memory which is not counted.
func (s SortedObjects) ReadInto(t observed.Target, q *snapshot.Query) observed.Target {
	t.Objects = make([]observed.Object, len(s))
	for n, o := range s {
		t.Objects[n] = o.Object
		if !q.MetadataOnly || snapshot.NeedsValue(q.Fields) {
			var err error
			if t.Objects[n], err = o.ReadWhole(); err != nil {
				t.State, t.Detail, t.Objects = observed.Failed, err.Error(), nil
				return t
			}
			if o.LoadValue != nil {
				t.At = nil
			}
		}
		if q.MetadataOnly && !q.OfAnyKind {
			t.Objects[n].Value, t.Objects[n].Content = nil, 0
		}
	}
	return t
}

// CountObjects returns how many objects shelves have.
func CountObjects(shelves []PlacedShelf) (n int) {
	for _, s := range shelves {
		n += s.CountObjects()
	}
	return n
}

// AreVersions says that a list, which it sorts, has exactly the objects of the shelves, at the same versions.
func (c *Candidates) AreVersions(list []observed.Ref) bool {
	slices.SortFunc(list, func(a, b observed.Ref) int { return observed.CompareNames(&a, &b) })
	return slices.EqualFunc(c.ListObjects(nil), list, func(a *Object, b observed.Ref) bool {
		return a.Namespace == b.Namespace && a.Name == b.Name && a.UID == b.UID && a.ResourceVersion == b.ResourceVersion
	})
}
