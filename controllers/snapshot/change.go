// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Clone returns the objects as they are now: changes of one do not show in the other. Both serve the same kinds, and share what objects
// contain.
func (s *Objects) Clone() *Objects {
	out := *s
	out.objects = make(map[schema.GroupResource][]observed.Object, len(s.objects))
	for r, list := range s.objects {
		out.objects[r] = slices.Clone(list)
	}
	out.unread = maps.Clone(s.unread)
	return &out
}

// EachObject goes through all objects, in the same order each time. Nothing may be added or removed meanwhile.
func (s *Objects) EachObject() iter.Seq[*observed.Object] {
	return func(yield func(*observed.Object) bool) {
		for _, r := range slices.SortedFunc(maps.Keys(s.objects), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }) {
			for i := range s.objects[r] {
				if !yield(&s.objects[r][i]) {
					return
				}
			}
		}
	}
}

// FindObject returns an object by its UID; nil if there is none.
func (s *Objects) FindObject(uid types.UID) *observed.Object {
	for o := range s.EachObject() {
		if o.UID == uid {
			return o
		}
	}
	return nil
}

// ReplaceObject has an object of the same UID contain something else, as after a patch. It reports whether there is such an object.
func (s *Objects) ReplaceObject(uid types.UID, content map[string]any) bool {
	found := false
	for o := range s.EachObject() {
		if o.UID == uid { // more than one resource may serve it
			*o = FromUnstructured(o.Resource, &unstructured.Unstructured{Object: content})
			o.UID = uid
			found = true
		}
	}
	return found
}

// RemoveObjects removes objects by their UIDs.
func (s *Objects) RemoveObjects(gone map[types.UID]bool) {
	for r, list := range s.objects {
		s.objects[r] = slices.DeleteFunc(list, func(o observed.Object) bool { return gone[o.UID] })
	}
}
