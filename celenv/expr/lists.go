// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// IsListOfObjects says that an expression gives objects of targets as they are, each for itself: the items of a target, such a list, sums and
// filters. isTarget and isList say so of a name.
func IsListOfObjects(e ast.Expr, isTarget, isList func(name string) bool) bool {
	switch e.Kind() {
	case ast.SelectKind:
		name, ok := FindListed(e)
		return ok && isTarget(name)
	case ast.IdentKind:
		return isList(e.AsIdent())
	case ast.CallKind:
		call := e.AsCall()
		return call.FunctionName() == operators.Add && IsListOfObjects(call.Args()[0], isTarget, isList) && IsListOfObjects(call.Args()[1], isTarget, isList)
	case ast.ComprehensionKind:
		return isFilter(e.AsComprehension()) && IsListOfObjects(e.AsComprehension().IterRange(), isTarget, isList)
	default:
		return false
	}
}

// FindListed returns the name of that whose items an expression gives, and nothing else.
func FindListed(e ast.Expr) (name string, ok bool) {
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() || e.AsSelect().FieldName() != "items" || e.AsSelect().Operand().Kind() != ast.IdentKind {
		return "", false
	}
	return e.AsSelect().Operand().AsIdent(), true
}

// isFilter says that a loop is a filter: it adds what it goes through to a list, or does not.
func isFilter(loop ast.ComprehensionExpr) bool {
	step := loop.LoopStep()
	if step.Kind() != ast.CallKind || step.AsCall().FunctionName() != operators.Conditional {
		return false
	}
	added := step.AsCall().Args()[1]
	if added.Kind() != ast.CallKind || added.AsCall().FunctionName() != operators.Add {
		return false
	}
	list := added.AsCall().Args()[1]
	if list.Kind() != ast.ListKind || len(list.AsList().Elements()) != 1 {
		return false
	}
	item := list.AsList().Elements()[0]
	return item.Kind() == ast.IdentKind && item.AsIdent() == loop.IterVar()
}
