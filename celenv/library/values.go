// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// quoteValue gives a value as a message has it: a text, cut where it is long.
func quoteValue(v any) string {
	const most = 64
	switch v := v.(type) {
	case types.String:
		return quoteValue(string(v))
	case string:
		if len(v) > most {
			return fmt.Sprintf("%q…", v[:most])
		}
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprintf("a %T", v)
	}
}

// unwrapOptional gives a value without the optional around it. It is nil for optional.none() and for null.
func unwrapOptional(v ref.Val) ref.Val {
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return nil
		}
		v = o.GetValue()
	}
	if v == types.NullValue {
		return nil
	}
	return v
}

// convertToMap returns a map in Go: an object's own map, or else a copy.
func convertToMap(v ref.Val) (map[string]any, bool) {
	if _, ok := v.(traits.Mapper); !ok { // and no copy is made of it
		return nil, false
	}
	if m, ok := v.Value().(map[string]any); ok {
		return m, true
	}
	native, err := ConvertToNative(v)
	if err != nil {
		return nil, false
	}
	m, ok := native.(map[string]any)
	return m, ok
}

// lookupNative follows a path through maps in Go. It gives nil where the path ends early.
func lookupNative(m map[string]any, path ...string) any {
	for _, name := range path[:len(path)-1] {
		m, _ = m[name].(map[string]any)
	}
	return m[path[len(path)-1]]
}

// listMaps gives the maps in a list in Go.
func listMaps(v any) []map[string]any {
	list, _ := v.([]any)
	all := make([]map[string]any, 0, len(list))
	for _, elem := range list {
		if m, ok := elem.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// DispatchConversions has conversions, such as timestamp(x), look at what they are given. What value() gives of anything has
// no type yet when a conversion of it is checked, and the checker takes the first one that there is: x for a timestamp.
func DispatchConversions(env *cel.Env, checked *ast.AST) {
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || !overloads.IsTypeConversionFunction(e.AsCall().FunctionName()) {
			return
		}
		if args := e.AsCall().Args(); len(args) != 1 || args[0].Kind() == ast.LiteralKind {
			return
		}
		all := &ast.ReferenceInfo{}
		for _, o := range env.Functions()[e.AsCall().FunctionName()].OverloadDecls() {
			all.AddOverload(o.ID())
		}
		checked.SetReference(e.ID(), all)
	}))
}
