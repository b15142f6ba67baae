// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// TestFill shows that a list that may not be read is not an empty one, and that of another namespace none of this Cleaner's.
func TestFill(t *testing.T) {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	pod := func(namespace string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": namespace, "name": "a", "uid": namespace, "resourceVersion": "1"},
		}}
	}
	for name, tc := range map[string]struct {
		owner  v1alpha1.Owner
		answer error
		state  observed.TargetState
		detail string
		pods   int
		fails  string
	}{
		"Cleaner":        {owner: &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "web"}}, state: observed.Complete, pods: 1},
		"ClusterCleaner": {owner: &v1alpha1.ClusterCleaner{}, state: observed.Complete, pods: 2},
		"Forbidden": {owner: &v1alpha1.ClusterCleaner{}, answer: apierrors.NewForbidden(gvr.GroupResource(), "", errors.New("no")), state: observed.Forbidden,
			detail: "you are not allowed to list pods in all namespaces"},
		"Away": {owner: &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "web"}}, answer: errors.New("no route"), fails: `cannot list pods in namespace "web": no route`},
	} {
		t.Run(name, func(t *testing.T) {
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "PodList"}, pod("web"), pod("other"))
			client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return tc.answer != nil, nil, tc.answer })
			world := snapshot.NewObjects()
			world.AddKind(gvr.GroupVersion(), metav1.APIResource{Name: "pods", Kind: "Pod", Namespaced: true})
			err := (&Client{Dynamic: client}).addObjects(t.Context(), world, &manifests.Cleaner{Owner: tc.owner}, gvr, true, nil)
			if tc.fails != "" {
				if err == nil || err.Error() != tc.fails {
					t.Errorf("got %v, want %s", err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := world.SortObjects(); err != nil {
				t.Fatal(err)
			}
			got := world.Read(t.Context(), snapshot.Query{Version: "v1", Kind: "Pod", Labels: labels.Everything(), Fields: fields.Everything()})
			if got.State != tc.state || got.Detail != tc.detail || len(got.Objects) != tc.pods {
				t.Errorf("got %v %q with %d Pods, want %v %q with %d", got.State, got.Detail, len(got.Objects), tc.state, tc.detail, tc.pods)
			}
		})
	}
}

// TestPlace shows where in a file that uses a template a field of the template is complained about.
func TestPlace(t *testing.T) {
	plain, using := &v1alpha1.Cleaner{}, &v1alpha1.Cleaner{}
	using.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: "t"}
	for _, tc := range []struct {
		owner      v1alpha1.Owner
		path, want string
	}{
		{plain, "spec.targets[0].name", "spec.targets[0].name"},
		{plain, "spec.ttl", "spec.ttl"},
		{using, "spec.targets[0].name", "spec.templateRef.name"},
		{using, "spec.variables[0]", "spec.templateRef.name"},
		{using, "spec.conditions[0]", "spec.templateRef.name"},
		{using, "spec.rules[0].when", "spec.templateRef.name"},
		{using, "spec.parameters", "spec.templateRef.name"},
		{using, "spec.ttl", "spec.ttl"},
		{using, "spec.cloudEventSink", "spec.cloudEventSink"},
	} {
		if got := (&manifests.Loader{}).FindSourceField(tc.owner, tc.path); got != tc.want {
			t.Errorf("%s is placed at %s, want %s", tc.path, got, tc.want)
		}
	}
}
