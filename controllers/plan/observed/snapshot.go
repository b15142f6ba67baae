// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Read is a live read that a decision depends on.
type Read struct {
	// Target is the index of the target that the object belongs to.
	Target int
	// Namespace and Name are those of the object.
	Namespace, Name string
	// Resource is that of the object, in a target of all kinds. Empty in others.
	Resource schema.GroupVersionResource
	// All says that the whole target is read, whatever it is: then there is no name.
	All bool
}

// LiveReads are the reads that a snapshot answers in which every target was read live as a whole, or which is the truth itself,
// as files are.
func (s Snapshot) LiveReads() map[Read]bool {
	out := make(map[Read]bool, len(s))
	for t := range s {
		if s[t].State == Complete || s[t].State == NoSuchKind { // expressions are asked only where that stands for null
			out[Read{Target: t, All: true}] = true
		}
	}
	return out
}

// HasSameObjects says that another target has the same objects, each at the same version. Objects without a version are never the same, and
// neither are those whose Value may be of an earlier one. Custom objects are the same if their contents have the same numbers.
func (t *Target) HasSameObjects(other *Target) bool {
	if t.State != other.State || len(t.Objects) != len(other.Objects) {
		return false
	}
	if len(t.Objects) == 0 || &t.Objects[0] == &other.Objects[0] {
		return true
	}
	for i := range t.Objects {
		a, b := &t.Objects[i], &other.Objects[i]
		if !a.IsVersion(b.Ref) || a.UID == "" || a.ResourceVersion == "" || a.Assembled || b.Assembled {
			return false
		}
		if (t.Custom || other.Custom) && (a.Content == 0 || a.Content != b.Content) {
			return false
		}
	}
	return true
}

// WithLive is the snapshot in which the objects of some reads stand as they were found live, in their place in the order. An
// object is nil if the API server named it as not found, or if it is not one that the target stands for: the caller
// knows how a target is asked for. Reads of whole targets are not among them; see WithTarget. Neither s nor its targets
// are changed.
func (s Snapshot) WithLive(found map[Read]*Object) Snapshot {
	if len(found) == 0 {
		return s
	}
	reads := slices.SortedFunc(maps.Keys(found), func(a, b Read) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), CompareRefs(a.ref(), b.ref()))
	})
	out := slices.Clone(s)
	for len(reads) > 0 {
		t, n := reads[0].Target, 1
		for n < len(reads) && reads[n].Target == t {
			n++
		}
		if t >= 0 && t < len(out) && out[t].State == Complete { // what is not known does not become known by one object
			out[t].Objects = overlayReads(out[t].Objects, reads[:n], found)
		}
		reads = reads[n:]
	}
	return out
}

// WithTarget is the snapshot in which a target stands as it was read live as a whole.
func (s Snapshot) WithTarget(target int, t Target) Snapshot {
	out := slices.Clone(s)
	out[target] = t
	return out
}

// overlayReads merges what was read, in order, into the objects of a target.
func overlayReads(objects []Object, reads []Read, found map[Read]*Object) []Object {
	out := make([]Object, 0, len(objects)+len(reads))
	for _, r := range reads {
		n, there := searchRead(objects, r)
		out = append(out, objects[:n]...)
		objects = objects[n:]
		if there {
			objects = objects[1:]
		}
		if o := found[r]; o != nil {
			out = append(out, *o)
		}
	}
	return append(out, objects...)
}

// ReadOf is the read of an object that stands in a target.
func (s Snapshot) ReadOf(target int, o *Object) Read {
	r := Read{Target: target, Namespace: o.Namespace, Name: o.Name}
	if s[target].Kinds != nil {
		r.Resource = o.Resource
	}
	return r
}

func (r Read) ref() *Ref { return &Ref{Resource: r.Resource, Namespace: r.Namespace, Name: r.Name} }

// searchRead finds the place of the object of a read.
func searchRead(objects []Object, r Read) (int, bool) {
	if r.Resource.Resource == "" {
		return SearchObject(objects, r.Namespace, r.Name)
	}
	return slices.BinarySearchFunc(objects, r.ref(), func(o Object, of *Ref) int { return CompareRefs(&o.Ref, of) })
}

// ListNamed returns the objects of a name: of a target of all kinds there may be several.
func ListNamed(objects []Object, namespace, name string) []Object {
	n, _ := SearchObject(objects, namespace, name)
	end := n
	for end < len(objects) && objects[end].Namespace == namespace && objects[end].Name == name {
		end++
	}
	return objects[n:end]
}

// SearchObject finds the place of an object in the order of a target, and says whether it is there.
func SearchObject(objects []Object, namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(objects, name, func(o Object, name string) int {
		return cmp.Or(strings.Compare(o.Namespace, namespace), strings.Compare(o.Name, name))
	})
}

// ReadOutdated are the reads, as a whole, of the targets that are Outdated, of those that are wanted.
func (s Snapshot) ReadOutdated(wanted func(target int) bool) (reads []Read) {
	for t := range s {
		if s[t].Outdated && wanted(t) {
			reads = append(reads, Read{Target: t, All: true})
		}
	}
	return reads
}

// TargetsOf are the targets in which an object stands, as whichever resource.
func (s Snapshot) TargetsOf(o *Object) []int {
	var out []int
	for t := range s {
		if s[t].Has(o) {
			out = append(out, t)
		}
	}
	return out
}

// Has says that an object stands in a target, as whichever resource.
func (t *Target) Has(o *Object) bool {
	return slices.ContainsFunc(ListNamed(t.Objects, o.Namespace, o.Name), func(other Object) bool { return other.Identify() == o.Identify() })
}
