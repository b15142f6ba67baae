// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

const (
	deadline = 60 * time.Second
	retry    = 200 * time.Millisecond
)

func tick() <-chan time.Time { return time.After(2 * time.Millisecond) }

// rig is an Engine that runs against an ApiServer.
type rig struct {
	*testing.T
	*Engine
	server *apiserver.Server
	queue  *countingQueue
	stop   func()
}

// countingQueue counts how often an owner was enqueued. It never hands one out.
type countingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	mu    sync.Mutex
	woken map[Owner]int
}

func (q *countingQueue) Add(r reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.woken[r.NamespacedName]++
}

func (q *countingQueue) count(o Owner) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.woken[o]
}

func newRig(t *testing.T, s *apiserver.Server) *rig {
	t.Helper()
	e, err := New(Options{Config: s.Config(), Clock: clock.RealClock{}, RetryEvery: retry})
	if err != nil {
		t.Fatal(err)
	}
	return startRig(t, e, s)
}

// newWideRig is newRig with an Engine that watches a kind in all namespaces for any want, if it may.
func newWideRig(t *testing.T, s *apiserver.Server) *rig {
	t.Helper()
	r := newRig(t, s)
	placementOf(r.Engine).few, placementOf(r.Engine).fewNames = 0, 0
	return r
}

// newSteppedRig is newRig with a clock that the test steps, and that tries again what cannot be read after the given time; 0: after the usual one.
func newSteppedRig(t *testing.T, s *apiserver.Server, retryEvery time.Duration) (*rig, *clocktesting.FakeClock) {
	t.Helper()
	fake := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	e, err := New(Options{Config: s.Config(), Clock: fake, RetryEvery: retryEvery})
	if err != nil {
		t.Fatal(err)
	}
	return startRig(t, e, s), fake
}

func startRig(t *testing.T, e *Engine, s *apiserver.Server) *rig {
	t.Helper()
	r := &rig{T: t, Engine: e, server: s, queue: &countingQueue{woken: map[Owner]int{}}}
	ctx, cancel := context.WithCancel(t.Context())
	if err := e.Source().Start(ctx, r.queue); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := e.Start(ctx); err != nil {
			t.Error(err)
		}
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(deadline):
			t.Error("Start does not return")
		}
	})
	t.Cleanup(r.stop)
	return r
}

func owner(name string) Owner { return Owner{Namespace: "a", Name: name} }

func interests(qs ...snapshot.Query) []Interest {
	var out []Interest
	for _, q := range qs {
		out = append(out, Interest{Query: q})
	}
	return out
}

// reads waits until a query has a state and these objects.
func (r *rig) reads(q snapshot.Query, state observed.TargetState, names ...string) {
	r.Helper()
	var last observed.Target
	defer func() {
		if r.Failed() {
			r.Logf("the last answer was %s %q with %v", last.State, last.Detail, queries.NamesOf(last))
		}
	}()
	until(r.T, fmt.Sprintf("%s is %s %v", q.Kind, state, names), func() bool {
		last = r.Read(r.Context(), q)
		return last.State == state && cmp.Equal(names, queries.NamesOf(last))
	})
}

// wakes does something, and waits until it has woken the owner.
func (r *rig) wakes(o Owner, what string, do func()) {
	r.Helper()
	before := r.queue.count(o)
	do()
	until(r.T, what+" wakes "+o.Name, func() bool { return r.queue.count(o) > before })
}

func TestObjectStartsToMatchLater(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Pod", queries.Labelled("app=web"))
	s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "db"})
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(q)) })
	r.reads(q, observed.Complete)

	r.wakes(owner("c"), "a match", func() { s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "web"}) })
	r.reads(q, observed.Complete, "p")
	r.wakes(owner("c"), "a label that leaves", func() { s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "db"}) })
	r.reads(q, observed.Complete)
	r.wakes(owner("c"), "a match", func() { s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "web"}) })
	r.wakes(owner("c"), "a deletion", func() { s.Remove(apiserver.Pods, "a", "p") })
	r.reads(q, observed.Complete)
}

func everywhere(string) bool { return true }

// What wakes somebody is news of it, and so is what it wants to know of; what others watch is not.
func TestChangesAreNews(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	c := owner("c")
	s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "web"})
	q := interests(queries.New("Pod", queries.Labelled("app=web")))
	r.wakes(c, "the sync", func() { r.SetInterests(c, q) })
	r.SetInterests(owner("other"), interests(queries.New("Pod"))) // it can read at once
	until(t, "it is known whom all concerns", func() bool { return len(r.matcher.backlog.listPending(everywhere)) == 0 })
	if r.News.TakeChange(c).IsZero() {
		t.Error("what it watches is no news")
	}
	r.SetInterests(c, q)
	r.wakes(owner("other"), "what another watches", func() { s.Put(apiserver.Pods, "a", "q", nil) })
	until(t, "it is known whom that concerns", func() bool { return len(r.matcher.backlog.listPending(everywhere)) == 0 })
	if !r.News.TakeChange(c).IsZero() {
		t.Error("there are news although nothing has changed")
	}
	i := informerOf(t, r.Engine, apiserver.Pods)
	until(t, "what the watch shows has just happened", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return i.missedSince(time.Now()).IsZero()
	})
	before := time.Now()
	r.wakes(c, "a change", func() { s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "web", "x": "y"}) })
	r.wakes(c, "a deletion", func() { s.Remove(apiserver.Pods, "a", "p") })
	if since := r.News.TakeChange(c); since.Before(before) {
		t.Errorf("the change is of %s, not after %s", since, before)
	}
	r.DropInterests(c)
	if r.News.TakeChange(c).IsZero() {
		t.Error("that it watches no more is no news")
	}
}

func TestInitialSyncWakesOnce(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	for i := range 50 {
		s.Put(apiserver.Pods, "a", fmt.Sprintf("p%d", i), nil)
	}
	q := queries.New("Pod")
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(q)) })
	r.wakes(owner("c"), "an event", func() { s.Put(apiserver.Pods, "a", "last", nil) })
	if got := r.queue.count(owner("c")); got != 2 {
		t.Errorf("woken %d times, want once for 50 objects and once for the event", got)
	}
}

func TestOnlyWhoWantsItWakes(t *testing.T) {
	s := apiserver.New(t)
	r := newWideRig(t, s)
	all := map[string][]Interest{
		"named":     interests(queries.New("Pod", queries.Named("p"))),
		"selector":  interests(queries.New("Pod", queries.Labelled("app in (web,api)"))),
		"exists":    interests(queries.New("Pod", queries.Labelled("app"))),
		"negative":  interests(queries.New("Pod", queries.Labelled("app!=db"))),
		"field":     interests(queries.New("Pod", queries.Fielded("status.phase=Running"))),
		"metadata":  interests(queries.New("Pod", queries.Labelled("app=web"), queries.MetadataOnly)),
		"elsewhere": interests(queries.New("Pod", queries.Labelled("app=web"), queries.In("b"))),
		"other":     interests(queries.New("Pod", queries.Named("q"))),
		"db":        interests(queries.New("Pod", queries.Labelled("app=db"))),
		"quiet":     {{Query: queries.New("Pod", queries.Labelled("app=web")), Quiet: true}},
	}
	r.wakes(owner("first"), "the sync", func() { r.SetInterests(owner("first"), interests(queries.New("Pod", queries.In("b")))) })
	for name, i := range all { // none of them is woken by this: it can read at once
		r.SetInterests(owner(name), i)
	}
	s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "web"}, map[string]any{"status": map[string]any{"phase": "Running"}})
	r.reads(queries.New("Pod", queries.Named("p")), observed.Complete, "p")
	s.Put(apiserver.Pods, "a", "x", nil) // arrives after it, and concerns one of them
	until(t, "the second event", func() bool { return r.queue.count(owner("negative")) == 2 })

	got := map[string]int{}
	for name := range all {
		got[name] = r.queue.count(owner(name))
	}
	want := map[string]int{
		"named": 1, "selector": 1, "exists": 1, "negative": 2, "field": 1, "metadata": 1, "elsewhere": 0, "other": 0, "db": 0, "quiet": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
}

func TestObjectGoesWhileDisconnected(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Pod", queries.Labelled("app=web"))
	web := map[string]string{"app": "web"}
	s.Put(apiserver.Pods, "a", "goes", web)
	s.Put(apiserver.Pods, "a", "stays", web)
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(q)) })
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if gvr == apiserver.Pods && verb != "review" {
			http.Error(w, "down", http.StatusInternalServerError)
			return true
		}
		return false
	})
	s.Disconnect(apiserver.Pods, false)
	s.Remove(apiserver.Pods, "a", "goes")
	s.Disconnect(apiserver.Pods, true) // the deletion is forgotten: only a list can tell
	r.wakes(owner("c"), "the relist", func() { s.SetFault(nil) })
	r.reads(q, observed.Complete, "stays")
}

func TestExpiredWatchRelists(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Pod")
	s.Put(apiserver.Pods, "a", "goes", nil)
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Complete, "goes")
	s.RemoveSilently(apiserver.Pods, "a", "goes")
	r.wakes(owner("c"), "a deletion that nobody reported", func() { s.Disconnect(apiserver.Pods, true) })
	r.reads(q, observed.Complete)
}

func TestKindInstalledLaterDeletedAndRecreated(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Revision")
	r.wakes(owner("c"), "a missing kind", func() { r.SetInterests(owner("c"), interests(q)) })
	r.reads(q, observed.NoSuchKind)
	for range 3 {
		r.wakes(owner("c"), "the kind", func() { s.Install(apiserver.Revisions, "Revision", true) })
		r.reads(q, observed.Complete)
		r.wakes(owner("c"), "an object", func() { s.Put(apiserver.Revisions, "a", "r", nil) })
		r.reads(q, observed.Complete, "r")
		r.wakes(owner("c"), "the end of the kind", func() { s.Uninstall(apiserver.Revisions) })
		r.reads(q, observed.NoSuchKind)
	}
}

func TestKindIsNoticedWithoutDefinitions(t *testing.T) {
	s := apiserver.New(t)
	s.Deny(apiserver.Denial{Resource: "customresourcedefinitions", Namespace: "*", Name: "*"})
	r := newRig(t, s)
	q := queries.New("Revision")
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.NoSuchKind)
	s.Serve(apiserver.Revisions, "Revision", true)
	r.reads(q, observed.Complete)
	s.Unserve(apiserver.Revisions)
	r.reads(q, observed.NoSuchKind)
	s.Serve(apiserver.Revisions, "Revision", true)
	r.reads(q, observed.Complete)
}

func TestNoGoroutineIsLeftByKindsThatComeAndGo(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	s := apiserver.New(t)
	r := newRig(t, s)
	q, m := queries.New("Revision"), queries.New("Revision", queries.MetadataOnly, queries.Labelled("x=y"))
	r.SetInterests(owner("c"), interests(q))
	r.SetInterests(owner("d"), interests(m))
	var after5 int
	for i := range 40 {
		s.Install(apiserver.Revisions, "Revision", true)
		r.reads(q, observed.Complete)
		r.reads(m, observed.Complete)
		s.Uninstall(apiserver.Revisions)
		r.reads(q, observed.NoSuchKind)
		r.reads(m, observed.NoSuchKind)
		if i == 5 {
			after5 = runtime.NumGoroutine()
		}
	}
	until(t, "no more goroutines than after 5 cycles", func() bool { return runtime.NumGoroutine() <= after5+3 })
	r.stop()
	s.CloseClientConnections()
	s.Close()
	goleak.VerifyNone(t, ignore)
}

func TestForbiddenThenAllowed(t *testing.T) {
	s := apiserver.New(t)
	s.Deny(apiserver.Denial{Resource: "pods", Namespace: "*", Name: "*"})
	r := newRig(t, s)
	q, n := queries.New("Pod"), queries.New("Pod", queries.Named("p"))
	s.Put(apiserver.Pods, "a", "p", nil)
	r.wakes(owner("c"), "a refusal", func() { r.SetInterests(owner("c"), interests(q, n)) })
	r.reads(q, observed.Forbidden)
	if want, got := `the operator is not allowed to list and watch pods in namespace "a"`, r.Read(t.Context(), q).Detail; got != want {
		t.Errorf("detail is %q, want %q", got, want)
	}
	r.reads(n, observed.Forbidden)
	r.wakes(owner("c"), "a permission", func() { s.Deny() })
	r.reads(q, observed.Complete, "p")
	r.reads(n, observed.Complete, "p")
}

func TestScopeNarrowsAndWidens(t *testing.T) {
	s := apiserver.New(t)
	r := newWideRig(t, s)
	a, b, n := queries.New("Pod"), queries.New("Pod", queries.In("b")), queries.New("Pod", queries.In("b"), queries.Named("p"))
	s.Put(apiserver.Pods, "a", "p", nil)
	s.Put(apiserver.Pods, "b", "p", nil)
	s.Deny(apiserver.Denial{Resource: "pods"}, apiserver.Denial{Resource: "pods", Namespace: "b"}) // allowed: all of a, and named objects of b
	r.SetInterests(owner("c"), interests(a, b, n))
	r.reads(a, observed.Complete, "p")
	r.reads(b, observed.Forbidden)
	r.reads(n, observed.Complete, "p")
	r.wakes(owner("c"), "an object in scope", func() { s.Put(apiserver.Pods, "b", "p", map[string]string{"x": "y"}) })

	r.wakes(owner("c"), "a wider scope", func() { s.Deny() })
	r.reads(b, observed.Complete, "p")
	until(t, "one informer for all, and one for definitions", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return feedsOf(r.Engine).informers == 2
	})
	r.reads(a, observed.Complete, "p")
}

func TestRightsRevokedUnderAWatch(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Pod")
	s.Put(apiserver.Pods, "a", "p", nil)
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Complete, "p")
	s.Deny(apiserver.Denial{Resource: "pods", Namespace: "*", Name: "*"})
	r.wakes(owner("c"), "the refusal of the next watch", func() { s.Disconnect(apiserver.Pods, false) })
	r.reads(q, observed.Forbidden)
	r.wakes(owner("c"), "the permission", func() { s.Deny() })
	r.reads(q, observed.Complete, "p")
}

func TestClusterRightsRevokedNamespaceRightsLeft(t *testing.T) {
	s := apiserver.New(t)
	r := newWideRig(t, s)
	q := queries.New("Pod")
	s.Put(apiserver.Pods, "a", "p", nil)
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Complete, "p")
	s.Deny(apiserver.Denial{Resource: "pods", Name: ""})
	r.wakes(owner("c"), "the namespace's informer", func() { s.Disconnect(apiserver.Pods, false) })
	r.reads(q, observed.Complete, "p")
	r.wakes(owner("c"), "an event", func() { s.Put(apiserver.Pods, "a", "p2", nil) })
}

func TestOneBadKindDelaysNoOther(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	release := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	s.SetFault(func(_ http.ResponseWriter, _ string, gvr schema.GroupVersionResource, r *http.Request) bool {
		if gvr.Group != apiserver.Revisions.Group {
			return false
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return false
	})
	r := newRig(t, s)
	bad, good := queries.New("Revision"), queries.New("Pod")
	r.SetInterests(owner("c"), interests(bad, good))
	r.reads(good, observed.Complete)
	r.reads(bad, observed.Unsynced)
}

func TestBrokenKindFailsAndRecovers(t *testing.T) {
	s := apiserver.New(t)
	broken := func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if gvr == apiserver.Pods && verb != "review" {
			apiserver.Fail(w, http.StatusInternalServerError, "InternalError", nil)
			return true
		}
		return false
	}
	s.SetFault(broken)
	r := newRig(t, s)
	q := queries.New("Pod")
	r.wakes(owner("c"), "a failure", func() { r.SetInterests(owner("c"), interests(q)) })
	r.reads(q, observed.Failed)
	r.wakes(owner("c"), "the sync", func() { s.SetFault(nil) })
	r.reads(q, observed.Complete)
	s.SetFault(broken)
	s.Disconnect(apiserver.Pods, false)
	r.reads(q, observed.Failed)
	r.wakes(owner("c"), "the recovery", func() { s.SetFault(nil) })
	r.reads(q, observed.Complete)
}

func TestDiscoveryThatFailsIsNotAMissingKind(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if verb == "discover" && gvr.Group == apiserver.Revisions.Group {
			apiserver.Fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", nil)
			return true
		}
		return false
	})
	r := newRig(t, s)
	q := queries.New("Revision")
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Failed)
	s.SetFault(nil)
	r.reads(q, observed.Complete)
}

func TestNotFoundAgainstDiscoveryIsNotAMissingKind(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Pod")
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Complete)
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if gvr != apiserver.Pods || verb == "review" {
			return false
		}
		http.Error(w, "404 page not found", http.StatusNotFound)
		return true
	})
	s.Disconnect(apiserver.Pods, false)
	until(t, "it fails", func() bool {
		got := r.Read(t.Context(), q).State
		if got == observed.NoSuchKind {
			t.Fatal("a kind that discovery lists is said to be missing")
		}
		return got == observed.Failed
	})
	r.wakes(owner("c"), "the sync", func() { s.SetFault(nil) })
	r.reads(q, observed.Complete)
}

func TestWholeObjectsServeMetadataToo(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	m, full := queries.New("Pod", queries.MetadataOnly), queries.New("Pod")
	s.Put(apiserver.Pods, "a", "p", nil, map[string]any{"spec": map[string]any{"nodeName": "n"}})
	r.SetInterests(owner("m"), interests(m))
	r.reads(m, observed.Complete, "p")
	r.SetInterests(owner("f"), interests(full))
	r.reads(full, observed.Complete, "p")
	until(t, "one informer of pods, and one of definitions", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return feedsOf(r.Engine).informers == 2
	})
	r.reads(m, observed.Complete, "p")
	if v := r.Read(t.Context(), m).Objects[0].Value; v != nil {
		t.Errorf("metadata-only read has the value %v", v)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"nodeName": "n"},
		"metadata": map[string]any{"name": "p", "namespace": "a", "uid": "uid-p", "resourceVersion": "101"},
	}
	if diff := cmp.Diff(want, r.Read(t.Context(), full).Objects[0].Value); diff != "" {
		t.Errorf("value (-want +got):\n%s", diff)
	}
	r.DropInterests(owner("f"))
	r.wakes(owner("m"), "an event", func() { s.Put(apiserver.Pods, "a", "p2", nil) })
	r.reads(m, observed.Complete, "p", "p2")
}

func TestLastOwnerGone(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Pod")
	r.SetInterests(owner("c"), interests(q))
	r.SetInterests(owner("d"), interests(q, queries.New("Node", queries.Named("n"))))
	r.reads(q, observed.Complete)
	r.DropInterests(owner("c"))
	r.wakes(owner("d"), "an event", func() { s.Put(apiserver.Pods, "a", "p", nil) })
	r.SetInterests(owner("d"), nil)
	r.reads(q, observed.Unsynced)
	r.leaves()
}

// leaves waits until nothing is left but what watches definitions.
func (r *rig) leaves() {
	r.Helper()
	until(r.T, "one informer, no object, one kind, one resource, one owner", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return cmp.Equal([]int{1, 0, 1, 1, 1}, []int{feedsOf(r.Engine).informers, feedsOf(r.Engine).objects, len(r.catalog.kinds), len(r.catalog.resources), len(r.owners)})
	})
}

func TestWantIsIdempotent(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Pod", queries.Labelled("app=web"))
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Complete)
	until(t, "the sync", func() bool { return r.queue.count(owner("c")) == 1 })
	asked := s.Asked("watch pods")
	for range 10 {
		r.SetInterests(owner("c"), interests(queries.New("Pod", queries.Labelled("app=web"))))
		if got := r.Read(t.Context(), q); got.State != observed.Complete {
			t.Fatalf("state is %s", got.State)
		}
	}
	if got := s.Asked("watch pods"); got != asked {
		t.Errorf("%d watches, want %d", got, asked)
	}
	if got := r.queue.count(owner("c")); got != 1 {
		t.Errorf("woken %d times, want 1", got)
	}
}

func TestSpellingsShareAnInformer(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil)
	for _, kind := range []string{"Pod", "pod", "PODS", "pods"} {
		q := queries.New(kind)
		r.SetInterests(owner(kind), interests(q))
		r.reads(q, observed.Complete, "p")
	}
	if got := s.Asked("watch pods"); got != 1 {
		t.Errorf("%d watches, want 1", got)
	}
	if got := s.Asked("discover "); got != 2 { // v1, and that of definitions
		t.Errorf("%d discoveries, want 2", got)
	}
}

func TestReadIsOrderedAndClusterScopedKindsIgnoreNamespaces(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	for _, n := range []string{"c", "a", "b"} {
		s.Put(apiserver.Pods, "b", n, nil)
		s.Put(apiserver.Pods, "a", n, nil)
		s.Put(apiserver.Nodes, "", n, nil)
	}
	all, node := queries.New("Pod", queries.In("")), queries.New("Node")
	r.SetInterests(owner("c"), interests(all, node))
	r.reads(all, observed.Complete, "a", "b", "c", "a", "b", "c")
	r.reads(node, observed.Complete, "a", "b", "c")
	r.wakes(owner("c"), "a node", func() { s.Put(apiserver.Nodes, "", "d", nil) })
	got := r.Read(t.Context(), node)
	if got.Namespaced || got.Resource != apiserver.Nodes {
		t.Errorf("nodes are %v, namespaced %t", got.Resource, got.Namespaced)
	}
}

func TestUnknownFieldLabel(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	s.Put(apiserver.CRDs, "", "revisions.serving.example.com", nil, map[string]any{"spec": map[string]any{"versions": []any{
		map[string]any{"name": "v1", "selectableFields": []any{map[string]any{"jsonPath": ".spec.color"}}},
	}}})
	r := newRig(t, s)
	pod, bad := queries.New("Node", queries.Fielded("spec.colour=red")), queries.New("Revision", queries.Fielded("spec.colour=red"))
	good, plain := queries.New("Revision", queries.Fielded("spec.color=red")), queries.New("Revision")
	s.Put(apiserver.Revisions, "a", "red", nil, map[string]any{"spec": map[string]any{"color": "red"}})
	s.Put(apiserver.Revisions, "a", "blue", nil, map[string]any{"spec": map[string]any{"color": "blue"}})
	r.SetInterests(owner("c"), interests(plain))
	r.reads(plain, observed.Complete, "blue", "red")
	r.SetInterests(owner("d"), interests(pod, bad, good))
	r.reads(pod, observed.Failed)
	r.reads(bad, observed.Failed)
	r.reads(good, observed.Complete, "red")
	want := []string{
		`nodes cannot be selected by field "spec.colour": they have metadata.name, spec.unschedulable`,
		`revisions.serving.example.com cannot be selected by field "spec.colour": they have metadata.name, metadata.namespace, spec.color`,
	}
	got := []string{r.Read(t.Context(), pod).Detail, r.Read(t.Context(), bad).Detail}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
}

func TestStartReturnsWhileTheServerHangs(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	s := apiserver.New(t)
	hung := make(chan struct{}, 10)
	s.SetFault(func(_ http.ResponseWriter, _ string, gvr schema.GroupVersionResource, r *http.Request) bool {
		if gvr != apiserver.Pods {
			return false
		}
		hung <- struct{}{}
		<-r.Context().Done()
		return true
	})
	r := newRig(t, s)
	r.SetInterests(owner("c"), interests(queries.New("Pod")))
	<-hung
	r.stop()
	r.SetInterests(owner("d"), interests(queries.New("Node"))) // too late: starts nothing
	r.DropInterests(owner("c"))
	s.CloseClientConnections()
	s.Close()
	goleak.VerifyNone(t, ignore)
}

func TestManyOwnersComeAndGoAtOnce(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			o := owner(fmt.Sprint(g))
			for i := range 50 {
				q := queries.New("Pod", queries.Labelled(fmt.Sprintf("n=%d", i%3)))
				r.SetInterests(o, interests(q, queries.New("Revision"), queries.New("Node", queries.MetadataOnly)))
				r.Read(t.Context(), q)
				if i%7 == 0 {
					r.DropInterests(o)
				}
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			s.Install(apiserver.Revisions, "Revision", true)
			s.Put(apiserver.Pods, "a", "p", map[string]string{"n": "1"})
			s.Uninstall(apiserver.Revisions)
		}
	})
	wg.Wait()
	q := queries.New("Pod", queries.Labelled("n=1"))
	r.SetInterests(owner("last"), interests(q))
	r.reads(q, observed.Complete, "p")
	for g := range 8 {
		r.DropInterests(owner(fmt.Sprint(g)))
	}
	r.DropInterests(owner("last"))
	r.leaves()
}

// explosive panics where a request of this path is sent, while it is armed.
type explosive struct {
	http.RoundTripper
	armed *atomic.Bool
	path  string
}

func (e explosive) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.armed.Load() && r.URL.Path == e.path {
		panic("made up")
	}
	return e.RoundTripper.RoundTrip(r)
}

// TestAPanicIsTheTroubleOfOneKind shows that a panic in any goroutine of the watches makes a target Failed, as a request
// does that fails, and is over when its cause is.
func TestAPanicIsTheTroubleOfOneKind(t *testing.T) {
	for name, path := range map[string]string{
		"Discovery": "/apis/serving.example.com/v1",
		"List":      "/apis/serving.example.com/v1/namespaces/a/revisions",
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			s.Put(apiserver.Pods, "a", "web", nil)
			s.Install(apiserver.Revisions, "Revision", true)
			s.Put(apiserver.Revisions, "a", "one", nil)
			armed := &atomic.Bool{}
			armed.Store(true)
			config := s.Config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return explosive{next, armed, path} })
			e, err := New(Options{Config: config, Clock: clock.RealClock{}, RetryEvery: retry})
			if err != nil {
				t.Fatal(err)
			}
			r := startRig(t, e, s)
			r.SetInterests(owner("o"), interests(queries.New("Pod"), queries.New("Revision")))
			r.reads(queries.New("Pod"), observed.Complete, "web")
			until(t, "the panic is told", func() bool {
				got := r.Read(t.Context(), queries.New("Revision"))
				return got.State == observed.Failed && strings.Contains(got.Detail, "panic: made up")
			})
			armed.Store(false)
			r.reads(queries.New("Revision"), observed.Complete, "one")
		})
	}
	t.Run("Reviews", func(t *testing.T) {
		s := apiserver.New(t)
		s.Put(apiserver.Pods, "a", "web", nil)
		armed := &atomic.Bool{}
		armed.Store(true)
		config := s.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return explosive{next, armed, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}
		})
		e, err := New(Options{Config: config, Clock: clock.RealClock{}, RetryEvery: retry})
		if err != nil {
			t.Fatal(err)
		}
		r := startRig(t, e, s)
		r.SetInterests(owner("o"), interests(queries.New("Pod")))
		until(t, "the panic is told", func() bool {
			return strings.Contains(r.Read(t.Context(), queries.New("Pod")).Detail, "panic: made up")
		})
		armed.Store(false)
		r.reads(queries.New("Pod"), observed.Complete, "web")
	})
}

// TestWhatIsLaunchedIsRunAgainAfterAPanic shows that nothing of an Engine stays away for good.
func TestWhatIsLaunchedIsRunAgainAfterAPanic(t *testing.T) {
	r := newRig(t, apiserver.New(t))
	runs := make(chan int, 2)
	n := 0
	until(t, "it runs", func() bool { // launch does nothing before
		r.mu.Lock()
		defer r.unlockAndWake()
		if r.ctx == nil {
			return false
		}
		r.runInBackground(func(context.Context) {
			n++
			runs <- n
			if n == 1 {
				panic("made up")
			}
		})
		return true
	})
	if first, second := <-runs, <-runs; first != 1 || second != 2 {
		t.Errorf("it ran as number %d and %d", first, second)
	}
}

// until waits for something that other goroutines bring about.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		case <-tick():
		}
	}
}
