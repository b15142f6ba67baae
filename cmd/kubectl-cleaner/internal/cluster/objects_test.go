// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// inCluster is a client of a cluster that serves Pods, Namespaces and no Widgets, and has these objects.
func inCluster(objects ...runtime.Object) *Client {
	kinds := map[schema.GroupVersionResource]string{{Version: "v1", Resource: "pods"}: "PodList", {Version: "v1", Resource: "namespaces"}: "NamespaceList"}
	return &Client{
		Dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...),
		resourceLists: map[schema.GroupVersion]*metav1.APIResourceList{
			{Version: "v1"}: {GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true}, {Name: "pods/status", Kind: "Pod", Namespaced: true},
				{Name: "namespaces", SingularName: "namespace", Kind: "Namespace"},
			}},
			{Group: "example.com", Version: "v1"}: nil,
		},
	}
}

// targetsOf are targets of kinds in the versions v1 of their groups.
func targetsOf(kinds ...schema.GroupKind) (targets []v1alpha1.ClusterTarget) {
	for _, k := range kinds {
		targets = append(targets, v1alpha1.ClusterTarget{Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{APIGroup: k.Group, Version: "v1", Kind: k.Kind}}})
	}
	return targets
}

// TestKindsOfTargets shows what is known of the kinds of targets: nothing of those that are not served.
func TestKindsOfTargets(t *testing.T) {
	got, err := inCluster().FindServedKinds(targetsOf(
		schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Kind: "Widget"}, schema.GroupKind{Kind: "Namespace"}, schema.GroupKind{Group: "example.com", Kind: "Widget"}, schema.GroupKind{Kind: "pods"},
	))
	want := []validation.ServedKind{{Resource: "pods", Namespaced: true}, {}, {Resource: "namespaces"}, {}, {Resource: "pods", Namespaced: true}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestObjectsOfTargets reads the objects of kinds that are served, in the namespace of a Cleaner alone; a kind that is not served is none.
func TestObjectsOfTargets(t *testing.T) {
	object := func(kind, namespace, name string) runtime.Object {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	c := inCluster(object("Pod", "shop", "a"), object("Pod", "shop", "b"), object("Pod", "bank", "c"), object("Namespace", "", "shop"), object("Namespace", "", "bank"))
	kinds := []schema.GroupKind{{Kind: "Pod"}, {Kind: "Pod"}, {Kind: "Widget"}, {Group: "example.com", Kind: "Widget"}, {Kind: "Namespace"}}
	of := &manifests.Cleaner{Owner: &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}}, Work: &v1alpha1.Work{Targets: targetsOf(kinds...)}}
	world, err := c.FetchObjects(t.Context(), of, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		group, kind, namespace string
		state                  observed.TargetState
		names                  []string
	}{
		{"", "Pod", "shop", observed.Complete, []string{"a", "b"}},
		{"", "Namespace", "", observed.Complete, []string{"bank", "shop"}},
		{"", "Widget", "shop", observed.NoSuchKind, nil},
		{"example.com", "Widget", "shop", observed.NoSuchKind, nil},
	} {
		seen := world.Read(t.Context(), snapshot.Query{Group: tc.group, Version: "v1", Kind: tc.kind, Namespace: tc.namespace, Labels: labels.Everything(), Fields: fields.Everything()})
		var names []string
		for i := range seen.Objects {
			names = append(names, seen.Objects[i].Name)
		}
		if seen.State != tc.state || !slices.Equal(names, tc.names) {
			t.Errorf("of %s.%s there are %v: %v %s", tc.kind, tc.group, names, seen.State, seen.Detail)
		}
	}
}
