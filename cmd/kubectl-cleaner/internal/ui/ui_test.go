// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/whynot"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

var begin = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// commands records what pages ask for.
type commands struct {
	plan     *planjson.Plan
	message  string
	dryRun   bool
	due      time.Time
	predicts []forecast.Cleaner
	explains *whynot.Explanation
	wanted   map[string][]Wanted
	err      error
	asked    []string
}

func (c *commands) MakePlan(_ context.Context, u *unstructured.Unstructured) (*Plan, error) {
	c.asked = append(c.asked, "plan "+u.GetName())
	return &Plan{Plan: c.plan, Message: c.message, DryRun: c.dryRun, Due: c.due}, c.err
}

func (c *commands) PrepareForecast(context.Context) (Predict, error) {
	return func(_ context.Context, d *forecast.Document, u *unstructured.Unstructured) error {
		c.asked = append(c.asked, "forecast "+u.GetName())
		d.Cleaners = append(d.Cleaners, c.predicts...)
		return c.err
	}, nil
}

func (c *commands) ExplainObject(_ context.Context, u *unstructured.Unstructured, name string) (*whynot.Explanation, error) {
	c.asked = append(c.asked, "explain "+u.GetName()+" "+name)
	return c.explains, c.err
}

func (c *commands) PrepareWaste(context.Context) (ListWanted, error) {
	return func(_ context.Context, u *unstructured.Unstructured) ([]Wanted, error) {
		c.asked = append(c.asked, "waste "+u.GetName())
		return c.wanted[u.GetName()], c.err
	}, nil
}

func (c *commands) SetSuspend(_ context.Context, of Name, suspend bool) error {
	c.asked = append(c.asked, fmt.Sprint("suspend ", of.DisplayName(), " ", suspend))
	return c.err
}

func (c *commands) RequestEvaluation(_ context.Context, of Name) error {
	c.asked = append(c.asked, "run "+of.DisplayName())
	return c.err
}

// object reads a Cleaner from YAML.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	return u
}

const preview = `
kind: Cleaner
metadata: {name: preview, namespace: team, resourceVersion: "7", generation: 2}
spec: {lifecycle: Recurring, targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: web}}}], rules: [{name: old, forEach: maps.items, when: "true", for: 1h, actions: [{delete: {}}]}]}
status:
  observedGeneration: 2
  conditions: [{type: Ready, status: "True", reason: Holding, message: "Rule old: 2 items wait.", lastTransitionTime: "2026-01-01T11:00:00Z"}]
  nextScheduledEvaluation: "2026-01-01T13:30:00Z"
  counters: {acted: 1234, failed: 2}
  lastActions: [{object: ConfigMap shop/a, rule: old, action: delete, time: "2026-01-01T11:30:00Z", result: deleted}]
  pending: [{rule: old, key: ConfigMap shop/b, until: "2026-01-01T13:30:00Z"}]
`

// newFake returns a client of a cluster with these Cleaners.
func newFake(objects ...*unstructured.Unstructured) *dynamicfake.FakeDynamicClient {
	kinds := map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersion.WithResource("cleaners"): "CleanerList", v1alpha1.GroupVersion.WithResource("clustercleaners"): "ClusterCleanerList",
	}
	var all []runtime.Object
	for _, o := range objects {
		all = append(all, o)
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, all...)
}

// site is a server with a browser that has exchanged the token.
type site struct {
	*Server
	t       testing.TB
	handler http.Handler
	address string
	cookie  *http.Cookie
}

const port = 4711

func newSite(t testing.TB, c Commands, objects ...*unstructured.Unstructured) *site {
	t.Helper()
	s, address, err := NewServer(Options{
		Client: newFake(objects...), Commands: c, Namespace: "team", Context: "staging", Address: "https://cluster.example", Clock: clocktesting.NewFakeClock(begin), Zone: time.FixedZone("CET", 3600), Port: port,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		s.fleet.putRow(summarizeObject(o))
	}
	for _, kind := range []string{"Cleaner", "ClusterCleaner"} {
		s.fleet.setSource(kind, source{Listed: true})
	}
	return &site{Server: s, t: t, handler: s.newHandler(), address: address, cookie: &http.Cookie{Name: s.guard.cookie, Value: s.guard.session}} //nolint:gosec // a browser sends nothing else
}

// ask sends a request, and returns the response.
func (s *site) ask(method, path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, "http://"+s.guard.hosts[0]+path, strings.NewReader(form.Encode()))
	r.AddCookie(s.cookie)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "null")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// page reads a page, and wants its status.
func (s *site) page(want int, path string) string {
	s.t.Helper()
	got := s.ask(http.MethodGet, path, nil)
	if got.Code != want {
		s.t.Fatalf("%s: status %d, not %d: %s", path, got.Code, want, got.Body)
	}
	return got.Body.String()
}

func wants(t testing.TB, got string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in:\n%s", part, got)
		}
	}
}

// oneCookie keeps the cookies of one server.
type oneCookie struct{ cookies []*http.Cookie }

func (j *oneCookie) SetCookies(_ *url.URL, cookies []*http.Cookie) { j.cookies = cookies }

func (j *oneCookie) Cookies(*url.URL) []*http.Cookie { return j.cookies }
