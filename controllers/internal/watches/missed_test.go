// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/queries"
)

// betweenParts calls f whenever the lock has been given back, if somebody was woken.
type betweenParts struct {
	NopMetrics
	f func()
}

func (b betweenParts) CountWakeups(int) { b.f() }

// missedList is a list of many Pods in another namespace, and of one in namespace a, of which all have changed.
func missedList() (list []*cachedobjects.Object) {
	for n := range 3 * changesAtATime {
		list = append(list, podOf("0", fmt.Sprint("p", n), nil))
	}
	list = append(list, podOf("a", "p", map[string]string{"new": "true"}))
	for _, o := range list {
		o.ResourceVersion = fmt.Sprint(anyVersion.Add(1))
	}
	return list
}

// missed is an Engine that has last heard of Pods a minute ago, and calls f with each change that a list shows, without the lock.
func missed(t *testing.T, f func(e *Engine, s *store)) (*Engine, *store, time.Time) {
	t.Helper()
	e, s := newWatching(t)
	e.SetInterests(owner("c"), interests(queries.New("Pod")))
	putObject(e, s, podOf("a", "p", nil))
	matchAll(e)
	e.News.TakeChange(owner("c"))
	heard := time.Now().Add(-time.Minute)
	s.informer.known = heard
	hook := Owner{Namespace: "hook", Name: "hook"}
	e.wakeups.Count = betweenParts{f: func() { f(e, s); e.wakeups.AddOwners(hook) }}.CountWakeups
	e.wakeups.AddOwners(hook)
	return e, s, heard
}

// Whoever sees what a list has shown knows since when it may have been so.
func TestWhatAListShowsIsNewsBeforeItIsSeen(t *testing.T) {
	looks := 0
	e, s, heard := missed(t, func(e *Engine, _ *store) {
		since := e.News.TakeChange(owner("c"))
		got := e.Read(t.Context(), queries.New("Pod"))
		if looks++; len(got.Objects) == 1 && got.Objects[0].Labels["new"] != "" && (since.IsZero() || since.After(time.Now().Add(-time.Minute/2))) {
			t.Errorf("look %d: it sees what may have changed a minute ago, and that it has changed since %s", looks, since)
		}
	})
	feedsOf(e).replaceObjects(s.informer, missedList(), "")
	if looks < 4 {
		t.Errorf("looked %d times", looks)
	}
	matchAll(e)
	if since := e.News.TakeChange(owner("c")); !since.Equal(heard) {
		t.Errorf("it may have changed since %s, want %s", since, heard)
	}
	if since := e.News.TakeChange(owner("c")); !since.IsZero() {
		t.Errorf("it is news for ever, since %s", since)
	}
}

// What a list has shown is told although its informer ends meanwhile: another one has taken over, and nothing else says what was missed.
func TestWhatAListShowsIsNewsWhenItsInformerEnds(t *testing.T) {
	e, s, heard := missed(t, func(e *Engine, s *store) {
		e.mu.Lock()
		defer e.mu.Unlock()
		s.informer.stopped = true
	})
	feedsOf(e).replaceObjects(s.informer, missedList(), "")
	matchAll(e)
	if since := e.News.TakeChange(owner("c")); !since.Equal(heard) {
		t.Errorf("it may have changed since %s, want %s", since, heard)
	}
}

// A change that was matched late is news since it came.
func TestAChangeIsNewsSinceItCame(t *testing.T) {
	for name, many := range map[string]int{"One": 1, "Flood": maxChanges + 2} {
		e, s := newWatching(t)
		e.SetInterests(owner("c"), interests(queries.New("Pod")))
		matchAll(e)
		e.News.TakeChange(owner("c"))
		clock := clocktesting.NewFakeClock(time.Now())
		setClock(e, clock)
		came := clock.Now()
		for n := range many {
			putObject(e, s, podOf("a", fmt.Sprint("p", n), nil))
		}
		clock.Step(time.Minute)
		matchAll(e)
		if since := e.News.TakeChange(owner("c")); !since.Equal(came) {
			t.Errorf("%s: it has changed since %s, want %s", name, since, came)
		}
	}
}

// What changes while a long list is on its way is not in it. The next list, or the watch that goes on from it, tells it as what may have
// changed since the list was asked for.
func TestWhatChangesWhileAListComesMayHaveChangedSince(t *testing.T) {
	for name, tc := range map[string]struct {
		later  time.Duration
		change func(e *Engine, s *store)
		missed bool
	}{
		"NextList":    {0, func(e *Engine, s *store) { feedsOf(e).replaceObjects(s.informer, missedList(), "") }, true},
		"WatchAtOnce": {0, func(e *Engine, s *store) { putObject(e, s, podOf("a", "p", nil)) }, true},
		"WatchLater":  {2 * time.Minute, func(e *Engine, s *store) { putObject(e, s, podOf("a", "p", nil)) }, false},
		"ListLater": {2 * time.Minute, func(e *Engine, s *store) {
			s.UpdateResourceVersion("9")
			feedsOf(e).replaceObjects(s.informer, missedList(), "")
		}, false},
		"ListAfterOne": {time.Second, func(e *Engine, s *store) {
			s.UpdateResourceVersion("9")
			feedsOf(e).replaceObjects(s.informer, missedList(), "")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := newWatching(t)
			clock := clocktesting.NewFakeClock(time.Now())
			setClock(e, clock)
			e.SetInterests(owner("c"), interests(queries.New("Pod")))
			s.informer.asked = clock.Now()
			asked := clock.Now()
			clock.Step(time.Minute)
			feedsOf(e).replaceObjects(s.informer, nil, "")
			matchAll(e)
			e.News.TakeChange(owner("c"))
			clock.Step(tc.later)
			tc.change(e, s)
			matchAll(e)
			want := clock.Now()
			if tc.missed {
				want = asked
			}
			if since := e.News.TakeChange(owner("c")); !since.Equal(want) {
				t.Errorf("it may have changed since %s, want %s", since, want)
			}
		})
	}
}

// serveAll allows whatever has not been asked yet, and has all informers read.
func serveAll(e *Engine) {
	for range 3 { // from the cluster down
		for _, r := range e.catalog.resources {
			for _, s := range r.scopes {
				if s.access == unchecked {
					e.mu.Lock()
					placementOf(e).recordAccess(s, nil, nil)
					e.unlockAndWake()
				}
				if s.full != nil && !s.full.synced {
					feedsOf(e).replaceObjects(s.full, nil, "")
					(&store{feeds: feedsOf(e), informer: s.full}).takeOver()
				}
			}
		}
	}
}

// An informer that takes over from another one does not know what that has missed: it may have been so since that was last in touch.
func TestWhatIsServedAnewMayHaveChangedSince(t *testing.T) {
	for name, tc := range map[string]struct {
		narrow bool
		lose   func(e *Engine, s *scope)
	}{
		"Denied":      {lose: func(e *Engine, s *scope) { placementOf(e).markDenied(s) }},
		"AllowedMore": {narrow: true, lose: func(e *Engine, s *scope) { placementOf(e).recordAccess(s, nil, nil) }},
		"NotFound": {lose: func(e *Engine, s *scope) {
			r := s.resource.Resource
			e.catalog.handleMissingResource(s.resource)
			for _, k := range e.catalog.kinds {
				e.catalog.applyFinding(k, finding{Resource: r, state: observed.Complete, fields: snapshot.BuiltinFieldLabels(r.GVR.GroupResource()), allFields: true})
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := newWatching(t)
			cluster := s.informer.scope
			if tc.narrow {
				e.mu.Lock()
				placementOf(e).markDenied(cluster)
				e.unlockAndWake()
				serveAll(e)
			}
			e.News.TakeChange(owner("first"))
			known := time.Now().Add(-time.Minute)
			for _, s := range cluster.resource.scopes {
				if s.full != nil {
					s.full.known = known
				}
			}
			e.mu.Lock()
			tc.lose(e, cluster)
			e.unlockAndWake()
			if since := e.News.TakeChange(owner("first")); !since.IsZero() {
				t.Errorf("it is told before anything is known, since %s", since)
			}
			serveAll(e)
			if since := e.News.TakeChange(owner("first")); !since.Equal(known) {
				t.Errorf("it may have changed since %s, want %s", since, known)
			}
			for w := range e.catalog.kinds[kindKey{version: "v1", kind: "pod"}].wants {
				if !w.lost.IsZero() {
					t.Error("it is lost for ever")
				}
			}
		})
	}
}

// An informer of whole objects that takes over from one of metadata tells what that has missed, and nothing else.
func TestWhatMetadataHasMissedIsToldWhenWholeObjectsAreRead(t *testing.T) {
	for name, changed := range map[string]bool{"Changed": true, "TheSame": false} {
		t.Run(name, func(t *testing.T) {
			e, s := newWatching(t)
			scope := s.informer.scope
			pods := missedList()
			e.mu.Lock()
			feedsOf(e).stopInformers(scope)
			feedsOf(e).ensureInformer(scope, false)
			e.unlockAndWake()
			e.SetInterests(owner("c"), []Interest{{Query: queries.New("Pod", queries.MetadataOnly)}})
			feedsOf(e).replaceObjects(scope.meta, slices.Clone(pods), "")
			matchAll(e)
			known := time.Now().Add(-time.Minute)
			scope.meta.known = known
			e.mu.Lock()
			feedsOf(e).ensureInformer(scope, true)
			e.unlockAndWake()
			e.News.TakeChange(owner("c"))
			if changed {
				pods = missedList()
			}
			feedsOf(e).replaceObjects(scope.full, pods, "")
			matchAll(e)
			if since := e.News.TakeChange(owner("c")); since.IsZero() || since.Equal(known) != changed || scope.meta != nil || len(e.matcher.backlog.unreported) > 0 {
				t.Errorf("it may have changed since %s, and was known until %s", since, known)
			}
		})
	}
}
