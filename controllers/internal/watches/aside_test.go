// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// isStreamed says that a request is for a list, in either way.
func isStreamed(verb string, r *http.Request) bool {
	return verb == "list" || verb == "watch" && r.URL.Query().Get("sendInitialEvents") == "true"
}

// asideRig is an Engine that knows a Pod for a Cleaner that reads little of it.
func asideRig(t *testing.T, s *apiserver.Server) (r *rig, narrow, wide snapshot.Query) {
	t.Helper()
	r = newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
	narrow, wide = queries.New("Pod", reading("phase")), queries.New("Pod", reading("phase", "reason"))
	r.SetInterests(owner("narrow"), interests(narrow))
	r.shows(narrow, map[string]any{"phase": "Running"})
	return r, narrow, wide
}

// While all is listed for a Cleaner that reads more, and however long that takes, those that read less continue: a change wakes them, and they
// see it.
func TestAListAsideBlindsNobody(t *testing.T) {
	s := apiserver.New(t)
	r, narrow, wide := asideRig(t, s)
	began, gates := holdLists(s, 1)
	r.SetInterests(owner("wide"), interests(wide))
	<-began
	r.wakes(owner("narrow"), "a change", func() { s.Put(apiserver.Pods, "a", "p", nil, status("Failed")) })
	r.shows(narrow, map[string]any{"phase": "Failed"})
	if got := r.Read(t.Context(), wide); got.State != observed.Unsynced {
		t.Errorf("who reads more sees %s", got.State)
	}
	r.wakes(owner("wide"), "the list", func() { close(gates[0]) })
	r.shows(wide, map[string]any{"phase": "Failed", "reason": "Evicted"})
	until(t, "one informer for Pods, and one for definitions", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return feedsOf(r.Engine).informers == 2 && feedsOf(r.Engine).objects == 1
	})
	r.wakes(owner("narrow"), "a change", func() { s.Put(apiserver.Pods, "a", "p", nil, status("Pending")) })
}

// Where lists are refused, those who read less than is asked for have their watch, and who asked is told.
func TestAListAsideThatIsRefusedStopsNobody(t *testing.T) {
	s := apiserver.New(t)
	r, narrow, wide := asideRig(t, s)
	var refusals atomic.Int64
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		if gvr != apiserver.Pods || !isStreamed(verb, req) {
			return false
		}
		refusals.Add(1)
		apiserver.Fail(w, http.StatusGatewayTimeout, "Timeout", nil)
		return true
	})
	r.wakes(owner("wide"), "the failure", func() { r.SetInterests(owner("wide"), interests(wide)) })
	r.reads(wide, observed.Failed)
	for n := refusals.Load(); refusals.Load() < n+3; { // longer than it takes a watch to be given up
		s.Put(apiserver.Pods, "a", "p", nil, status(fmt.Sprint("phase", n)))
		r.shows(narrow, map[string]any{"phase": fmt.Sprint("phase", n)})
		n--
	}
	r.wakes(owner("wide"), "the list", func() { s.SetFault(nil) })
	r.reads(wide, observed.Complete, "p")
	r.reads(narrow, observed.Complete, "p")
}

// A list that is accepted, and of which nothing arrives, is given up and tried again, whatever came before.
func TestAListThatStallsIsGivenUp(t *testing.T) {
	for name, aside := range map[string]bool{"First": false, "Aside": true} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			r, fake := newSteppedRig(t, s, 0)
			s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
			narrow, wide := queries.New("Pod", reading("phase")), queries.New("Pod", reading("phase", "reason"))
			if aside {
				r.SetInterests(owner("narrow"), interests(narrow))
				r.shows(narrow, map[string]any{"phase": "Running"})
			}
			began := make(chan struct{})
			var stalled atomic.Bool
			s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
				if gvr != apiserver.Pods || !isStreamed(verb, req) || stalled.Swap(true) {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				close(began)
				<-req.Context().Done()
				return true
			})
			r.SetInterests(owner("wide"), interests(wide))
			<-began
			until(t, "the list is tried again", func() bool {
				fake.Step(time.Second)
				return r.Read(t.Context(), wide).State == observed.Complete
			})
		})
	}
}

// asideStore is an informer that has listed, and one that lists aside to take over from it.
func asideStore(t *testing.T) (e *Engine, old, next *store) {
	t.Helper()
	e, old = newWatching(t)
	e.SetInterests(owner("all"), interests(queries.New("Pod")))
	old.informer.scope.next = feedsOf(e).newInformer(old.informer.scope, true)
	next = &store{feeds: feedsOf(e), informer: old.informer.scope.next}
	next.beginList()
	matchAll(e)
	e.wakeups.TakeOwners()
	return e, old, next
}

// podAt is a Pod of a version.
func podAt(name string, version int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "a", "name": name, "resourceVersion": fmt.Sprint(version)},
	}}
}

// see tells a store of a Pod, as a watch does.
func see(t *testing.T, s *store, name string, version int) {
	t.Helper()
	if err := s.Update(podAt(name, version)); err != nil {
		t.Fatal(err)
	}
	s.UpdateResourceVersion(fmt.Sprint(version))
}

// versionsIn are those of what an informer has, by name.
func versionsIn(i *informer) map[string]string {
	all := map[string]string{}
	for _, shelf := range i.objects {
		for _, o := range shelf.AppendTo(nil) {
			all[o.Name] = o.ResourceVersion
		}
	}
	return all
}

// What takes over never goes back: it waits until it knows all that the other one has shown. Until then its changes wake nobody, and then the
// ones do that the other one has not shown.
func TestNothingGoesBackWhenAnotherTakesOver(t *testing.T) {
	e, old, next := asideStore(t)
	see(t, old, "p", 10)
	if woken := matchAll(e); len(woken) != 1 {
		t.Fatalf("a change wakes %v", woken)
	}
	if err := next.Replace([]any{podAt("p", 5), podAt("gone", 4)}, "7"); err != nil { // by an API server that is behind
		t.Fatal(err)
	}
	s := old.informer.scope
	see(t, next, "other", 8)
	if woken := matchAll(e); s.full != old.informer || len(woken) > 0 {
		t.Fatalf("it takes over although it is behind, or wakes %v", woken)
	}
	if err := next.Delete(podAt("gone", 9)); err != nil {
		t.Fatal(err)
	}
	next.UpdateResourceVersion("9")
	if s.full != old.informer {
		t.Fatal("it takes over although it is behind")
	}
	see(t, next, "p", 10)
	if s.full != next.informer || s.next != nil || !next.informer.synced || !old.informer.stopped {
		t.Fatal("it does not take over although it knows all")
	}
	if got := fmt.Sprint(versionsIn(s.full)); got != "map[other:8 p:10]" {
		t.Errorf("it has %s", got)
	}
	if woken := slices.Compact(matchAll(e)); !slices.Equal(woken, []string{"all"}) || len(e.matcher.backlog.unreported) > 0 {
		t.Errorf("what the other one had not shown wakes %v", woken)
	}
	see(t, next, "p", 11)
	if woken := matchAll(e); len(woken) != 1 {
		t.Errorf("the next change wakes %v", woken)
	}
}

// It does not wait where versions cannot be compared, or where nothing has happened.
func TestWhoTakesOverDoesNotWaitForNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		see  int
		list string
		want bool
	}{
		"Nothing":   {0, "7", true},
		"Earlier":   {6, "7", true},
		"TheSame":   {7, "7", true},
		"Later":     {8, "7", false},
		"NoNumber":  {8, "x", true},
		"NoVersion": {8, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, old, next := asideStore(t)
			if tc.see > 0 {
				see(t, old, "p", tc.see)
			}
			old.UpdateResourceVersion("1000") // of a bookmark: it is no change
			if err := next.Replace(nil, tc.list); err != nil {
				t.Fatal(err)
			}
			if got := old.informer.scope.full == next.informer; got != tc.want {
				t.Errorf("it takes over: %t", got)
			}
			if next.UpdateResourceVersion("8"); old.informer.scope.full != next.informer {
				t.Error("a bookmark says that nothing is missing, and it does not take over")
			}
		})
	}
}

// However much changes until it takes over: what is remembered is bounded, and all are woken who want anything.
func TestChangesUntilItTakesOverAreBounded(t *testing.T) {
	e, old, next := asideStore(t)
	see(t, old, "p", 100_000)
	if err := next.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	for n := range 2 * maxMissed {
		see(t, next, "p", 2+n)
	}
	if n := len(next.informer.arrived.Changes); n > maxMissed+1 {
		t.Errorf("%d changes are remembered", n)
	}
	q := &countingQueue{woken: map[Owner]int{}}
	e.wakeups.SetQueue(q)
	next.UpdateResourceVersion("100000")
	if q.count(owner("all")) == 0 || q.count(owner("first")) == 0 {
		t.Errorf("%v are woken", q.woken)
	}
}

// A list of the informer that serves comes first, and has all that is read: the one aside ends.
func TestAListThatHasAllEndsTheOneAside(t *testing.T) {
	e, old, next := asideStore(t)
	old.informer.keeps = keptparts.MergeReads(nil)
	old.beginList()
	if err := old.Replace([]any{podAt("p", 3)}, "7"); err != nil {
		t.Fatal(err)
	}
	if s := old.informer.scope; s.next != nil || !next.informer.stopped || s.full != old.informer || feedsOf(e).informers != 1 {
		t.Errorf("%d informers are left", feedsOf(e).informers)
	}
}

// A definition changes in a way that is of no importance. A Cleaner that selects by a field of the kind, and looks while the definition is read
// again, is told that this is not known yet, and is woken when it is.
func TestADefinitionThatChangesWakesWhoLooked(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	defineColors(s, "one")
	r := newRig(t, s)
	q := queries.New("Revision", queries.Fielded("spec.color=red"))
	s.Put(apiserver.Revisions, "a", "red", nil, map[string]any{"spec": map[string]any{"color": "red"}})
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Complete, "red")
	gate := make(chan struct{})
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if verb == "get" && gvr == apiserver.CRDs {
			<-gate
		}
		return false
	})
	defineColors(s, "two") // such as a status
	r.reads(q, observed.Unsynced)
	r.wakes(owner("c"), "the definition", func() { close(gate) })
	r.reads(q, observed.Complete, "red")
}

// defineColors makes Revisions selectable by their color.
func defineColors(s *apiserver.Server, note string) {
	s.Put(apiserver.CRDs, "", "revisions.serving.example.com", nil, map[string]any{"spec": map[string]any{"note": note, "versions": []any{
		map[string]any{"name": "v1", "selectableFields": []any{map[string]any{"jsonPath": ".spec.color"}}},
	}}})
}

// Two spellings of a kind are looked up again after a moment of 404. The second one is resolved when the first one has its list, and its owner
// hears of it.
func TestASecondSpellingIsWoken(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	defineColors(s, "one")
	r := newRig(t, s)
	one, two := queries.New("Revision", reading("phase")), queries.New("revisions", queries.Fielded("spec.color=red"))
	two.Group = one.Group
	s.Put(apiserver.Revisions, "a", "red", nil, map[string]any{"spec": map[string]any{"color": "red"}})
	r.SetInterests(owner("one"), interests(one))
	r.SetInterests(owner("two"), interests(two))
	r.reads(one, observed.Complete, "red")
	r.reads(two, observed.Complete, "red")
	gate := make(chan struct{})
	var failed atomic.Bool
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		if verb == "get" && gvr == apiserver.CRDs {
			<-gate
		}
		if gvr != apiserver.Revisions || !isStreamed(verb, req) || verb == "list" && failed.Swap(true) || verb == "watch" && failed.Load() {
			return false
		}
		http.Error(w, "404 page not found", http.StatusNotFound)
		return true
	})
	s.Disconnect(apiserver.Revisions, true)
	r.reads(two, observed.Unsynced)
	r.reads(one, observed.Complete, "red")
	r.reads(two, observed.Unsynced)
	r.wakes(owner("two"), "its kind", func() { close(gate) })
	r.reads(two, observed.Complete, "red")
}

// A list that comes in pages does not stall, however long it takes.
func TestAListInPagesIsNotSilent(t *testing.T) {
	s := apiserver.New(t)
	for n := range 1900 {
		s.Put(apiserver.Pods, "a", fmt.Sprint("p", n), nil)
	}
	r, fake := newSteppedRig(t, s, retry)
	var lists atomic.Int64
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		switch {
		case gvr != apiserver.Pods || !isStreamed(verb, req):
			return false
		case verb == "watch":
			apiserver.Fail(w, http.StatusUnprocessableEntity, "Invalid", nil)
			return true
		case req.URL.Query().Get("continue") == "":
			lists.Add(1)
		}
		for range 4 { // 40 seconds, in which the informer may look
			fake.Step(10 * time.Second)
			<-tick()
		}
		return false
	})
	q := queries.New("Pod")
	r.SetInterests(owner("c"), interests(q))
	until(t, "all Pods are listed", func() bool {
		if lists.Load() == 0 {
			fake.Step(100 * time.Millisecond)
		}
		return r.Read(t.Context(), q).State == observed.Complete
	})
	if n := lists.Load(); n != 1 {
		t.Errorf("it takes %d lists", n)
	}
}

// A deletion that tells an old version lets nothing go back.
func TestADeletionWithAnOldVersion(t *testing.T) {
	_, old, next := asideStore(t)
	see(t, old, "q", 4)
	see(t, old, "p", 10)
	if err := old.Delete(podAt("q", 4)); err != nil {
		t.Fatal(err)
	}
	old.UpdateResourceVersion("4")
	if err := next.Replace([]any{podAt("p", 5)}, "7"); err != nil {
		t.Fatal(err)
	}
	if got := versionsIn(old.informer.scope.full)["p"]; got != "10" {
		t.Errorf("p, which was shown at 10, is shown at %q", got)
	}
}

// To wait until it may take over is no list: it does not make others wait for ten times as long.
func TestToWaitIsNotToList(t *testing.T) {
	e, old, next := asideStore(t)
	fake := clocktesting.NewFakeClock(time.Now())
	e.clock = fake
	s := old.informer.scope
	see(t, old, "p", 10)
	next.beginList()
	s.pace.NoteBegin(fake.Now())
	fake.Step(time.Second)
	if err := next.Replace(nil, "7"); err != nil {
		t.Fatal(err)
	}
	fake.Step(59 * time.Second)
	next.UpdateResourceVersion("10")
	if s.full != next.informer {
		t.Fatal("it does not take over")
	}
	if wait := s.pace.FindTurn(fake.Now()).Sub(fake.Now()); wait > time.Minute {
		t.Errorf("after a list of 1 s, the next may begin in %s", wait)
	}
}

// The callback gets each definition that is there, comes, changes or goes, also where no Cleaner watches its kind.
func TestDefinitionChangedIsCalled(t *testing.T) {
	s := apiserver.New(t)
	defineColors(s, "one")
	heard := make(chan string, 100)
	e, err := New(Options{Config: s.Config(), Clock: clock.RealClock{}, RetryEvery: retry, DefinitionChanged: func(name string) { heard <- name }})
	if err != nil {
		t.Fatal(err)
	}
	startRig(t, e, s)
	hears := func(when string) {
		t.Helper()
		select {
		case name := <-heard:
			if name != "revisions.serving.example.com" {
				t.Errorf("%s: it hears of %q", when, name)
			}
		case <-time.After(deadline):
			t.Fatalf("%s: it does not hear of it", when)
		}
	}
	hears("at the start")
	defineColors(s, "two")
	hears("after a change")
	s.Remove(apiserver.CRDs, "", "revisions.serving.example.com")
	hears("after it is gone")
}
