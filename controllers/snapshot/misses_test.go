// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// TestFindMiss asks what leaves a Pod out, and compares each answer with what a read selects.
func TestFindMiss(t *testing.T) {
	world := objectsOf(t,
		`{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {tier: prod}}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, status: {phase: Running}}`)
	if err := world.SortObjects(); err != nil {
		t.Fatal(err)
	}
	o := world.FindNamed(schema.GroupResource{Resource: "pods"}, "shop", "web")
	if o == nil || world.FindNamed(schema.GroupResource{Resource: "pods"}, "shop", "other") != nil {
		t.Fatal("the Pod is not found, or another one is")
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("value-%d", i)
	}
	for name, tc := range map[string]struct {
		namespace string
		change    func(r *v1alpha1.ClusterReference)
		want      string
	}{
		"Selected":          {"", func(r *v1alpha1.ClusterReference) { r.MatchLabels = map[string]string{"app": "web"} }, ""},
		"OwnNamespace":      {"shop", func(*v1alpha1.ClusterReference) {}, ""},
		"OtherNamespace":    {"team", func(*v1alpha1.ClusterReference) {}, "namespace: team"},
		"Name":              {"shop", func(r *v1alpha1.ClusterReference) { r.Name = "db" }, "name: db"},
		"Namespaces":        {"", func(r *v1alpha1.ClusterReference) { r.Namespaces = []string{"a", "b"} }, "namespaces: it does not list shop"},
		"ExcludeNamespaces": {"", func(r *v1alpha1.ClusterReference) { r.ExcludeNamespaces = []string{"shop"} }, "excludeNamespaces: it lists shop"},
		"NamespaceSelector": {"", func(r *v1alpha1.ClusterReference) {
			r.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "preview"}}
		}, `namespaceSelector: tier=preview, and it is "prod"`},
		"NoNamespaceLabel": {"", func(r *v1alpha1.ClusterReference) {
			r.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		}, "namespaceSelector: team=a, and there is no such label"},
		"MatchLabels": {"", func(r *v1alpha1.ClusterReference) { r.MatchLabels = map[string]string{"app": "db"} }, `labels: app=db, and it is "web"`},
		"MatchExpressions": {"", func(r *v1alpha1.ClusterReference) {
			r.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}
		}, `labels: !app, and it is "web"`},
		"FieldSelector": {"", func(r *v1alpha1.ClusterReference) { r.FieldSelector = "status.phase=Failed" }, `fieldSelector: status.phase=Failed, and it is "Running"`},
		"NotField":      {"", func(r *v1alpha1.ClusterReference) { r.FieldSelector = "status.phase!=Running" }, `fieldSelector: status.phase!=Running, and it is "Running"`},
		"ManyValues": {"", func(r *v1alpha1.ClusterReference) {
			r.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: many}}
		}, "labels: app in (value-0,"},
	} {
		t.Run(name, func(t *testing.T) {
			target := &v1alpha1.ClusterTarget{Name: "pods", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}
			tc.change(&target.Reference)
			q, err := NewQuery(tc.namespace, target)
			if err != nil {
				t.Fatal(err)
			}
			got := world.FindMiss(&q, o)
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" || len(got) > 300 {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if read := world.Read(t.Context(), q); (len(read.Objects) == 1) != (got == "") {
				t.Errorf("it is left out by %q, and a read selects %d (%s)", got, len(read.Objects), read.Detail)
			}
		})
	}
}

// A short name stands for a kind of its own group and version only.
func TestResolveShortName(t *testing.T) {
	world, apps := NewObjects(), schema.GroupVersion{Group: "apps", Version: "v1"}
	world.AddKind(apps, metav1.APIResource{Name: "deployments", SingularName: "deployment", Kind: "Deployment", ShortNames: []string{"deploy"}})
	for name, want := range map[string]string{"deploy": "Deployment", "Deploy": "Deployment", "deployment": "deployment", "po": "po"} {
		if got := world.ResolveShortName(apps, name); got != want {
			t.Errorf("%s stands for %s, not for %s", name, got, want)
		}
	}
	if got := world.ResolveShortName(schema.GroupVersion{Version: "v1"}, "deploy"); got != "deploy" {
		t.Errorf("in another group it stands for %s", got)
	}
}

// Why a kind cannot be read is known of this kind alone.
func TestFindFailure(t *testing.T) {
	world := NewObjects()
	world.SetFailure(schema.GroupResource{Resource: "pods"}, observed.Forbidden, "you may not")
	if got := world.FindFailure(schema.GroupResource{Resource: "pods"}); got != "you may not" {
		t.Errorf("it is %q", got)
	}
	if got := world.FindFailure(schema.GroupResource{Resource: "nodes"}); got != "" {
		t.Errorf("of another kind it is %q", got)
	}
}
