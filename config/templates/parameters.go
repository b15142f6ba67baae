// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Validate returns the mistakes in the parameters that a template declares. It does not check the template's body.
func Validate(t *v1alpha1.CleanerTemplate) field.ErrorList {
	var errs field.ErrorList
	at, seen := field.NewPath("spec", "parameters"), map[string]bool{}
	for i := range t.Spec.Parameters {
		p, path := &t.Spec.Parameters[i], at.Index(i)
		if seen[p.Name] {
			errs = append(errs, field.Invalid(path.Child("name"), p.Name, "is also the name of another parameter: rename one of them"))
		}
		seen[p.Name] = true
		if len(p.Enum) > 0 && p.Type != v1alpha1.ParameterString {
			errs = append(errs, field.Invalid(path.Child("enum"), p.Enum, fmt.Sprintf("is for parameters of type string, and this one is of type %s: remove it", p.Type)))
		}
		if !isKnownType(p.Type) {
			errs = append(errs, field.Invalid(path.Child("type"), p.Type, "is not a type: write string, int, bool, duration or stringList"))
			continue
		}
		if value, err := decodeValue(p.Default); err != nil {
			errs = append(errs, field.Invalid(path.Child("default"), "", err.Error()))
		} else if value != nil {
			if wrong := checkValue(p, value); wrong != "" {
				errs = append(errs, field.Invalid(path.Child("default"), value, wrong))
			}
		}
	}
	return errs
}

func isKnownType(t v1alpha1.ParameterType) bool {
	switch t {
	case v1alpha1.ParameterString, v1alpha1.ParameterInt, v1alpha1.ParameterBool, v1alpha1.ParameterDuration, v1alpha1.ParameterStringList:
		return true
	}
	return false
}

// resolveParameters returns the value of each parameter: the given one, or its default.
func resolveParameters(t *v1alpha1.CleanerTemplate, given map[string]any, at *field.Path) (map[string]any, field.ErrorList) {
	for _, err := range Validate(t) {
		return nil, field.ErrorList{field.Invalid(at.Child("name"), t.Name, fmt.Sprintf("is a template with a mistake: its %s %s", err.Field, err.Detail))}
	}
	var errs field.ErrorList
	values := make(map[string]any, len(t.Spec.Parameters))
	for i := range t.Spec.Parameters {
		p := &t.Spec.Parameters[i]
		path := at.Child("parameters").Child(p.Name)
		value := given[p.Name]
		if value == nil { // null counts as absent
			value, _ = decodeValue(p.Default) // Validate has checked it
		} else if wrong := checkValue(p, value); wrong != "" {
			errs = append(errs, field.Invalid(path, value, wrong))
			continue
		}
		if value == nil {
			errs = append(errs, field.Required(path, fmt.Sprintf("is missing: the template %q has no default for it; write %s", t.Name, formatExample(p))))
			continue
		}
		values[p.Name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(t.Spec.Parameters, func(p v1alpha1.TemplateParameter) bool { return p.Name == name }) {
			errs = append(errs, field.Invalid(at.Child("parameters").Child(name), given[name], describeUnknown(t, name)))
		}
	}
	return values, errs
}

// describeUnknown returns a message that names the template's parameters, for a name that is not one of them.
func describeUnknown(t *v1alpha1.CleanerTemplate, name string) string {
	if len(t.Spec.Parameters) == 0 {
		return fmt.Sprintf("is not a parameter: the template %q has none; remove it", t.Name)
	}
	var names []string
	for _, p := range t.Spec.Parameters {
		if simplifyName(p.Name) == simplifyName(name) {
			return fmt.Sprintf("is not a parameter of the template %q: did you mean %q?", t.Name, p.Name)
		}
		names = append(names, p.Name)
	}
	return fmt.Sprintf("is not a parameter of the template %q: it has %s", t.Name, strings.Join(names, ", "))
}

// simplifyName makes names equal that differ only in case or in how their words are joined.
func simplifyName(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(name))
}

// checkValue returns what is wrong with a value and what to write instead; empty if the value is valid.
func checkValue(p *v1alpha1.TemplateParameter, value any) string {
	ok := true
	switch p.Type {
	case v1alpha1.ParameterString:
		text, isText := value.(string)
		if isText && len(p.Enum) > 0 && !slices.Contains(p.Enum, text) {
			return "must be one of " + strings.Join(p.Enum, ", ")
		}
		ok = isText
	case v1alpha1.ParameterInt:
		n, isNumber := value.(json.Number)
		ok = isNumber && isInt(n)
		if ok && !v1alpha1.HasOneForm(n) {
			return fmt.Sprintf("must be from %d to %d, and not -0: write %s", -v1alpha1.MaxWhole, v1alpha1.MaxWhole, formatExample(p))
		}
	case v1alpha1.ParameterBool:
		_, ok = value.(bool)
	case v1alpha1.ParameterDuration:
		var text string
		if text, ok = value.(string); ok {
			if _, err := v1alpha1.ParseDuration(text); err != nil {
				return err.Error()
			}
		}
	case v1alpha1.ParameterStringList:
		ok = isStringList(value)
	}
	if !ok {
		return fmt.Sprintf("must be of type %s: write %s", p.Type, formatExample(p))
	}
	return ""
}

func isInt(n json.Number) bool {
	_, err := strconv.ParseInt(n.String(), 10, 64)
	return err == nil
}

func isStringList(value any) bool {
	list, ok := value.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok })
}

// formatExample returns an example of how to write a parameter.
func formatExample(p *v1alpha1.TemplateParameter) string {
	switch p.Type {
	case v1alpha1.ParameterInt:
		return p.Name + ": 3"
	case v1alpha1.ParameterBool:
		return p.Name + ": true"
	case v1alpha1.ParameterDuration:
		return p.Name + `: "40s"`
	case v1alpha1.ParameterStringList:
		return p.Name + `: ["a", "b"]`
	}
	if len(p.Enum) > 0 {
		return p.Name + ": " + strconv.Quote(p.Enum[0])
	}
	return p.Name + `: "text"`
}

// decodeObject decodes parameters; nil if there are none.
func decodeObject(raw *runtime.RawExtension) (map[string]any, error) {
	value, err := decodeValue(raw)
	if err != nil || value == nil {
		return nil, err
	}
	given, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", value)
	}
	return given, nil
}

// decodeValue decodes one JSON value, and keeps numbers as they are written.
func decodeValue(raw *runtime.RawExtension) (any, error) {
	if raw == nil || len(raw.Raw) == 0 {
		return nil, nil
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(raw.Raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("cannot be read as JSON: %w", err)
	}
	return value, nil
}
