// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vtex/cleaner/controllers/plan"
)

// sortedObjects holds objects in the order of their namespaces and names, so that nobody who reads 100,000 of them has to sort
// them.
type sortedObjects []*object

func compareNames(a, b *object) int { return plan.CompareNames(&a.Ref, &b.Ref) }

// findIndex says where an object of this name is, or would be.
func (s sortedObjects) findIndex(namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(s, scopeKey{namespace, name}, func(o *object, k scopeKey) int {
		return cmp.Or(strings.Compare(o.Namespace, k.namespace), strings.Compare(o.Name, k.name))
	})
}

// get returns the object of this name, or nil.
func (s sortedObjects) get(namespace, name string) *object {
	if n, ok := s.findIndex(namespace, name); ok {
		return s[n]
	}
	return nil
}

// putObject returns the list with an object in the place of the one of its name. The list itself must not be used any more.
func (s sortedObjects) putObject(o *object) sortedObjects {
	n, ok := s.findIndex(o.Namespace, o.Name)
	if ok {
		s[n] = o
		return s
	}
	return slices.Insert(s, n, o)
}

// deleteObject returns the list without the object of this name. The list itself must not be used any more.
func (s sortedObjects) deleteObject(namespace, name string) sortedObjects {
	if n, ok := s.findIndex(namespace, name); ok {
		return slices.Delete(s, n, n+1)
	}
	return s
}
