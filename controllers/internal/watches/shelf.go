// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vtex/cleaner/controllers/plan"
)

// shelf holds objects in the order of their namespaces and names, so that nobody who reads 100,000 of them has to sort
// them.
type shelf []*object

func byName(a, b *object) int { return plan.CompareNames(&a.Ref, &b.Ref) }

// find says where an object of this name is, or would be.
func (s shelf) find(namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(s, scopeKey{namespace, name}, func(o *object, k scopeKey) int {
		return cmp.Or(strings.Compare(o.Namespace, k.namespace), strings.Compare(o.Name, k.name))
	})
}

// get returns the object of this name, or nil.
func (s shelf) get(namespace, name string) *object {
	if n, ok := s.find(namespace, name); ok {
		return s[n]
	}
	return nil
}

// with is the shelf with an object in the place of the one of its name. The shelf itself must not be used any more.
func (s shelf) with(o *object) shelf {
	n, ok := s.find(o.Namespace, o.Name)
	if ok {
		s[n] = o
		return s
	}
	return slices.Insert(s, n, o)
}

// without is the shelf without the object of this name. The shelf itself must not be used any more.
func (s shelf) without(namespace, name string) shelf {
	if n, ok := s.find(namespace, name); ok {
		return slices.Delete(s, n, n+1)
	}
	return s
}
