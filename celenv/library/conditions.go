// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/compact"
)

// Conditions is how expressions read status.conditions, and how patches change them.
//
//	condition(<object>, <string>) -> <optional>    // condition(item, "Ready").status.orValue("") == "True": the one of a type
//	setCondition(<list>, <map>) -> <list>           // the conditions with this one in the place of the one of its type, or at the end
//
// Where the status stays as it was, lastTransitionTime does too; else it is the one given, such as string(time). The list
// may be null or an optional that is none: then it is empty.
func Conditions() cel.EnvOption { return cel.Lib(conditionsLibrary{}) }

type conditionsLibrary struct{}

func (conditionsLibrary) LibraryName() string { return "cleaner.conditions" }

func (conditionsLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("condition",
			cel.Overload("condition_object_string", []*cel.Type{cel.DynType, cel.StringType}, cel.OptionalType(cel.DynType), cel.BinaryBinding(findCondition))),
		cel.Function("setCondition",
			cel.Overload("set_condition_list_map", []*cel.Type{cel.DynType, cel.DynType}, cel.ListType(cel.DynType), cel.BinaryBinding(setCondition))),
	}
}

func (conditionsLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func findCondition(v, kind ref.Val) ref.Val {
	if _, ok := v.(traits.Mapper); !ok {
		return types.NewErr("condition: this is no object, but a %s", v.Type().TypeName())
	}
	return findFirst(lookupPath(v, "status", "conditions"), "type", kind)
}

func setCondition(list, condition ref.Val) ref.Val {
	kind, isText := lookupPath(condition, "type").(types.String)
	status, hasStatus := lookupPath(condition, "status").(types.String)
	if !isText || kind == "" || !hasStatus {
		return types.NewErr("setCondition: a condition is a map with the strings type and status")
	}
	var all []ref.Val
	if list = unwrapOptional(list); list != nil {
		before, ok := list.(traits.Lister)
		if !ok {
			return types.NewErr("setCondition: the conditions are no list, but a %s", list.Type().TypeName())
		}
		for it := before.Iterator(); it.HasNext() == types.True; {
			all = append(all, it.Next())
		}
	}
	for i, old := range all {
		if lookupPath(old, "type") != kind {
			continue
		}
		all[i] = condition
		if since := lookupPath(old, "lastTransitionTime"); since != nil && lookupPath(old, "status") == status {
			all[i] = withEntry(condition.(traits.Mapper), "lastTransitionTime", since)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, all)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, append(all, condition))
}

// withEntry gives a map with one entry more, or another value for it.
func withEntry(m traits.Mapper, name types.String, value ref.Val) ref.Val {
	var keys, values []ref.Val
	for it := m.Iterator(); it.HasNext() == types.True; {
		if key := it.Next(); key != name {
			keys, values = append(keys, key), append(values, m.Get(key))
		}
	}
	return compact.NewMap(append(keys, name), append(values, value))
}
