// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// manyServer has Cleaners in two namespaces and a ClusterCleaner. It lists one at a time, refuses to change one, and keeps what is asked.
type manyServer struct {
	t        *testing.T
	requests []string
}

func (s *manyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/apis/"+v1alpha1.GroupVersion.String())
	cleaner := func(kind, namespace, name string, suspend bool) map[string]any {
		return map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": map[string]any{"suspend": suspend}}
	}
	list := func(kind string, items ...map[string]any) map[string]any {
		metadata := map[string]any{"resourceVersion": "1"}
		if r.URL.Query().Get("continue") == "" && len(items) > 1 {
			items, metadata["continue"] = items[:1], "next"
		} else if len(items) > 1 {
			items = items[1:]
		}
		return map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind + "List", "metadata": metadata, "items": items}
	}
	w.Header().Set("Content-Type", "application/json")
	var answer map[string]any
	switch {
	case r.Method == http.MethodPatch:
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			s.t.Error(err)
		}
		text, _ := json.Marshal(body)
		s.requests = append(s.requests, path+" "+string(text))
		if strings.HasSuffix(path, "/refused") {
			w.WriteHeader(http.StatusForbidden)
			answer = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "you may not"}
			break
		}
		answer = cleaner("Cleaner", "web", "a", true)
	case path == "/clustercleaners":
		answer = list("ClusterCleaner", cleaner("ClusterCleaner", "", "everywhere", false))
	case path == "/cleaners":
		answer = list("Cleaner", cleaner("Cleaner", "shop", "refused", false), cleaner("Cleaner", "web", "a", false), cleaner("Cleaner", "web", "quiet", true))
	case path == "/namespaces/web/cleaners":
		s.requests = append(s.requests, "labels "+r.URL.Query().Get("labelSelector"))
		answer = list("Cleaner", cleaner("Cleaner", "web", "a", false))
	default:
		s.t.Errorf("an unknown path: %s", path)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

// All Cleaners of a namespace or of the cluster are changed, each with a line; one that cannot be changed does not keep the others from it.
func TestSuspendAll(t *testing.T) {
	const change = ` {"spec":{"suspend":true}}`
	for name, tc := range map[string]struct {
		args     []string
		code     int
		requests []string
		says     []string
	}{
		"Namespace": {[]string{"suspend", "--all"}, 0, []string{"labels ", "/namespaces/web/cleaners/a" + change}, []string{"cleaner/a suspended\n"}},
		"Labels":    {[]string{"suspend", "--all", "-l", "team=web"}, 0, []string{"labels team=web", "/namespaces/web/cleaners/a" + change}, []string{"cleaner/a suspended\n"}},
		"Cluster": {
			[]string{"suspend", "--all", "-A"}, 1,
			[]string{"/clustercleaners/everywhere" + change, "/namespaces/shop/cleaners/refused" + change, "/namespaces/web/cleaners/a" + change},
			[]string{"clustercleaner/everywhere suspended\n", "cleaner/a in namespace web suspended\n", "cleaner/quiet in namespace web was not changed: it is suspended already\n", "cannot change cleaner/refused in namespace shop: you may not"},
		},
		"Resume":      {[]string{"resume", "--all"}, 0, []string{"labels "}, []string{"cleaner/a was not changed: it is not suspended\n"}},
		"Nothing":     {[]string{"suspend"}, 2, nil, []string{"name a Cleaner, or set --all"}},
		"Both":        {[]string{"suspend", "a", "--all"}, 2, nil, []string{"leave the name out"}},
		"OnlyA":       {[]string{"suspend", "-A"}, 2, nil, []string{"name a Cleaner, or set --all"}},
		"NameAndA":    {[]string{"suspend", "a", "-A"}, 2, nil, []string{"set --all too, and leave the name out"}},
		"NameAndL":    {[]string{"resume", "a", "-l", "x=y"}, 2, nil, []string{"set --all too, and leave the name out"}},
		"TooManyArgs": {[]string{"suspend", "a", "b"}, 2, nil, []string{"accepts at most 1 arg"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &manyServer{t: t}
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			var out, errs strings.Builder
			code := run(t.Context(), clock.RealClock{}, append(tc.args, "--server", server.URL, "-n", "web", "--kubeconfig", os.DevNull), strings.NewReader(""), &out, &errs)
			got := out.String() + errs.String()
			if code != tc.code || !slices.Equal(s.requests, tc.requests) {
				t.Errorf("code %d, requests %q, and it says %s", code, s.requests, got)
			}
			for _, says := range tc.says {
				if !strings.Contains(got, says) {
					t.Errorf("it says %s, and not %s", got, says)
				}
			}
		})
	}
}
