// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Objects is what expressions ask about any Kubernetes object.
//
//	key(<object>) -> <string>             // "namespace/name", or "name" for an object without a namespace
//	controller(<object>) -> <optional>    // controller(pod).kind.orValue("") == "Job": the owner that controls it, and may recreate it
func Objects() cel.EnvOption { return cel.Lib(objectsLibrary{}) }

type objectsLibrary struct{}

func (objectsLibrary) LibraryName() string { return "cleaner.objects" }

func (objectsLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("key",
			cel.Overload("key_object", []*cel.Type{cel.DynType}, cel.StringType, cel.UnaryBinding(formatKey))),
		cel.Function("controller",
			cel.Overload("controller_object", []*cel.Type{cel.DynType}, cel.OptionalType(cel.DynType), cel.UnaryBinding(findController))),
	}
}

func (objectsLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func formatKey(v ref.Val) ref.Val {
	name, ok := lookupPath(v, "metadata", "name").(types.String)
	if !ok || name == "" {
		return types.NewErr("key: this is no object with metadata.name")
	}
	if namespace, ok := lookupPath(v, "metadata", "namespace").(types.String); ok && namespace != "" {
		return namespace + "/" + name
	}
	return name
}

func findController(v ref.Val) ref.Val {
	if lookupPath(v, "metadata") == nil {
		return types.NewErr("controller: this is no object with metadata")
	}
	return findFirst(lookupPath(v, "metadata", "ownerReferences"), "controller", types.True)
}

// findFirst finds the first map of a list that has a value in a field, if there is one.
func findFirst(list ref.Val, field string, value ref.Val) ref.Val {
	if list, ok := list.(traits.Lister); ok {
		for it := list.Iterator(); it.HasNext() == types.True; {
			if entry := it.Next(); lookupPath(entry, field) == value {
				return types.OptionalOf(entry)
			}
		}
	}
	return types.OptionalNone
}

// lookupPath follows a path through maps. It gives nil where the path ends early.
func lookupPath(v ref.Val, path ...string) ref.Val {
	for _, field := range path {
		m, ok := v.(traits.Mapper)
		if !ok {
			return nil
		}
		if v, ok = m.Find(types.String(field)); !ok {
			return nil
		}
	}
	return v
}
