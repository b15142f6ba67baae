// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/queries"
)

const (
	// deepestField and deepestManaged are how deep the value of a field, or of managedFields, may be for an API server to store the object.
	deepestField, deepestManaged = 9998, 9995
	// unreadableDeep is what is told of an object that is too deep.
	unreadableDeep = "it is nested more than 1000 deep; select objects without it"
)

// An API server stores objects that no decoder can read in a list or in an event. One whose fields are so deep is an error to whoever
// selects it, and to nobody else; one whose managedFields are so deep is read as any other. Both for what is watched and what is read live.
func TestClusterHasAnObjectThatIsTooDeep(t *testing.T) {
	for name, wrap := range map[string]transport.WrapperFunc{
		"Streamed": func(rt http.RoundTripper) http.RoundTripper { return rt },
		"Listed":   func(rt http.RoundTripper) http.RoundTripper { return listsOnly{rt} },
	} {
		t.Run(name, func(t *testing.T) { readBesidesDeep(newRealThrough(t, wrap), strings.ToLower(name)) })
	}
}

func readBesidesDeep(r *realWorld, name string) {
	r.Helper()
	t := r.T
	gadgets := schema.GroupVersionResource{Group: name + ".example.com", Version: "v1", Resource: "gadgets"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": gadgets.GroupResource().String()},
		"spec": map[string]any{
			"group": gadgets.Group, "scope": "Namespaced", "names": map[string]any{"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	r.may(gadgets.Group, "gadgets")
	t.Cleanup(func() { // other tests read all that there is
		if err := cluster.RemoveCRD(context.Background(), shared.Config(), gadgets.GroupResource().String()); err != nil {
			t.Error(err)
		}
	})
	if _, err := r.dynamic.Resource(crdsAPI).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	other, err := shared.Namespace(t.Context(), "clean")
	if err != nil {
		t.Fatal(err)
	}
	gadget := func(namespace, name string) error {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget", "metadata": map[string]any{"name": name}}}
		_, err := r.dynamic.Resource(gadgets).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
		return err
	}
	until(t, "a gadget is created", func() bool { return gadget(other, "a") == nil })
	for _, name := range []string{"deep", "managed"} {
		if err := gadget(r.namespace, name); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(name, patch string) { // a busy API server takes longer for so deep an object than it gives a request
		until(t, name+" is patched", func() bool {
			_, err := r.dynamic.Resource(gadgets).Namespace(r.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil && !apierrors.IsTimeout(err) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	managed := func(name string) {
		patch(name, `{"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"`+gadgets.GroupVersion().String()+`","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":`+
			strings.Repeat(`{"f:a":`, deepestManaged)+"{}"+strings.Repeat("}", deepestManaged)+`}]}}`)
	}
	managed("managed")
	patch("deep", `{"spec":`+strings.Repeat("[", deepestField)+strings.Repeat("]", deepestField)+`}`)

	group := func(q *snapshot.Query) { q.Group = gadgets.Group }
	own, one, clean := r.query("Gadget", group), r.query("Gadget", group, queries.Named("managed")), r.query("Gadget", group)
	clean.Namespace = other
	outside := queries.New("Gadget", group, queries.Except(r.namespace))
	metadata := r.query("Gadget", group)
	metadata.MetadataOnly = true
	r.SetInterests(owner("own"), interests(own, one, metadata))
	r.SetInterests(owner("clean"), interests(clean, outside))
	read := func(beside ...string) {
		t.Helper()
		for _, q := range []snapshot.Query{clean, outside} {
			r.reads(q, observed.Complete, beside...)
			r.livesAs(q, observed.Complete, beside...)
		}
		r.reads(one, observed.Complete, "managed")
		r.livesAs(one, observed.Complete, "managed")
		r.reads(metadata, observed.Complete, "deep", "managed")
		r.livesAs(metadata, observed.Complete, "deep", "managed")
		unreadable := `cannot read Gadget ` + r.namespace + `/deep: ` + unreadableDeep
		r.says(own, observed.Failed, unreadable)
		if got := r.live.Read(t.Context(), own); got.State != observed.Failed || !strings.HasSuffix(got.Detail, unreadable) {
			t.Errorf("live: got %s %q", got.State, got.Detail)
		}
	}
	read("a")
	r.wakes(owner("clean"), "another object", func() { // and the watch goes on past what changes
		managed("managed")
		patch("deep", `{"metadata":{"labels":{"a":"b"}}}`)
		if err := gadget(other, "b"); err != nil {
			t.Error(err)
		}
	})
	read("a", "b")
	r.wakes(owner("own"), "the end of it", func() {
		if err := r.dynamic.Resource(gadgets).Namespace(r.namespace).Delete(t.Context(), "deep", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(own, observed.Complete, "managed")
}
