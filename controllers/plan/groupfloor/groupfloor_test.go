// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package groupfloor

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestTakeItem(t *testing.T) {
	f := NewFloors()
	f.RemoveObject("z")
	f.AddGroup("first", []types.UID{"a", "b", "b", "c", "z"}, 1) // three remain, of which two may go
	f.AddGroup("second", []types.UID{"a", "c"}, 1)
	f.AddGroup("third", []types.UID{"a"}, 5)
	for i, step := range []struct {
		rule    string
		member  types.UID
		removed []types.UID
		want    bool
	}{
		{"first", "a", []types.UID{"a"}, false}, // third has too few already
		{"first", "z", []types.UID{"z"}, true},  // gone before
		{"second", "a", nil, true},              // takes it from its own group alone
		{"second", "a", nil, true},              // and once
		{"second", "c", nil, false},
		{"first", "b", []types.UID{"b", "b"}, true},
		{"first", "c", []types.UID{"c"}, false}, // second has a left, which it has changed: c must stay
		{"other", "x", []types.UID{"c"}, false}, // whoever removes it
		{"other", "x", []types.UID{"y"}, true},
		{"first", "c", nil, true}, // it is changed, and stays
		{"first", "c", nil, true},
	} {
		if got := f.TakeItem(step.rule, step.member, step.removed); got != step.want {
			t.Errorf("step %d: %s takes %s: %t", i, step.rule, step.member, got)
		}
	}
}

// An object that a rule has changed before and removes then counts once in the group of that rule.
func TestTakeItemTwice(t *testing.T) {
	f := NewFloors()
	f.AddGroup("r", []types.UID{"a", "b"}, 1)
	if !f.TakeItem("r", "a", nil) || !f.TakeItem("r", "other", []types.UID{"a"}) || f.TakeItem("r", "b", nil) {
		t.Error("one of the two may go, once")
	}
	f.RemoveObject("b")
	f.RemoveObject("b")
	if !f.TakeItem("r", "b", []types.UID{"b"}) {
		t.Error("what is gone in any case needs no room")
	}
}

// Whatever goes, and by whomever it is taken, in each group as many remain as it asks for, or as there were.
func TestFloorsHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		objects := rapid.SampledFrom([]types.UID{"a", "b", "c", "d", "e", "f"})
		f := NewFloors()
		gone := map[types.UID]bool{}
		for _, o := range rapid.SliceOfN(objects, 0, 2).Draw(rt, "before") {
			f.RemoveObject(o)
			gone[o] = true
		}
		type asked struct {
			members []types.UID
			want    int
		}
		remain := func(members []types.UID) int {
			n := 0
			for _, m := range slices.Compact(slices.Sorted(slices.Values(members))) {
				if !gone[m] {
					n++
				}
			}
			return n
		}
		var groups []asked
		for range rapid.IntRange(1, 3).Draw(rt, "groups") {
			g := asked{members: rapid.SliceOf(objects).Draw(rt, "members")}
			leave := rapid.IntRange(0, 4).Draw(rt, "leave")
			f.AddGroup(rapid.SampledFrom([]string{"r", "s"}).Draw(rt, "of"), g.members, leave)
			g.want = min(leave, remain(g.members))
			groups = append(groups, g)
		}
		for range rapid.IntRange(0, 12).Draw(rt, "takes") {
			removed := rapid.SliceOfN(objects, 0, 2).Draw(rt, "removed")
			if !f.TakeItem(rapid.SampledFrom([]string{"r", "s", "t"}).Draw(rt, "by"), objects.Draw(rt, "member"), removed) {
				continue
			}
			for _, o := range removed {
				gone[o] = true
			}
			for _, g := range groups {
				if got := remain(g.members); got < g.want {
					rt.Fatalf("%d of %v remain, want %d", got, g.members, g.want)
				}
			}
		}
	})
}
