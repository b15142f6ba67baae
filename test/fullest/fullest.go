// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fullest makes manifests of our kinds that are as full as their schema allows: every list and map at its maximum at once, or as
// many of them as the caller chooses.
package fullest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/vtex/cleaner/config/crd"
)

// Filling says how full a manifest is.
type Filling struct {
	// MaxEntries bounds what the schema allows for each list and map, and stands for its bound where it has none.
	MaxEntries int64
	// Equal says that entries are equal, as far as they may be: else no two are.
	Equal bool
	// Leaves says of a field, such as spec.rules[].actions, that it is left out. Nil: none is.
	Leaves func(path string) bool
}

// Manifest makes a manifest of a kind, such as "Cleaner".
func Manifest(kind string, f Filling) (map[string]any, error) {
	all, err := crd.Definitions()
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.Spec.Names.Kind != kind {
			continue
		}
		for _, version := range d.Spec.Versions {
			if !version.Storage {
				continue
			}
			spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
			metadata := map[string]any{"name": "fullest"}
			if d.Spec.Scope == apiextensionsv1.NamespaceScoped {
				metadata["namespace"] = "web"
			}
			return map[string]any{
				"apiVersion": d.Spec.Group + "/" + version.Name, "kind": kind, "metadata": metadata, "spec": f.fillValue("spec", &spec, ""),
			}, nil
		}
	}
	return nil, fmt.Errorf("there is no kind %s", kind)
}

// listVerbs returns the fields of an action. An action has exactly one of them.
func listVerbs() []string { return []string{"report", "delete", "evict", "removeFinalizer"} }

// isExcluded says that a field takes the place of others, which are more.
func isExcluded(path string) bool {
	return path == "spec.templateRef" || strings.HasSuffix(path, ".reference.name") || strings.HasSuffix(path, ".reference.fieldSelector") || strings.HasSuffix(path, ".reference.namespace") ||
		strings.HasSuffix(path, ".patch.force")
}

// fillValue makes a value of a schema. The index tells entries of a list from each other.
func (f Filling) fillValue(path string, s *apiextensionsv1.JSONSchemaProps, index string) any {
	switch {
	case strings.HasSuffix(path, ".default"): // of a parameter, of type string
		return "a" + index
	case s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields:
		return f.fillMap(func(key string) any { return "value" + key }, f.countEntries(nil))
	case s.XIntOrString:
		return 1
	case s.Type == "array":
		var list []any
		for i := range f.countEntries(s.MaxItems) {
			list = append(list, f.fillValue(path+"[]", s.Items.Schema, fmt.Sprint(i)))
		}
		return list
	case s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return f.fillMap(func(key string) any { return f.fillValue(path+"{}", s.AdditionalProperties.Schema, key) }, f.countEntries(s.MaxProperties))
	case s.Type == "object":
		return f.fillObject(path, s, index)
	case s.Type == "boolean":
		return true
	case s.Type == "integer":
		return 1
	default:
		return f.writeText(path, s, index)
	}
}

func (f Filling) countEntries(most *int64) int64 {
	if most == nil {
		return f.MaxEntries
	}
	return min(*most, f.MaxEntries)
}

func (f Filling) fillMap(value func(key string) any, entries int64) map[string]any {
	out := map[string]any{}
	for i := range entries {
		out[fmt.Sprintf("k%d", i)] = value(fmt.Sprint(i))
	}
	return out
}

func (f Filling) fillObject(path string, s *apiextensionsv1.JSONSchemaProps, index string) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field, at := s.Properties[name], path+"."+name
		required := slices.Contains(s.Required, name)
		if !required && (isExcluded(at) || f.Leaves != nil && f.Leaves(at)) {
			continue
		}
		out[name] = f.fillValue(at, &field, index)
	}
	if strings.HasSuffix(path, ".actions[]") { // a patch has an expression of its own
		for _, verb := range listVerbs() {
			delete(out, verb)
		}
		if out["patch"] == nil {
			out["delete"] = map[string]any{}
		}
	}
	return out
}

// writeText writes a text that a field takes.
func (f Filling) writeText(path string, s *apiextensionsv1.JSONSchemaProps, index string) string {
	if len(s.Enum) > 0 {
		for _, value := range []string{"Recurring", "DryRun", "Merge", "In", "Background", "String"} {
			for _, one := range s.Enum {
				if string(one.Raw) == `"`+value+`"` {
					return value
				}
			}
		}
		return strings.Trim(string(s.Enum[0].Raw), `"`)
	}
	field := path[strings.LastIndexByte(path, '.')+1:]
	own := map[string]string{ // what is no name
		"forEach": "t0.items", "when": "true", "unless": "false", "for": "1s", "object": "item", "apiVersion": "v1", "version": "v1",
		"schedule": "@daily", "timeZone": "UTC", "timeout": "1s", "cloudEventSink": "https://example.com", "cloudEventData": "1", "subresource": "status",
		"startingDeadline": "1h", "ttl": "1h", "period": "1h", "per": "1h", "operator": "In", "conditions[]": "true", "group": "",
		"target": "t0", "forKey": "'a'", "groupBy": "'a'", "reason": "'a'",
	}
	if text, ok := own[field]; ok {
		return text
	}
	owner := strings.TrimSuffix(path, ".name")
	switch { // names that must differ
	case owner == path:
	case strings.HasSuffix(owner, ".targets[]"):
		return "t" + index
	case strings.HasSuffix(owner, ".rules[].variables[]"):
		return "w" + index
	case strings.HasSuffix(owner, ".variables[]"):
		return "v" + index
	case strings.HasSuffix(owner, ".rules[]"), strings.HasSuffix(owner, ".parameters[]"):
		return "a" + index
	case strings.HasSuffix(owner, ".confirm[]"):
		return "'a'"
	}
	if f.Equal {
		index = "0"
	}
	switch {
	case field == "kind":
		return "Kind" + index
	case strings.HasSuffix(path, ".patch.expression"):
		return "{}"
	case field == "expression":
		return "1"
	default:
		return "a" + index
	}
}
