// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package listdiff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// objectBytes is what an object is said to take.
const objectBytes = 10

// newObject is an object of a version with so many labels.
func newObject(namespace, name string, version, labels int) *cachedobjects.Object {
	l := map[string]string{}
	for i := range labels {
		l[fmt.Sprint("l", i)] = ""
	}
	o := observed.Object{Ref: observed.Ref{Namespace: namespace, Name: name, ResourceVersion: fmt.Sprint(version)}, Labels: l, Value: map[string]any{}}
	return &cachedobjects.Object{Object: o, Bytes: objectBytes}
}

// TestAListIsComparedWithWhatIsKnown compares lists at random with a map of what was known.
func TestAListIsComparedWithWhatIsKnown(t *testing.T) {
	const seed, rounds = 11, 100
	random := rand.New(rand.NewPCG(seed, seed))
	known := map[types.NamespacedName]*cachedobjects.Object{}
	before := map[string]cachedobjects.Shelf{}
	for range rounds {
		var list []*cachedobjects.Object
		want, changes, many := map[types.NamespacedName]*cachedobjects.Object{}, map[Difference]bool{}, map[labelgroups.Group]int{}
		renews := random.IntN(2) == 0
		for n := range 30 {
			o := newObject(string(rune('a'+random.IntN(4))), fmt.Sprint("p", n%15), random.IntN(2), labelgroups.MaxLabels+random.IntN(2))
			k := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
			if random.IntN(2) == 0 || want[k] != nil {
				continue
			}
			list = append(list, o)
			if was := known[k]; was != nil && was.ResourceVersion == o.ResourceVersion {
				if !renews {
					o = was
				}
			} else {
				changes[Difference{was, o}] = true
			}
			want[k] = o
		}
		for k, o := range known {
			if want[k] == nil {
				changes[Difference{Before: o}] = true
			}
		}
		d := CompareObjects(before, list, renews)
		if d.More != len(want)-len(known) || len(d.Changes) != len(changes) || slices.ContainsFunc(d.Changes, func(c Difference) bool { return !changes[c] }) {
			t.Fatalf("%d more, and changes %v, want %d and %v", d.More, d.Changes, len(want)-len(known), changes)
		}
		count := 0
		for namespace, s := range d.Objects {
			count += s.CountObjects()
			for _, o := range s.AppendTo(nil) {
				if o.Namespace != namespace || s.Get(o.Namespace, o.Name) != want[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] {
					t.Fatalf("%s/%s is another one", o.Namespace, o.Name)
				}
				if len(o.Labels) > labelgroups.MaxLabels {
					many[labelgroups.Group{Namespace: namespace}]++
					many[labelgroups.Group{}]++
				}
			}
		}
		if count != len(want) || len(d.Groups) != len(many) {
			t.Fatalf("%d objects, %d groups of many labels, want %d and %d", count, len(d.Groups), len(want), len(many))
		}
		for g, n := range many {
			if d.Groups[g].CountObjects() != n {
				t.Fatalf("%d have many labels, want %d", d.Groups[g].CountObjects(), n)
			}
		}
		known, before = want, d.Objects
	}
}

// An object that is there twice counts once, and the list that is known stays as it is.
func TestAnObjectThatIsListedTwiceCountsOnce(t *testing.T) {
	known := newObject("a", "p", 1, 0)
	before := map[string]cachedobjects.Shelf{"a": cachedobjects.NewShelf(cachedobjects.SortedObjects{known})}
	d := CompareObjects(before, []*cachedobjects.Object{newObject("a", "p", 2, 0), newObject("a", "p", 2, 0)}, false)
	if len(d.Changes) != 1 || d.Changes[0].Before != known || d.More != 0 || d.Bytes != objectBytes || d.Objects["a"].CountObjects() != 1 {
		t.Errorf("there are %d more, of %d bytes, and %v", d.More, d.Bytes, d.Changes)
	}
	if before["a"].Get("a", "p") != known {
		t.Error("what was known has changed")
	}
}

// A change that comes later is one more, and its namespace is named once.
func TestAddChange(t *testing.T) {
	now := newObject("a", "p", 1, 0)
	d := CompareObjects(nil, []*cachedobjects.Object{now}, false)
	next := newObject("a", "p", 2, 0)
	d.AddChange(now, next)
	d.AddChange(next, nil)
	d.AddChange(nil, newObject("b", "p", 3, 0))
	if len(d.Changes) != 4 || d.Changes[2] != (Difference{Before: next}) || !slices.Equal(d.ChangedIn, []string{"a", "b"}) {
		t.Errorf("the changes are %v, in %q", d.Changes, d.ChangedIn)
	}
	if d.Objects["a"].Get("a", "p") != now || d.Objects["b"].CountObjects() != 0 {
		t.Error("the list has what came after it")
	}
}
