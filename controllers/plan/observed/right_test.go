// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequiredRights(t *testing.T) {
	jobs := Right{Verb: "create", Group: "batch", Resource: "jobs", Namespace: "shop"}
	pods := Right{Verb: "delete", Resource: "pods", Namespace: "shop"}
	get := Right{Verb: "get", Resource: "pods", Namespace: "shop"}
	r := &Release{Rights: []Right{get, pods}, HookRights: []Right{jobs, get}}
	if diff := cmp.Diff([]Right{pods, get, jobs}, r.RequiredRights(false)); diff != "" {
		t.Errorf("with hooks, each once and in order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Right{pods, get}, r.RequiredRights(true)); diff != "" {
		t.Errorf("without hooks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Right{get, pods}, r.Rights); diff != "" {
		t.Errorf("the release itself is not changed (-want +got):\n%s", diff)
	}
}

func TestRightSaysWhatIsReviewed(t *testing.T) {
	cases := map[string]Right{
		`delete pods in namespace "shop"`:                   {Verb: "delete", Resource: "pods", Namespace: "shop"},
		`delete deployments.apps "web" in namespace "shop"`: {Verb: "delete", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"},
		`delete clusterroles.rbac.authorization.k8s.io`:     {Verb: "delete", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		`create pods/eviction in namespace "shop"`:          {Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "shop"},
	}
	for want, right := range cases {
		if got := right.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
