// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package releasereader

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// apiServer answers each request the same, and knows what was asked, and as whom.
type apiServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func newAPIServer(t *testing.T, status int, body string) *apiServer {
	s := &apiServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, r.Method+" "+r.URL.Path+r.Header.Get("Impersonate-User"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s
}

// What a release says depends on what the API server answers. It is asked in the namespace of the Cleaner, for reads alone, as whoever
// plans and not as the ServiceAccount; and for nothing where no release is to be uninstalled.
func TestReadWanted(t *testing.T) {
	const none = `{"kind": "SecretList", "apiVersion": "v1", "items": []}`
	const denied = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "you may not"}`
	for name, tc := range map[string]struct {
		reason  string
		helm    *v1alpha1.Helm
		status  int
		body    string
		nothing bool
		state   observed.ReleaseState
		blocked string
		detail  string
	}{
		"NoHelm":    {reason: "nothing says which", status: 200, body: none, nothing: true},
		"NotWanted": {reason: "it is named, and stays", helm: &v1alpha1.Helm{Release: "shop"}, status: 200, body: none, nothing: true},
		"Gone":      {reason: "there is none", helm: &v1alpha1.Helm{Release: "shop", Delete: true}, status: 200, body: none, state: observed.ReleaseGone},
		"Forbidden": {
			reason: "who asks may not read it", helm: &v1alpha1.Helm{Release: "shop", Delete: true}, status: 403, body: denied,
			blocked: v1alpha1.ReasonAccessDenied, detail: "you may not",
		},
		"Broken": {
			reason: "what is answered is no list", helm: &v1alpha1.Helm{Release: "shop", Delete: true}, status: 200, body: "[",
			blocked: v1alpha1.ReasonReadFailed, detail: `Release "shop": `,
		},
	} {
		for _, account := range []*v1alpha1.ServiceAccountReference{nil, {Name: "janitor"}} {
			t.Run(name, func(t *testing.T) {
				server := newAPIServer(t, tc.status, tc.body)
				got, err := ReadWanted(t.Context(), &rest.Config{Host: server.URL}, "web", &v1alpha1.Work{Helm: tc.helm, ServiceAccount: account}, plan.Protection{})
				if err != nil {
					t.Fatal(err)
				}
				if tc.nothing {
					if got != nil || len(server.asked) > 0 {
						t.Errorf("%s: got %+v, by %q", tc.reason, got, server.asked)
					}
					return
				}
				if got == nil || got.Name != "shop" || got.State != tc.state || got.Blocked != tc.blocked || !strings.Contains(got.Detail, tc.detail) {
					t.Errorf("%s: got %+v", tc.reason, got)
				}
				for _, asked := range server.asked {
					if asked != "GET /api/v1/namespaces/web/secrets" {
						t.Errorf("%s: it asks for %s", tc.reason, asked)
					}
				}
				if len(server.asked) == 0 {
					t.Error("it asks for nothing")
				}
			})
		}
	}
}

// A configuration by which nobody can ask is an error, and no release.
func TestReadWantedWithoutAnAPIServer(t *testing.T) {
	work := &v1alpha1.Work{Helm: &v1alpha1.Helm{Release: "shop", Delete: true}}
	if got, err := ReadWanted(t.Context(), &rest.Config{Host: "://"}, "web", work, plan.Protection{}); err == nil || got != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	gone := newAPIServer(t, 200, "")
	gone.Close()
	if got, err := ReadWanted(t.Context(), &rest.Config{Host: gone.URL}, "web", work, plan.Protection{}); err != nil || got == nil || got.Blocked != v1alpha1.ReasonReadFailed {
		t.Errorf("of a server that is gone: %+v, %v", got, err)
	}
}
