// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/config/crd"
)

// The API server's own bounds for the rules of a schema.
const (
	ruleCostLimit  = 1_000_000
	totalCostLimit = 10_000_000
)

// kindSchema is what the API server makes of one version of a kind of ours.
type kindSchema struct {
	structural   *structuralschema.Structural
	validator    validation.SchemaValidator
	celValidator *cel.Validator
}

// kindSchemas treat manifests as an API server does that has our CRDs.
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

// kinds are the kinds of ours that may stand in files.
const (
	kindCleaner        = "Cleaner"
	kindClusterCleaner = "ClusterCleaner"
	kindTemplate       = "CleanerTemplate"
)

// parseOwnKind says that a document is of one of our kinds, and which.
func (d *document) parseOwnKind() (schema.GroupVersionKind, bool) {
	apiVersion, _ := d.object["apiVersion"].(string)
	kind, _ := d.object["kind"].(string)
	gv, err := schema.ParseGroupVersion(apiVersion)
	return gv.WithKind(kind), err == nil && gv.Group == v1alpha1.GroupVersion.Group && slices.Contains([]string{kindCleaner, kindClusterCleaner, kindTemplate}, kind)
}

// decodeObject makes an object of a document, as the API server would: fields that are not known are dropped, with a warning;
// status is, without; defaults are filled in, and what is left is held against the schema. It returns nil with the
// problems that are no warnings.
func (all kindSchemas) decodeObject(ctx context.Context, d *document) (runtime.Object, []problem) {
	gvk, ok := d.parseOwnKind()
	def := all[gvk]
	if !ok || def == nil {
		return nil, []problem{d.newProblem("kind", fmt.Sprintf("%v of apiVersion %v is no kind of ours: write kind: Cleaner, ClusterCleaner or CleanerTemplate, with apiVersion: %s",
			d.object["kind"], d.object["apiVersion"], v1alpha1.GroupVersion))}
	}
	delete(d.object, "status")
	var found []problem
	for _, path := range pruning.PruneWithOptions(d.object, def.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		p := d.newProblem(path, "is no field, and is ignored: correct its name, or remove it")
		p.warning = true
		found = append(found, p)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(d.object, def.structural)
	defaulting.Default(d.object, def.structural)
	errs := validation.ValidateCustomResource(nil, d.object, def.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, def.structural, d.object)...)
	if len(errs) == 0 { // rules see only what the schema lets pass
		errs, _ = def.celValidator.Validate(ctx, nil, def.structural, d.object, nil, totalCostLimit)
	}
	if name, _, _ := nestedString(d.object, "metadata", "name"); name == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "write a name"))
	}
	for _, err := range errs {
		found = append(found, d.newProblem(err.Field, d.explainError(err)))
	}
	if len(errs) > 0 {
		sortProblems(found)
		return nil, found
	}
	object := newObject(gvk.Kind)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.object, object); err != nil {
		return nil, append(found, d.newProblem("", err.Error()))
	}
	return object, found
}

func newObject(kind string) runtime.Object {
	switch kind {
	case kindCleaner:
		return &v1alpha1.Cleaner{}
	case kindClusterCleaner:
		return &v1alpha1.ClusterCleaner{}
	default:
		return &v1alpha1.CleanerTemplate{}
	}
}

// nestedString reads a string; it is empty if there is none.
func nestedString(object map[string]any, outer, inner string) (value string, found bool, err error) {
	m, _ := object[outer].(map[string]any)
	value, found = m[inner].(string)
	return value, found, nil
}

var typePattern = regexp.MustCompile(`must be of type (\w+)`)

// explainError gives a schema's error in words that say what to write.
func (d *document) explainError(err *field.Error) string {
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
		return "must be " + addArticle(want[1]) + d.suggestValue(want[1], node)
	case field.ErrorTypeNotSupported:
		return fmt.Sprintf("%v is not one of the values that are allowed: %s", err.BadValue, strings.TrimPrefix(detail, "supported values: "))
	}
	return detail
}

// suggestValue says what to write for a scalar that YAML reads as another type.
func (d *document) suggestValue(want string, node *yaml.Node) string {
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
	default: // what YAML 1.1 takes for a boolean, and 1.2 for a string: yes, no, on, off
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
