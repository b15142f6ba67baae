// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memoryquota

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// keyOf reads namespace/name.
func keyOf(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestBook(t *testing.T) {
	type step struct {
		key    string
		bytes  int64
		forget string // all whose items have to be forgotten
	}
	for name, tc := range map[string]struct {
		reason string
		steps  []step
		ask    string
		room   int64
	}{
		"Empty":         {"one Cleaner has its bound", nil, "a/1", 10},
		"OwnCounts":     {"what it has is a part of its room", []step{{"a/1", 7, ""}}, "a/1", 10},
		"Namespace":     {"a namespace has a bound", []step{{"a/1", 10, ""}, {"a/2", 8, ""}}, "a/3", 2},
		"NamespaceFull": {"and when it has that, others of it have only what is modest", []step{{"a/1", 10, ""}, {"a/2", 10, ""}}, "a/3", 2},
		"Modest":        {"for which the one forgets that has most", []step{{"a/1", 10, ""}, {"a/2", 9, ""}, {"a/3", 2, "a/1"}}, "a/1", 9},
		"AllAreModest":  {"where nobody has more, one has as much as any other", []step{{"a/1", 1, ""}, {"a/2", 10, ""}, {"a/3", 9, ""}, {"a/4", 1, "a/2"}}, "a/5", 9},
		"Released":      {"what is gone takes nothing", []step{{"a/1", 10, ""}, {"a/2", 10, ""}, {"a/1", 0, ""}}, "a/3", 10},
		"OtherHasRoom":  {"another namespace has as much as before", []step{{"a/1", 10, ""}, {"a/2", 10, ""}}, "b/1", 10},
		"AtTheSameTime": {"who has taken what another one has taken at the same time forgets", []step{{"a/1", 10, ""}, {"a/2", 10, ""}, {"a/3", 5, "a/3"}}, "a/3", 2},
		"Full": {
			"when all is taken, who has least may have as much as who has most", []step{{"a/1", 10, ""}, {"a/2", 10, ""}, {"b/1", 10, ""}, {"b/2", 10, ""}, {"c/1", 10, ""}},
			"d/1", 10,
		},
		"FullForTheLargest": {
			"and who has most may have no more, but what is modest of its own", []step{{"a/1", 9, ""}, {"a/2", 9, ""}, {"b/1", 9, ""}, {"b/2", 9, ""}, {"c/1", 10, ""}, {"c/2", 4, ""}},
			"a/3", 2,
		},
		"ModestOfTheLargest": {
			"for which one of its own forgets", []step{{"a/1", 9, ""}, {"a/2", 9, ""}, {"b/1", 9, ""}, {"b/2", 8, ""}, {"c/1", 10, ""}, {"c/2", 5, ""}, {"a/3", 2, "a/1"}},
			"a/3", 9,
		},
		"LargestForgets": {
			"the Cleaner that has most in the namespace that has most forgets",
			[]step{{"a/1", 8, ""}, {"a/2", 10, ""}, {"b/1", 8, ""}, {"b/2", 9, ""}, {"c/1", 10, ""}, {"d/1", 6, "a/2"}}, "d/1", 10,
		},
		"Cluster":           {"ClusterCleaners have a part of their own", []step{{"a/1", 10, ""}, {"a/2", 10, ""}, {"b/1", 10, ""}, {"b/2", 10, ""}, {"c/1", 10, ""}}, "/1", 10},
		"ClusterFull":       {"which is bounded", []step{{"/1", 10, ""}, {"/2", 9, ""}, {"/3", 10, ""}}, "/4", 2},
		"ClusterIsNoneOfUs": {"and takes nothing from namespaces", []step{{"/1", 10, ""}, {"/2", 10, ""}, {"/3", 10, ""}}, "a/1", 10},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook(Bounds{Cleaner: 10, Namespace: 20, Namespaces: 50, Cluster: 30})
			b.modest = 2
			for _, s := range tc.steps {
				var forget []string
				for _, key := range b.ChargeBytes(keyOf(s.key), s.bytes) {
					forget = append(forget, key.Namespace+"/"+key.Name)
				}
				if got := strings.Join(forget, " "); got != s.forget {
					t.Errorf("%s takes %d: got %q, want %q", s.key, s.bytes, got, s.forget)
				}
			}
			if got := b.FindRoom(keyOf(tc.ask)); got != tc.room {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.room)
			}
		})
	}
}

// Who takes all the room there is for a Cleaner takes nothing from namespaces that have less, however many Cleaners and namespaces
// that is.
func TestSmallNamespacesKeepTheirs(t *testing.T) {
	bounds := DefaultBounds()
	b := NewBook(bounds)
	victim := types.NamespacedName{Namespace: "victim", Name: "c"}
	const modest = 1 << 20
	if forget := b.ChargeBytes(victim, modest); len(forget) > 0 {
		t.Fatal(forget)
	}
	for i := range 10_000 {
		key := types.NamespacedName{Namespace: fmt.Sprint("tenant-", i%20), Name: fmt.Sprint(i)}
		for _, forget := range b.ChargeBytes(key, b.FindRoom(key)) {
			if forget == victim {
				t.Fatalf("after %d Cleaners of others the items of a modest one are forgotten", i)
			}
		}
		if b.total > bounds.Namespaces {
			t.Fatalf("%d bytes are taken", b.total)
		}
	}
	if room := b.FindRoom(types.NamespacedName{Namespace: "late", Name: "c"}); room < modest {
		t.Errorf("who comes late has room for %d bytes", room)
	}
}

// Cleaners that take all there is for their namespace leave what is modest to each other one of it, and those that are modest forget nothing.
func TestModestCleanersKeepTheirs(t *testing.T) {
	bounds := DefaultBounds()
	b := NewBook(bounds)
	modest := map[types.NamespacedName]bool{}
	visit := func(name string, want int64) types.NamespacedName {
		key := types.NamespacedName{Namespace: "a", Name: name}
		for _, victim := range b.ChargeBytes(key, min(want, b.FindRoom(key))) {
			if modest[victim] {
				t.Fatalf("%s forgets for %s", victim.Name, name)
			}
		}
		return key
	}
	for round := range 20 {
		for n := range 40 {
			visit(fmt.Sprint("huge-", n), bounds.Cleaner)
		}
		key := visit(fmt.Sprint("modest-", round), Modest)
		modest[key] = true
		if took := b.taken["a"][key.Name]; took != Modest {
			t.Fatalf("%s has %d bytes", key.Name, took)
		}
	}
	clear(modest)
	for n := range 10_000 { // each has as much as any other then
		visit(fmt.Sprint("small-", n), 10<<10)
	}
	if room := b.FindRoom(types.NamespacedName{Namespace: "a", Name: "late"}); room < 10<<10 {
		t.Errorf("who comes after thousands has room for %d bytes", room)
	}
}
