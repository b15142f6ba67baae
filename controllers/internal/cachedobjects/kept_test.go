// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// phaseOnly reads the phase of a Pod.
func phaseOnly() *snapshot.Reads {
	return snapshot.NewReads(projection.Merge(projection.Identity(), projection.KeepPath("status", "phase")))
}

// protectedPod is a Pod with more than its phase, as JSON has it.
func protectedPod() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": map[string]any{"app": "web"},
			"annotations": map[string]any{v1alpha1.ProtectKey: "true"}, "finalizers": []any{"example.com/f"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
		},
		"spec": map[string]any{"nodeName": "n"}, "status": map[string]any{"phase": "Running", "message": strings.Repeat("x", fewBytes+fewBytes/fewValues)},
	}
}

// watchedPod is protectedPod as a watch tells of it.
func watchedPod(content func() (map[string]any, error)) *wire.Object {
	o := &wire.Object{Content: content, Size: fewBytes + 1}
	gone := metav1.Unix(1767225600, 0)
	o.ObjectMeta = metav1.ObjectMeta{
		Name: "p", Namespace: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{v1alpha1.ProtectKey: "true"}, Finalizers: []string{"example.com/f"}, DeletionTimestamp: &gone,
	}
	return o
}

// Of an object, what is read is kept, and what the operator needs of its metadata, in whichever form it came.
func TestAnObjectKeepsWhatIsRead(t *testing.T) {
	want := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "status": map[string]any{"phase": "Running"},
		"metadata": map[string]any{"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"},
	}
	for name, obj := range map[string]any{
		"JSON": &unstructured.Unstructured{Object: protectedPod()}, "Protobuf": watchedPod(func() (map[string]any, error) { return protectedPod(), nil }),
	} {
		t.Run(name, func(t *testing.T) {
			o, err := NewObject(pods, "Pod", obj, phaseOnly())
			if err != nil {
				t.Fatal(err)
			}
			whole, err := o.ReadWhole()
			if diff := cmp.Diff(want, whole.Value); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
			if !o.Protected || !o.Terminating || o.Labels["app"] != "web" || !cmp.Equal(o.Finalizers, []string{"example.com/f"}) || o.ResourceVersion != "7" {
				t.Errorf("its metadata is %+v", o.Object)
			}
			if o.LoadValue != nil || o.Large || !o.IsWhole() {
				t.Errorf("it is loaded later: %t, large: %t, whole: %t", o.LoadValue != nil, o.Large, o.IsWhole())
			}
			if again, err := NewObject(pods, "Pod", o, nil); err != nil || again != o {
				t.Errorf("what is made is made again: %v, %v", again, err)
			}
		})
	}
}

// Where all is read, an object of a watch stays as it came until somebody looks.
func TestAnObjectOfWhichAllIsRead(t *testing.T) {
	loaded := 0
	o, err := NewObject(pods, "Pod", watchedPod(func() (map[string]any, error) { loaded++; return protectedPod(), nil }), nil)
	if err != nil || loaded > 0 || !o.Large {
		t.Fatalf("error %v, loaded %d times, large is %t", err, loaded, o.Large)
	}
	if whole, err := o.ReadWhole(); err != nil || !cmp.Equal(whole.Value, protectedPod()) {
		t.Errorf("got %v, %v", whole.Value, err)
	}
	text, err := NewObject(pods, "Pod", &unstructured.Unstructured{Object: protectedPod()}, nil)
	if err != nil || !cmp.Equal(text.Value, protectedPod()) || !text.Large {
		t.Errorf("got %v, %v, large is %t", text.Value, err, text.Large)
	}
}

// What cannot be read is an error for those who need more than metadata, and only for them.
func TestAnObjectThatCannotBeKept(t *testing.T) {
	o, err := NewObject(pods, "Pod", watchedPod(func() (map[string]any, error) { return nil, errors.New("no such thing") }), phaseOnly())
	if err != nil || o.Labels["app"] != "web" || o.Value != nil || !o.IsWhole() {
		t.Fatalf("got %+v, %v", o, err)
	}
	if _, err := o.ReadWhole(); err == nil || !strings.HasSuffix(err.Error(), "no such thing") {
		t.Errorf("got %v", err)
	}
	if _, err := NewObject(pods, "Pod", "text", phaseOnly()); err == nil {
		t.Error("a text became an object")
	}
	metadata, err := NewObject(pods, "Pod", &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, phaseOnly())
	if err != nil || metadata.Value != nil || metadata.IsWhole() {
		t.Errorf("of metadata, %v is kept: %v", metadata.Value, err)
	}
}
