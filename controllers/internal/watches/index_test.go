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

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func wantOf(o string, q snapshot.Query) *want {
	gvr := schema.GroupVersionResource{Group: q.Group, Version: q.Version, Resource: "pods"}
	w := (&Engine{}).newWant(owner(o), &Interest{Query: q}, false)
	w.kind = &kind{resource: &resource{Resource: Resource{GVR: gvr, Namespaced: true}, fields: snapshot.BuiltinFieldLabels(gvr.GroupResource())}}
	return w
}

func podOf(namespace, name string, l map[string]string) *object {
	return &object{Object: plan.Object{Ref: plan.Ref{Resource: pods, Namespace: namespace, Name: name}, Labels: l, Value: map[string]any{}}}
}

func TestRoute(t *testing.T) {
	x := index{}
	for name, q := range map[string]snapshot.Query{
		"p":          query("Pod", named("p")),
		"web":        query("Pod", labelled("app=web")),
		"web-or-api": query("Pod", labelled("app in (web,api)")),
		"has-app":    query("Pod", labelled("app")),
		"newer":      query("Pod", labelled("generation>3")),
		"no-app":     query("Pod", labelled("!app")),
		"two-labels": query("Pod", labelled("app=web,env=dev")),
		"all":        query("Pod"),
		"everywhere": query("Pod", in(""), labelled("app=web")),
		"b":          query("Pod", in("b"), labelled("app=web")),
		"two-places": query("Pod", among("b", "c"), labelled("app in (web,api)")),
		"c":          query("Pod", among("c")),
		"nowhere":    query("Pod", among()),
		"not-a":      query("Pod", except("a")),
	} {
		x.addWant(wantOf(name, q))
	}
	web, api := map[string]string{"app": "web"}, map[string]string{"app": "api"}
	cases := map[string]struct {
		reason      string
		before, now *object
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
			for _, o := range x.appendOwners(nil, tc.before, tc.now) {
				found[o.Name] = true
			}
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(found))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIndexKeepsNothingOfWhatIsRemoved(t *testing.T) {
	x := index{}
	ws := []*want{wantOf("a", query("Pod", named("p"))), wantOf("b", query("Pod", labelled("app in (a,b)"))), wantOf("c", query("Pod")), wantOf("d", query("Pod", among("a", "b"), labelled("app")))}
	for _, w := range ws {
		x.addWant(w)
	}
	for _, w := range ws {
		x.removeWant(w)
	}
	if len(x) != 0 {
		t.Errorf("buckets are left: %v", x)
	}
}

// However many values of a label an author writes, a want takes few buckets, and is found by each of the values.
func TestManyValuesTakeFewBuckets(t *testing.T) {
	values := make([]string, 20_000)
	for i := range values {
		values[i] = fmt.Sprint("v", i)
	}
	x := index{}
	x.addWant(wantOf("many", query("Pod", labelled("app in ("+strings.Join(values, ",")+")"))))
	if len(x) > snapshot.MaxListed {
		t.Errorf("it takes %d buckets", len(x))
	}
	for value, found := range map[string]bool{"v0": true, "v19999": true, "v20000": false} {
		if got := x.appendOwners(nil, nil, podOf("a", "x", map[string]string{"app": value})); (len(got) > 0) != found {
			t.Errorf("%s: found are %v", value, got)
		}
	}
}

// BenchmarkRoute is one event that concerns two Cleaners, among so many that share a namespace and a label.
func BenchmarkRoute(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := index{}
			for i := range n {
				x.addWant(wantOf(fmt.Sprintf("named-%d", i), query("Pod", named(fmt.Sprintf("p%d", i)))))
				x.addWant(wantOf(fmt.Sprintf("labelled-%d", i), query("Pod", labelled(fmt.Sprintf("app=web,commit=c%d", i)))))
			}
			before := podOf("a", "p7", map[string]string{"app": "web", "commit": "c7", "pod-template-hash": "h"})
			now := podOf("a", "p7", before.Labels)
			var woken []Owner
			b.ReportAllocs()
			for b.Loop() {
				if woken = x.appendOwners(woken[:0], before, now); len(woken) != 2 {
					b.Fatalf("%d owners", len(woken))
				}
			}
		})
	}
}
