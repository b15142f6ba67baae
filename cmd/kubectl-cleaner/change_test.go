// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// TestRunMakesNoAuthorWithoutTheFlag shows that a request for an evaluation that would make the caller the author is refused before
// anything is changed, and that the output says so where the flag allows it.
func TestRunMakesNoAuthorWithoutTheFlag(t *testing.T) {
	const becomes = "you are now the author of its spec: it acts with your rights"
	for name, tc := range map[string]struct {
		stored, signed string
		flags          []string
		code           int
		requests       []string
		says           string
	}{
		"Known":          {"alice", "alice", nil, 0, []string{"GET", "PATCH All", "PATCH "}, "cleaner/a evaluation requested\n"},
		"KnownWithFlag":  {"alice", "alice", []string{"--become-author"}, 0, []string{"GET", "PATCH "}, "cleaner/a evaluation requested\n"},
		"Foreign":        {"mallory", "bob", nil, 1, []string{"GET", "PATCH All"}, "would make you the author: the Cleaner would act with your rights. Read the spec (kubectl get cleaner/a -o yaml), then set --become-author"},
		"Absent":         {"", "bob", nil, 1, []string{"GET", "PATCH All"}, "then set --become-author"},
		"AbsentWithFlag": {"", "bob", []string{"--become-author"}, 0, []string{"GET", "PATCH "}, "cleaner/a evaluation requested\n" + becomes},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				author, request := tc.stored, r.Method
				if r.Method == http.MethodPatch {
					author, request = tc.signed, r.Method+" "+r.URL.Query().Get("dryRun")
				}
				requests = append(requests, request)
				w.Header().Set("Content-Type", "application/json")
				if err := json.NewEncoder(w).Encode(map[string]any{
					"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Cleaner",
					"metadata": map[string]any{"name": "a", "namespace": "web", "annotations": map[string]string{v1alpha1.AnnotationAuthor: author}},
				}); err != nil {
					t.Error(err)
				}
			}))
			t.Cleanup(server.Close)
			var out, errs strings.Builder
			args := append([]string{"run", "a", "--server", server.URL, "-n", "web", "--kubeconfig", os.DevNull}, tc.flags...)
			code := run(t.Context(), clock.RealClock{}, args, strings.NewReader(""), &out, &errs)
			got := out.String() + errs.String()
			if code != tc.code || !slices.Equal(requests, tc.requests) || !strings.Contains(got, tc.says) || strings.Contains(got, becomes) != strings.Contains(tc.says, becomes) {
				t.Errorf("got %s", fmt.Sprint(code, requests, got))
			}
		})
	}
}
