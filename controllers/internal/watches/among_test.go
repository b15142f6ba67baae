// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func TestLiveReadsNamespaces(t *testing.T) {
	many := []string{"a", "b", "c", "m0", "m1", "m2", "m3", "m4", "m5", "m6"}
	cases := map[string]struct {
		reason string
		query  snapshot.Query
		deny   []denial
		state  plan.TargetState
		detail string
		places []string
		lists  int // of pods
	}{
		"Named":            {reason: "each by itself", query: query("Pod", among("a", "c")), state: plan.Complete, places: []string{"a/p", "c/p"}, lists: 2},
		"NamedAndLabelled": {reason: "the selector goes to the API server", query: query("Pod", among("a", "c"), labelled("app=web")), state: plan.Complete, places: []string{"c/p"}, lists: 2},
		"None":             {reason: "nothing is asked", query: query("Pod", among()), state: plan.Complete},
		"NoSuchNamespace":  {reason: "nothing lives there", query: query("Pod", among("z")), state: plan.Complete, lists: 1},
		"Many":             {reason: "one list of all, of which those are picked", query: query("Pod", among(many...)), state: plan.Complete, places: []string{"a/p", "b/p", "c/p"}, lists: 1},
		"ManyByThemselves": {reason: "the cluster is forbidden", query: query("Pod", among(many...)), deny: []denial{{resource: "pods"}}, state: plan.Complete, places: []string{"a/p", "b/p", "c/p"}, lists: 11},
		"OneIsForbidden": {reason: "all or nothing", query: query("Pod", among(many...)), deny: []denial{{resource: "pods"}, {resource: "pods", namespace: "b"}},
			state: plan.Forbidden, detail: `the operator may not list pods in namespace "b"`, lists: 3},
		"Excluded": {reason: "all but those", query: query("Pod", except("a", "d")), state: plan.Complete, places: []string{"b/p", "c/p"}, lists: 1},
		"ExcludedForbidden": {reason: "nobody names what is left", query: query("Pod", except("a")), deny: []denial{{resource: "pods"}},
			state: plan.Forbidden, detail: "the operator may not list pods in all namespaces", lists: 1},
		"Chosen":         {reason: "by the labels of the namespaces", query: query("Pod", chosenBy("tier=dev")), state: plan.Complete, places: []string{"a/p", "b/p"}, lists: 2},
		"ChosenMetadata": {reason: "the same", query: query("Pod", chosenBy("tier=dev"), metadataOnly), state: plan.Complete, places: []string{"a/p", "b/p"}, lists: 2},
		"ChosenExcluded": {reason: "whatever the labels say", query: query("Pod", chosenBy("tier=dev"), except("b")), state: plan.Complete, places: []string{"a/p"}, lists: 1},
		"ChosenNamed":    {reason: "both must hold", query: query("Pod", chosenBy("tier=dev"), among("b", "c")), state: plan.Complete, places: []string{"b/p"}, lists: 1},
		"ChosenNone":     {reason: "no namespace has the labels", query: query("Pod", chosenBy("tier=none")), state: plan.Complete},
		"NoNamespaces": {reason: "the labels cannot be read", query: query("Pod", chosenBy("tier=dev")), deny: []denial{{resource: "namespaces", namespace: "*", name: "*"}},
			state: plan.Forbidden, detail: "the operator may not list namespaces (cluster-scoped)"},
		"NoKind": {reason: "discovery says so", query: query("Revision", among("a")), state: plan.NoSuchKind, detail: `the API server does not serve kind "Revision" of serving.example.com/v1`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			for _, namespace := range []string{"c", "a", "b", "d"} {
				s.put(pods, namespace, "p", nil)
				s.put(namespaces, "", namespace, nil)
			}
			s.put(pods, "c", "p", map[string]string{"app": "web"})
			s.remove(pods, "d", "p")
			s.put(namespaces, "", "a", tier("dev"))
			s.put(namespaces, "", "b", tier("dev"))
			s.deny(tc.deny...)
			got := liveOf(s).Read(t.Context(), tc.query)
			if got.State != tc.state || got.Detail != tc.detail {
				t.Errorf("%s: got %s %q, want %s %q", tc.reason, got.State, got.Detail, tc.state, tc.detail)
			}
			if diff := cmp.Diff(tc.places, placesOf(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got.State == plan.Complete && (got.Resource != pods || !got.Namespaced) {
				t.Errorf("the answer is about %v", got.Resource)
			}
			if lists := s.asked("list pods"); lists != tc.lists {
				t.Errorf("%s: %d lists, want %d", tc.reason, lists, tc.lists)
			}
		})
	}
}

// What is read of several namespaces is of one version, and of namespaces that were the same before and after.
func TestLiveReadsNamespacesOfOneMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		changes [][]string // what the tier of a namespace becomes while objects are listed for the first time, the second...
		state   plan.TargetState
		places  []string
		lists   int // of the first namespace
	}{
		"Still":    {nil, plan.Complete, []string{"a/p", "b/p"}, 1},
		"Once":     {[][]string{{"prod"}}, plan.Complete, []string{"a/p"}, 2},
		"Twice":    {[][]string{{"prod"}, {"dev"}}, plan.Complete, []string{"a/p", "b/p"}, 3},
		"AndBack":  {[][]string{{"prod", "dev"}}, plan.Complete, []string{"a/p", "b/p"}, 2},
		"EachTime": {[][]string{{"prod"}, {"dev"}, {"prod"}}, plan.Failed, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			for _, namespace := range []string{"a", "b"} {
				s.put(namespaces, "", namespace, tier("dev"))
				s.put(pods, namespace, "p", nil)
			}
			var first, asked []string
			s.setFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool {
				if verb != "list" || gvr != pods {
					return false
				}
				q := r.URL.Query()
				if r.URL.Path != "/api/v1/namespaces/a/pods" {
					asked = append(asked, fmt.Sprint(len(q.Get("resourceVersion")) > 0, q["resourceVersionMatch"]))
					return false
				}
				if n := len(first); n < len(tc.changes) {
					for _, now := range tc.changes[n] {
						s.put(namespaces, "", "b", tier(now))
					}
				}
				first = append(first, fmt.Sprint(q["resourceVersion"], q["resourceVersionMatch"]))
				return false
			})
			got := liveOf(s).Read(t.Context(), query("Pod", chosenBy("tier=dev")))
			if got.State != tc.state || !cmp.Equal(tc.places, placesOf(got)) {
				t.Errorf("got %s %q %v, want %s %v", got.State, got.Detail, placesOf(got), tc.state, tc.places)
			}
			if len(first) != tc.lists {
				t.Errorf("listed %d times, want %d", len(first), tc.lists)
			}
			for _, v := range first {
				if v != "[] []" {
					t.Errorf("the first list is of version %s, want one of now", v)
				}
			}
			for _, v := range asked {
				if v != "true [Exact]" {
					t.Errorf("a later list is of version %s, want that of the first", v)
				}
			}
		})
	}
}

func targetOf(kind string, change ...func(*v1alpha1.ClusterReference)) *v1alpha1.ClusterTarget {
	t := &v1alpha1.ClusterTarget{Name: "x", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: kind}}}
	for _, c := range change {
		c(&t.Reference)
	}
	return t
}

// The bare 404 of a kind that is not served, or of a proxy, says nothing of an object.
func TestReadOneIsNotMissingForABare404(t *testing.T) {
	s := newAPIServer(t)
	s.put(pods, "a", "p", nil)
	l := liveOf(s)
	one := func(name string) string {
		found, matches, state, detail := snapshot.ReadObject(t.Context(), l, "", targetOf("Pod"), "a", name)
		return fmt.Sprintf("%t %t %s %s", found != nil, matches, state, detail)
	}
	if got, want := one("p"), "true true Complete "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := one("other"), "false false Complete "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.setFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if verb != "get" || gvr != pods {
			return false
		}
		http.Error(w, "404 page not found", http.StatusNotFound)
		return true
	})
	if got, want := one("other"), "false false Failed the API server lists pods, and does not find it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.serve(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", true) // the group goes on being served
	s.unserve(pods)
	if got, want := one("other"), `false false NoSuchKind the API server does not serve kind "Pod" of v1`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
