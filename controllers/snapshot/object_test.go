// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// What decisions see of an object is the same, whether all of it was read or its metadata alone.
func TestObjectsAreSeenTheSame(t *testing.T) {
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	base := metav1.ObjectMeta{Namespace: "shop", Name: "w", UID: "uid", ResourceVersion: "7"}
	ref := observed.Ref{Resource: widgets, Kind: "Widget", Namespace: "shop", Name: "w", UID: "uid", ResourceVersion: "7"}
	for name, tc := range map[string]struct {
		reason string
		change func(m *metav1.ObjectMeta)
		want   observed.Object
	}{
		"Plain":      {"nothing is made up", func(*metav1.ObjectMeta) {}, observed.Object{Ref: ref}},
		"Labels":     {"selectors look at them", func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} }, observed.Object{Ref: ref, Labels: map[string]string{"a": "b"}}},
		"Finalizers": {"they hold it", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"b", "a"} }, observed.Object{Ref: ref, Finalizers: []string{"b", "a"}}},
		"Going":      {"it was deleted", func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &now }, observed.Object{Ref: ref, Terminating: true}},
		"ByLabel": {
			"its label protects it", func(m *metav1.ObjectMeta) { m.Labels = map[string]string{v1alpha1.ProtectKey: "true"} },
			observed.Object{Ref: ref, Labels: map[string]string{v1alpha1.ProtectKey: "true"}, Protected: true},
		},
		"ByAnnotation": {
			"its annotation protects it too", func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{v1alpha1.ProtectKey: "true"} },
			observed.Object{Ref: ref, Protected: true},
		},
		"EitherProtects": {
			"the one does not take back what the other says", func(m *metav1.ObjectMeta) {
				m.Labels, m.Annotations = map[string]string{v1alpha1.ProtectKey: "true"}, map[string]string{v1alpha1.ProtectKey: "false"}
			},
			observed.Object{Ref: ref, Labels: map[string]string{v1alpha1.ProtectKey: "true"}, Protected: true},
		},
		"OtherValues": {
			"no other value does", func(m *metav1.ObjectMeta) {
				m.Labels, m.Annotations = map[string]string{v1alpha1.ProtectKey: "True"}, map[string]string{v1alpha1.ProtectKey: "1"}
			},
			observed.Object{Ref: ref, Labels: map[string]string{v1alpha1.ProtectKey: "True"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &metav1.PartialObjectMetadata{ObjectMeta: *base.DeepCopy()}
			tc.change(&m.ObjectMeta)
			if diff := cmp.Diff(tc.want, FromMetadata(widgets, "Widget", m)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
			if err != nil {
				t.Fatal(err)
			}
			content["kind"] = "Widget"
			tc.want.Value = content
			if diff := cmp.Diff(tc.want, FromUnstructured(widgets, &unstructured.Unstructured{Object: content})); diff != "" {
				t.Errorf("of all of it: %s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Nobody decides by managedFields. They are left out of what is seen, and the object that was read stays as it was.
func TestManagedFieldsAreNotSeen(t *testing.T) {
	content := func() map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": "w", "managedFields": []any{map[string]any{"manager": "m"}}},
			"spec":     map[string]any{"managedFields": "stays"},
		}
	}
	read := content()
	got := withoutManagedFields(read)
	want := map[string]any{"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"managedFields": "stays"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(content(), read); diff != "" {
		t.Errorf("what was read is changed (-was +is):\n%s", diff)
	}
	for _, odd := range []map[string]any{nil, {}, {"metadata": "none"}, {"metadata": map[string]any{"name": "w"}}} {
		if diff := cmp.Diff(odd, withoutManagedFields(odd)); diff != "" {
			t.Errorf("of %v (-want +got):\n%s", odd, diff)
		}
	}
}
