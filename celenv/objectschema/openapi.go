// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package objectschema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// node is the part of an OpenAPI v3 schema that says which fields there are.
type node struct {
	Ref              string           `json:"$ref"`
	Type             string           `json:"type"`
	Format           string           `json:"format"`
	Properties       map[string]*node `json:"properties"`
	Patterns         map[string]*node `json:"patternProperties"`
	AdditionalFields *nodeOrBool      `json:"additionalProperties"`
	Items            *node            `json:"items"`
	Enum             []any            `json:"enum"`
	AllOf            []*node          `json:"allOf"`
	OneOf            []*node          `json:"oneOf"`
	AnyOf            []*node          `json:"anyOf"`
	IntOrString      bool             `json:"x-kubernetes-int-or-string"`
	Preserve         bool             `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded         bool             `json:"x-kubernetes-embedded-resource"`
	GroupVersionKind []kindName       `json:"x-kubernetes-group-version-kind"`
}

// kindName is a kind as OpenAPI documents name it.
type kindName struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// nodeOrBool is a schema, or whether there may be anything.
type nodeOrBool struct {
	node    *node
	allowed bool
}

// UnmarshalJSON reads either.
func (n *nodeOrBool) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &n.allowed); err == nil {
		return nil
	}
	n.allowed = true
	return json.Unmarshal(data, &n.node)
}

// OfOpenAPI returns the schema of a kind in the OpenAPI v3 document of its group and version, in JSON. It is nil if the document does not
// describe the kind. Of the document it decodes what the kind needs: one of a group with large kinds may have many megabytes.
func OfOpenAPI(document []byte, gvk schema.GroupVersionKind) (*Schema, error) {
	var kinds struct {
		Components struct {
			Schemas map[string]*struct {
				GroupVersionKind []kindName `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &kinds); err != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document of %s: %w", gvk.GroupVersion(), err)
	}
	for name, of := range kinds.Components.Schemas {
		if of != nil && slices.ContainsFunc(of.GroupVersionKind, func(k kindName) bool {
			return k.Group == gvk.Group && k.Version == gvk.Version && standsFor(gvk.Kind, k.Kind)
		}) {
			return ofComponent(document, name, gvk)
		}
	}
	return nil, nil
}

// ofComponent returns the schema of a kind that a component of a document describes.
func ofComponent(document []byte, name string, gvk schema.GroupVersionKind) (*Schema, error) {
	var read struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &read); err != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document of %s: %w", gvk.GroupVersion(), err)
	}
	c := converter{components: read.Components.Schemas, read: map[string]*node{}, made: map[*node]*Schema{}}
	s := c.convert(c.readComponent(name)).finishKind(gvk)
	if c.failed != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document of %s: %w", gvk.GroupVersion(), c.failed)
	}
	return s, nil
}

// OfDefinition returns the schema of a version of a CustomResourceDefinition. It is nil if the definition does not have that version.
func OfDefinition(crd *apiextensionsv1.CustomResourceDefinition, version string) (*Schema, error) {
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != version || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		data, err := json.Marshal(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, fmt.Errorf("cannot write the schema of %s: %w", crd.Name, err)
		}
		n := &node{}
		if err := json.Unmarshal(data, n); err != nil {
			return nil, fmt.Errorf("cannot read the schema of %s: %w", crd.Name, err)
		}
		n.Embedded = true
		return (&converter{made: map[*node]*Schema{}, preserves: crd.Spec.PreserveUnknownFields}).convert(n).finishKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind}), nil
	}
	return nil, nil
}

// converter makes schemas of the nodes of a document. A node that contains itself has one schema.
type converter struct {
	components map[string]json.RawMessage
	read       map[string]*node // of these
	failed     error            // why one could not be read
	made       map[*node]*Schema
	preserves  bool // unknown fields everywhere
}

// readComponent returns a component of the document; nil if there is none.
func (c *converter) readComponent(name string) *node {
	n, done := c.read[name]
	text, there := c.components[name]
	if done || !there {
		return n
	}
	if err := json.Unmarshal(text, &n); err != nil {
		c.failed, n = err, nil
	}
	c.read[name] = n
	return n
}

// follow returns the node that a reference leads to, through others; nil if it leads nowhere.
func (c *converter) follow(n *node) *node {
	for range len(c.components) + 2 {
		switch {
		case n == nil:
			return nil
		case n.Ref != "" && n.Preserve:
			return nil
		case n.Ref != "":
			n = c.readComponent(strings.TrimPrefix(n.Ref, "#/components/schemas/"))
		case len(n.AllOf) == 1 && n.Type == "" && len(n.Properties) == 0 && !n.Preserve:
			n = n.AllOf[0]
		default:
			return n
		}
	}
	return nil // round and round
}

// convert returns the schema of a node; nil: it may be anything.
func (c *converter) convert(n *node) *Schema {
	n = c.follow(n)
	switch {
	case n == nil:
		return nil
	case n.IntOrString || n.Format == "int-or-string":
		return &Schema{Types: Integer | String}
	case n.Type == "":
		return c.convertUntyped(n)
	}
	if s, made := c.made[n]; made {
		return s
	}
	s := &Schema{Types: typesByName()[n.Type]}
	if s.Types == 0 {
		return nil
	}
	c.made[n] = s
	switch s.Types {
	case String:
		s.Enum = listTexts(n.Enum)
	case List:
		s.Elements = c.convert(n.Items)
	case Map:
		c.addFields(s, n)
	}
	return s
}

// convertUntyped returns the schema of a node that has one of several types, such as a quantity.
func (c *converter) convertUntyped(n *node) *Schema {
	if len(n.OneOf) == 0 {
		return nil
	}
	out := &Schema{}
	for _, one := range n.OneOf {
		s := c.convert(one)
		if s == nil || s.Types == 0 || s.Types&(Map|List) != 0 {
			return nil
		}
		out.Types |= s.Types
	}
	return out
}

// addFields adds the fields of a map.
func (c *converter) addFields(s *Schema, n *node) {
	preserves := n.Preserve || c.preserves
	s.Lenient = preserves && n.hasOwnFields()
	s.Open = preserves && !s.Lenient || n.mayHaveOthers()
	if more := n.AdditionalFields; more != nil && more.allowed {
		s.Open, s.Lenient, s.Entries = true, false, c.convert(more.node)
	}
	if len(n.Properties) == 0 && !n.Embedded { // such as {type: object}, which describes values that may be anything
		s.Open = true
		return
	}
	s.Fields = make(map[string]*Schema, len(n.Properties))
	for key, field := range n.Properties {
		s.Fields[key] = c.convert(field)
	}
	if n.Embedded {
		s.Fields["apiVersion"], s.Fields["kind"], s.Fields["metadata"] = &Schema{Types: String}, &Schema{Types: String}, ofMetadata()
		s.Open = s.Open || !n.hasOwnFields()
	}
}

// hasOwnFields says that the schema names a field besides those that every object has.
func (n *node) hasOwnFields() bool {
	for key := range n.Properties {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			return true
		}
	}
	return false
}

// mayHaveOthers says that fields may be named elsewhere than in the properties.
func (n *node) mayHaveOthers() bool {
	if len(n.Patterns) > 0 {
		return true
	}
	for _, other := range slices.Concat(n.AllOf, n.AnyOf, n.OneOf) {
		if other == nil {
			continue
		}
		if other.Ref != "" || len(other.Patterns) > 0 || other.AdditionalFields != nil {
			return true
		}
		for key := range other.Properties {
			if n.Properties[key] == nil {
				return true
			}
		}
	}
	return false
}

// standsFor says that a text names a kind as targets do: by the kind, its plural or its singular name, in any case.
func standsFor(text, kind string) bool {
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return strings.EqualFold(text, kind) || strings.EqualFold(text, plural.Resource) || strings.EqualFold(text, singular.Resource)
}

// listTexts returns the texts among the values of an enum; none if it has other values.
func listTexts(values []any) []string {
	var texts []string
	for _, v := range values {
		text, ok := v.(string)
		if !ok {
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}
