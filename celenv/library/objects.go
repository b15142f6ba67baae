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
//	key(<object>) -> <string>    // "namespace/name", or "name" for an object without a namespace
func Objects() cel.EnvOption { return cel.Lib(objects{}) }

type objects struct{}

func (objects) LibraryName() string { return "cleaner.objects" }

func (objects) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("key",
			cel.Overload("key_object", []*cel.Type{cel.DynType}, cel.StringType, cel.UnaryBinding(key))),
	}
}

func (objects) ProgramOptions() []cel.ProgramOption { return nil }

func key(v ref.Val) ref.Val {
	name, ok := lookup(v, "metadata", "name").(types.String)
	if !ok || name == "" {
		return types.NewErr("key: this is no object with metadata.name")
	}
	if namespace, ok := lookup(v, "metadata", "namespace").(types.String); ok && namespace != "" {
		return namespace + "/" + name
	}
	return name
}

// lookup follows a path through maps. It gives nil where the path ends early.
func lookup(v ref.Val, path ...types.String) ref.Val {
	for _, field := range path {
		m, ok := v.(traits.Mapper)
		if !ok {
			return nil
		}
		if v, ok = m.Find(field); !ok {
			return nil
		}
	}
	return v
}
