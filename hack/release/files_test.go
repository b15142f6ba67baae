// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/vtex/cleaner/hack/kustomize"
)

const someImage = "registry.example.com/cleaner:1.2.3"

// readObjects are the objects of a file, in their order.
func readObjects(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		switch err := d.Decode(&o.Object); {
		case err == io.EOF: //nolint:errorlint // the decoder returns it as it is
			return out
		case err != nil:
			t.Fatal(err)
		}
		out = append(out, o)
	}
}

// The files of a release install what config/ declares, with the image in place of the placeholder, and each is in the list of checksums.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	chart, to := filepath.Join(dir, "cleaner-1.2.3.tgz"), filepath.Join(dir, "release")
	if err := os.WriteFile(chart, []byte("a chart"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, out := testBuilder(), &bytes.Buffer{}
	if err := b.files(to, someImage, []string{chart}, out); err != nil {
		t.Fatal(err)
	}
	for name, folder := range map[string]string{installName: "../../config/default", templatesName: "../../config/templates"} {
		want, err := kustomize.Build(folder)
		if err != nil {
			t.Fatal(err)
		}
		got, images := readObjects(t, filepath.Join(to, name)), 0
		for i, o := range got {
			containers, found, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if err != nil || !found {
				continue
			}
			if c := containers[0].(map[string]any); c["image"] == someImage {
				images++
				c["image"] = placeholderImage
			}
			if err := unstructured.SetNestedSlice(got[i].Object, containers, "spec", "template", "spec", "containers"); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-%s +file):\n%s", name, folder, diff)
		}
		if name == installName && images != 1 {
			t.Errorf("%s has %d Deployments with the image", name, images)
		}
	}
	list, err := os.ReadFile(filepath.Join(to, checksumsName))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(to, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); e.Name() != checksumsName {
			want.WriteString(hex.EncodeToString(sum[:]) + "  " + e.Name() + "\n")
		}
	}
	if diff := cmp.Diff(want.String(), string(list)); diff != "" {
		t.Errorf("checksums (-files +list):\n%s", diff)
	}
	if said := out.String(); !strings.Contains(said, "4 files") || !strings.Contains(said, someImage) {
		t.Errorf("it prints %q", said)
	}
}

// A folder that has files, an image that no cluster can pull, and a file that another one would replace are refused before anything is written.
func TestFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	full, empty := filepath.Join(dir, "full"), filepath.Join(dir, "empty")
	if err := os.MkdirAll(full, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, installName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		to, image string
		others    []string
		says      string
	}{
		"NoFolder":     {"", someImage, nil, "--out and --version are needed"},
		"NotEmpty":     {full, someImage, nil, "is not empty: remove it first"},
		"NoImage":      {empty, "", nil, "is no image that a cluster can pull"},
		"Placeholder":  {empty, placeholderImage, nil, "is no image that a cluster can pull"},
		"NoReference":  {empty, "two words", nil, "is no image that a cluster can pull"},
		"Twice":        {empty, someImage, []string{filepath.Join(full, installName)}, "has a file of this name already"},
		"OfChecksums":  {empty, someImage, []string{filepath.Join(dir, checksumsName)}, "has a file of this name already"},
		"MissingFile":  {empty, someImage, []string{filepath.Join(dir, "missing.tgz")}, "no such file"},
		"NoRepository": {empty, someImage, nil, "cannot build"},
	} {
		t.Run(name, func(t *testing.T) {
			b := testBuilder()
			if name == "NoRepository" {
				b.root = dir
			}
			if err := b.files(tc.to, tc.image, tc.others, io.Discard); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			if entries, _ := os.ReadDir(empty); len(entries) > 0 {
				t.Errorf("it wrote %v", entries)
			}
		})
	}
}

// A Deployment that cannot be read, or a folder in which nothing runs the operator, is an error and no manifest.
func TestManifestWithoutTheImage(t *testing.T) {
	if _, err := testBuilder().manifest("config/templates", someImage); err == nil || !strings.Contains(err.Error(), "has no container with the image "+placeholderImage) {
		t.Errorf("got %v", err)
	}
	broken := &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "spec": map[string]any{}}}
	if _, err := placeImage(broken, someImage); err == nil || !strings.Contains(err.Error(), "it has no containers") {
		t.Errorf("got %v", err)
	}
}
