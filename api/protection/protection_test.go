// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestIsProtected(t *testing.T) {
	for resource, want := range map[string]bool{
		"namespaces":             true,
		"nodes":                  true,
		"persistentvolumes":      true,
		"persistentvolumeclaims": false,
		"secrets":                false,
		"nodes.metrics.k8s.io":   false,
		"deployments.apps":       false,
		"customresourcedefinitions.apiextensions.k8s.io":               true,
		"clusterroles.rbac.authorization.k8s.io":                       true,
		"what-comes-later.rbac.authorization.k8s.io":                   true,
		"clusterroles.authorization.openshift.io":                      true,
		"projects.project.openshift.io":                                true,
		"cleaners.cleaner.vtex.dev":                                    true,
		"validatingwebhookconfigurations.admissionregistration.k8s.io": true,
	} {
		if got := IsProtected(schema.ParseGroupResource(resource)); got != want {
			t.Errorf("%s: %t, want %t", resource, got, want)
		}
	}
}

func TestDescribeProtected(t *testing.T) {
	got := DescribeProtected(schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "roles"})
	want := "roles.rbac.authorization.k8s.io are protected unless the operator runs with --allow-protected-kinds=roles.rbac.authorization.k8s.io"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestIsNamespace(t *testing.T) {
	for resource, want := range map[string]bool{
		"namespaces": true, "projects.project.openshift.io": true, "projects": false, "namespaces.project.openshift.io": false, "nodes": false,
	} {
		if got := IsNamespace(schema.ParseGroupResource(resource)); got != want {
			t.Errorf("%s: %t, want %t", resource, got, want)
		}
	}
}

// Whoever gets the list may change it: the next one gets the same.
func TestProtectedNamespaces(t *testing.T) {
	ProtectedNamespaces()[0] = "default"
	if got := strings.Join(ProtectedNamespaces(), " "); got != "kube-system kube-public kube-node-lease" {
		t.Errorf("got %s", got)
	}
}
