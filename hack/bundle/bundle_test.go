// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/hack/kustomize"
)

// Nothing of config/manifests is left out because nobody has thought of it.
func TestWhatCannotBeSaidIsAnError(t *testing.T) {
	all, err := kustomize.Build("../../config/manifests")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		more   string
		change func(*unstructured.Unstructured)
		want   string
	}{
		"Good":         {reason: "As it is, it can be said."},
		"Kind":         {reason: "It would be lost.", more: "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}}", want: "not known how OLM installs Ingress a"},
		"Deployments":  {reason: "One of them would be lost.", more: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", want: "two objects of kind Deployment"},
		"NoRole":       {reason: "A right would be lost.", more: "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}, roleRef: {kind: ClusterRole, name: b}}", want: "binds ClusterRole b, which is not there"},
		"OtherSubject": {reason: "Somebody else's right would become the operator's.", more: "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}, roleRef: {kind: ClusterRole, name: cleaner-editor}, subjects: [{kind: User, name: eve}]}", want: "binds others than ServiceAccount cleaner-manager"},
		"Selector": {reason: "OLM would put its own in the place.", change: func(o *unstructured.Unstructured) {
			if o.GetKind() == "ValidatingWebhookConfiguration" {
				o.Object["webhooks"].([]any)[0].(map[string]any)["namespaceSelector"] = map[string]any{}
			}
		}, want: "has a namespaceSelector"},
		"Account": {reason: "It would run without rights.", change: func(o *unstructured.Unstructured) {
			if o.GetKind() == "ServiceAccount" {
				o.SetName("other")
			}
		}, want: "run as ServiceAccount other"},
		"Unknown": {reason: "OLM would drop it.", change: func(o *unstructured.Unstructured) {
			if o.GetKind() == "ClusterServiceVersion" {
				o.Object["spec"].(map[string]any)["minKubernetesVersion"] = "1.30.0"
			}
		}, want: "what OLM does not know"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var objects []*unstructured.Unstructured
			for _, o := range all {
				o = o.DeepCopy()
				if tc.change != nil {
					tc.change(o)
				}
				objects = append(objects, o)
			}
			if tc.more != "" {
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(tc.more), &o.Object); err != nil {
					t.Fatal(err)
				}
				objects = append(objects, o)
			}
			b, err := sort(objects)
			if err == nil {
				_, err = b.files(release{version: "0.1.0", image: "image"})
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got the error %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
