// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func TestIsCustom(t *testing.T) {
	for text, want := range map[string]bool{
		"pods.v1.": false, "deployments.v1.apps": false, "customresourcedefinitions.v1.apiextensions.k8s.io": false, "apiservices.v1.apiregistration.k8s.io": false,
		"widgets.v1.example.com": true, "gateways.v1.gateway.networking.k8s.io": true, "pods.v1beta1.metrics.k8s.io": true,
	} {
		gvr, _ := schema.ParseResourceArg(text)
		if got := (Resource{GVR: *gvr}).IsCustom(); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
}

// states answers with a target.
type states observed.Target

func (s states) Read(context.Context, snapshot.Query) observed.Target { return observed.Target(s) }

func TestReadDefinitionState(t *testing.T) {
	object := []observed.Object{{Ref: observed.Ref{UID: "u"}, Generation: 3}}
	for name, tc := range map[string]struct {
		read  states
		state string
		ok    bool
	}{
		"Defined":  {states{State: observed.Complete, Objects: object}, "u, generation 3", true},
		"None":     {states{State: observed.Complete}, "", true},
		"Unread":   {states{State: observed.Failed}, "", false},
		"NotKnown": {states{State: observed.NoSuchKind}, "", false},
	} {
		if state, ok := ReadDefinitionState(t.Context(), tc.read, schema.GroupResource{}); state != tc.state || ok != tc.ok {
			t.Errorf("%s: got %q, %t", name, state, ok)
		}
	}
}
