// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/config/crd"
)

// The API server's limits for the rules of a schema.
const (
	ruleCostLimit  = 1_000_000
	totalCostLimit = 10_000_000
)

// kindSchema checks one version of one of our kinds.
type kindSchema struct {
	structural   *structuralschema.Structural
	validator    validation.SchemaValidator
	celValidator *cel.Validator
}

// kindSchemas check manifests as an API server with our CRDs does.
type kindSchemas map[schema.GroupVersionKind]*kindSchema

func newKindSchemas() (kindSchemas, error) {
	all, err := crd.Definitions()
	if err != nil {
		return nil, err
	}
	out := kindSchemas{}
	for _, external := range all {
		for i := range external.Spec.Versions {
			v := &external.Spec.Versions[i]
			gvk := schema.GroupVersionKind{Group: external.Spec.Group, Version: v.Name, Kind: external.Spec.Names.Kind}
			if out[gvk], err = newKindSchema(v); err != nil {
				return nil, fmt.Errorf("cannot read the schema of %s: %w", gvk, err)
			}
		}
	}
	return out, nil
}

func newKindSchema(v *apiextensionsv1.CustomResourceDefinitionVersion) (*kindSchema, error) {
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	return &kindSchema{structural: structural, validator: validator, celValidator: cel.NewValidator(structural, true, ruleCostLimit)}, nil
}

// Our kinds that files can have.
const (
	KindCleaner        = "Cleaner"
	KindClusterCleaner = "ClusterCleaner"
	KindTemplate       = "CleanerTemplate"
)

// ParseOwnKind returns the kind of a document, and whether it is one of ours.
func (d *Document) ParseOwnKind() (schema.GroupVersionKind, bool) {
	apiVersion, _ := d.Object["apiVersion"].(string)
	kind, _ := d.Object["kind"].(string)
	gv, err := schema.ParseGroupVersion(apiVersion)
	return gv.WithKind(kind), err == nil && gv.Group == v1alpha1.GroupVersion.Group && slices.Contains([]string{KindCleaner, KindClusterCleaner, KindTemplate}, kind)
}

// decodeObject decodes a document as the API server does: it drops status, sets defaults and checks the schema. Unknown fields, which the API
// server would refuse from kubectl, are errors. The object is nil if one of the problems is an error.
func (all kindSchemas) decodeObject(ctx context.Context, d *Document) (runtime.Object, []Problem) {
	gvk, ok := d.ParseOwnKind()
	def := all[gvk]
	if !ok || def == nil {
		return nil, []Problem{d.NewProblem("kind", fmt.Sprintf("%v of apiVersion %v is not a kind of Cleaner: write kind: Cleaner, ClusterCleaner or CleanerTemplate, with apiVersion: %s",
			d.Object["kind"], d.Object["apiVersion"], v1alpha1.GroupVersion))}
	}
	delete(d.Object, "status")
	var found []Problem
	for _, path := range pruning.PruneWithOptions(d.Object, def.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		found = append(found, d.NewProblem(path, d.explainUnknownField(def.structural, path)))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(d.Object, def.structural)
	defaulting.Default(d.Object, def.structural)
	errs := validation.ValidateCustomResource(nil, d.Object, def.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, def.structural, d.Object)...)
	if len(errs) == 0 { // rules see only what passes the schema
		errs, _ = def.celValidator.Validate(ctx, nil, def.structural, d.Object, nil, totalCostLimit)
	}
	if name, _, _ := NestedString(d.Object, "metadata", "name"); name == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "write a name"))
	}
	for _, err := range errs {
		if err.Type == field.ErrorTypeTypeInvalid { // what is in a value of the wrong type is not looked at
			found = slices.DeleteFunc(found, func(p Problem) bool { return strings.HasPrefix(p.field, err.Field+".") })
		}
		found = append(found, d.NewProblem(err.Field, d.explainError(def.structural, err)))
	}
	if len(found) > 0 {
		sortProblems(found)
		return nil, found
	}
	object := NewObject(gvk.Kind)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, object); err != nil {
		return nil, []Problem{d.NewProblem("", err.Error())}
	}
	return object, nil
}

// explainUnknownField says that a field is unknown, and which other field of the same object may be meant.
func (d *Document) explainUnknownField(s *structuralschema.Structural, path string) string {
	parts := pathPart.FindAllString(path, -1)
	last := len(parts) - 1
	if last > 0 && parts[last-1] == "helmReleases" && slices.Contains([]string{"name", "status", "version"}, parts[last]) {
		if node := d.findNode(path); node != nil && node.Kind == yaml.ScalarNode {
			return fmt.Sprintf("is not a field, but a label that Helm sets: write matchLabels: {%s: %s}", parts[last], quoteShort(node.Value))
		}
	}
	if s = findSchema(s, parts[:last]); s != nil {
		if hint := expr.SuggestName(parts[last], slices.Collect(maps.Keys(s.Properties))); hint != "" {
			return "is not a field: " + hint
		}
	}
	return "is not a field: correct its name, or remove it"
}

// findSchema returns the schema at a path; nil if there is none.
func findSchema(s *structuralschema.Structural, parts []string) *structuralschema.Structural {
	for _, part := range parts {
		if s = findPart(s, part); s == nil {
			return nil
		}
	}
	return s
}

// findPart returns the schema of a field, or of the entries of a list or a map; nil if there is none.
func findPart(s *structuralschema.Structural, part string) *structuralschema.Structural {
	if strings.HasPrefix(part, "[") && s.Items != nil {
		return s.Items
	}
	if p, known := s.Properties[part]; known {
		return &p
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Structural
	}
	return nil
}

// NewObject returns an empty object of one of our kinds.
func NewObject(kind string) runtime.Object {
	switch kind {
	case KindCleaner:
		return &v1alpha1.Cleaner{}
	case KindClusterCleaner:
		return &v1alpha1.ClusterCleaner{}
	default:
		return &v1alpha1.CleanerTemplate{}
	}
}

// DecodeOwner reads a Cleaner or ClusterCleaner of a cluster, with its status.
func DecodeOwner(u *unstructured.Unstructured) (v1alpha1.Owner, error) {
	owner, ok := NewObject(u.GetKind()).(v1alpha1.Owner)
	if !ok {
		return nil, fmt.Errorf("%s is a %q, and not a Cleaner", u.GetName(), u.GetKind())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, owner); err != nil {
		return nil, fmt.Errorf("cannot read %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return owner, nil
}

// NestedString returns a nested string; empty if there is none.
func NestedString(object map[string]any, outer, inner string) (value string, found bool, err error) {
	m, _ := object[outer].(map[string]any)
	value, found = m[inner].(string)
	return value, found, nil
}

var typePattern = regexp.MustCompile(`must be of type (\w+)`)

// explainError rewrites an error of the schema so that it says what to write.
func (d *Document) explainError(s *structuralschema.Structural, err *field.Error) string {
	detail := strings.TrimPrefix(err.Detail, err.Field+" in body ")
	switch err.Type {
	case field.ErrorTypeRequired:
		return "is missing: write it"
	case field.ErrorTypeTypeInvalid:
		want := typePattern.FindStringSubmatch(detail)
		node := d.findNode(err.Field)
		if want == nil || node == nil {
			return detail
		}
		return "must be " + addArticle(want[1]) + suggestValue(want[1], node, findSchema(s, pathPart.FindAllString(err.Field, -1)))
	case field.ErrorTypeNotSupported:
		return fmt.Sprintf("%v is not an allowed value: write one of %s", err.BadValue, strings.TrimPrefix(detail, "supported values: "))
	}
	return detail
}

// suggestValue says what to write instead of a value of another type than the schema of its field wants.
func suggestValue(want string, node *yaml.Node, s *structuralschema.Structural) string {
	if want == "array" || want == "object" {
		return suggestParts(want, node, s)
	}
	if node.Kind != yaml.ScalarNode {
		return ""
	}
	switch want {
	case "string":
		return fmt.Sprintf(", and YAML reads %s as %s: write %q", node.Value, addArticle(nodeType(node)), node.Value)
	case "boolean":
		if node.Value == "true" || node.Value == "false" {
			return fmt.Sprintf(": write %s, without quotes", node.Value)
		}
		return ": write true or false"
	case "integer":
		return ": write digits, without quotes"
	}
	return ""
}

// suggestParts says what to write instead of a value that is no list or no map; empty if that is not known.
func suggestParts(want string, node *yaml.Node, s *structuralschema.Structural) string {
	entry, isList := s, want == "array"
	if isList && s != nil {
		entry = s.Items
	}
	text := ""
	if entry != nil && node.Kind == yaml.ScalarNode {
		text = suggestEntry(node.Value, entry)
	}
	switch {
	case isList && text != "":
		return fmt.Sprintf(": write [%s]", text)
	case isList:
		return ": write a list, as in [{...}]"
	case text != "":
		return ": write " + text
	default:
		return ""
	}
}

// suggestEntry writes a text as a value of a schema: as the name of a field that has fields of its own, as the one field that is required, or as it
// stands for a string. What is required besides is "...". It is empty if the schema says nothing of that.
func suggestEntry(text string, s *structuralschema.Structural) string {
	if s.Type != "object" {
		return quoteShort(text)
	}
	if of, known := s.Properties[text]; known && of.Type == "object" {
		return fmt.Sprintf("{%s: %s}", text, formatRequired(&of, "..."))
	}
	switch len(listRequired(s)) {
	case 0:
		return ""
	case 1:
		return formatRequired(s, quoteShort(text))
	default:
		return formatRequired(s, "...")
	}
}

// formatRequired writes an object with the fields that it must have.
func formatRequired(s *structuralschema.Structural, value string) string {
	var fields []string
	for _, name := range listRequired(s) {
		fields = append(fields, name+": "+value)
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

func listRequired(s *structuralschema.Structural) []string {
	if s.ValueValidation == nil {
		return nil
	}
	return slices.Sorted(slices.Values(s.ValueValidation.Required))
}

// quoteShort quotes a text that is short enough to be repeated.
func quoteShort(text string) string {
	const most = 100
	if len(text) > most {
		return "..."
	}
	return strconv.Quote(text)
}

func nodeType(node *yaml.Node) string {
	switch node.ShortTag() {
	case "!!bool":
		return "boolean"
	case "!!int":
		return "integer"
	case "!!float":
		return "number"
	case "!!null":
		return "null"
	default: // yes, no, on, off: booleans in YAML 1.1, strings in 1.2
		return "boolean"
	}
}

func addArticle(kind string) string {
	switch kind {
	case "integer", "object", "array":
		return "an " + kind
	case "null":
		return "nothing"
	}
	return "a " + kind
}
