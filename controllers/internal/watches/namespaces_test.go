// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// platform is a ClusterCleaner.
var platform = Owner{Name: "platform"}

// finds waits until a query is Complete with these objects.
func (r *rig) finds(q snapshot.Query, places ...string) {
	r.Helper()
	var last observed.Target
	defer func() {
		if r.Failed() {
			r.Logf("the last answer was %s %q with %v", last.State, last.Detail, queries.PlacesOf(last))
		}
	}()
	until(r.T, fmt.Sprintf("%s are %v", q.Kind, places), func() bool {
		last = r.Read(r.Context(), q)
		return last.State == observed.Complete && cmp.Equal(places, queries.PlacesOf(last))
	})
}

// says waits until a query has a state and a detail.
func (r *rig) says(q snapshot.Query, state observed.TargetState, detail string) {
	r.Helper()
	r.reads(q, state)
	if got := r.Read(r.Context(), q).Detail; got != detail {
		r.Errorf("detail is %q, want %q", got, detail)
	}
}

// informersNow waits until so many informers run besides that of definitions.
func (r *rig) informersNow(n int) {
	r.Helper()
	until(r.T, fmt.Sprintf("%d informers", n), func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return feedsOf(r.Engine).informers == n+1
	})
}

func TestNamedNamespacesOfOneInformer(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	for _, namespace := range []string{"d", "c", "b", "a"} {
		s.Put(apiserver.Pods, namespace, "q", nil)
		s.Put(apiserver.Pods, namespace, "p", map[string]string{"app": "web"})
	}
	both, web, others, none := queries.New("Pod", queries.Among("a", "c")), queries.New("Pod", queries.Among("a", "c"), queries.Labelled("app=web")), queries.New("Pod", queries.Except("a", "c")), queries.New("Pod", queries.Among())
	r.SetInterests(platform, interests(both, web, others, none))
	r.finds(both, "a/p", "a/q", "c/p", "c/q")
	r.finds(web, "a/p", "c/p")
	r.finds(others, "b/p", "b/q", "d/p", "d/q")
	r.finds(none)
	r.informersNow(1)

	r.SetInterests(platform, interests(both))
	r.SetInterests(owner("c"), interests(queries.New("Pod", queries.In("b"))))
	r.wakes(platform, "an object of a namespace that is named", func() { s.Put(apiserver.Pods, "c", "new", nil) })
	r.finds(both, "a/p", "a/q", "c/new", "c/p", "c/q")
	before := r.queue.count(platform)
	r.wakes(owner("c"), "an object of another", func() { s.Put(apiserver.Pods, "b", "new", nil) })
	if got := r.queue.count(platform); got != before {
		t.Error("an object of a namespace that is not named wakes")
	}
	if got := r.queue.count(Owner{}); got != 0 {
		t.Error("the Engine woke itself")
	}
}

func TestNamedNamespacesWithoutTheCluster(t *testing.T) {
	s := apiserver.New(t)
	r := newWideRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil)
	s.Put(apiserver.Pods, "b", "p", nil)
	s.Put(apiserver.Pods, "c", "p", nil)
	s.Deny(apiserver.Denial{Resource: "pods"}, apiserver.Denial{Resource: "pods", Namespace: "b"})
	q := queries.New("Pod", queries.Among("a", "b", "c"))
	r.wakes(platform, "a refusal", func() { r.SetInterests(platform, interests(q)) })
	r.says(q, observed.Forbidden, `the operator is not allowed to list and watch pods in namespace "b"`)
	r.SetInterests(owner("c"), interests(queries.New("Pod"))) // a Cleaner shares the informer of its namespace
	r.reads(queries.New("Pod"), observed.Complete, "p")
	r.informersNow(2)

	r.wakes(platform, "the last namespace", func() { s.Deny(apiserver.Denial{Resource: "pods"}) })
	r.finds(q, "a/p", "b/p", "c/p")
	r.informersNow(3)
	r.wakes(platform, "an object", func() { s.Put(apiserver.Pods, "b", "p2", nil) })
	r.finds(q, "a/p", "b/p", "b/p2", "c/p")

	r.wakes(platform, "the whole cluster", func() { s.Deny() })
	r.finds(q, "a/p", "b/p", "b/p2", "c/p")
	r.informersNow(1)
	s.Deny(apiserver.Denial{Resource: "pods"}, apiserver.Denial{Resource: "pods", Namespace: "c"})
	r.wakes(platform, "rights that were taken", func() { s.Disconnect(apiserver.Pods, false) })
	r.says(q, observed.Forbidden, `the operator is not allowed to list and watch pods in namespace "c"`)
	r.DropInterests(platform)
	r.DropInterests(owner("c"))
	r.leaves()
}

// One namespace that is not read yet holds the whole target up: what is missing there would look like nothing.
func TestNamedNamespacesAreCompleteTogether(t *testing.T) {
	s := apiserver.New(t)
	s.Deny(apiserver.Denial{Resource: "pods"})
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, q *http.Request) bool {
		if gvr == apiserver.Pods && verb != "review" && q.URL.Path == "/api/v1/namespaces/b/pods" {
			select {
			case <-release:
			case <-q.Context().Done():
			}
		}
		return false
	})
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil)
	both, one := queries.New("Pod", queries.Among("a", "b")), queries.New("Pod")
	r.SetInterests(platform, interests(both))
	r.SetInterests(owner("c"), interests(one))
	r.finds(one, "a/p")
	r.reads(both, observed.Unsynced)
	r.wakes(platform, "the other namespace", free)
	r.finds(both, "a/p")
}

// What happened while the watch of the whole cluster gave way to those of namespaces is told when the last of them is there.
func TestTheLastNamespaceWakes(t *testing.T) {
	s := apiserver.New(t)
	r := newWideRig(t, s)
	both, one := queries.New("Pod", queries.Among("a", "b")), queries.New("Pod")
	r.SetInterests(platform, interests(both))
	r.SetInterests(owner("c"), interests(one))
	r.finds(both)
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, q *http.Request) bool {
		if gvr == apiserver.Pods && verb != "review" && q.URL.Path == "/api/v1/namespaces/b/pods" {
			select {
			case <-release:
			case <-q.Context().Done():
			}
		}
		return false
	})
	s.Deny(apiserver.Denial{Resource: "pods"})
	s.Disconnect(apiserver.Pods, false)
	r.reads(both, observed.Unsynced)
	s.Put(apiserver.Pods, "b", "p", nil)
	r.reads(one, observed.Complete)
	r.wakes(platform, "the other namespace", free)
	r.finds(both, "b/p")
}

func TestNamespaceSelector(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	for _, name := range []string{"a", "b", "c"} {
		s.Put(apiserver.Namespaces, "", name, queries.Tier("prod"))
		s.Put(apiserver.Pods, name, "p", map[string]string{"app": "web"})
	}
	s.Put(apiserver.Namespaces, "", "a", queries.Tier("dev"))
	dev := queries.New("Pod", queries.ChosenBy("tier=dev"))
	devWeb := queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Labelled("app=web"))
	devNotA := queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Except("a"))
	devB := queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Among("b"))
	r.SetInterests(platform, interests(dev, devWeb, devNotA, devB))
	r.finds(dev, "a/p")
	r.finds(devWeb, "a/p")
	r.finds(devNotA)
	r.finds(devB)
	r.informersNow(2) // of Pods, and of Namespaces

	r.SetInterests(platform, interests(dev))
	r.wakes(platform, "a namespace that begins to match", func() { s.Put(apiserver.Namespaces, "", "b", queries.Tier("dev")) })
	r.finds(dev, "a/p", "b/p")
	r.wakes(platform, "a namespace that ceases to match", func() { s.Put(apiserver.Namespaces, "", "a", queries.Tier("prod")) })
	r.finds(dev, "b/p")
	r.wakes(platform, "a new namespace", func() { s.Put(apiserver.Namespaces, "", "d", queries.Tier("dev")) })
	r.wakes(platform, "an object there", func() { s.Put(apiserver.Pods, "d", "p", nil) })
	r.finds(dev, "b/p", "d/p")
	s.Remove(apiserver.Pods, "d", "p")
	r.finds(dev, "b/p")
	r.wakes(platform, "the end of a namespace", func() { s.Remove(apiserver.Namespaces, "", "d") })

	r.SetInterests(owner("c"), interests(queries.New("Pod", queries.In("c")), queries.New("Namespace", queries.Named("b"), queries.MetadataOnly)))
	r.reads(queries.New("Pod", queries.In("c")), observed.Complete, "p")
	before := r.queue.count(platform)
	r.wakes(owner("c"), "an object of a namespace that does not match", func() { s.Put(apiserver.Pods, "c", "q", nil) })
	r.wakes(owner("c"), "another version of a namespace that goes on matching", func() { s.Put(apiserver.Namespaces, "", "b", map[string]string{"tier": "dev", "x": "y"}) })
	if got := r.queue.count(platform); got != before {
		t.Errorf("woken %d times by what concerns others", got-before)
	}
	r.DropInterests(owner("c"))
	r.DropInterests(platform)
	r.leaves()
}

func TestNamespaceSelectorNeedsNamespaces(t *testing.T) {
	dev := queries.New("Pod", queries.ChosenBy("tier=dev"))
	t.Run("Forbidden", func(t *testing.T) {
		s := apiserver.New(t)
		r := newRig(t, s)
		s.Put(apiserver.Namespaces, "", "a", queries.Tier("dev"))
		s.Put(apiserver.Pods, "a", "p", nil)
		s.Deny(apiserver.Denial{Resource: "namespaces", Namespace: "*", Name: "*"})
		r.wakes(platform, "the refusal", func() { r.SetInterests(platform, interests(dev)) })
		r.says(dev, observed.Forbidden, "the operator is not allowed to list and watch namespaces (cluster-scoped)")
		for range 2 {
			r.wakes(platform, "the permission", func() { s.Deny() })
			r.finds(dev, "a/p")
			s.Deny(apiserver.Denial{Resource: "namespaces", Namespace: "*", Name: "*"})
			r.wakes(platform, "the refusal", func() { s.Disconnect(apiserver.Namespaces, false) })
			r.reads(dev, observed.Forbidden)
		}
	})
	t.Run("OneNamespaceIsNotEnough", func(t *testing.T) {
		s := apiserver.New(t)
		r := newRig(t, s)
		s.Put(apiserver.Namespaces, "", "a", queries.Tier("dev"))
		s.Deny(apiserver.Denial{Resource: "pods"})
		r.wakes(platform, "the refusal", func() { r.SetInterests(platform, interests(dev)) })
		r.says(dev, observed.Forbidden, "the operator is not allowed to list and watch pods in all namespaces")
		named := queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Among("a", "b"))
		r.SetInterests(platform, interests(dev, named))
		s.Put(apiserver.Pods, "a", "p", nil)
		s.Put(apiserver.Pods, "b", "p", nil)
		r.finds(named, "a/p")
		r.wakes(platform, "a namespace", func() { s.Put(apiserver.Namespaces, "", "b", queries.Tier("dev")) })
		r.finds(named, "a/p", "b/p")
	})
	t.Run("Unsynced", func(t *testing.T) {
		s := apiserver.New(t)
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		t.Cleanup(free)
		s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, q *http.Request) bool {
			if gvr == apiserver.Namespaces && verb != "review" {
				select {
				case <-release:
				case <-q.Context().Done():
				}
			}
			return false
		})
		r := newRig(t, s)
		s.Put(apiserver.Namespaces, "", "a", queries.Tier("dev"))
		s.Put(apiserver.Pods, "a", "p", nil)
		r.SetInterests(platform, interests(dev))
		r.SetInterests(owner("c"), interests(queries.New("Pod")))
		r.reads(queries.New("Pod"), observed.Complete, "p")
		r.says(dev, observed.Unsynced, "waiting for the first list of namespaces")
		r.wakes(platform, "the namespaces", free)
		r.finds(dev, "a/p")
	})
	t.Run("Broken", func(t *testing.T) {
		s := apiserver.New(t)
		r := newRig(t, s)
		s.Put(apiserver.Namespaces, "", "a", queries.Tier("dev"))
		s.Put(apiserver.Pods, "a", "p", nil)
		s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
			if gvr == apiserver.Namespaces && verb != "review" {
				apiserver.Fail(w, http.StatusInternalServerError, "InternalError", nil)
				return true
			}
			return false
		})
		r.wakes(platform, "the failure", func() { r.SetInterests(platform, interests(dev)) })
		r.reads(dev, observed.Failed)
		r.wakes(platform, "the recovery", func() { s.SetFault(nil) })
		r.finds(dev, "a/p")
	})
}

// Who was told that it may not read namespaces, and then that it may, is told that it may not read Pods.
func TestARefusalAfterAnotherWakes(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	s.Put(apiserver.Namespaces, "", "a", queries.Tier("dev"))
	s.Put(apiserver.Pods, "a", "p", nil)
	s.Deny(apiserver.Denial{Resource: "namespaces", Namespace: "*", Name: "*"})
	dev := queries.New("Pod", queries.ChosenBy("tier=dev"))
	r.SetInterests(platform, interests(dev))
	r.SetInterests(owner("c"), interests(queries.New("Pod")))
	r.reads(queries.New("Pod"), observed.Complete, "p")
	r.reads(dev, observed.Forbidden)
	r.wakes(platform, "the permission", func() { s.Deny() })
	r.finds(dev, "a/p")
	r.wakes(platform, "the other refusal", func() {
		s.Deny(apiserver.Denial{Resource: "pods", Namespace: "*", Name: "*"})
		s.Disconnect(apiserver.Pods, false)
	})
	r.says(dev, observed.Forbidden, "the operator is not allowed to list and watch pods in all namespaces")
}

func TestMisplacedQueriesFail(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	l := newLive(t, s)
	for q, detail := range map[*snapshot.Query]string{
		new(queries.New("Pod", queries.In(""), queries.Named("p"))): `pods are namespaced: set reference.namespace for "p"`,
		new(queries.New("Node", queries.Among("a"))):                "nodes are cluster-scoped: remove namespaces, namespaceSelector and excludeNamespaces from the reference",
		new(queries.New("Node", queries.Except("a"))):               "nodes are cluster-scoped: remove namespaces, namespaceSelector and excludeNamespaces from the reference",
		new(queries.New("Node", queries.ChosenBy("x=y"))):           "nodes are cluster-scoped: remove namespaces, namespaceSelector and excludeNamespaces from the reference",
	} {
		r.SetInterests(platform, interests(*q))
		r.says(*q, observed.Failed, detail)
		if got := l.Read(t.Context(), *q); got.State != observed.Failed || got.Detail != detail {
			t.Errorf("live: got %s %q, want Failed %q", got.State, got.Detail, detail)
		}
	}
}

// Labels of namespaces flip while others read: of each namespace a reader sees all objects, or none.
func TestNamespacesFlipWhileTheyAreRead(t *testing.T) {
	const each, flips = 20, 200
	s := apiserver.New(t)
	r := newRig(t, s)
	all := []string{"a", "b", "c"}
	for _, name := range all {
		s.Put(apiserver.Namespaces, "", name, queries.Tier("dev"))
		for n := range each {
			s.Put(apiserver.Pods, name, fmt.Sprintf("p%02d", n), map[string]string{"app": "web"})
		}
	}
	qs := []snapshot.Query{queries.New("Pod", queries.ChosenBy("tier=dev")), queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Labelled("app=web")), queries.New("Pod", queries.ChosenBy("tier!=prod"), queries.Among("a", "b"))}
	r.SetInterests(platform, interests(qs...))
	for _, q := range qs {
		until(t, "the first labels", func() bool { return len(r.Read(t.Context(), q).Objects) >= 2*each })
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for _, q := range qs {
		readers.Go(func() {
			for {
				got := r.Read(t.Context(), q)
				counts := map[string]int{}
				for _, o := range got.Objects {
					counts[o.Namespace]++
				}
				for namespace, n := range counts {
					if n != each {
						t.Errorf("%d of %d objects of namespace %s", n, each, namespace)
					}
				}
				if got.State != observed.Complete || !slices.IsSortedFunc(got.Objects, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) }) {
					t.Errorf("state is %s %q, or the order is lost", got.State, got.Detail)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := range flips {
		s.Put(apiserver.Namespaces, "", all[n%3], queries.Tier([]string{"prod", "dev"}[n/3%2]))
	}
	s.Put(apiserver.Namespaces, "", "a", queries.Tier("dev"))
	s.Put(apiserver.Namespaces, "", "b", queries.Tier("prod"))
	s.Put(apiserver.Namespaces, "", "c", queries.Tier("prod"))
	for _, q := range qs {
		until(t, "the last labels", func() bool {
			got := queries.PlacesOf(r.Read(t.Context(), q))
			return len(got) == each && got[0] == "a/p00"
		})
	}
	close(done)
	readers.Wait()
}

// Objects, labels of namespaces and rights change at random. Every answer that is Complete is right in the end, and each
// change of an answer wakes.
func TestNamespacesKeepUp(t *testing.T) {
	const seed, steps = 11, 150
	random := rand.New(rand.NewPCG(seed, seed))
	s := apiserver.New(t)
	r := newRig(t, s)
	all := []string{"a", "b", "c"}
	tiers, objects := map[string]string{}, map[string]bool{}
	qs := []snapshot.Query{
		queries.New("Pod", queries.ChosenBy("tier=dev")), queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Except("b")), queries.New("Pod", queries.ChosenBy("!tier")),
		queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Among("a", "c")), queries.New("Pod", queries.Among("a", "b")), queries.New("Pod", queries.Except("a")),
		queries.New("Pod", queries.Among("b", "c"), queries.Labelled("app=web")), queries.New("Pod", queries.ChosenBy("tier in (dev,test)"), queries.Labelled("app=web")),
	}
	owners := make([]Owner, len(qs))
	for n, q := range qs {
		owners[n] = Owner{Name: fmt.Sprint("owner-", n)}
		r.SetInterests(owners[n], interests(q))
	}
	expect := func(q snapshot.Query) (found []string) {
		for _, namespace := range all {
			var in *observed.Object
			if l, ok := tiers[namespace]; ok {
				in = &observed.Object{}
				if l != "" {
					in.Labels = queries.Tier(l)
				}
			}
			if objects[namespace] && q.Namespaces.MatchesNamespace(namespace, in) {
				found = append(found, namespace+"/p")
			}
		}
		return found
	}
	for _, q := range qs {
		r.finds(q)
	}
	restricted := false // to namespaces that are named
	readable := func(q snapshot.Query) bool { return !restricted || q.Namespaces.Names != nil }
	for range steps {
		name := all[random.IntN(len(all))]
		var was []string
		var woken []int
		answer := func(q snapshot.Query) string { return fmt.Sprint(readable(q), expect(q)) }
		for n, q := range qs {
			was, woken = append(was, answer(q)), append(woken, r.queue.count(owners[n]))
		}
		switch random.IntN(8) {
		case 0, 1:
			if _, ok := tiers[name]; ok && random.IntN(3) == 0 {
				delete(tiers, name)
				s.Remove(apiserver.Namespaces, "", name)
				break
			}
			tiers[name] = []string{"dev", "prod", "test", ""}[random.IntN(4)]
			var l map[string]string
			if tiers[name] != "" {
				l = queries.Tier(tiers[name])
			}
			s.Put(apiserver.Namespaces, "", name, l)
		case 2:
			s.Disconnect([]schema.GroupVersionResource{apiserver.Pods, apiserver.Namespaces}[random.IntN(2)], random.IntN(2) == 0)
		case 3:
			if restricted = !restricted; restricted {
				s.Deny(apiserver.Denial{Resource: "pods"})
				s.Disconnect(apiserver.Pods, false)
			} else {
				s.Deny()
			}
		default:
			if objects[name] = !objects[name]; objects[name] {
				s.Put(apiserver.Pods, name, "p", map[string]string{"app": "web"})
			} else {
				s.Remove(apiserver.Pods, name, "p")
			}
		}
		for n, q := range qs {
			if readable(q) {
				r.finds(q, expect(q)...)
			} else {
				r.reads(q, observed.Forbidden)
			}
			if was[n] != answer(q) {
				until(t, fmt.Sprintf("query %d wakes", n), func() bool { return r.queue.count(owners[n]) > woken[n] })
			}
		}
	}
	for _, o := range owners {
		r.DropInterests(o)
	}
	r.leaves()
}
