// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"testing"
	"time"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/queries"
)

// newReaching is newWatching with a list of two Pods at version 10, and the place that has them.
func newReaching(t *testing.T) (*Engine, *store, Place) {
	t.Helper()
	e, s := newWatching(t)
	e.SetInterests(owner("c"), interests(queries.New("Pod")))
	feedsOf(e).replaceObjects(s.informer, podsAt("5", "x", "y"), "10")
	return e, s, Place{Resource: s.informer.scope.resource.Resource, Full: true}
}

func podsAt(version string, names ...string) (list []*cachedobjects.Object) {
	for _, name := range names {
		o := podOf("a", name, nil)
		o.ResourceVersion = version
		list = append(list, o)
	}
	return list
}

func refsOf(list []*cachedobjects.Object) (refs []plan.Ref) {
	for _, o := range list {
		refs = append(refs, o.Ref)
	}
	return refs
}

func TestReachedVersion(t *testing.T) {
	e, s, place := newReaching(t)
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"list", func() {}, "10"},
		{"bookmark", func() { s.UpdateResourceVersion("12") }, "12"},
		{"older bookmark", func() { s.UpdateResourceVersion("11") }, "12"},
		{"no version", func() { s.UpdateResourceVersion("abc") }, "12"},
		{"older list", func() { feedsOf(e).replaceObjects(s.informer, podsAt("5", "x"), "9") }, "9"},
	} {
		step.do()
		if got := e.ReachedVersion(place); got != step.want {
			t.Errorf("after %s it has reached %q, want %q", step.what, got, step.want)
		}
	}
	place.Namespace = "a"
	if got := e.ReachedVersion(place); got != "" {
		t.Errorf("a place that is not watched has reached %q", got)
	}
}

func TestReadAt(t *testing.T) {
	e, _, _ := newReaching(t)
	for version, want := range map[string]plan.TargetState{"": plan.Complete, "9": plan.Complete, "10": plan.Complete, "11": plan.Unsynced, "abc": plan.Unsynced} {
		if got := e.ReadAt(t.Context(), queries.New("Pod"), version); got.State != want || (len(got.Objects) == 2) != (want == plan.Complete) {
			t.Errorf("at %q: got %s with %d objects, want %s", version, got.State, len(got.Objects), want)
		}
	}
}

func TestFindPlace(t *testing.T) {
	e, s, want := newReaching(t)
	feedsOf(e).replaceObjects(s.informer, append(podsAt("5", "x", "y"), podOf("b", "z", nil)), "10")
	for name, tc := range map[string]struct {
		query snapshot.Query
		near  int
		ok    bool
	}{
		"Namespace":  {queries.New("Pod"), 2, true},
		"Selected":   {queries.New("Pod", queries.Labelled("app=none")), 2, true},
		"Namespaces": {queries.New("Pod", queries.Among("a", "b", "c")), 3, true},
		"All":        {queries.New("Pod", queries.In("")), 3, true},
		"ByLabels":   {queries.New("Pod", queries.ChosenBy("a=b")), 0, false},
		"Unwatched":  {queries.New("Node"), 0, false},
	} {
		p, all, near, ok := e.FindPlace(&tc.query)
		if ok != tc.ok || near != tc.near || ok && (p != want || all != 3) {
			t.Errorf("%s: got %+v with %d of %d objects, %t", name, p, near, all, ok)
		}
	}
}

func TestConfirmList(t *testing.T) {
	for name, tc := range map[string]struct {
		list    []plan.Ref
		between func(e *Engine, s *store)
		want    bool
		reached string
	}{
		"Same":    {list: refsOf(podsAt("5", "y", "x")), want: true, reached: "20"},
		"Less":    {list: refsOf(podsAt("5", "x")), reached: "10"},
		"Later":   {list: refsOf(podsAt("6", "x", "y")), reached: "10"},
		"Failing": {list: refsOf(podsAt("5", "x", "y")), between: func(_ *Engine, s *store) { s.informer.failure = "no" }},
	} {
		t.Run(name, func(t *testing.T) {
			e, s, place := newReaching(t)
			if tc.between != nil {
				tc.between(e, s)
			}
			if got := e.ConfirmList(place, tc.list, "20"); got != tc.want || e.ReachedVersion(place) != tc.reached {
				t.Errorf("got %t, and it has reached %q; want %t, %q", got, e.ReachedVersion(place), tc.want, tc.reached)
			}
		})
	}
}

// A list that is stored while another one is compared may be older than that.
func TestConfirmListOfWhatIsReplaced(t *testing.T) {
	for range 200 {
		e, s, place := newReaching(t)
		replaced := make(chan struct{})
		go func() {
			defer close(replaced)
			feedsOf(e).replaceObjects(s.informer, podsAt("4", "x"), "9")
		}()
		e.ConfirmList(place, refsOf(podsAt("5", "x", "y")), "20")
		<-replaced
		if got := e.ReachedVersion(place); got != "9" {
			t.Fatalf("it has reached %q", got)
		}
	}
}

func TestAwaitVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(e *Engine, s *store, place Place, cancel func())
		want bool
	}{
		"Bookmark": {func(_ *Engine, s *store, _ Place, _ func()) {
			s.UpdateResourceVersion("15")
			s.UpdateResourceVersion("20")
		}, true},
		"List": {func(e *Engine, s *store, _ Place, _ func()) {
			feedsOf(e).replaceObjects(s.informer, podsAt("5", "x"), "21")
		}, true},
		"Confirmed": {func(e *Engine, _ *store, p Place, _ func()) { e.ConfirmList(p, refsOf(podsAt("5", "x", "y")), "20") }, true},
		"Stopped": {func(e *Engine, _ *store, _ Place, _ func()) {
			e.DropInterests(owner("c"))
			e.DropInterests(owner("first"))
		}, false},
		"Over": {func(_ *Engine, _ *store, _ Place, cancel func()) { cancel() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, s, place := newReaching(t)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			got := make(chan bool, 1)
			go func() { got <- e.AwaitVersion(ctx, place, "20") }()
			until(t, "it waits", func() bool {
				e.mu.RLock()
				defer e.mu.RUnlock()
				return s.informer.awaited != nil
			})
			tc.do(e, s, place, cancel)
			select {
			case reached := <-got:
				if reached != tc.want {
					t.Errorf("reached: %t", reached)
				}
			case <-time.After(deadline):
				t.Error("it still waits")
			}
		})
	}
}
