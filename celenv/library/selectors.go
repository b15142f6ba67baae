// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// Selectors is how expressions ask which objects another object selects by their labels.
//
//	matchesSelector(<labelSelector>, <labels>) -> <bool>    // of a Deployment, a PodDisruptionBudget…: null matches nothing, {} everything
//	selects(<map>, <labels>) -> <bool>                      // of a Service: null and {} match nothing
//
// Either argument may be an optional, and none counts as null. Labels that are null are none. What is no label selector,
// such as the plain map of a Service, is an error, or a mistake would match everything.
func Selectors() cel.EnvOption { return cel.Lib(selectorsLibrary{}) }

type selectorsLibrary struct{}

func (selectorsLibrary) LibraryName() string { return "cleaner.selectors" }

func (selectorsLibrary) CompileOptions() []cel.EnvOption {
	two := []*cel.Type{cel.DynType, cel.DynType}
	return []cel.EnvOption{
		cel.Function("matchesSelector", cel.Overload("matches_selector_selector_labels", two, cel.BoolType, cel.BinaryBinding(matchesSelector))),
		cel.Function("selects", cel.Overload("selects_map_labels", two, cel.BoolType, cel.BinaryBinding(selectsLabels))),
	}
}

func (selectorsLibrary) ProgramOptions() []cel.ProgramOption { return nil }

// convertMaps gives the two arguments of a function in Go. The first is nil where there is none.
func convertMaps(function string, first, labels ref.Val) (selector, with map[string]any, err ref.Val) {
	var ok bool
	if first = unwrapOptional(first); first != nil {
		if selector, ok = convertToMap(first); !ok {
			return nil, nil, types.NewErr("%s: a selector is a map, and this is a %s", function, first.Type().TypeName())
		}
	}
	if labels = unwrapOptional(labels); labels != nil {
		if with, ok = convertToMap(labels); !ok {
			return nil, nil, types.NewErr("%s: labels are a map, and these are a %s", function, labels.Type().TypeName())
		}
	}
	return selector, with, nil
}

func selectsLabels(selector, labels ref.Val) ref.Val {
	want, with, err := convertMaps("selects", selector, labels)
	if err != nil {
		return err
	}
	return types.Bool(len(want) > 0 && hasAll(want, with))
}

func hasAll(want, with map[string]any) bool {
	for name, value := range want {
		text, isText := value.(string)
		if got, found := with[name].(string); !isText || !found || got != text {
			return false
		}
	}
	return true
}

func matchesSelector(selector, labels ref.Val) ref.Val {
	want, with, problem := convertMaps("matchesSelector", selector, labels)
	if problem != nil {
		return problem
	}
	if want == nil {
		return types.False
	}
	all := true
	for name := range want {
		if name != "matchLabels" && name != "matchExpressions" {
			return types.NewErr("matchesSelector: a label selector has matchLabels and matchExpressions only; for a plain map of labels write selects(...)")
		}
	}
	if value := want["matchLabels"]; value != nil {
		exact, ok := value.(map[string]any)
		if !ok {
			return types.NewErr("matchesSelector: matchLabels is no map")
		}
		all = hasAll(exact, with)
	}
	requirements, ok := want["matchExpressions"].([]any)
	if !ok && want["matchExpressions"] != nil {
		return types.NewErr("matchesSelector: matchExpressions is no list")
	}
	for _, r := range requirements {
		met, err := meetsRequirement(r, with)
		if err != nil {
			return types.WrapErr(fmt.Errorf("matchesSelector: %w", err))
		}
		all = all && met
	}
	return types.Bool(all)
}

// meetsRequirement says whether labels meet one of matchExpressions.
func meetsRequirement(requirement any, with map[string]any) (bool, error) {
	r, _ := requirement.(map[string]any)
	key, ok := r["key"].(string)
	if !ok || key == "" {
		return false, fmt.Errorf("an entry of matchExpressions has no key")
	}
	values, _ := r["values"].([]any)
	value, found := with[key].(string)
	switch operator := r["operator"]; operator {
	case "In", "NotIn":
		if len(values) == 0 {
			return false, fmt.Errorf("%s of %s has no values", operator, quoteValue(key))
		}
		among := found && slices.Contains(values, any(value))
		return among == (operator == "In"), nil // NotIn is met by what has no such label, too
	case "Exists", "DoesNotExist":
		return found == (operator == "Exists"), nil
	default:
		return false, fmt.Errorf("%s of %s is no operator: In, NotIn, Exists and DoesNotExist are", strings.Trim(quoteValue(operator), `"`), quoteValue(key))
	}
}
