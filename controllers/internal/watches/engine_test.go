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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	deadline = 60 * time.Second
	retry    = 200 * time.Millisecond
)

func tick() <-chan time.Time { return time.After(2 * time.Millisecond) }

// rig is an Engine that runs against an apiServer.
type rig struct {
	*testing.T
	*Engine
	server *apiServer
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

func newRig(t *testing.T, s *apiServer) *rig {
	t.Helper()
	e, err := New(Options{Config: s.config(), Clock: clock.RealClock{}, RetryEvery: retry})
	if err != nil {
		t.Fatal(err)
	}
	return startRig(t, e, s)
}

func startRig(t *testing.T, e *Engine, s *apiServer) *rig {
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

func query(kind string, change ...func(*snapshot.Query)) snapshot.Query {
	q := snapshot.Query{Version: "v1", Kind: kind, Namespace: "a", Labels: labels.Everything(), Fields: fields.Everything()}
	if kind == "Revision" {
		q.Group = revisions.Group
	}
	for _, c := range change {
		c(&q)
	}
	return q
}

func named(name string) func(*snapshot.Query) { return func(q *snapshot.Query) { q.Name = name } }

func in(namespace string) func(*snapshot.Query) {
	return func(q *snapshot.Query) { q.Namespace = namespace }
}

func metadataOnly(q *snapshot.Query) { q.MetadataOnly = true }

func labelled(s string) func(*snapshot.Query) {
	return func(q *snapshot.Query) {
		l, err := labels.Parse(s)
		if err != nil {
			panic(err)
		}
		q.Labels = l
	}
}

func fielded(s string) func(*snapshot.Query) {
	return func(q *snapshot.Query) { q.Fields = fields.ParseSelectorOrDie(s) }
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
func (r *rig) reads(q snapshot.Query, state plan.TargetState, names ...string) {
	r.Helper()
	var last plan.Target
	defer func() {
		if r.Failed() {
			r.Logf("the last answer was %s %q with %v", last.State, last.Detail, namesOf(last))
		}
	}()
	until(r.T, fmt.Sprintf("%s is %s %v", q.Kind, state, names), func() bool {
		last = r.Read(r.Context(), q)
		return last.State == state && cmp.Equal(names, namesOf(last))
	})
}

func namesOf(t plan.Target) []string {
	var names []string
	for _, o := range t.Objects {
		names = append(names, o.Name)
	}
	return names
}

// wakes does something, and waits until it has woken the owner.
func (r *rig) wakes(o Owner, what string, do func()) {
	r.Helper()
	before := r.queue.count(o)
	do()
	until(r.T, what+" wakes "+o.Name, func() bool { return r.queue.count(o) > before })
}

func TestObjectStartsToMatchLater(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Pod", labelled("app=web"))
	s.put(pods, "a", "p", map[string]string{"app": "db"})
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(q)) })
	r.reads(q, plan.Complete)

	r.wakes(owner("c"), "a match", func() { s.put(pods, "a", "p", map[string]string{"app": "web"}) })
	r.reads(q, plan.Complete, "p")
	r.wakes(owner("c"), "a label that leaves", func() { s.put(pods, "a", "p", map[string]string{"app": "db"}) })
	r.reads(q, plan.Complete)
	r.wakes(owner("c"), "a match", func() { s.put(pods, "a", "p", map[string]string{"app": "web"}) })
	r.wakes(owner("c"), "a deletion", func() { s.remove(pods, "a", "p") })
	r.reads(q, plan.Complete)
}

func TestInitialSyncWakesOnce(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	for i := range 50 {
		s.put(pods, "a", fmt.Sprintf("p%d", i), nil)
	}
	q := query("Pod")
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(q)) })
	r.wakes(owner("c"), "an event", func() { s.put(pods, "a", "last", nil) })
	if got := r.queue.count(owner("c")); got != 2 {
		t.Errorf("woken %d times, want once for 50 objects and once for the event", got)
	}
}

func TestOnlyWhoWantsItWakes(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	all := map[string][]Interest{
		"named":     interests(query("Pod", named("p"))),
		"selector":  interests(query("Pod", labelled("app in (web,api)"))),
		"exists":    interests(query("Pod", labelled("app"))),
		"negative":  interests(query("Pod", labelled("app!=db"))),
		"field":     interests(query("Pod", fielded("status.phase=Running"))),
		"metadata":  interests(query("Pod", labelled("app=web"), metadataOnly)),
		"elsewhere": interests(query("Pod", labelled("app=web"), in("b"))),
		"other":     interests(query("Pod", named("q"))),
		"db":        interests(query("Pod", labelled("app=db"))),
		"quiet":     {{Query: query("Pod", labelled("app=web")), Quiet: true}},
	}
	r.wakes(owner("first"), "the sync", func() { r.SetInterests(owner("first"), interests(query("Pod", in("b")))) })
	for name, i := range all { // none of them is woken by this: it can read at once
		r.SetInterests(owner(name), i)
	}
	s.put(pods, "a", "p", map[string]string{"app": "web"}, map[string]any{"status": map[string]any{"phase": "Running"}})
	r.reads(query("Pod", named("p")), plan.Complete, "p")
	s.put(pods, "a", "x", nil) // arrives after it, and concerns one of them
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
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Pod", labelled("app=web"))
	web := map[string]string{"app": "web"}
	s.put(pods, "a", "goes", web)
	s.put(pods, "a", "stays", web)
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(q)) })
	s.setFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if gvr == pods && verb != "review" {
			http.Error(w, "down", http.StatusInternalServerError)
			return true
		}
		return false
	})
	s.disconnect(pods, false)
	s.remove(pods, "a", "goes")
	s.disconnect(pods, true) // the deletion is forgotten: only a list can tell
	r.wakes(owner("c"), "the relist", func() { s.setFault(nil) })
	r.reads(q, plan.Complete, "stays")
}

func TestExpiredWatchRelists(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Pod")
	s.put(pods, "a", "goes", nil)
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, plan.Complete, "goes")
	s.mu.Lock()
	k := s.served[pods]
	delete(k.objects, scopeKey{"a", "goes"})
	s.mu.Unlock()
	r.wakes(owner("c"), "a deletion that nobody reported", func() { s.disconnect(pods, true) })
	r.reads(q, plan.Complete)
}

func TestKindInstalledLaterDeletedAndRecreated(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Revision")
	r.wakes(owner("c"), "a missing kind", func() { r.SetInterests(owner("c"), interests(q)) })
	r.reads(q, plan.NoSuchKind)
	for range 3 {
		r.wakes(owner("c"), "the kind", func() { s.install(revisions, "Revision", true) })
		r.reads(q, plan.Complete)
		r.wakes(owner("c"), "an object", func() { s.put(revisions, "a", "r", nil) })
		r.reads(q, plan.Complete, "r")
		r.wakes(owner("c"), "the end of the kind", func() { s.uninstall(revisions) })
		r.reads(q, plan.NoSuchKind)
	}
}

func TestKindIsNoticedWithoutDefinitions(t *testing.T) {
	s := newAPIServer(t)
	s.deny(denial{resource: "customresourcedefinitions", namespace: "*", name: "*"})
	r := newRig(t, s)
	q := query("Revision")
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, plan.NoSuchKind)
	s.serve(revisions, "Revision", true)
	r.reads(q, plan.Complete)
	s.unserve(revisions)
	r.reads(q, plan.NoSuchKind)
	s.serve(revisions, "Revision", true)
	r.reads(q, plan.Complete)
}

func TestNoGoroutineIsLeftByKindsThatComeAndGo(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	s := newAPIServer(t)
	r := newRig(t, s)
	q, m := query("Revision"), query("Revision", metadataOnly, labelled("x=y"))
	r.SetInterests(owner("c"), interests(q))
	r.SetInterests(owner("d"), interests(m))
	var after5 int
	for i := range 40 {
		s.install(revisions, "Revision", true)
		r.reads(q, plan.Complete)
		r.reads(m, plan.Complete)
		s.uninstall(revisions)
		r.reads(q, plan.NoSuchKind)
		r.reads(m, plan.NoSuchKind)
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
	s := newAPIServer(t)
	s.deny(denial{resource: "pods", namespace: "*", name: "*"})
	r := newRig(t, s)
	q, n := query("Pod"), query("Pod", named("p"))
	s.put(pods, "a", "p", nil)
	r.wakes(owner("c"), "a refusal", func() { r.SetInterests(owner("c"), interests(q, n)) })
	r.reads(q, plan.Forbidden)
	if want, got := `the operator may not list and watch pods in namespace "a"`, r.Read(t.Context(), q).Detail; got != want {
		t.Errorf("detail is %q, want %q", got, want)
	}
	r.reads(n, plan.Forbidden)
	r.wakes(owner("c"), "a permission", func() { s.deny() })
	r.reads(q, plan.Complete, "p")
	r.reads(n, plan.Complete, "p")
}

func TestScopeNarrowsAndWidens(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	a, b, n := query("Pod"), query("Pod", in("b")), query("Pod", in("b"), named("p"))
	s.put(pods, "a", "p", nil)
	s.put(pods, "b", "p", nil)
	s.deny(denial{resource: "pods"}, denial{resource: "pods", namespace: "b"}) // allowed: all of a, and named objects of b
	r.SetInterests(owner("c"), interests(a, b, n))
	r.reads(a, plan.Complete, "p")
	r.reads(b, plan.Forbidden)
	r.reads(n, plan.Complete, "p")
	r.wakes(owner("c"), "an object in scope", func() { s.put(pods, "b", "p", map[string]string{"x": "y"}) })

	r.wakes(owner("c"), "a wider scope", func() { s.deny() })
	r.reads(b, plan.Complete, "p")
	until(t, "one informer for all, and one for definitions", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return r.informers == 2
	})
	r.reads(a, plan.Complete, "p")
}

func TestRightsRevokedUnderAWatch(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Pod")
	s.put(pods, "a", "p", nil)
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, plan.Complete, "p")
	s.deny(denial{resource: "pods", namespace: "*", name: "*"})
	r.wakes(owner("c"), "the refusal of the next watch", func() { s.disconnect(pods, false) })
	r.reads(q, plan.Forbidden)
	r.wakes(owner("c"), "the permission", func() { s.deny() })
	r.reads(q, plan.Complete, "p")
}

func TestClusterRightsRevokedNamespaceRightsLeft(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Pod")
	s.put(pods, "a", "p", nil)
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, plan.Complete, "p")
	s.deny(denial{resource: "pods", name: ""})
	r.wakes(owner("c"), "the namespace's informer", func() { s.disconnect(pods, false) })
	r.reads(q, plan.Complete, "p")
	r.wakes(owner("c"), "an event", func() { s.put(pods, "a", "p2", nil) })
}

func TestOneBadKindDelaysNoOther(t *testing.T) {
	s := newAPIServer(t)
	s.install(revisions, "Revision", true)
	release := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	s.setFault(func(_ http.ResponseWriter, _ string, gvr schema.GroupVersionResource, r *http.Request) bool {
		if gvr.Group != revisions.Group {
			return false
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return false
	})
	r := newRig(t, s)
	bad, good := query("Revision"), query("Pod")
	r.SetInterests(owner("c"), interests(bad, good))
	r.reads(good, plan.Complete)
	r.reads(bad, plan.Unsynced)
}

func TestBrokenKindFailsAndRecovers(t *testing.T) {
	s := newAPIServer(t)
	broken := func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if gvr == pods && verb != "review" {
			fail(w, http.StatusInternalServerError, "InternalError", nil)
			return true
		}
		return false
	}
	s.setFault(broken)
	r := newRig(t, s)
	q := query("Pod")
	r.wakes(owner("c"), "a failure", func() { r.SetInterests(owner("c"), interests(q)) })
	r.reads(q, plan.Failed)
	r.wakes(owner("c"), "the sync", func() { s.setFault(nil) })
	r.reads(q, plan.Complete)
	s.setFault(broken)
	s.disconnect(pods, false)
	r.reads(q, plan.Failed)
	r.wakes(owner("c"), "the recovery", func() { s.setFault(nil) })
	r.reads(q, plan.Complete)
}

func TestDiscoveryThatFailsIsNotAMissingKind(t *testing.T) {
	s := newAPIServer(t)
	s.install(revisions, "Revision", true)
	s.setFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if verb == "discover" && gvr.Group == revisions.Group {
			fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", nil)
			return true
		}
		return false
	})
	r := newRig(t, s)
	q := query("Revision")
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, plan.Failed)
	s.setFault(nil)
	r.reads(q, plan.Complete)
}

func TestNotFoundAgainstDiscoveryIsNotAMissingKind(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Pod")
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, plan.Complete)
	s.setFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if gvr != pods || verb == "review" {
			return false
		}
		http.Error(w, "404 page not found", http.StatusNotFound)
		return true
	})
	s.disconnect(pods, false)
	until(t, "it fails", func() bool {
		got := r.Read(t.Context(), q).State
		if got == plan.NoSuchKind {
			t.Fatal("a kind that discovery lists is said to be missing")
		}
		return got == plan.Failed
	})
	r.wakes(owner("c"), "the sync", func() { s.setFault(nil) })
	r.reads(q, plan.Complete)
}

func TestWholeObjectsServeMetadataToo(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	m, full := query("Pod", metadataOnly), query("Pod")
	s.put(pods, "a", "p", nil, map[string]any{"spec": map[string]any{"nodeName": "n"}})
	r.SetInterests(owner("m"), interests(m))
	r.reads(m, plan.Complete, "p")
	r.SetInterests(owner("f"), interests(full))
	r.reads(full, plan.Complete, "p")
	until(t, "one informer of pods, and one of definitions", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return r.informers == 2
	})
	r.reads(m, plan.Complete, "p")
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
	r.wakes(owner("m"), "an event", func() { s.put(pods, "a", "p2", nil) })
	r.reads(m, plan.Complete, "p", "p2")
}

func TestLastOwnerGone(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Pod")
	r.SetInterests(owner("c"), interests(q))
	r.SetInterests(owner("d"), interests(q, query("Node", named("n"))))
	r.reads(q, plan.Complete)
	r.DropInterests(owner("c"))
	r.wakes(owner("d"), "an event", func() { s.put(pods, "a", "p", nil) })
	r.SetInterests(owner("d"), nil)
	r.reads(q, plan.Unsynced)
	r.leaves()
}

// leaves waits until nothing is left but what watches definitions.
func (r *rig) leaves() {
	r.Helper()
	until(r.T, "one informer, no object, one kind, one resource, one owner", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return cmp.Equal([]int{1, 0, 1, 1, 1}, []int{r.informers, r.objects, len(r.kinds), len(r.resources), len(r.owners)})
	})
}

func TestWantIsIdempotent(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	q := query("Pod", labelled("app=web"))
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, plan.Complete)
	until(t, "the sync", func() bool { return r.queue.count(owner("c")) == 1 })
	asked := s.asked("watch pods")
	for range 10 {
		r.SetInterests(owner("c"), interests(query("Pod", labelled("app=web"))))
		if got := r.Read(t.Context(), q); got.State != plan.Complete {
			t.Fatalf("state is %s", got.State)
		}
	}
	if got := s.asked("watch pods"); got != asked {
		t.Errorf("%d watches, want %d", got, asked)
	}
	if got := r.queue.count(owner("c")); got != 1 {
		t.Errorf("woken %d times, want 1", got)
	}
}

func TestSpellingsShareAnInformer(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	s.put(pods, "a", "p", nil)
	for _, kind := range []string{"Pod", "pod", "PODS", "pods"} {
		q := query(kind)
		r.SetInterests(owner(kind), interests(q))
		r.reads(q, plan.Complete, "p")
	}
	if got := s.asked("watch pods"); got != 1 {
		t.Errorf("%d watches, want 1", got)
	}
	if got := s.asked("discover "); got != 2 { // v1, and that of definitions
		t.Errorf("%d discoveries, want 2", got)
	}
}

func TestReadIsOrderedAndClusterScopedKindsIgnoreNamespaces(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	for _, n := range []string{"c", "a", "b"} {
		s.put(pods, "b", n, nil)
		s.put(pods, "a", n, nil)
		s.put(nodes, "", n, nil)
	}
	all, node := query("Pod", in("")), query("Node")
	r.SetInterests(owner("c"), interests(all, node))
	r.reads(all, plan.Complete, "a", "b", "c", "a", "b", "c")
	r.reads(node, plan.Complete, "a", "b", "c")
	r.wakes(owner("c"), "a node", func() { s.put(nodes, "", "d", nil) })
	got := r.Read(t.Context(), node)
	if got.Namespaced || got.Resource != nodes {
		t.Errorf("nodes are %v, namespaced %t", got.Resource, got.Namespaced)
	}
}

func TestUnknownFieldLabel(t *testing.T) {
	s := newAPIServer(t)
	s.install(revisions, "Revision", true)
	s.put(crds, "", "revisions.serving.example.com", nil, map[string]any{"spec": map[string]any{"versions": []any{
		map[string]any{"name": "v1", "selectableFields": []any{map[string]any{"jsonPath": ".spec.color"}}},
	}}})
	r := newRig(t, s)
	pod, bad := query("Node", fielded("spec.colour=red")), query("Revision", fielded("spec.colour=red"))
	good, plain := query("Revision", fielded("spec.color=red")), query("Revision")
	s.put(revisions, "a", "red", nil, map[string]any{"spec": map[string]any{"color": "red"}})
	s.put(revisions, "a", "blue", nil, map[string]any{"spec": map[string]any{"color": "blue"}})
	r.SetInterests(owner("c"), interests(plain))
	r.reads(plain, plan.Complete, "blue", "red")
	r.SetInterests(owner("d"), interests(pod, bad, good))
	r.reads(pod, plan.Failed)
	r.reads(bad, plan.Failed)
	r.reads(good, plan.Complete, "red")
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
	s := newAPIServer(t)
	hung := make(chan struct{}, 10)
	s.setFault(func(_ http.ResponseWriter, _ string, gvr schema.GroupVersionResource, r *http.Request) bool {
		if gvr != pods {
			return false
		}
		hung <- struct{}{}
		<-r.Context().Done()
		return true
	})
	r := newRig(t, s)
	r.SetInterests(owner("c"), interests(query("Pod")))
	<-hung
	r.stop()
	r.SetInterests(owner("d"), interests(query("Node"))) // too late: starts nothing
	r.DropInterests(owner("c"))
	s.CloseClientConnections()
	s.Close()
	goleak.VerifyNone(t, ignore)
}

func TestManyOwnersComeAndGoAtOnce(t *testing.T) {
	s := newAPIServer(t)
	r := newRig(t, s)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			o := owner(fmt.Sprint(g))
			for i := range 50 {
				q := query("Pod", labelled(fmt.Sprintf("n=%d", i%3)))
				r.SetInterests(o, interests(q, query("Revision"), query("Node", metadataOnly)))
				r.Read(t.Context(), q)
				if i%7 == 0 {
					r.DropInterests(o)
				}
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			s.install(revisions, "Revision", true)
			s.put(pods, "a", "p", map[string]string{"n": "1"})
			s.uninstall(revisions)
		}
	})
	wg.Wait()
	q := query("Pod", labelled("n=1"))
	r.SetInterests(owner("last"), interests(q))
	r.reads(q, plan.Complete, "p")
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
		"List":      "/apis/serving.example.com/v1/revisions",
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			s.put(pods, "a", "web", nil)
			s.install(revisions, "Revision", true)
			s.put(revisions, "a", "one", nil)
			armed := &atomic.Bool{}
			armed.Store(true)
			config := s.config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return explosive{next, armed, path} })
			e, err := New(Options{Config: config, Clock: clock.RealClock{}, RetryEvery: retry})
			if err != nil {
				t.Fatal(err)
			}
			r := startRig(t, e, s)
			r.SetInterests(owner("o"), interests(query("Pod"), query("Revision")))
			r.reads(query("Pod"), plan.Complete, "web")
			until(t, "the panic is told", func() bool {
				got := r.Read(t.Context(), query("Revision"))
				return got.State == plan.Failed && strings.Contains(got.Detail, "panic: made up")
			})
			armed.Store(false)
			r.reads(query("Revision"), plan.Complete, "one")
		})
	}
	t.Run("Reviews", func(t *testing.T) {
		s := newAPIServer(t)
		s.put(pods, "a", "web", nil)
		armed := &atomic.Bool{}
		armed.Store(true)
		config := s.config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return explosive{next, armed, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}
		})
		e, err := New(Options{Config: config, Clock: clock.RealClock{}, RetryEvery: retry})
		if err != nil {
			t.Fatal(err)
		}
		r := startRig(t, e, s)
		r.SetInterests(owner("o"), interests(query("Pod")))
		until(t, "the panic is told", func() bool { return strings.Contains(r.Read(t.Context(), query("Pod")).Detail, "panic: made up") })
		armed.Store(false)
		r.reads(query("Pod"), plan.Complete, "web")
	})
}

// TestWhatIsLaunchedIsRunAgainAfterAPanic shows that nothing of an Engine stays away for good.
func TestWhatIsLaunchedIsRunAgainAfterAPanic(t *testing.T) {
	r := newRig(t, newAPIServer(t))
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
