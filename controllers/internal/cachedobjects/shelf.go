// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// SortedObjects are objects sorted by namespace and name, so that a reader of 100,000 objects need not sort them.
type SortedObjects []*Object

// CompareNames compares the namespaces and names of objects.
func CompareNames(a, b *Object) int { return observed.CompareNames(&a.Ref, &b.Ref) }

// findIndex returns the index of an object, or where to insert it.
func (s SortedObjects) findIndex(namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(s, name, func(o *Object, name string) int {
		return cmp.Or(strings.Compare(o.Namespace, namespace), strings.Compare(o.Name, name))
	})
}

// MergeWith returns the objects of two lists that have none in common. It may be one of them.
func (s SortedObjects) MergeWith(more SortedObjects) SortedObjects {
	if len(s) == 0 {
		return more
	}
	all := make(SortedObjects, 0, len(s)+len(more))
	for len(s) > 0 && len(more) > 0 {
		if CompareNames(s[0], more[0]) < 0 {
			all, s = append(all, s[0]), s[1:]
		} else {
			all, more = append(all, more[0]), more[1:]
		}
	}
	return append(append(all, s...), more...)
}

// maxPart is how many objects a part of a Shelf has at most.
const maxPart = 512

// Shelf has objects in order. It never changes: to put an object there or to delete one makes another Shelf, which shares all parts but
// one with it. So it can be copied under a lock at no cost and looked through without it, and a change costs about the same, however
// many objects there are. The zero Shelf is empty.
type Shelf struct {
	parts []SortedObjects // none of them is empty
	count int
}

// NewShelf returns a Shelf of objects that are in order. It looks at none of them.
func NewShelf(all SortedObjects) Shelf {
	s := Shelf{count: len(all)}
	for part := range slices.Chunk(all, maxPart) {
		s.parts = append(s.parts, slices.Clone(part))
	}
	return s
}

// CountObjects returns how many objects there are.
func (s Shelf) CountObjects() int { return s.count }

// AppendTo appends all objects to a list.
func (s Shelf) AppendTo(list SortedObjects) SortedObjects {
	list = slices.Grow(list, s.count)
	for _, part := range s.parts {
		list = append(list, part...)
	}
	return list
}

// AppendMatching appends the objects that are wanted to a list; nil wants all of them.
func (s Shelf) AppendMatching(list SortedObjects, wanted func(*Object) bool) SortedObjects {
	if wanted == nil {
		return s.AppendTo(list)
	}
	for _, part := range s.parts {
		for _, o := range part {
			if wanted(o) {
				list = append(list, o)
			}
		}
	}
	return list
}

// Get returns the object with this name, or nil.
func (s Shelf) Get(namespace, name string) *Object {
	at, n, ok := s.find(namespace, name)
	if !ok {
		return nil
	}
	return s.parts[at][n]
}

// find returns the part in which an object is, or would be, and its place there.
func (s Shelf) find(namespace, name string) (at, n int, ok bool) {
	if len(s.parts) == 0 {
		return 0, 0, false
	}
	at, _ = slices.BinarySearchFunc(s.parts, name, func(part SortedObjects, name string) int {
		last := part[len(part)-1]
		return cmp.Or(strings.Compare(last.Namespace, namespace), strings.Compare(last.Name, name))
	})
	at = min(at, len(s.parts)-1) // what comes after all others goes to the last part
	n, ok = s.parts[at].findIndex(namespace, name)
	return at, n, ok
}

// PutObject returns a Shelf with an object, which replaces one of its name.
func (s Shelf) PutObject(o *Object) Shelf {
	if len(s.parts) == 0 {
		return NewShelf(SortedObjects{o})
	}
	at, n, ok := s.find(o.Namespace, o.Name)
	part := make(SortedObjects, 0, len(s.parts[at])+1)
	part = append(append(part, s.parts[at][:n]...), o)
	if ok {
		return s.replaceParts(at, 1, append(part, s.parts[at][n+1:]...))
	}
	part = append(part, s.parts[at][n:]...)
	if half := len(part) / 2; len(part) > maxPart {
		return s.replaceParts(at, 1, slices.Clone(part[:half]), slices.Clone(part[half:]))
	}
	return s.replaceParts(at, 1, part)
}

// DeleteObject returns a Shelf without an object.
func (s Shelf) DeleteObject(namespace, name string) Shelf {
	at, n, ok := s.find(namespace, name)
	if !ok {
		return s
	}
	part := slices.Concat(s.parts[at][:n], s.parts[at][n+1:])
	if len(part) == 0 {
		return s.replaceParts(at, 1)
	}
	if next := at + 1; next < len(s.parts) && len(part)+len(s.parts[next]) <= maxPart/2 {
		return s.replaceParts(at, 2, slices.Concat(part, s.parts[next]))
	}
	if before := at - 1; before >= 0 && len(part)+len(s.parts[before]) <= maxPart/2 {
		return s.replaceParts(before, 2, slices.Concat(s.parts[before], part))
	}
	return s.replaceParts(at, 1, part)
}

// replaceParts returns a Shelf with others in the place of some parts.
func (s Shelf) replaceParts(at, n int, with ...SortedObjects) Shelf {
	out := Shelf{parts: make([]SortedObjects, 0, len(s.parts)-n+len(with)), count: s.count}
	out.parts = append(append(append(out.parts, s.parts[:at]...), with...), s.parts[at+n:]...)
	for _, part := range s.parts[at : at+n] {
		out.count -= len(part)
	}
	for _, part := range with {
		out.count += len(part)
	}
	return out
}
