// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

func TestLiveReadsNamespaces(t *testing.T) {
	many := []string{"a", "b", "c", "m0", "m1", "m2", "m3", "m4", "m5", "m6"}
	cases := map[string]struct {
		reason string
		query  snapshot.Query
		deny   []apiserver.Denial
		state  observed.TargetState
		detail string
		places []string
		lists  int // of pods
	}{
		"Named":            {reason: "each by itself", query: queries.New("Pod", queries.Among("a", "c")), state: observed.Complete, places: []string{"a/p", "c/p"}, lists: 2},
		"NamedAndLabelled": {reason: "the selector goes to the API server", query: queries.New("Pod", queries.Among("a", "c"), queries.Labelled("app=web")), state: observed.Complete, places: []string{"c/p"}, lists: 2},
		"None":             {reason: "nothing is asked", query: queries.New("Pod", queries.Among()), state: observed.Complete},
		"NoSuchNamespace":  {reason: "nothing lives there", query: queries.New("Pod", queries.Among("z")), state: observed.Complete, lists: 1},
		"Many":             {reason: "one list of all, of which those are picked", query: queries.New("Pod", queries.Among(many...)), state: observed.Complete, places: []string{"a/p", "b/p", "c/p"}, lists: 1},
		"ManyByThemselves": {reason: "the cluster is forbidden", query: queries.New("Pod", queries.Among(many...)), deny: []apiserver.Denial{{Resource: "pods"}}, state: observed.Complete, places: []string{"a/p", "b/p", "c/p"}, lists: 11},
		"OneIsForbidden": {reason: "all or nothing", query: queries.New("Pod", queries.Among(many...)), deny: []apiserver.Denial{{Resource: "pods"}, {Resource: "pods", Namespace: "b"}},
			state: observed.Forbidden, detail: `the operator is not allowed to list pods in namespace "b"`, lists: 3},
		"Excluded": {reason: "all but those", query: queries.New("Pod", queries.Except("a", "d")), state: observed.Complete, places: []string{"b/p", "c/p"}, lists: 1},
		"ExcludedForbidden": {reason: "nobody names what is left", query: queries.New("Pod", queries.Except("a")), deny: []apiserver.Denial{{Resource: "pods"}},
			state: observed.Forbidden, detail: "the operator is not allowed to list pods in all namespaces", lists: 1},
		"Chosen":         {reason: "by the labels of the namespaces", query: queries.New("Pod", queries.ChosenBy("tier=dev")), state: observed.Complete, places: []string{"a/p", "b/p"}, lists: 2},
		"ChosenMetadata": {reason: "the same", query: queries.New("Pod", queries.ChosenBy("tier=dev"), queries.MetadataOnly), state: observed.Complete, places: []string{"a/p", "b/p"}, lists: 2},
		"ChosenExcluded": {reason: "whatever the labels say", query: queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Except("b")), state: observed.Complete, places: []string{"a/p"}, lists: 1},
		"ChosenNamed":    {reason: "both must hold", query: queries.New("Pod", queries.ChosenBy("tier=dev"), queries.Among("b", "c")), state: observed.Complete, places: []string{"b/p"}, lists: 1},
		"ChosenNone":     {reason: "no namespace has the labels", query: queries.New("Pod", queries.ChosenBy("tier=none")), state: observed.Complete},
		"NoNamespaces": {reason: "the labels cannot be read", query: queries.New("Pod", queries.ChosenBy("tier=dev")), deny: []apiserver.Denial{{Resource: "namespaces", Namespace: "*", Name: "*"}},
			state: observed.Forbidden, detail: "the operator is not allowed to list namespaces (cluster-scoped)"},
		"NoKind": {reason: "discovery says so", query: queries.New("Revision", queries.Among("a")), state: observed.NoSuchKind, detail: `the API server does not serve kind "Revision" of serving.example.com/v1`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			for _, namespace := range []string{"c", "a", "b", "d"} {
				s.Put(apiserver.Pods, namespace, "p", nil)
				s.Put(apiserver.Namespaces, "", namespace, nil)
			}
			s.Put(apiserver.Pods, "c", "p", map[string]string{"app": "web"})
			s.Remove(apiserver.Pods, "d", "p")
			s.Put(apiserver.Namespaces, "", "a", queries.Tier("dev"))
			s.Put(apiserver.Namespaces, "", "b", queries.Tier("dev"))
			s.Deny(tc.deny...)
			got := newReader(t, s).Read(t.Context(), tc.query)
			if got.State != tc.state || got.Detail != tc.detail {
				t.Errorf("%s: got %s %q, want %s %q", tc.reason, got.State, got.Detail, tc.state, tc.detail)
			}
			if diff := cmp.Diff(tc.places, queries.PlacesOf(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got.State == observed.Complete && (got.Resource != apiserver.Pods || !got.Namespaced) {
				t.Errorf("the answer is about %v", got.Resource)
			}
			if lists := s.Asked("list pods"); lists != tc.lists {
				t.Errorf("%s: %d lists, want %d", tc.reason, lists, tc.lists)
			}
		})
	}
}

// What is read of several namespaces is of one version, and of namespaces that were the same before and after.
func TestLiveReadsNamespacesOfOneMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		changes [][]string // what the tier of a namespace becomes while objects are listed for the first time, the second...
		state   observed.TargetState
		places  []string
		lists   int // of the first namespace
	}{
		"Still":    {nil, observed.Complete, []string{"a/p", "b/p"}, 1},
		"Once":     {[][]string{{"prod"}}, observed.Complete, []string{"a/p"}, 2},
		"Twice":    {[][]string{{"prod"}, {"dev"}}, observed.Complete, []string{"a/p", "b/p"}, 3},
		"AndBack":  {[][]string{{"prod", "dev"}}, observed.Complete, []string{"a/p", "b/p"}, 2},
		"EachTime": {[][]string{{"prod"}, {"dev"}, {"prod"}}, observed.Failed, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			for _, namespace := range []string{"a", "b"} {
				s.Put(apiserver.Namespaces, "", namespace, queries.Tier("dev"))
				s.Put(apiserver.Pods, namespace, "p", nil)
			}
			var first, asked []string
			s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool {
				if verb != "list" || gvr != apiserver.Pods {
					return false
				}
				q := r.URL.Query()
				if r.URL.Path != "/api/v1/namespaces/a/pods" {
					asked = append(asked, fmt.Sprint(len(q.Get("resourceVersion")) > 0, q["resourceVersionMatch"]))
					return false
				}
				if n := len(first); n < len(tc.changes) {
					for _, now := range tc.changes[n] {
						s.Put(apiserver.Namespaces, "", "b", queries.Tier(now))
					}
				}
				first = append(first, fmt.Sprint(q["resourceVersion"], q["resourceVersionMatch"]))
				return false
			})
			got := newReader(t, s).Read(t.Context(), queries.New("Pod", queries.ChosenBy("tier=dev")))
			if got.State != tc.state || !cmp.Equal(tc.places, queries.PlacesOf(got)) {
				t.Errorf("got %s %q %v, want %s %v", got.State, got.Detail, queries.PlacesOf(got), tc.state, tc.places)
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

// The bare 404 of a kind that is not served, or of a proxy, says nothing of an object.
func TestReadOneIsNotMissingForABare404(t *testing.T) {
	s := apiserver.New(t)
	s.Put(apiserver.Pods, "a", "p", nil)
	l := newReader(t, s)
	one := func(name string) string {
		found, matches, state, detail := snapshot.ReadObject(t.Context(), l, "", queries.NewTarget("Pod"), "a", name)
		return fmt.Sprintf("%t %t %s %s", found != nil, matches, state, detail)
	}
	if got, want := one("p"), "true true Complete "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := one("other"), "false false Complete "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if verb != "get" || gvr != apiserver.Pods {
			return false
		}
		http.Error(w, "404 page not found", http.StatusNotFound)
		return true
	})
	if got, want := one("other"), "false false Failed the API server serves pods, but responded with 404 to this request"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Serve(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", true) // the group goes on being served
	s.Unserve(apiserver.Pods)
	if got, want := one("other"), `false false NoSuchKind the API server does not serve kind "Pod" of v1`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An API server is asked to leave the namespaces out that are excluded, of kinds that it certainly can select so, within bounds.
func TestExcludedNamespacesAreNotSent(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	var selectors []string
	s.SetFault(func(_ http.ResponseWriter, verb string, _ schema.GroupVersionResource, r *http.Request) bool {
		if verb == "list" {
			selectors = append(selectors, r.URL.Query().Get("fieldSelector"))
		}
		return false
	})
	var all []string
	for i := range 2 * maxExcluded {
		all = append(all, fmt.Sprintf("%03d", i))
	}
	phase := func(q *snapshot.Query) { q.Fields = fields.OneTermEqualSelector("status.phase", "Failed") }
	l := newReader(t, s)
	for _, q := range []snapshot.Query{
		queries.New("Pod", queries.Except("a", "b")), queries.New("Pod", queries.Except("a"), phase), queries.New("Revision", queries.Except("a")),
		queries.New("Pod", queries.Except(all...)), queries.New("Pod", queries.Except(strings.Repeat("a", maxExcludedBytes), "b")), queries.New("Pod"),
	} {
		if got := l.Read(t.Context(), q); got.State != observed.Complete {
			t.Errorf("got %s %q", got.State, got.Detail)
		}
	}
	want := []string{"metadata.namespace!=a,metadata.namespace!=b", "status.phase=Failed,metadata.namespace!=a", "", "metadata.namespace!=" + strings.Join(all[:maxExcluded], ",metadata.namespace!="), "metadata.namespace!=" + strings.Repeat("a", maxExcludedBytes), ""}
	if diff := cmp.Diff(want, selectors); diff != "" {
		t.Errorf("selectors (-want +got):\n%s", diff)
	}
}
