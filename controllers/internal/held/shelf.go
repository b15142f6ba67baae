// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package held

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vtex/cleaner/controllers/plan"
)

// SortedObjects are objects sorted by namespace and name, so that a reader of 100,000 objects need not sort them.
type SortedObjects []*Object

// CompareNames compares the namespaces and names of objects.
func CompareNames(a, b *Object) int { return plan.CompareNames(&a.Ref, &b.Ref) }

// findIndex returns the index of an object, or where to insert it.
func (s SortedObjects) findIndex(namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(s, name, func(o *Object, name string) int {
		return cmp.Or(strings.Compare(o.Namespace, namespace), strings.Compare(o.Name, name))
	})
}

// Get returns the object with this name, or nil.
func (s SortedObjects) Get(namespace, name string) *Object {
	if n, ok := s.findIndex(namespace, name); ok {
		return s[n]
	}
	return nil
}

// PutObject adds an object, or replaces the one with its name, and returns the new list. Do not use the old list afterwards.
func (s SortedObjects) PutObject(o *Object) SortedObjects {
	n, ok := s.findIndex(o.Namespace, o.Name)
	if ok {
		s[n] = o
		return s
	}
	return slices.Insert(s, n, o)
}

// DeleteObject removes an object and returns the new list. Do not use the old list afterwards.
func (s SortedObjects) DeleteObject(namespace, name string) SortedObjects {
	if n, ok := s.findIndex(namespace, name); ok {
		return slices.Delete(s, n, n+1)
	}
	return s
}

// MergeWith returns the objects of two lists that have none in common. It may be one of them.
func (s SortedObjects) MergeWith(more SortedObjects) SortedObjects {
	if len(s) == 0 || len(more) == 0 {
		return append(s, more...)
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
