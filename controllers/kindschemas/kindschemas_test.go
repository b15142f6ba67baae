// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package kindschemas_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/controllers/kindschemas"
)

// server serves OpenAPI documents, and notes what it is asked.
type server struct {
	mu    sync.Mutex
	pages map[string]string
	asked []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	query.Del("timeout") // every request of a client with one has it
	r.URL.RawQuery = query.Encode()
	s.asked = append(s.asked, r.URL.RequestURI())
	page, ok := s.pages[r.URL.RequestURI()]
	switch {
	case page == "broken":
		w.WriteHeader(http.StatusInternalServerError)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = w.Write([]byte(page))
	}
}

// takeAsked returns what was asked since it was last called.
func (s *server) takeAsked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func newReader(t *testing.T, pages map[string]string) (*kindschemas.Reader, *server, *clocktesting.FakePassiveClock) {
	t.Helper()
	s := &server{pages: pages}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	c := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	return kindschemas.NewReader(client.RESTClient(), c), s, c
}

// document is an OpenAPI document of a kind whose spec has these fields.
func document(kind string, fields ...string) string {
	var all []string
	for _, f := range fields {
		all = append(all, fmt.Sprintf("%q: {\"type\": \"string\"}", f))
	}
	return fmt.Sprintf(`{"components": {"schemas": {"x": {"type": "object", "properties": {"spec": {"type": "object", "properties": {%s}}},
		"x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": %q}]}}}}`, strings.Join(all, ","), kind)
}

const index = `{"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=core"}, "apis/example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/example.com/v1?hash=%s"}}}`

func TestReaderKeepsSchemas(t *testing.T) {
	const urlA, urlB = "/openapi/v3/apis/example.com/v1?hash=A", "/openapi/v3/apis/example.com/v1?hash=B"
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	r, s, c := newReader(t, map[string]string{"/openapi/v3": fmt.Sprintf(index, "A"), urlA: document("Widget", "size")})
	read := func(when, field string, asks ...string) {
		t.Helper()
		found, err := r.FindSchema(t.Context(), widget)
		if err != nil || found == nil || !slices.Equal(found.Fields["spec"].ListFields(), []string{field}) {
			t.Fatalf("%s: got %v, %v", when, found, err)
		}
		if diff := cmp.Diff(asks, s.takeAsked()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	named := func(when, url string) {
		t.Helper()
		if got, err := r.FindDocument(t.Context(), widget.GroupVersion()); got != url || err != nil {
			t.Errorf("%s: the document is %q, %v", when, got, err)
		}
		if got, err := r.FindDocument(t.Context(), schema.GroupVersion{Group: "example.com", Version: "v2"}); got != "" || err != nil {
			t.Errorf("%s: there is a document %q, %v", when, got, err)
		}
		if asked := s.takeAsked(); asked != nil {
			t.Errorf("%s: it asks for %v", when, asked)
		}
	}
	renew := func(when string, want bool) {
		t.Helper()
		if changed, err := r.Renew(t.Context()); err != nil || changed != want {
			t.Errorf("%s: changed is %v, %v", when, changed, err)
		}
		if diff := cmp.Diff([]string{"/openapi/v3"}, s.takeAsked()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	read("at first", "size", "/openapi/v3", urlA)
	read("again", "size")
	renew("without a change", false)
	s.mu.Lock() // the definition changes, and with it the hash
	s.pages["/openapi/v3"], s.pages[urlB] = fmt.Sprintf(index, "B"), document("Widget", "colour")
	s.mu.Unlock()
	read("at once", "size")
	named("at once", urlA)
	renew("after the change", true)
	named("renewed", urlB)
	read("renewed", "colour", urlB)
	c.SetTime(c.Now().Add(29 * time.Second))
	read("after 29 seconds", "colour")
	c.SetTime(c.Now().Add(time.Second))
	read("after 30 seconds", "colour", "/openapi/v3")
}

func TestReaderWithoutDocuments(t *testing.T) {
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	const url = "/openapi/v3/apis/example.com/v1?hash=A"
	for name, tc := range map[string]struct {
		pages map[string]string
		want  string // of the error
	}{
		"no OpenAPI v3":      {pages: map[string]string{}},
		"no such group":      {pages: map[string]string{"/openapi/v3": `{"paths": {}}`}},
		"gone since":         {pages: map[string]string{"/openapi/v3": fmt.Sprintf(index, "A")}},
		"no such kind":       {pages: map[string]string{"/openapi/v3": fmt.Sprintf(index, "A"), url: document("Gadget")}},
		"broken index":       {pages: map[string]string{"/openapi/v3": "broken"}, want: "cannot read /openapi/v3"},
		"index of garbage":   {pages: map[string]string{"/openapi/v3": "garbage"}, want: "cannot read the list of OpenAPI documents"},
		"broken document":    {pages: map[string]string{"/openapi/v3": fmt.Sprintf(index, "A"), url: "broken"}, want: "cannot read " + url},
		"document too large": {pages: map[string]string{"/openapi/v3": fmt.Sprintf(index, "A"), url: strings.Repeat(" ", 32<<20) + "{}"}, want: "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _ := newReader(t, tc.pages)
			found, err := r.FindSchema(t.Context(), widget)
			switch {
			case found != nil:
				t.Errorf("got %v", found)
			case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestReaderStopsWithItsContext(t *testing.T) {
	r, _, _ := newReader(t, map[string]string{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.FindSchema(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}); err == nil {
		t.Error("it has read without a context")
	}
}

// source has the schemas of some kinds, and fails for one.
type source map[string]*objectschema.Schema

func (s source) FindSchema(_ context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
	if gvk.Kind == "Broken" {
		return nil, fmt.Errorf("%s cannot be read", gvk.GroupVersion())
	}
	return s[gvk.Kind], nil
}

func (s source) Renew(context.Context) (changed bool, err error) { return false, nil }

func TestFindKinds(t *testing.T) {
	target := func(name, kind string) v1alpha1.ClusterTarget {
		t := v1alpha1.ClusterTarget{Name: name}
		t.Reference.APIGroup, t.Reference.Version, t.Reference.Kind = "example.com", "v1", kind
		return t
	}
	hidden := target("hidden", "Widget")
	hidden.IncludeWhenEvaluating = new(bool)
	kinds, err := kindschemas.FindKinds(t.Context(), source{"Widget": {}}, []v1alpha1.ClusterTarget{target("a", "Widget"), target("b", "Broken"), target("c", "Unknown"), hidden})
	if len(kinds) != 1 || kinds["a"].Name != "Widget" || kinds["a"].Schema == nil {
		t.Errorf("got %v", kinds)
	}
	if err == nil || err.Error() != "cannot read the schemas of all kinds: Broken: example.com/v1 cannot be read" {
		t.Errorf("got %v", err)
	}
}

// aging is a source that does not know the newest schema before it is renewed.
type aging struct {
	source
	newest  *objectschema.Schema
	failure error
}

func (a *aging) Renew(context.Context) (changed bool, err error) {
	changed = a.newest != nil
	if changed {
		a.source = source{"Widget": a.newest}
	}
	return changed, a.failure
}

// A field that a definition has since a moment ago is no error, although the schema that was read before does not have it. Where that cannot
// be found out, it is a warning.
func TestCheckFieldsRenewsSchemas(t *testing.T) {
	having := func(field string) *objectschema.Schema {
		return &objectschema.Schema{Types: objectschema.Map, Fields: map[string]*objectschema.Schema{field: nil}}
	}
	work := &v1alpha1.Work{}
	work.Conditions = []string{"has(w.size)"}
	work.Targets = []v1alpha1.ClusterTarget{{Name: "w"}}
	reference := &work.Targets[0].Reference
	reference.APIGroup, reference.Version, reference.Kind, reference.Name = "example.com", "v1", "Widget", "w"
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	programs, errs := compiler.Compile(t.Context(), work)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for name, tc := range map[string]struct {
		source          *aging
		errors, warning string
	}{
		"Known":     {source: &aging{source: source{"Widget": having("size")}, failure: errors.New("it is not asked")}},
		"Unchanged": {source: &aging{source: source{"Widget": having("colour")}}, errors: "Widget has no field size"},
		"Changed":   {source: &aging{source: source{"Widget": having("colour")}, newest: having("size")}},
		"Worse":     {source: &aging{source: source{"Widget": having("colour")}, newest: having("form")}, errors: "its fields are form"},
		"Away":      {source: &aging{source: source{"Widget": having("colour")}, failure: errors.New("the API server is away")}, warning: "the API server is away"},
	} {
		t.Run(name, func(t *testing.T) {
			errs, likely := kindschemas.CheckFields(t.Context(), tc.source, work, programs)
			if (len(errs) > 0) != (tc.errors != "") || !strings.Contains(fmt.Sprint(errs), tc.errors) {
				t.Errorf("got errors %v", errs)
			}
			if (len(likely) > 0) != (tc.warning != "") || !strings.Contains(fmt.Sprint(likely), tc.warning) {
				t.Errorf("got warnings %v", likely)
			}
			known, likelyKnown, unread := kindschemas.CheckKnownFields(t.Context(), tc.source, work, programs)
			if fmt.Sprint(known) != fmt.Sprint(errs) || len(likelyKnown) > 0 || (unread != nil) != (tc.warning != "") {
				t.Errorf("apart: got errors %v, warnings %v, unread %v", known, likelyKnown, unread)
			}
		})
	}
}

// Items of Helm releases have a schema of their own, whatever the API server says of Secrets.
func TestFieldsOfReleases(t *testing.T) {
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secrets := source{"Secret": {Types: objectschema.Map, Fields: map[string]*objectschema.Schema{"data": nil}}}
	for when, want := range map[string]string{
		`item.revision > 3 && item.status == "superseded" && time - timestamp(item.lastDeployed) > duration("1h")`: "",
		`item.chart.name == "shop" && item.?labels.team.orValue("") == "a" && item.metadata.name != ""`:            "",
		`item.statuss == "deployed"`:            `HelmRelease has no field statuss`,
		`item.chart.vrsion == "1"`:              `HelmRelease has no field chart.vrsion`,
		`item.revision == "3"`:                  `revision of a HelmRelease is an integer, and never a string`,
		`item.data.release != ""`:               `HelmRelease has no field data; expressions cannot read the record itself`,
		`item.?manifest.hasValue()`:             `HelmRelease has no field manifest; expressions cannot read the record itself`,
		`item.version > 3`:                      `HelmRelease has no field version; it is revision, or chart.version`,
		`item.info.status == "failed"`:          `HelmRelease has no field info; status, firstDeployed and lastDeployed`,
		`item.status == "Deployed"`:             `status of a HelmRelease is hardly ever "Deployed"`,
		`releases.items.exists(r, r.nme == "")`: `HelmRelease has no field nme`,
	} {
		work := &v1alpha1.Work{}
		work.Lifecycle = v1alpha1.LifecycleRecurring
		work.Targets = v1alpha1.ResolveTargets([]v1alpha1.ClusterTarget{{Name: "releases", HelmReleases: &v1alpha1.ClusterHelmReleases{}}})
		work.Rules = []v1alpha1.Rule{{Name: "r", ForEach: "releases.items", When: when, Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}}}
		programs, errs := compiler.Compile(t.Context(), work)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		errs, likely := kindschemas.CheckFields(t.Context(), secrets, work, programs)
		said := fmt.Sprint(errs, likely)
		if want == "" && len(errs)+len(likely) > 0 || want != "" && !strings.Contains(said, want) {
			t.Errorf("%s: got %s, want %q", when, said, want)
		}
	}
}
