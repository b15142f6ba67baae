// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Two targets have the same objects if they name the same ones, in the same order, each at the same version.
func TestHasSameObjects(t *testing.T) {
	named := func(names ...string) Target {
		out := Target{State: Complete}
		for _, name := range names {
			out.Objects = append(out.Objects, Object{Ref: Ref{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"}})
		}
		return out
	}
	changed := func(change func(*Object)) Target {
		out := named("a", "b")
		out.Objects = slices.Clone(out.Objects)
		change(&out.Objects[1])
		return out
	}
	custom := func(contents ...uint64) Target {
		out := named("a", "b")
		out.Custom = true
		for i := range contents {
			out.Objects[i].Content = contents[i]
		}
		return out
	}
	for name, tc := range map[string]struct {
		one, other Target
		want       bool
	}{
		"SameContents":     {custom(1, 2), custom(1, 2), true},
		"OtherContents":    {custom(1, 2), custom(1, 3), false},
		"NoNumbers":        {custom(), custom(), false},
		"ReadOnlyOnceLive": {custom(1, 2), custom(), false},
	} {
		if got := tc.one.HasSameObjects(&tc.other); got != tc.want || tc.other.HasSameObjects(&tc.one) != tc.want {
			t.Errorf("custom objects, %s: got %t", name, got)
		}
	}
	missing := named("a", "b")
	missing.State = NoSuchKind
	for name, tc := range map[string]struct {
		other Target
		want  bool
	}{
		"Same":           {named("a", "b"), true},
		"OneMore":        {named("a", "b", "c"), false},
		"OneLess":        {named("a"), false},
		"AnotherState":   {missing, false},
		"AnotherVersion": {changed(func(o *Object) { o.ResourceVersion = "8" }), false},
		"AnotherUID":     {changed(func(o *Object) { o.UID = "other" }), false},
		"WithoutVersion": {changed(func(o *Object) { o.ResourceVersion = "" }), false},
		"OfAnotherKind":  {changed(func(o *Object) { o.Resource.Resource = "events" }), false},
		"Assembled":      {changed(func(o *Object) { o.Assembled = true }), false},
		"WithoutUID":     {changed(func(o *Object) { o.UID = "" }), false},
	} {
		one := named("a", "b")
		if got := one.HasSameObjects(&tc.other); got != tc.want || tc.other.HasSameObjects(&one) != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	for name, one := range map[string]Target{"Empty": {State: Complete}, "ItselfWithoutVersions": {State: Complete, Objects: []Object{{}}}} {
		if !one.HasSameObjects(&one) {
			t.Errorf("%s: it is not the same", name)
		}
	}
	if a, b := (Target{Objects: []Object{{}}}), (Target{Objects: []Object{{}}}); a.HasSameObjects(&b) {
		t.Error("objects without versions are the same")
	}
}
