// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/cluster"
)

// unreadableLarge is what is told of an object that is too large.
const unreadableLarge = "it would take more than 24 MiB of memory; select objects without it"

// A custom resource that is made to be large in memory is neither read nor taken for absent: who selects it is told so, by
// what is watched and by what is read live, and nobody else notices.
func TestClusterHasAnObjectThatIsTooLarge(t *testing.T) {
	gadgets := schema.GroupVersionResource{Group: "large.example.com", Version: "v1", Resource: "gadgets"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.large.example.com"},
		"spec": map[string]any{
			"group": gadgets.Group, "scope": "Namespaced", "names": map[string]any{"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	gadget := func(name, value string, items int) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "large.example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": name, "labels": map[string]any{"size": value}},
			"spec": slices.Repeat([]any{map[string]any{"a": map[string]any{}}}, items),
		}}
	}
	r := newReal(t)
	r.may(gadgets.Group, "gadgets")
	crds := r.dynamic.Resource(crdsAPI)
	t.Cleanup(func() { // other tests read all that there is
		if err := cluster.RemoveCRD(context.Background(), shared.Config(), "gadgets.large.example.com"); err != nil {
			t.Error(err)
		}
	})
	if _, err := crds.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := r.dynamic.Resource(gadgets).Namespace(r.namespace)
	until(t, "a gadget is created", func() bool {
		_, err := client.Create(t.Context(), gadget("small", "small", 1), metav1.CreateOptions{})
		return err == nil
	})
	group := func(q *snapshot.Query) { q.Group = gadgets.Group }
	all, small, one := r.query("gadget", group), r.query("gadget", group, labelled("size=small")), r.query("gadget", group, named("large"))
	metadata := r.query("gadget", group)
	metadata.MetadataOnly = true
	r.SetInterests(owner("all"), interests(all, one, metadata))
	r.SetInterests(owner("small"), interests(small))
	r.reads(all, plan.Complete, "small")
	r.reads(one, plan.Complete)

	r.wakes(owner("all"), "an object that is too large", func() {
		if _, err := client.Create(t.Context(), gadget("large", "large", 110_000), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	unreadable := `cannot read gadgets.large.example.com "large" in namespace "` + r.namespace + `": ` + unreadableLarge
	for name, tc := range map[string]struct {
		query snapshot.Query
		live  string // what is told of it then
	}{
		"AllOfThem": {all, `cannot list gadgets.large.example.com in namespace "` + r.namespace + `": ` + unreadable},
		"OfItsName": {one, `cannot get gadgets.large.example.com "large" in namespace "` + r.namespace + `": ` + unreadableLarge},
	} {
		r.says(tc.query, plan.Failed, unreadable)
		if got := r.live.Read(t.Context(), tc.query); got.State != plan.Failed || got.Detail != tc.live || got.Objects != nil {
			t.Errorf("%s, live: got %s %q with %v, want %q", name, got.State, got.Detail, namesOf(got), tc.live)
		}
	}
	for _, q := range []snapshot.Query{small, metadata} { // who does not select it, and who reads no more than its metadata
		names := []string{"small"}
		if q.MetadataOnly {
			names = []string{"large", "small"}
		}
		r.reads(q, plan.Complete, names...)
		r.livesAs(q, plan.Complete, names...)
	}

	r.wakes(owner("all"), "the end of it", func() {
		if err := client.Delete(t.Context(), "large", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(all, plan.Complete, "small")
	r.reads(one, plan.Complete)
}

// One of Kubernetes' own kinds, which is sent in protobuf, is treated the same.
func TestClusterHasAnObjectOfAKnownKindThatIsTooLarge(t *testing.T) {
	r := newReal(t)
	r.may(networkingv1.GroupName, "networkpolicies")
	policies := r.admin.NetworkingV1().NetworkPolicies(r.namespace)
	rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}
	if _, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: networkingv1.NetworkPolicySpec{Ingress: slices.Repeat([]networkingv1.NetworkPolicyIngressRule{rule}, 60_000)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // other tests read all that there is
		if err := policies.Delete(context.Background(), "large", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	q := r.query("NetworkPolicy", func(q *snapshot.Query) { q.Group = networkingv1.GroupName })
	r.SetInterests(owner("c"), interests(q))
	unreadable := `cannot read networkpolicies.networking.k8s.io "large" in namespace "` + r.namespace + `": ` + unreadableLarge
	r.says(q, plan.Failed, unreadable)
	if got := r.live.Read(t.Context(), q); got.State != plan.Failed || !strings.HasSuffix(got.Detail, unreadable) {
		t.Errorf("live: got %s %q", got.State, got.Detail)
	}
}

// An API server that sends lists, and no stream of what there is, is read the same.
func TestListHasAnObjectThatIsTooLarge(t *testing.T) {
	s := newAPIServer(t)
	s.install(revisions, "Revision", true)
	s.setFault(func(w http.ResponseWriter, _ string, _ schema.GroupVersionResource, r *http.Request) bool {
		streams := r.URL.Query().Get("sendInitialEvents") != ""
		if streams {
			fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, nil)
		}
		return streams
	})
	s.put(revisions, "a", "large", map[string]string{"size": "large"}, map[string]any{"spec": slices.Repeat([]any{map[string]any{"a": map[string]any{}}}, 110_000)})
	s.put(revisions, "a", "small", map[string]string{"size": "small"})
	r := newRig(t, s)
	all, small := query("Revision"), query("Revision", labelled("size=small"))
	metadata := all
	metadata.MetadataOnly = true
	r.SetInterests(owner("c"), interests(all, small, metadata))
	r.says(all, plan.Failed, `cannot read revisions.serving.example.com "large" in namespace "a": `+unreadableLarge)
	r.reads(small, plan.Complete, "small")
	r.reads(metadata, plan.Complete, "large", "small")
	if s.asked("list revisions") == 0 {
		t.Error("nothing was listed")
	}
}
