// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

func newReader(t *testing.T, s *apiserver.Server) *Reader {
	d := discovery.NewDiscoveryClientForConfigOrDie(s.Config())
	l, err := NewReader("the operator", s.Config(), clock.RealClock{}, served.NewResolver(clock.RealClock{}, d, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLiveRead(t *testing.T) {
	answerWith := func(code int, d *metav1.StatusDetails) func(http.ResponseWriter, string, schema.GroupVersionResource, *http.Request) bool {
		return func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
			if gvr != apiserver.Pods || verb == "discover" {
				return false
			}
			reason := metav1.StatusReasonNotFound
			if code != http.StatusNotFound {
				reason = metav1.StatusReasonInternalError
			}
			apiserver.Fail(w, code, reason, d)
			return true
		}
	}
	cases := map[string]struct {
		reason string
		query  snapshot.Query
		deny   []apiserver.Denial
		fault  func(http.ResponseWriter, string, schema.GroupVersionResource, *http.Request) bool
		state  observed.TargetState
		detail string
		names  []string
	}{
		"Object":          {reason: "it is there", query: queries.New("Pod", queries.Named("web")), state: observed.Complete, names: []string{"web"}},
		"Metadata":        {reason: "it is there", query: queries.New("Pod", queries.Named("web"), queries.MetadataOnly), state: observed.Complete, names: []string{"web"}},
		"NoObject":        {reason: "the API server says so of its name", query: queries.New("Pod", queries.Named("x")), state: observed.Complete},
		"NoObjectByName":  {reason: "the same for metadata", query: queries.New("Pod", queries.Named("x"), queries.MetadataOnly), state: observed.Complete},
		"Selected":        {reason: "the selector goes to the API server", query: queries.New("Pod", queries.Labelled("app=web")), state: observed.Complete, names: []string{"web"}},
		"All":             {reason: "of the namespace, in order", query: queries.New("Pod"), state: observed.Complete, names: []string{"db", "web"}},
		"NameAndLabels":   {reason: "both must hold", query: queries.New("Pod", queries.Named("web"), queries.Labelled("app=db")), state: observed.Complete},
		"ClusterScoped":   {reason: "the namespace is ignored", query: queries.New("Node"), state: observed.Complete, names: []string{"n"}},
		"ClusterScoped1":  {reason: "the namespace is ignored", query: queries.New("Node", queries.Named("n")), state: observed.Complete, names: []string{"n"}},
		"ForbiddenList":   {reason: "says what is missing", query: queries.New("Pod"), deny: []apiserver.Denial{{Resource: "pods", Namespace: "*", Name: "*"}}, state: observed.Forbidden, detail: `the operator is not allowed to list pods in namespace "a"`},
		"ForbiddenGet":    {reason: "says what is missing", query: queries.New("Pod", queries.Named("web")), deny: []apiserver.Denial{{Resource: "pods", Namespace: "*", Name: "*"}}, state: observed.Forbidden, detail: `the operator is not allowed to get pods "web" in namespace "a"`},
		"Nowhere":         {reason: "a name is of one namespace", query: queries.New("Pod", queries.Named("web"), queries.In("")), state: observed.Failed, detail: `pods are namespaced: set reference.namespace for "web"`},
		"NoKind":          {reason: "discovery says so", query: queries.New("Revision", queries.Named("x")), state: observed.NoSuchKind, detail: `the API server does not serve kind "Revision" of serving.example.com/v1`},
		"Bare404":         {reason: "it names no object, so that it is not known to be missing", query: queries.New("Pod", queries.Named("web")), fault: answerWith(404, nil), state: observed.Failed, detail: "the API server serves pods, but responded with 404 to this request"},
		"404OfAnother":    {reason: "another object is missing", query: queries.New("Pod", queries.Named("web")), fault: answerWith(404, &metav1.StatusDetails{Name: "a", Kind: "namespaces"}), state: observed.Failed, detail: "the API server serves pods, but responded with 404 to this request"},
		"404OfTheRequest": {reason: "the client made it up from a page that is no Status", query: queries.New("Pod", queries.Named("web")), fault: answerWith(404, &metav1.StatusDetails{Name: "web", Kind: "pods", Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}}), state: observed.Failed, detail: "the API server serves pods, but responded with 404 to this request"},
		"ListBare404":     {reason: "a list is never missing", query: queries.New("Pod"), fault: answerWith(404, nil), state: observed.Failed, detail: "the API server serves pods, but responded with 404 to this request"},
		"Broken":          {reason: "says what went wrong", query: queries.New("Pod"), fault: answerWith(500, nil), state: observed.Failed, detail: `cannot list pods in namespace "a": made up: InternalError`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			s.Put(apiserver.Pods, "a", "web", map[string]string{"app": "web"})
			s.Put(apiserver.Pods, "a", "db", nil)
			s.Put(apiserver.Pods, "b", "web", map[string]string{"app": "web"})
			s.Put(apiserver.Nodes, "", "n", nil)
			s.Deny(tc.deny...)
			s.SetFault(tc.fault)
			got := newReader(t, s).Read(t.Context(), tc.query)
			if got.State != tc.state || got.Detail != tc.detail {
				t.Errorf("%s: got %s %q, want %s %q", tc.reason, got.State, got.Detail, tc.state, tc.detail)
			}
			if diff := cmp.Diff(tc.names, queries.NamesOf(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if known := tc.state != observed.NoSuchKind; (got.Resource.Resource != "") != known || got.Namespaced != (got.Resource == apiserver.Pods) {
				t.Errorf("it is said to be of %s, in namespaces: %t", got.Resource, got.Namespaced)
			}
		})
	}
}

func TestLiveKindThatIsGoneIsForgotten(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	l := newReader(t, s)
	q := queries.New("Revision", queries.Named("x"))
	if got := l.Read(t.Context(), q); got.State != observed.Complete {
		t.Fatalf("state is %s", got.State)
	}
	s.Uninstall(apiserver.Revisions)
	if got := l.Read(t.Context(), q); got.State != observed.NoSuchKind {
		t.Errorf("state is %s, want NoSuchKind: nothing is known of objects of a kind that is gone", got.State)
	}
}

// TestLiveKindThatHasComeIsSeen shows that a kind which the watches believe to be absent, for a while, is not taken for
// absent by a live read: what is done may rest on it.
func TestLiveKindThatHasComeIsSeen(t *testing.T) {
	s := apiserver.New(t)
	l := newReader(t, s)
	q := queries.New("Revision", queries.Named("x"))
	if _, state, _ := l.resolver.Resolve(t.Context(), q.Group, q.Version, q.Kind); state != observed.NoSuchKind {
		t.Fatalf("state is %s", state)
	}
	s.Install(apiserver.Revisions, "Revision", true)
	s.Put(apiserver.Revisions, "a", "x", nil)
	if got := l.Read(t.Context(), q); got.State != observed.Complete || len(got.Objects) != 1 {
		t.Errorf("%s %q with %d objects, want Complete with 1", got.State, got.Detail, len(got.Objects))
	}
}

func TestLiveReadsPagesAndStartsAgainWhenTheyExpire(t *testing.T) {
	s := apiserver.New(t)
	for i := range 1201 {
		s.Put(apiserver.Pods, "a", fmt.Sprintf("p%04d", i), nil)
	}
	l := newReader(t, s)
	for _, q := range []snapshot.Query{queries.New("Pod"), queries.New("Pod", queries.MetadataOnly)} {
		before := s.Asked("list pods")
		if got := l.Read(t.Context(), q); got.State != observed.Complete || len(got.Objects) != 1201 || got.Objects[1200].Name != "p1200" {
			t.Errorf("%s %q with %d objects", got.State, got.Detail, len(got.Objects))
		}
		if got := s.Asked("list pods") - before; got != 3 {
			t.Errorf("%d pages, want 3", got)
		}
	}
	s.SetFault(func(w http.ResponseWriter, verb string, _ schema.GroupVersionResource, r *http.Request) bool {
		if verb == "list" && strings.Contains(r.URL.RawQuery, "continue=1000") {
			apiserver.Fail(w, http.StatusGone, metav1.StatusReasonExpired, nil)
			return true
		}
		return false
	})
	if got := l.Read(t.Context(), queries.New("Pod")); got.State != observed.Complete || len(got.Objects) != 1201 {
		t.Errorf("%s %q with %d objects", got.State, got.Detail, len(got.Objects))
	}
}
