// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// testAccountRights asks which rights the operator lacks, grants what `rights` prints, and asks again.
func testAccountRights(t *testing.T, s *session, client dynamic.Interface) {
	lacks := "warning: spec: ServiceAccount cleaner-system/cleaner-manager is not allowed to delete configmaps in all namespaces; get configmaps in all namespaces; list configmaps in all namespaces; and 3 more: " +
		"apply what 'kubectl cleaner rights -f FILE' prints"
	s.wants(s.run(0, "validate", "-f", "-", "--live"), "warning: spec: the rights of its account are not checked: the operator's ServiceAccount cleaner-system/cleaner-manager does not exist", "is valid")
	if got := s.run(0, "plan", "-f", "-"); strings.Contains(got, "cleaner-manager") {
		t.Errorf("without an operator, the plan speaks of it:\n%s", got)
	}
	apply := func(u *unstructured.Unstructured) {
		t.Helper()
		group := client.Resource(schema.GroupVersionResource{Group: u.GroupVersionKind().Group, Version: u.GroupVersionKind().Version, Resource: strings.ToLower(u.GetKind()) + "s"})
		if _, err := group.Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	object := func(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		u.SetNamespace(namespace)
		u.SetName(name)
		return u
	}
	apply(object("v1", "Namespace", "", "cleaner-system"))
	apply(object("v1", "ServiceAccount", "cleaner-system", "cleaner-manager"))
	s.wants(s.run(0, "validate", "-f", "-", "--live"), lacks, "is valid")
	s.wants(s.run(0, "plan", "-f", "-"), lacks, "ClusterCleaner chosen at ")
	s.wants(s.run(0, "plan", "-f", "-", "-o", "json"), "ServiceAccount cleaner-system/cleaner-manager is not allowed to delete configmaps")
	s.wants(s.run(2, "plan", "-f", "-", "--service-account", "nobody"), "--service-account nobody is not an account")

	printed := s.run(0, "rights", "-f", "-", "--crds", "testdata/nothing.yaml")
	for text := range strings.SplitSeq(printed, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		apply(u)
	}
	for _, command := range [][]string{{"validate", "-f", "-", "--live"}, {"plan", "-f", "-"}} {
		if got := s.run(0, command...); strings.Contains(got, "cleaner-manager") {
			t.Errorf("%v, after all was granted:\n%s", command, got)
		}
	}
	for resource, name := range map[string]string{"clusterroles": "cleaner-chosen", "clusterrolebindings": "cleaner-chosen"} {
		rbac := client.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource})
		if err := rbac.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
