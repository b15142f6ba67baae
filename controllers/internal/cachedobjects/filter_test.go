// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/snapshot"
)

// annotated is the metadata of a ConfigMap with an annotation.
func annotated(key string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "c", UID: "u", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
	if key != "" {
		m.Annotations = map[string]string{key: "1h"}
	}
	return m
}

var ofConfigMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// anyQuery is the query of a target of all kinds.
func anyQuery(annotations string, l labels.Selector) *snapshot.Query {
	return &snapshot.Query{OfAnyKind: true, MetadataOnly: true, Annotations: annotations, Labels: l}
}

func TestFilterOf(t *testing.T) {
	if got := FilterOf(&snapshot.Query{Labels: labels.SelectorFromSet(labels.Set{"a": "b"}), MetadataOnly: true}); got != (Filter{}) {
		t.Errorf("a query of one kind has the filter %+v", got)
	}
	all, some := FilterOf(anyQuery("", labels.Everything())), FilterOf(anyQuery("x,y", labels.SelectorFromSet(labels.Set{"a": "b"})))
	if all == (Filter{}) || all == some || some.Labels != "a=b" || some.Annotations != "x,y" {
		t.Errorf("got %+v and %+v", all, some)
	}
}

// An informer with a filter holds the metadata of what it selects, and knows of the rest that it left it out.
func TestFilterMakesObjects(t *testing.T) {
	for key, selected := range map[string]bool{"x": true, "y": true, "z": false, "": false} {
		f := FilterOf(anyQuery("x,y", labels.Everything()))
		o, err := f.NewObject(ofConfigMaps, "ConfigMap", annotated(key), nil)
		if err != nil || o.LeftOut == selected || o.Name != "c" || o.Namespace != "a" || o.ResourceVersion != "7" {
			t.Fatalf("%q: %+v: %v", key, o, err)
		}
		converted, is, err := f.ConvertSelected(ofConfigMaps, "ConfigMap", annotated(key))
		if err != nil || is != selected {
			t.Errorf("%q is selected live: %t: %v", key, is, err)
		}
		if !selected {
			if o.Value != nil || o.Labels != nil {
				t.Errorf("of what is left out it holds %+v", o)
			}
			continue
		}
		want := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
			"name": "c", "namespace": "a", "uid": "u", "resourceVersion": "7", "annotations": map[string]any{key: "1h"},
		}}
		if diff := cmp.Diff(want, o.Value); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, converted.Value); diff != "" || converted.Annotations != "x,y" {
			t.Errorf("live %q (-want +got):\n%s", converted.Annotations, diff)
		}
		if o.Content == 0 || o.Annotations != "x,y" {
			t.Errorf("it is %+v", o)
		}
		again, err := f.NewObject(ofConfigMaps, "ConfigMap", o, nil)
		if err != nil || again != o {
			t.Errorf("one that is made is made again: %v", err)
		}
	}
	if _, err := FilterOf(anyQuery("x", labels.Everything())).NewObject(ofConfigMaps, "ConfigMap", &corev1.ConfigMap{}, nil); err == nil {
		t.Error("a whole object is taken for metadata")
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "c"}, "data": map[string]any{"k": "v"}}}
	if o, err := (Filter{}).NewObject(ofConfigMaps, "ConfigMap", u, nil); err != nil || o.LeftOut || o.Value["data"] == nil {
		t.Errorf("without a filter: %+v: %v", o, err)
	}
}

// A query with annotations matches only what was selected by the same: others know nothing of the annotations of what they hold.
func TestQueryMatchesByAnnotations(t *testing.T) {
	by, err := FilterOf(anyQuery("x", labels.Everything())).NewObject(ofConfigMaps, "ConfigMap", annotated("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := NewObject(ofConfigMaps, "ConfigMap", annotated("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		o    *Object
		keys string
		want bool
	}{{by, "x", true}, {by, "", true}, {by, "y", false}, {plain, "x", false}, {plain, "", true}} {
		q := newQuery()
		q.Annotations = tc.keys
		if got := tc.o.MatchesQuery(&q, true, snapshot.BuiltinFieldLabels(ofConfigMaps.GroupResource())); got != tc.want {
			t.Errorf("one selected by %q matches %q: %t", tc.o.Annotations, tc.keys, got)
		}
	}
}
