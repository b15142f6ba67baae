// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func shelfOf(namespace string, names ...string) PlacedShelf {
	var s Shelf
	for _, name := range names {
		s = s.PutObject(newPod(namespace, name, map[string]string{"app": name}))
	}
	return PlacedShelf{namespace, s}
}

func TestCandidates(t *testing.T) {
	dev := snapshot.Namespaces{Labels: labels.SelectorFromSet(labels.Set{"tier": "dev"}), Except: []string{"c"}}
	namespaces := Shelf{}.PutObject(newPod("", "a", map[string]string{"tier": "dev"})).PutObject(newPod("", "b", nil)).PutObject(newPod("", "c", map[string]string{"tier": "dev"}))
	of := func() []PlacedShelf {
		return []PlacedShelf{shelfOf("b", "x"), shelfOf("a", "y", "x"), shelfOf("c", "z")}
	}
	for name, tc := range map[string]struct {
		candidates Candidates
		wanted     func(*Object) bool
		want       []string
	}{
		"All":            {candidates: Candidates{Shelves: of()}, want: []string{"a/x", "a/y", "b/x", "c/z"}},
		"Wanted":         {candidates: Candidates{Shelves: of()}, wanted: func(o *Object) bool { return o.Name == "x" }, want: []string{"a/x", "b/x"}},
		"Named":          {candidates: Candidates{Shelves: of(), Name: "x"}, want: []string{"a/x", "b/x"}},
		"Unwanted":       {candidates: Candidates{Shelves: of(), Name: "x"}, wanted: func(o *Object) bool { return o.Namespace == "b" }, want: []string{"b/x"}},
		"Namespaces":     {candidates: Candidates{Shelves: of(), Namespaces: []string{"b", "c"}}, want: []string{"b/x", "c/z"}},
		"NoneIsSelected": {candidates: Candidates{Shelves: of(), Namespaces: []string{}}},
		"Labels":         {candidates: Candidates{Shelves: of(), ChosenAmong: &namespaces}, want: []string{"a/x", "a/y"}},
		"Grouped":        {candidates: Candidates{Shelves: []PlacedShelf{shelfOf("", "b", "d"), shelfOf("", "a", "c")}, Grouped: true}, want: []string{"/a", "/b", "/c", "/d"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.candidates.ChooseNamespaces(&dev)
			var got []string
			for _, o := range tc.candidates.ListObjects(tc.wanted) {
				got = append(got, o.Namespace+"/"+o.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if n := CountObjects(of()); n != 4 {
		t.Errorf("there are %d objects, want 4", n)
	}
}

func TestAreVersions(t *testing.T) {
	at := func(version string, o observed.Object) observed.Object {
		o.ResourceVersion, o.UID = version, types.UID("uid-"+o.Name)
		return o
	}
	shelf := func(objects ...observed.Object) PlacedShelf {
		var s Shelf
		for _, o := range objects {
			s = s.PutObject(&Object{Object: o})
		}
		return PlacedShelf{objects[0].Namespace, s}
	}
	x, y, z := at("1", newPod("a", "x", nil).Object), at("2", newPod("a", "y", nil).Object), at("3", newPod("a-b", "z", nil).Object)
	other := y
	other.UID = "uid-of-another"
	known := Candidates{Shelves: []PlacedShelf{shelf(z), shelf(x, y)}}
	for name, tc := range map[string]struct {
		list []observed.Ref
		want bool
	}{
		"Same":          {[]observed.Ref{x.Ref, y.Ref, z.Ref}, true},
		"InAnyOrder":    {[]observed.Ref{z.Ref, y.Ref, x.Ref}, true},
		"OneLess":       {[]observed.Ref{x.Ref, y.Ref}, false},
		"OneMore":       {[]observed.Ref{x.Ref, y.Ref, z.Ref, at("4", newPod("b", "z", nil).Object).Ref}, false},
		"Later":         {[]observed.Ref{x.Ref, at("4", y).Ref, z.Ref}, false},
		"Recreated":     {[]observed.Ref{x.Ref, other.Ref, z.Ref}, false},
		"AnotherName":   {[]observed.Ref{x.Ref, y.Ref, at("3", newPod("a-b", "zz", nil).Object).Ref}, false},
		"ElsewhereSame": {[]observed.Ref{x.Ref, y.Ref, at("3", newPod("a-c", "z", nil).Object).Ref}, false},
	} {
		if got := known.AreVersions(tc.list); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
