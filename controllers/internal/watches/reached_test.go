// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/plan/observed"
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

func refsOf(list []*cachedobjects.Object) (refs []observed.Ref) {
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
	for version, want := range map[string]observed.TargetState{"": observed.Complete, "9": observed.Complete, "10": observed.Complete, "11": observed.Unsynced, "abc": observed.Unsynced} {
		if got := e.ReadAt(t.Context(), queries.New("Pod"), version); got.State != want || (len(got.Objects) == 2) != (want == observed.Complete) {
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
		list   []observed.Ref
		before func(e *Engine, s *store)
		after  func(e *Engine, s *store)
		want   bool
		serves observed.TargetState
	}{
		"Same":    {list: refsOf(podsAt("5", "y", "x")), want: true, serves: observed.Complete},
		"Less":    {list: refsOf(podsAt("5", "x")), serves: observed.Unsynced},
		"Later":   {list: refsOf(podsAt("6", "x", "y")), serves: observed.Unsynced},
		"Failing": {list: refsOf(podsAt("5", "x", "y")), before: func(_ *Engine, s *store) { s.informer.failure = "no" }, serves: observed.Failed},
		"Redefined": {list: refsOf(podsAt("5", "x", "y")), before: func(e *Engine, _ *store) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for generation := range int64(2) {
				e.catalog.refreshKinds("pods", nil, &cachedobjects.Object{Object: observed.Object{Ref: observed.Ref{Name: "pods", ResourceVersion: "1"}, Generation: generation}})
			}
		}, serves: observed.Unsynced},
		"AnObjectCame": {list: refsOf(podsAt("5", "x", "y")), want: true, serves: observed.Unsynced, after: func(_ *Engine, s *store) {
			if err := s.Add(podsAt("11", "gone-again")[0]); err != nil {
				panic(err)
			}
			s.UpdateResourceVersion("11")
		}},
		"AnObjectWent": {list: refsOf(podsAt("5", "x", "y")), want: true, serves: observed.Unsynced, after: func(_ *Engine, s *store) {
			if err := s.Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: "11"}}); err != nil {
				panic(err)
			}
		}},
		"AListCame": {list: refsOf(podsAt("5", "x", "y")), want: true, serves: observed.Unsynced, after: func(e *Engine, s *store) { feedsOf(e).replaceObjects(s.informer, podsAt("4", "x"), "9") }},
		"ABookmark": {list: refsOf(podsAt("5", "x", "y")), want: true, serves: observed.Complete, after: func(_ *Engine, s *store) { s.UpdateResourceVersion("15") }},
	} {
		t.Run(name, func(t *testing.T) {
			e, s, place := newReaching(t)
			if tc.before != nil {
				tc.before(e, s)
			}
			if got := e.ConfirmList(place, tc.list, "20"); got != tc.want {
				t.Errorf("got %t", got)
			}
			if tc.after != nil {
				tc.after(e, s)
			}
			if got := e.ReadAt(t.Context(), queries.New("Pod"), "20"); got.State != tc.serves {
				t.Errorf("it serves as %s, want %s", got.State, tc.serves)
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
		if got := e.ReadAt(t.Context(), queries.New("Pod"), "20"); got.State != observed.Unsynced || e.ReachedVersion(place) != "9" {
			t.Fatalf("it has reached %q, and serves as %s", e.ReachedVersion(place), got.State)
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
