// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// What is empty, or has its default, is not there. All else is, in one order, and as it was written.
func TestExplicit(t *testing.T) {
	defaults := map[string]string{
		"mode": `"Enforce"`, "rules[].keep": "0", "rules[].actions[].evict.gracePeriod": "30", "retry": `{"period":"1h"}`, "retry.period": `"1h"`, "targets": "[]",
	}
	for name, tc := range map[string]struct{ spec, want string }{
		"Nothing":      {`{}`, `{}`},
		"Default":      {`{"mode": "Enforce"}`, `{}`},
		"Another":      {`{"mode": "DryRun"}`, `{"mode":"DryRun"}`},
		"AnotherType":  {`{"mode": ["Enforce"]}`, `{"mode":["Enforce"]}`},
		"Elsewhere":    {`{"parameters": {"mode": "Enforce"}}`, `{"parameters":{"mode":"Enforce"}}`},
		"InAList":      {`{"rules": [{"name": "a", "keep": 0}, {"name": "b", "keep": 1}]}`, `{"rules":[{"name":"a"},{"keep":1,"name":"b"}]}`},
		"Deep":         {`{"rules": [{"actions": [{"evict": {"gracePeriod": 30}}, {"delete": {}}]}]}`, `{"rules":[{"actions":[{"evict":{}},{"delete":{}}]}]}`},
		"Whole":        {`{"retry": {"period": "1h"}}`, `{}`},
		"Part":         {`{"retry": {"period": "1h", "limit": 3}}`, `{"retry":{"limit":3}}`},
		"AnotherPart":  {`{"retry": {"period": "2h"}}`, `{"retry":{"period":"2h"}}`},
		"List":         {`{"targets": []}`, `{}`},
		"NotThisShape": {`{"rules": {"keep": 0}, "retry": [1], "targets": null}`, `{"retry":[1],"rules":{"keep":0},"targets":null}`},
		"Order":        {`{"b": 1.50, "a": {"d": 12345678901234567890, "c": "<"}}`, `{"a":{"c":"\u003c","d":12345678901234567890},"b":1.50}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := encodeWithout(json.RawMessage(tc.spec), defaults)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if got, err := encodeWithout(json.RawMessage(`{`), nil); err == nil {
		t.Errorf("no JSON: got %s", got)
	}
}

// TestDefaultsAreThoseOfTheSchema shows that no default is forgotten: with an upgrade the API server would fill it into each
// stored spec, so that every author is lost and every open run stopped. The status is signed as it is and may have none.
func TestDefaultsAreThoseOfTheSchema(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	declared := map[string]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			for path, value := range defaultsOf(t, "", version.Schema.OpenAPIV3Schema) {
				// What a template says takes the place of what its user's spec says.
				path, isSpec := strings.CutPrefix(strings.Replace(path, "spec.template.", "spec.", 1), "spec.")
				switch was, ok := declared[path]; {
				case !isSpec:
					t.Errorf("%s: %s has a default: only fields of a spec may have one", file, path)
				case ok && was != value:
					t.Errorf("%s: %s has the default %s, and elsewhere %s: it needs to be the same", file, path, value, was)
				}
				declared[path] = value
			}
		}
		if len(crd.Spec.Versions) == 0 {
			t.Fatalf("%s: no versions", file)
		}
	}
	if diff := cmp.Diff(declared, listDefaults()); diff != "" {
		t.Errorf("listDefaults() does not say what the CRDs do: write what they declare (-CRDs +defaults):\n%s", diff)
	}
}

func TestDefaultsOf(t *testing.T) {
	schema := map[string]any{"properties": map[string]any{
		"default": map[string]any{"type": "string", "default": "x"},
		"rules": map[string]any{"items": map[string]any{"properties": map[string]any{
			"keep": map[string]any{"default": map[string]any{"default": 1}},
		}}},
	}}
	want := map[string]string{"default": `"x"`, "rules[].keep": `{"default":1}`}
	if diff := cmp.Diff(want, defaultsOf(t, "", schema)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// defaultsOf are the defaults in a schema, by the paths of their fields.
func defaultsOf(t *testing.T, path string, schema map[string]any) map[string]string {
	t.Helper()
	out := map[string]string{}
	below := func(path string, schema any) {
		if s, ok := schema.(map[string]any); ok {
			for k, v := range defaultsOf(t, path, s) {
				out[k] = v
			}
		}
	}
	if value, ok := schema["default"]; ok {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(text)
		if path == "" || strings.HasSuffix(path, "[]") || strings.HasSuffix(path, "{}") {
			t.Errorf("%q has a default: leaveOut knows fields of objects only", path)
		}
	}
	if properties, ok := schema["properties"].(map[string]any); ok {
		for name, s := range properties {
			below(strings.TrimPrefix(path+"."+name, "."), s)
		}
	}
	below(path+"[]", schema["items"])
	below(path+"{}", schema["additionalProperties"])
	return out
}
