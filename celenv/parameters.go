// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/expr"
)

// checkParameters returns an error for each parameter that an expression of a template, or of a Cleaner that uses it, names and the
// template does not declare: it could never have a value.
func (s *scope) checkParameters(x *expression) []*expr.Error {
	if s.parameters == nil {
		return nil
	}
	first := map[string]int64{}
	for id, at := range x.tree.Nodes {
		name, ok := parseParameter(at)
		if !ok || slices.Contains(s.parameters, name) {
			continue
		}
		if known, found := first[name]; !found || x.tree.IsBefore(id, known) {
			first[name] = id
		}
	}
	var problems []*expr.Error
	for _, name := range slices.Sorted(maps.Keys(first)) {
		problem := &expr.Error{Kind: expr.Invalid, Message: fmt.Sprintf("the template has no parameter %q", name)}
		if problem.Hint = expr.SuggestName(name, slices.Clone(s.parameters)); problem.Hint == "" {
			problem.Hint = "add it to the parameters of the template"
		}
		problems = append(problems, x.tree.LocateError(problem, first[name]))
	}
	return problems
}

// parseParameter gives the name of the parameter that an expression reads, or asks whether it is given.
func parseParameter(at expr.Node) (string, bool) {
	of, name := ast.Expr(nil), ""
	switch e := at.Expr; e.Kind() {
	case ast.SelectKind:
		of, name = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		call := e.AsCall()
		if !slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect}, call.FunctionName()) || call.Args()[1].Kind() != ast.LiteralKind {
			return "", false
		}
		key, ok := call.Args()[1].AsLiteral().(types.String)
		if !ok {
			return "", false
		}
		of, name = call.Args()[0], string(key)
	default:
		return "", false
	}
	return name, of.Kind() == ast.IdentKind && of.AsIdent() == nameParams && !expr.IsBound(nameParams, at.Loops)
}
