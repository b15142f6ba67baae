// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/test/operator"
)

// Nobody but the operator writes the status of our kinds, whatever his roles allow: neither a user, nor a ServiceAccount, nor
// an administrator.
func TestOnlyTheOperatorWritesStatus(t *testing.T) {
	c, _ := needCluster(t)
	namespace, err := c.Namespace(t.Context(), "status-")
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.StatusIsTheOperators(t.Context(), c, namespace); err != nil {
		t.Error(err)
	}
}

// Nobody fills the metadata of our kinds beyond a bound, of which no webhook is asked: it takes many times as much memory in all who
// watch them. What was there before may stay, and get less.
func TestMetadataStaysSmall(t *testing.T) {
	c, _ := needCluster(t)
	namespace, err := c.Namespace(t.Context(), "metadata-")
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	at := client.Resource(schema.GroupVersionResource{Group: "cleaner.vtex.dev", Version: "v1alpha1", Resource: "cleaners"}).Namespace(namespace)
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cleaner.vtex.dev/v1alpha1", "kind": "Cleaner", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"suspend": true, "ttl": "1d", "targets": []any{map[string]any{"name": "a", "delete": true, "reference": map[string]any{"version": "v1", "kind": "ConfigMap", "name": "a"}}}},
	}}
	if _, err := at.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(fields map[string]any) error {
		text, err := json.Marshal(map[string]any{"metadata": fields})
		if err != nil {
			t.Fatal(err)
		}
		_, err = at.Patch(t.Context(), "a", types.MergePatchType, text, metav1.PatchOptions{})
		return err
	}
	entries := func(n int) map[string]any {
		out := map[string]any{}
		for i := range n {
			out[fmt.Sprint("example.com/a", i)] = ""
		}
		return out
	}
	list := func(n int, entry func(i int) any) (out []any) {
		for i := range n {
			out = append(out, entry(i))
		}
		return out
	}
	finalizer := func(i int) any { return fmt.Sprint("example.com/f", i) }
	owner := func(i int) any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": fmt.Sprint("u", i)}
	}
	for _, tc := range []struct {
		what    string
		fields  map[string]any
		refused string
	}{
		{"labels up to the bound", map[string]any{"labels": entries(128)}, ""},
		{"labels beyond it", map[string]any{"labels": entries(129)}, "metadata.labels: has more than 128 entries: remove some"},
		{"annotations up to the bound", map[string]any{"annotations": entries(100)}, ""},
		{"annotations beyond it", map[string]any{"annotations": entries(129)}, "metadata.annotations: has more than 128 entries: remove some"},
		{"finalizers beyond the bound", map[string]any{"finalizers": list(33, finalizer)}, "metadata.finalizers: has more than 32 entries: remove some"},
		{"finalizers up to it, and that of the operator", map[string]any{"finalizers": append(list(32, finalizer), "cleaner.vtex.dev/run")}, ""},
		{"none of them", map[string]any{"finalizers": nil}, ""},
		{"owners beyond the bound", map[string]any{"ownerReferences": list(33, owner)}, "metadata.ownerReferences: has more than 32 entries: remove some"},
		{"owners up to it", map[string]any{"ownerReferences": list(32, owner)}, ""},
	} {
		err := patch(tc.fields)
		if tc.refused == "" && err != nil {
			t.Errorf("%s: %v", tc.what, err)
		}
		if tc.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refused)) {
			t.Errorf("%s: got %v, want %s", tc.what, err, tc.refused)
		}
	}
}
