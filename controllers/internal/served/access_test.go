// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/test/apiserver"
)

func TestFindMissingVerbs(t *testing.T) {
	s := apiserver.New(t)
	client, err := authorizationv1client.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	pods := served.Resource{GVR: apiserver.Pods, Kind: "Pod", Namespaced: true}
	s.Deny(apiserver.Denial{Resource: "pods", Namespace: "a"})
	for namespace, want := range map[string][]string{"a": {"list", "watch"}, "b": nil} {
		got, err := served.FindMissingVerbs(t.Context(), client.SelfSubjectAccessReviews(), pods, namespace, "")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("namespace %s: %v (-want +got):\n%s", namespace, err, diff)
		}
	}
	broken := s.Config()
	broken.Host = "http://127.0.0.1:1"
	client, err = authorizationv1client.NewForConfig(broken)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := served.FindMissingVerbs(t.Context(), client.SelfSubjectAccessReviews(), pods, "a", "p"); err == nil || !strings.Contains(err.Error(), `cannot determine whether the operator may list pods "p" in namespace "a"`) {
		t.Errorf("got %v", err)
	}
}
