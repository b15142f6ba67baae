// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

func TestKnativeServingCRDs(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	files, err := KnativeServingCRDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time they are there already
		if err := InstallCRDs(t.Context(), c.Config(), files...); err != nil {
			t.Fatal(err)
		}
	}

	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	revisions := client.Resource(schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "revisions"}).Namespace(ns)
	revision := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "serving.knative.dev/v1",
		"kind":       "Revision",
		"metadata":   map[string]any{"name": "r"},
		"spec":       map[string]any{"containers": []any{map[string]any{"image": "none"}}},
	}}
	created, err := revisions.Create(t.Context(), revision, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conditions := []any{map[string]any{"type": "Ready", "status": "True"}}
	if err := unstructured.SetNestedSlice(created.Object, conditions, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if _, err := revisions.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := revisions.Get(t.Context(), "r", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"conditions": conditions}, got.Object["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	if err := RemoveCRD(t.Context(), c.Config(), "revisions.serving.knative.dev"); err != nil {
		t.Fatal(err)
	}
	if _, err := revisions.Get(t.Context(), "r", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the kind is gone: want NotFound, got %v", err)
	}
	if err := RemoveCRD(t.Context(), c.Config(), "revisions.serving.knative.dev"); !apierrors.IsNotFound(err) {
		t.Errorf("remove a kind that is not there: want NotFound, got %v", err)
	}
	_, err = admin.Discovery().ServerResourcesForGroupVersion("serving.knative.dev/v1")
	if err != nil && !meta.IsNoMatchError(err) {
		t.Errorf("the group must be served for the kinds that are left: %v", err)
	}
}

func TestReadCRDs(t *testing.T) {
	const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: %}\n"
	named := func(name string) string { return strings.ReplaceAll(crd, "%", name) }
	cases := map[string]struct {
		reason string
		files  map[string]string
		paths  []string
		want   []string
		err    string
	}{
		"Folder": {
			reason: "all documents of all YAML files, in the order of the names",
			files:  map[string]string{"b.yaml": named("c"), "a.yaml": "# a comment\n---\n" + named("a") + "---\n" + named("b"), "z.go": "package z"},
			paths:  []string{"."},
			want:   []string{"a", "b", "c"},
		},
		"File": {
			reason: "only the named file",
			files:  map[string]string{"a.yaml": named("a"), "b.yaml": named("b")},
			paths:  []string{"b.yaml"},
			want:   []string{"b"},
		},
		"OtherKind": {
			reason: "silence would leave the reader waiting for a kind that never comes",
			files:  map[string]string{"a.yaml": "kind: Kustomization\n"},
			paths:  []string{"."},
			err:    "there is a Kustomization in it",
		},
		"Nothing": {
			reason: "an empty folder is a wrong path",
			paths:  []string{"."},
			err:    "cannot find a CustomResourceDefinition",
		},
		"Missing": {
			reason: "a missing file is named",
			paths:  []string{"a.yaml"},
			err:    "a.yaml",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var paths []string
			for _, p := range tc.paths {
				paths = append(paths, filepath.Join(dir, p))
			}
			crds, err := readCRDs(paths)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: want error %q, got %v", tc.reason, tc.err, err)
			}
			var got []string
			for _, c := range crds {
				got = append(got, c.GetName())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
