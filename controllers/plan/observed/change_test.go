// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A target with the changes that lead to another one is that one, in order, and neither it nor its objects are changed. Whether one comes or goes among the first
// ones says whether the names of these change.
func TestAnyChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(label string) Target {
			var all []Object
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				if rapid.Bool().Draw(rt, label+name) {
					o := newPod(name)
					o.Content = uint64(rapid.IntRange(1, 3).Draw(rt, label+"content of "+name))
					all = append(all, o)
				}
			}
			return seen(all...)
		}
		before, after := draw("before "), draw("after ")
		most := rapid.IntRange(1, 4).Draw(rt, "first")
		first := before.NameFirst(most)
		var changes []Change
		moves := false
		for _, name := range []string{"f", "b", "a", "d", "c", "e"} { // in no order
			c := Change{Namespace: "shop", Name: name}
			at, was := SearchObject(before.Objects, "shop", name)
			if was {
				c.Was, c.Before = true, before.Objects[at].Content
			}
			if at, is := SearchObject(after.Objects, "shop", name); is {
				c.Now = &after.Objects[at]
			}
			if c.Was || c.Now != nil {
				changes = append(changes, c)
			}
			moves = moves || c.Was != (c.Now != nil) && first.IsAmongFirst(most, &c)
		}
		shown := fmt.Sprint(before.Objects)
		got := before.WithChanges(changes)
		if fmt.Sprint(got.Objects) != fmt.Sprint(after.Objects) {
			rt.Errorf("it is\n%v\nand not\n%v", got.Objects, after.Objects)
		}
		if fmt.Sprint(before.Objects) != shown {
			rt.Errorf("the target itself has become\n%v", before.Objects)
		}
		if got, want := first.listNames(), after.NameFirst(most); !moves && !slices.Equal(got, want.listNames()) {
			rt.Errorf("no change is among the first ones, and these are %v and then %v", got, want.listNames())
		}
		if len(first.Objects)+first.More != len(before.Objects) || len(first.Objects) > most {
			rt.Errorf("of %d objects, it names %d and has %d more", len(before.Objects), len(first.Objects), first.More)
		}
	})
}

func (t *Target) listNames() (names []string) {
	for i := range t.Objects {
		names = append(names, t.Objects[i].Name)
	}
	return names
}

// The sum of contents is another one with each change of a content, of the objects or of the state, and unknown if one has no number.
func TestSumContents(t *testing.T) {
	target := func(state TargetState, contents ...uint64) *Target {
		out := Target{State: state}
		for i, c := range contents {
			o := newPod(fmt.Sprint(i))
			o.Content = c
			out.Objects = append(out.Objects, o)
		}
		return &out
	}
	sums := map[ContentSum]string{}
	for name, other := range map[string]*Target{
		"none": target(Complete), "missing": target(NoSuchKind), "one": target(Complete, 1), "another": target(Complete, 2), "two": target(Complete, 1, 2), "turned": target(Complete, 2, 1),
	} {
		sum := other.SumContents()
		if !sum.IsKnown || sums[sum] != "" {
			t.Errorf("%s has the sum of %q, or none", name, sums[sum])
		}
		sums[sum] = name
	}
	if target(Complete, 1, 0).SumContents().IsKnown {
		t.Error("an object without a number has a known content")
	}
}
