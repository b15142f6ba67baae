// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/controllers/kindschemas"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// maxPatchErrors is how many different errors of patches a plan has. The rest share the last one.
	maxPatchErrors = 100
	// maxShown is how long a name or a value that a patch makes may be in a message, and maxMessage how long the message may be.
	maxShown   = 100
	maxMessage = 800
)

// CheckPatches adds an error to a plan for each patch that no API server accepts, because it does not apply to the object, or makes a field
// that the kind does not have, or gives a field a value of another type. An object that an earlier step patches is looked at as that leaves it. It
// looks only at what a patch changes, and does not know what the API server validates beyond the schema. The steps stay in the plan, as the operator
// would send them.
func CheckPatches(ctx context.Context, schemas kindschemas.Source, work *v1alpha1.Work, p *plan.Plan) {
	if schemas == nil || work.Validation == v1alpha1.ValidationIgnore {
		return
	}
	type id struct{ rule, field, message string }
	rows, earlier := map[id]int{}, findEarlierPatches(p.Steps)
	after := make(map[int]map[string]any, len(earlier)) // what the patches make that come before others
	for _, n := range earlier {
		after[n] = nil
	}
	for i := range p.Steps {
		s := p.Steps[i]
		if n, patched := earlier[i]; patched {
			s.Object.Value = after[n]
		}
		if s.Patch == nil || s.Object.Value == nil { // what comes after a patch that fails is not sent
			continue
		}
		made, message := findPatchError(ctx, schemas, &s)
		if _, needed := after[i]; needed {
			after[i] = made
		}
		if message = expr.TruncateText(message, maxMessage); message == "" {
			continue
		}
		field := "actions[" + strconv.Itoa(s.Action) + "].patch.expression"
		if at := slices.IndexFunc(work.Rules, func(r v1alpha1.Rule) bool { return r.Name == s.Rule }); at >= 0 {
			field = fmt.Sprintf("rules[%d].%s", at, field)
		}
		at, known := rows[id{s.Rule, field, message}]
		if !known && len(rows) == maxPatchErrors {
			at, known = len(p.Errors)-1, true
		}
		if !known {
			at = len(p.Errors)
			rows[id{s.Rule, field, message}] = at
			p.Errors = append(p.Errors, v1alpha1.ItemError{Rule: s.Rule, Key: s.Object.String(), Field: field, Message: message})
		}
		p.Errors[at].Count++
	}
}

// findEarlierPatches finds the steps that patch an object that an earlier step patches, and the last such step before each.
func findEarlierPatches(steps []plan.Step) map[int]int {
	earlier := map[int]int{}
	for i := range steps {
		for _, n := range steps[i].After {
			if steps[i].Patch != nil && steps[n].Patch != nil && steps[n].Object.Identify() == steps[i].Object.Identify() {
				earlier[i] = max(earlier[i], n)
			}
		}
	}
	return earlier
}

// findPatchError returns the patched object, or says why the API server would refuse the patch. It returns neither if the kind is not known.
func findPatchError(ctx context.Context, schemas kindschemas.Source, s *plan.Step) (after map[string]any, message string) {
	u := unstructured.Unstructured{Object: s.Object.Value}
	schema, err := schemas.FindSchema(ctx, u.GroupVersionKind())
	if err != nil || schema == nil {
		return nil, "" // what is not known is not wrong
	}
	after, err = PatchObject(s)
	if err != nil {
		return nil, "the patch does not apply: " + err.Error()
	}
	if message = findWrongValue("", s.Object.Value, after, schema); message != "" {
		return nil, message
	}
	return after, ""
}

// findWrongValue says what is wrong with a value that a patch has changed; empty if nothing is.
func findWrongValue(path string, before, after any, schema *objectschema.Schema) string {
	if schema == nil || after == nil || reflect.DeepEqual(before, after) {
		return ""
	}
	if is, article := typeOf(after); schema.Types != 0 && !schema.May(is) {
		return fmt.Sprintf("the patch makes %s %s, and it must be %s%s", path, article, schema.Types, suggestConversion(is, schema))
	}
	switch after := after.(type) {
	case string:
		if len(schema.Enum) > 0 && !slices.Contains(schema.Enum, after) {
			return fmt.Sprintf("the patch makes %s %q, and it must be one of %s", path, expr.TruncateText(after, maxShown), strings.Join(schema.Enum, ", "))
		}
	case []any:
		was, _ := before.([]any)
		for i, element := range after {
			var one any
			if i < len(was) {
				one = was[i]
			}
			if wrong := findWrongValue(fmt.Sprintf("%s[%d]", path, i), one, element, schema.Elements); wrong != "" {
				return wrong
			}
		}
	case map[string]any:
		was, _ := before.(map[string]any)
		return findWrongEntry(path, was, after, schema)
	}
	return ""
}

// findWrongEntry says what is wrong with the entries of a map that a patch has changed.
func findWrongEntry(path string, before, after map[string]any, schema *objectschema.Schema) string {
	for _, key := range slices.Sorted(maps.Keys(after)) {
		at := joinPath(path, key)
		of, known := schema.HasKey(key)
		if _, had := before[key]; !known && !had {
			return fmt.Sprintf("the patch makes %s, and there is no such field; the fields are %s", at, strings.Join(schema.ListFields(), ", "))
		}
		if wrong := findWrongValue(at, before[key], after[key], of); wrong != "" {
			return wrong
		}
	}
	return ""
}

// joinPath is the path of an entry, as expressions write it.
func joinPath(path, key string) string {
	if len(validation.IsCIdentifier(key)) > 0 {
		return path + "[" + strconv.Quote(expr.TruncateText(key, maxShown)) + "]"
	}
	return strings.TrimPrefix(path+"."+expr.TruncateText(key, maxShown), ".")
}

// typeOf returns the type of a value of JSON, with its article.
func typeOf(value any) (is objectschema.Types, article string) {
	switch v := value.(type) {
	case string:
		return objectschema.String, "a string"
	case bool:
		return objectschema.Bool, "a bool"
	case int64:
		return objectschema.Integer, "a number"
	case float64:
		if v == float64(int64(v)) {
			return objectschema.Integer | objectschema.Number, "a number"
		}
		return objectschema.Number, "a number with a fraction"
	case []any:
		return objectschema.List, "a list"
	default:
		return objectschema.Map, "a map"
	}
}

// suggestConversion says how to write a value as one of another type; empty if nothing is likely.
func suggestConversion(is objectschema.Types, wanted *objectschema.Schema) string {
	switch {
	case wanted.May(objectschema.String) && is&(objectschema.Integer|objectschema.Number|objectschema.Bool) != 0:
		return ": write string(...) or quotes around it"
	case wanted.May(objectschema.Integer) && is&(objectschema.String|objectschema.Number) != 0:
		return ": write int(...)"
	default:
		return ""
	}
}
