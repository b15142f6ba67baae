// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// TestShelf puts and takes objects at random, beside a map of the same.
func TestShelf(t *testing.T) {
	const seed, steps = 3, 2000
	random := rand.New(rand.NewPCG(seed, seed))
	var s sortedObjects
	model := map[scopeKey]*object{}
	for range steps {
		k := scopeKey{namespace: string(rune('a' + random.IntN(3))), name: fmt.Sprint("p", random.IntN(12))}
		if random.IntN(3) == 0 {
			s = s.deleteObject(k.namespace, k.name)
			delete(model, k)
		} else {
			o := podOf(k.namespace, k.name, nil)
			s, model[k] = s.putObject(o), o
		}
		if s.get(k.namespace, k.name) != model[k] {
			t.Fatalf("%v is not what was put there", k)
		}
		if len(s) != len(model) || !slices.IsSortedFunc(s, compareNames) {
			t.Fatalf("%d objects, want %d in order", len(s), len(model))
		}
	}
}

// podEngine is an Engine, not started, that has read so many Pods in 100 namespaces.
func podEngine(n int) (*Engine, *informer) {
	e := &Engine{
		clock: clock.RealClock{}, metrics: NopMetrics{}, owners: map[Owner]map[interestKey]*want{}, kinds: map[kindKey]*kind{}, resources: map[Resource]*resource{},
	}
	q := query("Pod")
	r := &resource{
		Resource: Resource{GVR: pods, Kind: "Pod", Namespaced: true, Watchable: true},
		kinds:    map[*kind]struct{}{}, scopes: map[scopeKey]*scope{}, index: index{}, fields: snapshot.BuiltinFieldLabels(pods.GroupResource()), allFields: true,
	}
	k := &kind{key: kindKeyOf(&q), wants: map[*want]struct{}{}, state: plan.Complete, resource: r}
	r.kinds[k], e.kinds[k.key], e.resources[r.Resource] = struct{}{}, k, r
	s := e.newScope(r, scopeKey{})
	s.access = allowed
	e.ensureInformer(s, true)
	objects := make([]*object, n)
	for i := range objects {
		o := podOf(fmt.Sprintf("ns-%02d", i%100), fmt.Sprintf("p%06d", i), map[string]string{"app": "web", "n": fmt.Sprint(i % 1000)})
		o.ResourceVersion = "1"
		objects[i] = o
	}
	e.replaceObjects(s.full, objects)
	return e, s.full
}

func TestWhatIsListedAgainReplacesWhatThereWas(t *testing.T) {
	e, i := podEngine(1000)
	q := query("Pod", in(""), labelled("n=5"))
	names := func() []string { return placesOf(e.Read(t.Context(), q)) }
	if got, want := names(), []string{"ns-05/p000005"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	e.replaceObjects(i, []*object{podOf("ns-07", "new", map[string]string{"n": "5"}), podOf("a", "newer", map[string]string{"n": "5"})})
	if got, want := names(), []string{"a/newer", "ns-07/new"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	e.replaceObjects(i, nil)
	if got := names(); got != nil || e.objects != 0 || len(i.objects) != 0 {
		t.Errorf("%v are left, %d objects are counted", got, e.objects)
	}
}

// BenchmarkEngineRead reads of 100,000 Pods, while one changes between any two reads. Copy is what it costs to copy them
// all.
func BenchmarkEngineRead(b *testing.B) {
	const n = 100_000
	e, i := podEngine(n)
	version := 1
	for name, tc := range map[string]struct {
		query snapshot.Query
		want  int
	}{
		"All":        {query("Pod", in("")), n},
		"Label":      {query("Pod", in(""), labelled("app=web")), n},
		"RareLabel":  {query("Pod", in(""), labelled("n=7")), n / 1000},
		"Without":    {query("Pod", in(""), labelled("app!=web")), 0},
		"Namespace":  {query("Pod", in("ns-07")), n / 100},
		"Namespaces": {query("Pod", among("ns-07", "ns-08")), n / 50},
		"Except":     {query("Pod", except("ns-07")), n - n/100},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				version++
				o := podOf("ns-07", "p000007", map[string]string{"app": "web", "n": "7"})
				o.ResourceVersion = fmt.Sprint(version)
				e.mu.Lock()
				e.storeObject(i, o)
				e.mu.Unlock()
				if got := e.Read(b.Context(), tc.query); len(got.Objects) != tc.want {
					b.Fatalf("%d objects, want %d", len(got.Objects), tc.want)
				}
			}
		})
	}
	b.Run("Copy", func(b *testing.B) {
		all := i.appendCandidates(nil, new(query("Pod", in(""))), nil)
		b.ReportAllocs()
		for b.Loop() {
			objects := make([]plan.Object, len(all))
			for n, o := range all {
				objects[n] = o.Object
			}
		}
	})
}

// BenchmarkRelist takes 100,000 Pods in and, when they are all gone, out.
func BenchmarkRelist(b *testing.B) {
	for b.Loop() {
		e, i := podEngine(100_000)
		e.Read(b.Context(), query("Pod", in(""), labelled("app=web"))) // a group has them too
		e.replaceObjects(i, nil)
	}
}
