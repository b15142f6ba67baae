// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
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
	s := placementOf(e).newScope(r, scopeKey{})
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

// TestAListIsComparedWithWhatIsKnown compares lists at random with a map of what was known.
func TestAListIsComparedWithWhatIsKnown(t *testing.T) {
	const seed, rounds = 11, 100
	random := rand.New(rand.NewPCG(seed, seed))
	known := map[scopeKey]*cachedobjects.Object{}
	before := map[string]cachedobjects.Shelf{}
	for range rounds {
		var list []*cachedobjects.Object
		want, changes, many := map[scopeKey]*cachedobjects.Object{}, map[difference]bool{}, map[labelgroups.Group]int{}
		renews := random.IntN(2) == 0
		for n := range 30 {
			o := podOf(string(rune('a'+random.IntN(4))), fmt.Sprint("p", n%15), manyLabels(labelgroups.MaxLabels+random.IntN(2)))
			o.ResourceVersion = fmt.Sprint(random.IntN(2))
			k := scopeKey{namespace: o.Namespace, name: o.Name}
			if random.IntN(2) == 0 || want[k] != nil {
				continue
			}
			list = append(list, o)
			if was := known[k]; was != nil && was.ResourceVersion == o.ResourceVersion {
				if !renews {
					o = was
				}
			} else {
				changes[difference{was, o}] = true
			}
			want[k] = o
		}
		for k, o := range known {
			if want[k] == nil {
				changes[difference{before: o}] = true
			}
		}
		l := compareLists(before, list, renews)
		if l.more != len(want)-len(known) || len(l.changes) != len(changes) || slices.ContainsFunc(l.changes, func(d difference) bool { return !changes[d] }) {
			t.Fatalf("%d more, and changes %v, want %d and %v", l.more, l.changes, len(want)-len(known), changes)
		}
		count := 0
		for namespace, s := range l.objects {
			count += s.CountObjects()
			for _, o := range s.AppendTo(nil) {
				if o.Namespace != namespace || s.Get(o.Namespace, o.Name) != want[scopeKey{namespace: o.Namespace, name: o.Name}] {
					t.Fatalf("%s/%s is another one", o.Namespace, o.Name)
				}
				if len(o.Labels) > labelgroups.MaxLabels {
					many[labelgroups.Group{Namespace: namespace}]++
					many[labelgroups.Group{}]++
				}
			}
		}
		if count != len(want) || len(l.groups) != len(many) {
			t.Fatalf("%d objects, %d groups of many labels, want %d and %d", count, len(l.groups), len(want), len(many))
		}
		for g, n := range many {
			if l.groups[g].CountObjects() != n {
				t.Fatalf("%d have many labels, want %d", l.groups[g].CountObjects(), n)
			}
		}
		known, before = want, l.objects
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
