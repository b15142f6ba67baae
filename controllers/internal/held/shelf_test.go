// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package held

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestShelf puts and takes objects at random, beside a map of the same.
func TestShelf(t *testing.T) {
	const seed, steps = 3, 2000
	random := rand.New(rand.NewPCG(seed, seed))
	var s SortedObjects
	type key struct{ namespace, name string }
	model := map[key]*Object{}
	for range steps {
		k := key{namespace: string(rune('a' + random.IntN(3))), name: fmt.Sprint("p", random.IntN(12))}
		if random.IntN(3) == 0 {
			s = s.DeleteObject(k.namespace, k.name)
			delete(model, k)
		} else {
			o := newPod(k.namespace, k.name, nil)
			s, model[k] = s.PutObject(o), o
		}
		if s.Get(k.namespace, k.name) != model[k] {
			t.Fatalf("%v is not what was put there", k)
		}
		if len(s) != len(model) || !slices.IsSortedFunc(s, CompareNames) {
			t.Fatalf("%d objects, want %d in order", len(s), len(model))
		}
	}
}

// TestMergeWith merges lists of objects that are in one of two, at random.
func TestMergeWith(t *testing.T) {
	const seed, rounds = 5, 200
	random := rand.New(rand.NewPCG(seed, seed))
	for range rounds {
		var both [2]SortedObjects
		var all SortedObjects
		for n := range random.IntN(20) {
			o, which := newPod(string(rune('a'+random.IntN(3))), fmt.Sprint("p", n), nil), random.IntN(2)
			both[which], all = both[which].PutObject(o), all.PutObject(o)
		}
		if got := both[0].MergeWith(both[1]); !slices.Equal(got, all) {
			t.Fatalf("merged are %v, want %v", got, all)
		}
	}
}
