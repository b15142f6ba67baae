// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

func wantOf(o string, q snapshot.Query) *want {
	gvr := schema.GroupVersionResource{Group: q.Group, Version: q.Version, Resource: "pods"}
	w := newWant(owner(o), &Interest{Query: q}, false)
	w.kind = &kind{resource: &resource{Resource: served.Resource{GVR: gvr, Namespaced: true}, fields: snapshot.BuiltinFieldLabels(gvr.GroupResource())}}
	return w
}

func podOf(namespace, name string, l map[string]string) *cachedobjects.Object {
	return &cachedobjects.Object{Object: observed.Object{Ref: observed.Ref{Resource: apiserver.Pods, Namespace: namespace, Name: name}, Labels: l, Value: map[string]any{}}}
}

// findOwners are those that a change of a Pod concerns.
func findOwners(x *index, before, now *cachedobjects.Object) []Owner {
	r := &resource{Resource: served.Resource{GVR: apiserver.Pods, Namespaced: true}, fields: snapshot.BuiltinFieldLabels(apiserver.Pods.GroupResource()), index: x}
	m := newMatching(change{resource: r, before: before, now: now})
	m.listBuckets()
	var found []Owner
	for len(m.buckets) > 0 {
		t := &turn{namespaced: true, fields: r.fields}
		m.collect(t)
		found = append(found, m.match(t)...)
	}
	return found
}

func TestRoute(t *testing.T) {
	x := newIndex()
	for name, q := range map[string]snapshot.Query{
		"p":          queries.New("Pod", queries.Named("p")),
		"web":        queries.New("Pod", queries.Labelled("app=web")),
		"web-or-api": queries.New("Pod", queries.Labelled("app in (web,api)")),
		"has-app":    queries.New("Pod", queries.Labelled("app")),
		"newer":      queries.New("Pod", queries.Labelled("generation>3")),
		"no-app":     queries.New("Pod", queries.Labelled("!app")),
		"two-labels": queries.New("Pod", queries.Labelled("app=web,env=dev")),
		"all":        queries.New("Pod"),
		"everywhere": queries.New("Pod", queries.In(""), queries.Labelled("app=web")),
		"b":          queries.New("Pod", queries.In("b"), queries.Labelled("app=web")),
		"two-places": queries.New("Pod", queries.Among("b", "c"), queries.Labelled("app in (web,api)")),
		"c":          queries.New("Pod", queries.Among("c")),
		"nowhere":    queries.New("Pod", queries.Among()),
		"not-a":      queries.New("Pod", queries.Except("a")),
	} {
		x.addWant(wantOf(name, q))
	}
	web, api := map[string]string{"app": "web"}, map[string]string{"app": "api"}
	cases := map[string]struct {
		reason      string
		before, now *cachedobjects.Object
		want        []string
	}{
		"Created":      {"it matches from the start", nil, podOf("a", "x", web), []string{"all", "everywhere", "has-app", "web", "web-or-api"}},
		"Deleted":      {"as it was when it was last seen", podOf("a", "p", api), nil, []string{"all", "has-app", "p", "web-or-api"}},
		"LabelChanges": {"both versions count", podOf("a", "x", web), podOf("a", "x", api), []string{"all", "everywhere", "has-app", "web", "web-or-api"}},
		"LabelGoes":    {"who wanted the label, and who wants that there is none", podOf("a", "x", web), podOf("a", "x", nil), []string{"all", "everywhere", "has-app", "no-app", "web", "web-or-api"}},
		"Compared":     {"a number is required to be there", nil, podOf("a", "x", map[string]string{"generation": "4"}), []string{"all", "newer", "no-app"}},
		"BothLabels":   {"one of them is enough to find it", nil, podOf("a", "x", map[string]string{"app": "web", "env": "dev"}), []string{"all", "everywhere", "has-app", "two-labels", "web", "web-or-api"}},
		"OtherPlace":   {"namespaces are kept apart", nil, podOf("b", "p", web), []string{"b", "everywhere", "not-a", "two-places"}},
		"ThirdPlace":   {"a want of several is found in each", podOf("c", "p", api), podOf("c", "p", nil), []string{"c", "not-a", "two-places"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found := map[string]bool{}
			for _, o := range findOwners(x, tc.before, tc.now) {
				if found[o.Name] {
					t.Errorf("%s is woken twice", o.Name)
				}
				found[o.Name] = true
			}
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(found))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIndexKeepsNothingOfWhatIsRemoved(t *testing.T) {
	x := newIndex()
	ws := []*want{wantOf("a", queries.New("Pod", queries.Named("p"))), wantOf("b", queries.New("Pod", queries.Labelled("app in (a,b)"))), wantOf("c", queries.New("Pod")), wantOf("d", queries.New("Pod", queries.Among("a", "b"), queries.Labelled("app"))), wantOf("e", queries.New("Pod", queries.Fielded("status.phase=Failed")))}
	for _, w := range ws {
		x.addWant(w)
	}
	for _, w := range ws {
		x.removeWant(w)
	}
	if len(x.buckets) != 0 || x.byFields != 0 {
		t.Errorf("left are %v, and %d wants that compare fields", x.buckets, x.byFields)
	}
}

// However many values of a label an author writes, a want takes few buckets, and is found by each of the values.
func TestManyValuesTakeFewBuckets(t *testing.T) {
	values := make([]string, 20_000)
	for i := range values {
		values[i] = fmt.Sprint("v", i)
	}
	x := newIndex()
	x.addWant(wantOf("many", queries.New("Pod", queries.Labelled("app in ("+strings.Join(values, ",")+")"))))
	if len(x.buckets) > snapshot.MaxListed {
		t.Errorf("it takes %d buckets", len(x.buckets))
	}
	for value, found := range map[string]bool{"v0": true, "v19999": true, "v20000": false} {
		if got := findOwners(x, nil, podOf("a", "x", map[string]string{"app": value})); (len(got) > 0) != found {
			t.Errorf("%s: found are %v", value, got)
		}
	}
}

// BenchmarkRoute is one event that concerns two Cleaners, among so many that share a namespace and a label.
func BenchmarkRoute(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := newIndex()
			for i := range n {
				x.addWant(wantOf(fmt.Sprintf("named-%d", i), queries.New("Pod", queries.Named(fmt.Sprintf("p%d", i)))))
				x.addWant(wantOf(fmt.Sprintf("labelled-%d", i), queries.New("Pod", queries.Labelled(fmt.Sprintf("app=web,commit=c%d", i)))))
			}
			before := podOf("a", "p7", map[string]string{"app": "web", "commit": "c7", "pod-template-hash": "h"})
			now := podOf("a", "p7", before.Labels)
			b.ReportAllocs()
			for b.Loop() {
				if woken := findOwners(x, before, now); len(woken) != 2 {
					b.Fatalf("%d owners", len(woken))
				}
			}
		})
	}
}
