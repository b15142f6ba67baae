// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package objectschema

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// describe says what is at a path: its types, and what else is known of it. An element of a list stands in a path as *, and "none" means that there
// is no such field.
func describe(s *Schema, path string) string {
	for part := range strings.SplitSeq(path, "/") {
		if part == "*" {
			s = s.Elements
			continue
		}
		field, has := s.HasKey(part)
		if !has {
			return "none"
		}
		s = field
	}
	if s == nil {
		return "anything"
	}
	text := s.Types.String()
	for name, is := range map[string]bool{"open": s.Open, "lenient": s.Lenient} {
		if is {
			text += ", " + name
		}
	}
	if len(s.Enum)+len(s.Usual) > 0 {
		text += fmt.Sprintf(" %v%v", s.Enum, s.Usual)
	}
	return text
}

func checkPaths(t *testing.T, s *Schema, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for path := range want {
		got[path] = describe(s, path)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOfBuiltIn(t *testing.T) {
	checkPaths(t, OfBuiltIn(scheme.Scheme, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}), map[string]string{
		"apiVersion":                                   "a string",
		"metadata/labels":                              "a map, open",
		"metadata/labels/any.thing":                    "a string",
		"metadata/creationTimestamp":                   "a string",
		"metadata/ownerReferences/*/controller":        "a bool",
		"metadata/managedFields/*/fieldsV1":            "anything",
		"metadata/lables":                              "none",
		"spec/containers/*/resources/limits/cpu":       "a string or an integer or a number",
		"spec/containers/*/ports/*/containerPort":      "an integer",
		"spec/containers/*/livenessProbe/httpGet/port": "a string or an integer",
		"status/phase":                                 "a string [Failed Pending Running Succeeded Unknown][]",
		"status/conditions/*/status":                   "a string [][True False Unknown]",
		"status/phase/x":                               "none",
		"spec/containers/image":                        "none",
	})
	checkPaths(t, OfBuiltIn(scheme.Scheme, schema.GroupVersionKind{Version: "v1", Kind: "Secret"}), map[string]string{"data/x": "a string"})
	if got := OfBuiltIn(scheme.Scheme, schema.GroupVersionKind{Version: "v1", Kind: "Unicorn"}); got != nil {
		t.Errorf("got %v", got)
	}
}

// A Go type that contains itself has a schema that contains itself.
func TestTypesThatContainThemselves(t *testing.T) {
	type tree struct {
		Name     string  `json:"name,omitempty"`
		Children []*tree `json:"children"`
		hidden   int
		Skipped  int `json:"-"`
		Plain    bool
		Any      any `json:"any"`
	}
	checkPaths(t, OfGoType(reflect.TypeOf(tree{hidden: 1})), map[string]string{
		"children/*/children/*/name": "a string", "children/*/nam": "none", "hidden": "none", "Skipped": "none", "Plain": "a bool", "any": "anything",
	})
}

const document = `{"components": {"schemas": {
  "x.Widget": {
    "type": "object",
    "properties": {
      "metadata": {"allOf": [{"$ref": "#/components/schemas/x.Meta"}], "default": {}},
      "spec": {"type": "object", "properties": {
        "size": {"oneOf": [{"type": "string"}, {"type": "number"}]},
        "port": {"type": "string", "format": "int-or-string"},
        "either": {"oneOf": [{"type": "object"}, {"type": "string"}]},
        "tree": {"$ref": "#/components/schemas/x.Tree"},
        "raw": {"type": "object"},
        "odd": {"$ref": "#/components/schemas/gone"},
        "mode": {"type": "string", "enum": ["Fast", "Slow"]},
        "code": {"type": "string", "enum": ["x", null]},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {"type": "object", "additionalProperties": true},
        "mixed": {"type": "object", "properties": {"a": {"type": "boolean"}}, "x-kubernetes-preserve-unknown-fields": true}
      }},
      "status": {"type": "object", "properties": {"conditions": {"type": "array", "items": {"type": "object", "properties": {"status": {"type": "string"}}}}}}
    },
    "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}]
  },
  "x.Meta": {"type": "object", "properties": {"name": {"type": "string"}}},
  "x.Tree": {"type": "object", "properties": {"left": {"$ref": "#/components/schemas/x.Tree"}, "value": {"type": "integer"}}},
  "x.Loop": {"$ref": "#/components/schemas/x.Loop"},
  "x.Null": null
}}}`

func TestOfOpenAPI(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	s, err := OfOpenAPI([]byte(document), gvk)
	if err != nil {
		t.Fatal(err)
	}
	checkPaths(t, s, map[string]string{
		"metadata/name": "a string", "metadata/nam": "none",
		"spec/size": "a string or an integer or a number", "spec/port": "a string or an integer", "spec/either": "anything",
		"spec/tree/left/left/value": "an integer", "spec/tree/left/rigt": "none",
		"spec/raw": "a map, open", "spec/raw/x": "anything", "spec/odd/x": "anything",
		"spec/mode": "a string [Fast Slow][]", "spec/code": "a string",
		"spec/map/x": "an integer", "spec/free/x": "anything", "spec/mixed/a": "a bool", "spec/mixed": "a map, lenient", "spec/mixed/b": "none",
		"status/conditions/*/status": "a string [][True False Unknown]",
	})
	gvk.Kind = "Gadget"
	if s, err := OfOpenAPI([]byte(document), gvk); s != nil || err != nil {
		t.Errorf("got %v, %v", s, err)
	}
	if _, err := OfOpenAPI([]byte("{"), gvk); err == nil || !strings.Contains(err.Error(), "cannot read the OpenAPI document of example.com/v1") {
		t.Errorf("got %v", err)
	}
}

// Of a document, only what a kind needs has to be readable, and is decoded.
func TestOfOpenAPIReadsWhatItNeeds(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	with := func(broken string) []byte {
		return []byte(strings.Replace(document, `"x.Null": null`, fmt.Sprintf("%q: {\"type\": 5}", broken), 1))
	}
	if s, err := OfOpenAPI(with("x.Unused"), gvk); s == nil || err != nil {
		t.Errorf("broken elsewhere: %v, %v", s, err)
	}
	if s, err := OfOpenAPI(with("gone"), gvk); s != nil || err == nil || !strings.Contains(err.Error(), "cannot read the OpenAPI document of example.com/v1") {
		t.Errorf("broken where it is needed: %v, %v", s, err)
	}
	var large strings.Builder
	large.WriteString(`{"components": {"schemas": {"Widget": {"type": "object", "properties": {"spec": {"type": "object"}}, "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}]}`)
	for i := range 20_000 {
		fmt.Fprintf(&large, `, "Other%d": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string"}}}}`, i)
	}
	large.WriteString("}}}")
	text := []byte(large.String())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := OfOpenAPI(text, gvk); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(8*len(text)); took > most {
		t.Errorf("a document of %d bytes takes %d, more than %d", len(text), took, most)
	}
}

const definition = `
spec:
  group: example.com
  names: {kind: Widget}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {x-kubernetes-int-or-string: true}
              pod: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              any: {x-kubernetes-preserve-unknown-fields: true}
  - name: v2
`

func TestOfDefinition(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(definition), crd); err != nil {
		t.Fatal(err)
	}
	s, err := OfDefinition(crd, "v1")
	if err != nil {
		t.Fatal(err)
	}
	checkPaths(t, s, map[string]string{
		"kind": "a string", "metadata/labels/a": "a string", "metadata/lables": "none", "status": "none",
		"spec/size": "a string or an integer", "spec/pod/metadata/name": "a string", "spec/pod/spec": "anything", "spec/any/x": "anything", "spec/siz": "none",
	})
	for _, version := range []string{"v2", "v3"} {
		if s, err := OfDefinition(crd, version); s != nil || err != nil {
			t.Errorf("%s: got %v, %v", version, s, err)
		}
	}
	crd.Spec.PreserveUnknownFields = true // as definitions of v1beta1 that were never changed
	if s, err = OfDefinition(crd, "v1"); err != nil || !s.Lenient || !s.Fields["spec"].Lenient {
		t.Errorf("got %v, %v", s, err)
	}
}

// What a document says in ways that are not followed is left open.
func TestWhatIsNotFollowedIsOpen(t *testing.T) {
	const document = `{"components": {"schemas": {
  "Root": {"type": "object", "properties": {
      "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
      "spec": {"type": "object", "properties": {
        "wrapped": {"$ref": "#/components/schemas/B"}, "round": {"$ref": "#/components/schemas/Round"},
        "all": {"type": "object", "properties": {"a": {"type": "string"}}, "allOf": [{"properties": {"b": {"type": "string"}}}]},
        "required": {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, null]},
        "any": {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"$ref": "#/components/schemas/B"}]},
        "patterns": {"type": "object", "properties": {"a": {"type": "string"}}, "patternProperties": {"^x": {"type": "string"}}},
        "preserved": {"$ref": "#/components/schemas/B", "x-kubernetes-preserve-unknown-fields": true},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
          "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}}
      }}},
    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Root"}]},
  "Free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
    "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}},
    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Free"}]},
  "A": {"allOf": [{"$ref": "#/components/schemas/B"}]},
  "B": {"type": "object", "properties": {"x": {"$ref": "#/components/schemas/A"}, "name": {"type": "string"}}},
  "Round": {"$ref": "#/components/schemas/Around"}, "Around": {"allOf": [{"$ref": "#/components/schemas/Round"}]}
}}}`
	for _, kind := range []string{"Root", "roots", "ROOT"} {
		s, err := OfOpenAPI([]byte(document), schema.GroupVersionKind{Version: "v1", Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		checkPaths(t, s, map[string]string{
			"spec/wrapped/x/x/name": "a string", "spec/wrapped/x/nam": "none", "spec/round/x": "anything", "spec/all/c": "anything", "spec/required/c": "none",
			"spec/any/c": "anything", "spec/patterns/xa": "anything", "spec/preserved/c": "anything", "spec/embedded/spec": "anything", "status": "none",
		})
	}
	s, err := OfOpenAPI([]byte(document), schema.GroupVersionKind{Version: "v1", Kind: "Free"})
	if err != nil || s.Lenient {
		t.Fatalf("got %v, %v", s, err)
	}
	checkPaths(t, s, map[string]string{"spec": "anything", "metadata/x": "anything"})
}
