// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/operator"
)

// edit is a change of a file of the source: one text, that occurs once, gets another one after it.
type edit struct{ file, after, more string }

// edits make the next version: a spec has two new fields with defaults, one of them deep inside, and one that stays empty
// unless somebody writes it; and a run has one that stays empty.
func edits() []edit {
	const api = "api/v1alpha1/"
	return []edit{
		{api + "common_types.go", "type CommonSpec struct {\n", "\tGrade string `json:\"grade,omitempty\"`\n\tRemark string `json:\"remark,omitempty\"`\n"},
		{api + "rule_types.go", "type Rule struct {\n", "\tWeight int64 `json:\"weight,omitempty\"`\n"},
		{api + "status_types.go", "type Run struct {\n", "\tRemark string `json:\"remark,omitempty\"`\n"},
		{api + "defaults.go", "func listDefaults() map[string]string { return map[string]string{", "\"grade\": `\"Plain\"`, \"rules[].weight\": `1`"},
	}
}

// buildNext builds the operator of the next version, and writes its CRDs.
func buildNext(t *testing.T) version {
	t.Helper()
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	next := version{name: "next", crds: filepath.Join(dir, "crds"), grade: "Plain"}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, e := range edits() {
		path := filepath.Join(root, e.file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.after); n != 1 {
			t.Fatalf("%s: %q occurs %d times: say anew how the next version differs", e.file, e.after, n)
		}
		overlay.Replace[path] = filepath.Join(dir, filepath.Base(e.file))
		write(t, overlay.Replace[path], []byte(strings.Replace(string(text), e.after, e.after+e.more, 1)))
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), text)
	for _, name := range []string{"cleaner.vtex.dev_cleaners.yaml", "cleaner.vtex.dev_clustercleaners.yaml"} {
		write(t, filepath.Join(next.crds, name), extend(t, filepath.Join(root, "config", "crd", "bases", name)))
	}
	if next.binary, err = operator.Build(t.Context(), dir, os.Stderr, "-overlay", filepath.Join(dir, "overlay.json")); err != nil {
		t.Fatal(err)
	}
	return next
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// extend is a CRD with the fields of the next version, as they would be generated.
func extend(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	remark := map[string]any{"type": "string"}
	for _, version := range crd["spec"].(map[string]any)["versions"].([]any) {
		schema := version.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		spec, status := fields(schema, "spec"), fields(schema, "status")
		spec["grade"], spec["remark"] = map[string]any{"type": "string", "default": "Plain"}, remark
		rule := spec["rules"].(map[string]any)["items"].(map[string]any)["properties"].(map[string]any)
		rule["weight"] = map[string]any{"type": "integer", "format": "int64", "default": 1}
		for _, run := range []string{"run", "unsent"} {
			status[run].(map[string]any)["properties"].(map[string]any)["remark"] = remark
		}
	}
	if text, err = yaml.Marshal(crd); err != nil {
		t.Fatal(err)
	}
	return text
}

// fields are the properties of a field of an object's schema.
func fields(schema map[string]any, name string) map[string]any {
	return schema["properties"].(map[string]any)[name].(map[string]any)["properties"].(map[string]any)
}
