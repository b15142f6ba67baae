// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// podEngine is an Engine, not started, that has read so many Pods in 100 namespaces.
func podEngine(n int) (*Engine, *informer) {
	e, err := New(Options{Config: &rest.Config{}, Clock: clock.RealClock{}}) // which asks nothing
	if err != nil {
		panic(err)
	}
	q := queries.New("Pod")
	r := &resource{
		Resource: served.Resource{GVR: apiserver.Pods, Kind: "Pod", Namespaced: true, Watchable: true},
		kinds:    map[*kind]struct{}{}, scopes: map[scopeKey]*scope{}, index: newIndex(), fields: snapshot.BuiltinFieldLabels(apiserver.Pods.GroupResource()), allFields: true,
	}
	k := &kind{key: kindKeyOf(&q), wants: map[*want]struct{}{}, state: observed.Complete, resource: r}
	r.kinds[k], e.catalog.kinds[k.key], e.catalog.resources[r.Resource] = struct{}{}, k, r
	s := placementOf(e).newScope(r, scopeKey{}, nil)
	s.access = allowed
	feedsOf(e).ensureInformer(s, true)
	objects := make([]*cachedobjects.Object, n)
	for i := range objects {
		o := podOf(fmt.Sprintf("ns-%02d", i%100), fmt.Sprintf("p%06d", i), map[string]string{"app": "web", "n": fmt.Sprint(i % 1000)})
		o.ResourceVersion = "1"
		objects[i] = o
	}
	feedsOf(e).replaceObjects(s.full, objects, "")
	return e, s.full
}

func TestWhatIsListedAgainReplacesWhatThereWas(t *testing.T) {
	e, i := podEngine(1000)
	q := queries.New("Pod", queries.In(""), queries.Labelled("n=5"))
	e.SetInterests(owner("c"), interests(q))
	names := func() []string { return queries.PlacesOf(e.Read(t.Context(), q)) }
	if got, want := names(), []string{"ns-05/p000005"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	feedsOf(e).replaceObjects(i, []*cachedobjects.Object{podOf("ns-07", "new", map[string]string{"n": "5"}), podOf("a", "newer", map[string]string{"n": "5"})}, "")
	if got, want := names(), []string{"a/newer", "ns-07/new"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	feedsOf(e).replaceObjects(i, nil, "")
	if got := names(); got != nil || feedsOf(e).objects != 0 || len(i.objects) != 0 {
		t.Errorf("%v are left, %d objects are counted", got, feedsOf(e).objects)
	}
}

// BenchmarkEngineRead reads of 100,000 Pods, while one changes between any two reads. Copy is what it costs to copy them
// all.
func BenchmarkEngineRead(b *testing.B) {
	const n = 100_000
	e, i := podEngine(n)
	e.SetInterests(owner("c"), interests(queries.New("Pod", queries.In(""), queries.Labelled("app=web")), queries.New("Pod", queries.In(""), queries.Labelled("n=7"))))
	version := 1
	for name, tc := range map[string]struct {
		query snapshot.Query
		want  int
	}{
		"All":        {queries.New("Pod", queries.In("")), n},
		"Label":      {queries.New("Pod", queries.In(""), queries.Labelled("app=web")), n},
		"RareLabel":  {queries.New("Pod", queries.In(""), queries.Labelled("n=7")), n / 1000},
		"Without":    {queries.New("Pod", queries.In(""), queries.Labelled("app!=web")), 0},
		"Namespace":  {queries.New("Pod", queries.In("ns-07")), n / 100},
		"Namespaces": {queries.New("Pod", queries.Among("ns-07", "ns-08")), n / 50},
		"Except":     {queries.New("Pod", queries.Except("ns-07")), n - n/100},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				version++
				o := podOf("ns-07", "p000007", map[string]string{"app": "web", "n": "7"})
				o.ResourceVersion = fmt.Sprint(version)
				e.mu.Lock()
				feedsOf(e).storeObject(i, o)
				e.mu.Unlock()
				if got := e.Read(b.Context(), tc.query); len(got.Objects) != tc.want {
					b.Fatalf("%d objects, want %d", len(got.Objects), tc.want)
				}
			}
		})
	}
	b.Run("Copy", func(b *testing.B) {
		c := i.findCandidates(new(queries.New("Pod", queries.In(""))), nil)
		all := c.ListObjects(nil)
		b.ReportAllocs()
		for b.Loop() {
			objects := make([]observed.Object, len(all))
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
		q := queries.New("Pod", queries.In(""), queries.Labelled("app=web"))
		e.SetInterests(owner("c"), interests(q))
		for range 2 { // then a group has them too
			e.Read(b.Context(), q)
		}
		feedsOf(e).replaceObjects(i, nil, "")
	}
}
