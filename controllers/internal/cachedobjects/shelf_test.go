// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestShelf puts and deletes objects at random, beside a map of the same, and first more often the one, then the other. No Shelf
// changes that was there before.
func TestShelf(t *testing.T) {
	const seed, steps = 3, 8000
	random := rand.New(rand.NewPCG(seed, seed))
	var s Shelf
	type key struct{ namespace, name string }
	model := map[key]*Object{}
	parts := 0
	for step := range steps {
		k := key{namespace: string(rune('a' + random.IntN(3))), name: fmt.Sprint("p", random.IntN(1500))}
		before, listed := s, s.AppendTo(nil)
		if random.IntN(4) == 0 == (step < steps/2) {
			s = s.DeleteObject(k.namespace, k.name)
			delete(model, k)
		} else {
			o := newPod(k.namespace, k.name, nil)
			s, model[k] = s.PutObject(o), o
		}
		if s.Get(k.namespace, k.name) != model[k] {
			t.Fatalf("%v is not what was put there", k)
		}
		all := s.AppendTo(nil)
		if len(all) != len(model) || s.CountObjects() != len(model) || !slices.IsSortedFunc(all, CompareNames) {
			t.Fatalf("%d objects, and %d are counted, want %d in order", len(all), s.CountObjects(), len(model))
		}
		if !slices.Equal(before.AppendTo(nil), listed) {
			t.Fatal("a Shelf has changed")
		}
		if step == steps/2 {
			parts = len(s.parts)
		}
	}
	for k := range model {
		s = s.DeleteObject(k.namespace, k.name)
	}
	if parts < 4 || len(s.parts) != 0 || s.Get("a", "p1") != nil {
		t.Errorf("there were %d parts, and %d are left of nothing", parts, len(s.parts))
	}
}

// However many objects there are, a change copies one part of them, and few parts are nearly empty.
func TestAChangeOfAShelfSharesTheRest(t *testing.T) {
	const n = 20 * maxPart
	all := make(SortedObjects, n)
	for i := range all {
		all[i] = newPod("a", fmt.Sprintf("p%06d", i), nil)
	}
	s := NewShelf(all)
	differ := func(changed Shelf) (parts int) {
		for _, part := range changed.parts {
			if !slices.ContainsFunc(s.parts, func(p SortedObjects) bool { return &p[0] == &part[0] }) {
				parts++
			}
		}
		return parts
	}
	for name, changed := range map[string]Shelf{
		"Replaced": s.PutObject(newPod("a", "p000777", nil)), "Added": s.PutObject(newPod("a", "p000777x", nil)), "Last": s.PutObject(newPod("b", "p", nil)),
		"First": s.PutObject(newPod("a", "a", nil)), "Deleted": s.DeleteObject("a", "p000777"), "Absent": s.DeleteObject("a", "absent"),
	} {
		if got := differ(changed); got > 2 {
			t.Errorf("%s: %d parts are new", name, got)
		}
	}
	for i := range all {
		if i%16 != 0 {
			s = s.DeleteObject("a", all[i].Name)
		}
	}
	if len(s.parts) > n/16/(maxPart/8) {
		t.Errorf("%d objects are in %d parts", s.CountObjects(), len(s.parts))
	}
	if got := s.AppendMatching(nil, func(o *Object) bool { return o.Name < "p000100" }); len(got) != 7 {
		t.Errorf("%d objects match", len(got))
	}
}

// TestMergeWith merges lists of objects that are in one of two, at random.
func TestMergeWith(t *testing.T) {
	const seed, rounds = 5, 200
	random := rand.New(rand.NewPCG(seed, seed))
	for range rounds {
		var both [2]SortedObjects
		var all Shelf
		for n := range random.IntN(20) {
			o, which := newPod(string(rune('a'+random.IntN(3))), fmt.Sprint("p", n), nil), random.IntN(2)
			both[which], all = NewShelf(both[which]).PutObject(o).AppendTo(nil), all.PutObject(o)
		}
		if got := both[0].MergeWith(both[1]); !slices.Equal(got, all.AppendTo(nil)) {
			t.Fatalf("merged are %v, want %v", got, all)
		}
	}
}
