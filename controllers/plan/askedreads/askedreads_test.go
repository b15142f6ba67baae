// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package askedreads

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

func named(name string) observed.Read { return observed.Read{Target: 1, Name: name} }

// The reads of the earliest stage come first, in the order in which they were asked for, each once.
func TestNextReads(t *testing.T) {
	type asked struct {
		stage int
		names []string
	}
	for name, tc := range map[string]struct {
		asked []asked
		want  []string
	}{
		"None":     {nil, nil},
		"Same":     {[]asked{{1, []string{"a", "b"}}, {1, []string{"b", "c"}}}, []string{"a", "b", "c"}},
		"Earlier":  {[]asked{{2, []string{"a"}}, {1, []string{"b"}}}, []string{"b"}},
		"Later":    {[]asked{{0, []string{"a"}}, {1, []string{"b"}}}, []string{"a"}},
		"Gate":     {[]asked{{0, []string{"a"}}, {-1, []string{"b"}}, {0, []string{"c"}}}, []string{"b"}},
		"Repeated": {[]asked{{1, []string{"a", "a"}}}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := List{}
			for _, a := range tc.asked {
				var reads []observed.Read
				for _, n := range a.names {
					reads = append(reads, named(n))
				}
				l.AddReads(a.stage, reads)
			}
			var got []string
			for _, read := range l.ListNext() {
				got = append(got, read.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// No more items have room than a batch has, and none after one that depends on more objects than there may be: objects that several depend on count once.
func TestRoom(t *testing.T) {
	l := List{Items: 2}
	for n := range 3 {
		if l.HasRoom() != (n < 2) {
			t.Errorf("after %d items of 2 it is wrong whether another one has room", n)
		}
		l.CountItem()
	}
	l = List{Items: 100, Objects: 3}
	for n, names := range [][]string{{"a", "b"}, {"b", "c"}, {"a"}} {
		if !l.AddNamed(readsOf(names)) || !l.HasRoom() {
			t.Fatalf("item %d has no room", n)
		}
		l.CountItem()
	}
	if l.AddNamed(readsOf([]string{"d"})) || l.HasRoom() {
		t.Error("a fourth object has room")
	}
	unbounded := List{Items: 1}
	if all := readsOf(nil); !unbounded.AddNamed(all) || !unbounded.HasRoom() {
		t.Error("an item that depends on nothing has no room")
	}
	many := map[observed.Read]bool{}
	for n := range 5000 {
		many[named(fmt.Sprint(n))] = true
	}
	if !unbounded.AddNamed(many) {
		t.Error("there is a bound where none is set")
	}
}

func readsOf(names []string) map[observed.Read]bool {
	out := map[observed.Read]bool{}
	for _, name := range names {
		out[named(name)] = true
	}
	return out
}
