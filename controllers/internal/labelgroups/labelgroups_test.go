// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package labelgroups

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// shelfOf has so many objects, which nobody looks at.
func shelfOf(n int) cachedobjects.Shelf {
	return cachedobjects.NewShelf(make(cachedobjects.SortedObjects, n))
}

// All groups take so many bytes at most, and those of one namespace take less.
func TestGroupsAreBounded(t *testing.T) {
	const half = maxBytesOfOne / bytesPerMember / 2
	many := shelfOf(half)
	var taken Bytes
	groups := New(&taken)
	add := func(g Group, members cachedobjects.Shelf) (fits bool) {
		groups.FinishGroup(g, groups.BeginGroup(g), members)
		return groups.Of[g] != nil
	}
	of := func(namespace string, n int) Group { return Group{namespace, fmt.Sprint("l-", n), "v"} }
	if !add(of("a", 1), many) || add(of("a", 2), many) {
		t.Error("the groups of a namespace are not bounded")
	}
	if !add(of("b", 1), many) {
		t.Error("a namespace takes the room of another")
	}
	small := of("a", 3)
	if !add(small, shelfOf(2)) {
		t.Error("a small one has no room")
	}
	if add(of("", 0), shelfOf(maxBytes/2/bytesPerMember)) || !add(of("", 1), many) {
		t.Error("the groups of all namespaces are not bounded by half")
	}
	fit := 0
	for n := range 20 {
		for i := range 2 {
			if add(of(fmt.Sprint("ns-", n), i), shelfOf(half-1000)) {
				fit++
			}
		}
	}
	if taken.all > maxBytes || fit < 10 || fit == 40 {
		t.Errorf("%d more fit in, and take %d bytes", fit, taken.all)
	}
	groups.setMembers(small, groups.Of[small], shelfOf(2*half)) // it has grown
	if groups.Of[small] != nil {
		t.Error("a group has grown out of all bounds")
	}
	groups.DropAll()
	if !taken.IsZero() || len(groups.Of) > 0 {
		t.Errorf("counted are %+v", taken)
	}
}

// podOf is an object with labels.
func podOf(namespace, name string, l map[string]string) *cachedobjects.Object {
	o := &cachedobjects.Object{}
	o.Namespace, o.Name, o.Labels = namespace, name, l
	return o
}

// manyLabels are more labels than an object in groups has.
func manyLabels() map[string]string {
	l := map[string]string{"app": "web"}
	for n := range MaxLabels {
		l[fmt.Sprint("l-", n)] = "v"
	}
	return l
}

// namesOf lists the members of a group; nil if there are none.
func namesOf(m *Members) (names []string) {
	if m == nil {
		return nil
	}
	for _, o := range m.AppendTo(nil) {
		names = append(names, o.Namespace+"/"+o.Name)
	}
	return names
}

// makeGroup makes a group of what there is.
func makeGroup(groups Groups, g Group, all map[string]*cachedobjects.Object) {
	var found cachedobjects.SortedObjects
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if o := all[key]; (g.Namespace == "" || o.Namespace == g.Namespace) && g.HasObject(o) {
			found = append(found, o)
		}
	}
	groups.FinishGroup(g, groups.BeginGroup(g), cachedobjects.NewShelf(found))
}

// Whatever changes, a group has the objects with its label, and the group of many labels those with too many.
func TestGroupsKeepUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var taken Bytes
	groups, all := New(&taken), map[string]*cachedobjects.Object{}
	ask := []Group{{"a", "app", "web"}, {"", "app", "web"}, {"b", "app", "db"}, {"", "tier", "x"}}
	for step := range 3000 {
		namespace, name := string(rune('a'+random.IntN(2))), fmt.Sprint("p", random.IntN(8))
		before := all[namespace+"/"+name]
		var now *cachedobjects.Object
		switch random.IntN(5) {
		case 0:
		case 1:
			now = podOf(namespace, name, manyLabels())
		default:
			l := map[string]string{"app": []string{"web", "db"}[random.IntN(2)]}
			if random.IntN(2) == 0 {
				l["tier"] = "x"
			}
			now = podOf(namespace, name, l)
		}
		delete(all, namespace+"/"+name)
		if now != nil {
			all[namespace+"/"+name] = now
		}
		groups.MoveObject(before, now)
		if g := ask[random.IntN(len(ask))]; groups.Of[g] == nil {
			makeGroup(groups, g, all)
		} else if random.IntN(20) == 0 {
			groups.DropGroup(g)
		}
		want := map[Group][]string{}
		for _, key := range slices.Sorted(maps.Keys(all)) {
			for g := range ListGroups(all[key]) {
				if g.Key == "" || groups.Of[g] != nil {
					want[g] = append(want[g], key)
				}
			}
		}
		got := map[Group][]string{}
		for g, m := range groups.Of {
			if names := namesOf(m); names != nil {
				got[g] = names
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d (-want +got):\n%s", step, diff)
		}
	}
	groups.DropAll()
	if !taken.IsZero() {
		t.Errorf("counted are %+v", taken)
	}
}

// What changes while a group is made is not lost, and too much of it ends the group.
func TestChangesWhileAGroupIsMade(t *testing.T) {
	g := Group{"a", "app", "web"}
	web := map[string]string{"app": "web"}
	old, came := podOf("a", "old", web), podOf("a", "came", web)
	groups := New(&Bytes{})
	m := groups.BeginGroup(g)
	if groups.BeginGroup(g) != nil {
		t.Error("it is made twice")
	}
	groups.MoveObject(old, podOf("a", "old", map[string]string{"app": "db"}))
	groups.MoveObject(nil, came)
	found := cachedobjects.NewShelf(cachedobjects.SortedObjects{old})
	moves, done := groups.FinishGroup(g, m, found)
	if done || len(moves) != 2 {
		t.Fatalf("%d moves, %t", len(moves), done)
	}
	for _, c := range moves {
		found = c.ApplyTo(found)
	}
	if _, done = groups.FinishGroup(g, m, found); !done || m.Unfinished || !slices.Equal(namesOf(groups.Of[g]), []string{"a/came"}) {
		t.Errorf("it has %v", namesOf(groups.Of[g]))
	}
	groups.DropGroup(g)
	m = groups.BeginGroup(g)
	for range MaxMoves + 1 {
		groups.MoveObject(nil, came)
	}
	if _, done := groups.FinishGroup(g, m, found); !done || groups.Of[g] != nil {
		t.Error("after too many changes it is made on")
	}
}

// A query that requires one value of a label, and names no object, asks for a group.
func TestFindGroup(t *testing.T) {
	pods := served.Resource{Kind: "Pod", Namespaced: true}
	for selector, want := range map[string]Group{
		"app=web": {"a", "app", "web"}, "app in (web)": {"a", "app", "web"}, "app in (web,db),tier=x": {"a", "tier", "x"}, "app": {}, "app!=web": {}, "": {},
	} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "p"} {
			q := snapshot.Query{Kind: "Pod", Namespace: "a", Name: name, Labels: parsed}
			if got, ok := FindGroup(pods, &q); ok != (name == "" && want != Group{}) || ok && got != want {
				t.Errorf("%q of %q asks for %v, %t", selector, name, got, ok)
			}
		}
	}
}

// A group is due at its second read, later if it was postponed, and never once no query asks for it.
func TestDemands(t *testing.T) {
	g, d := Group{"a", "app", "web"}, Demands{}
	if d.NoteRead(g) {
		t.Error("it is due, and no query asks for it")
	}
	d.PostponeGroup(g)
	d.AddQuery(g)
	d.AddQuery(g)
	if d.NoteRead(g) || !d.NoteRead(g) || !d.NoteRead(g) {
		t.Error("it is not due at its second read")
	}
	d.PostponeGroup(g)
	for n := range ReadsUntilNext {
		if due := d.NoteRead(g); due != (n == ReadsUntilNext-1) {
			t.Errorf("after %d reads it is due: %t", n+1, due)
		}
	}
	if d.DropQuery(g) || !d.DropQuery(g) || d.NoteRead(g) {
		t.Error("it outlives the queries that ask for it")
	}
}
