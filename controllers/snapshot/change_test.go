// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// namesOf lists all objects, in their order.
func namesOf(o *Objects) string {
	var out []string
	for one := range o.EachObject() {
		out = append(out, one.String())
	}
	return strings.Join(out, " ")
}

func changedObjects(t *testing.T) *Objects {
	t.Helper()
	o := objectsOf(t,
		"{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: web, uid: b, labels: {app: x}}, status: {phase: Running}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: web, uid: a}, status: {phase: Failed}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: web, uid: ns}}",
	)
	if err := o.SortObjects(); err != nil {
		t.Fatal(err)
	}
	return o
}

// What happens to a clone does not happen to the original, and the other way round.
func TestCloneChangesByItself(t *testing.T) {
	const all = "Namespace web Pod web/a Pod web/b"
	first := changedObjects(t)
	second := first.Clone()
	second.RemoveObjects(map[types.UID]bool{"a": true, "ns": true, "none": true})
	second.ReplaceObject("b", map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "b", "namespace": "web", "uid": "b"}})
	if got := namesOf(first); got != all {
		t.Errorf("the original has %s, want %s", got, all)
	}
	if got := namesOf(second); got != "Pod web/b" {
		t.Errorf("the clone has %s", got)
	}
	if labels := first.FindObject("b").Labels; labels["app"] != "x" {
		t.Errorf("the original has the labels %v", labels)
	}
	first.RemoveObjects(map[types.UID]bool{"b": true})
	if got := namesOf(second); got != "Pod web/b" {
		t.Errorf("the clone has %s", got)
	}
	if err := second.AddUnread(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "large", "namespace": "web", "uid": "large"},
	}}, errors.New("it is too large")); err != nil {
		t.Fatal(err)
	}
	target := &v1alpha1.ClusterTarget{}
	target.Reference.Version, target.Reference.Kind = "v1", "Pod"
	if got := readTarget(t.Context(), first, "", target); got.State != observed.Complete {
		t.Errorf("the original has a Pod that cannot be read: %s", got.Detail)
	}
}

// A patched object is selected by what it is now, and keeps its identity.
func TestReplaceObject(t *testing.T) {
	o := changedObjects(t)
	content := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "status": map[string]any{"phase": "Succeeded"},
		"metadata": map[string]any{
			"name": "a", "namespace": "web", "uid": "a", "labels": map[string]any{"app": "x"}, "finalizers": []any{"example.com/f"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
		},
	}
	if !o.ReplaceObject("a", content) || o.ReplaceObject("none", content) {
		t.Error("it replaces an object that is not there, or not the one that is")
	}
	target := v1alpha1.ClusterTarget{}
	target.Reference.Version, target.Reference.Kind, target.Reference.FieldSelector = "v1", "Pod", "status.phase=Succeeded"
	target.Reference.MatchLabels = map[string]string{"app": "x"}
	got := readTarget(t.Context(), o, "", &target)
	if len(got.Objects) != 1 {
		t.Fatalf("%s %s: %d objects", got.State, got.Detail, len(got.Objects))
	}
	found := got.Objects[0]
	if found.UID != "a" || !found.Terminating || !cmp.Equal(found.Finalizers, []string{"example.com/f"}) || found.Resource.Resource != "pods" {
		t.Errorf("it is %+v", found)
	}
	if o.FindObject("none") != nil {
		t.Error("it finds what is not there")
	}
}

// A caller can stop early.
func TestEachObjectStops(t *testing.T) {
	n := 0
	for range changedObjects(t).EachObject() {
		n++
		break
	}
	if n != 1 {
		t.Errorf("it continued to %d", n)
	}
}
