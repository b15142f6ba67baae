// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lookups

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/vtex/cleaner/celenv/expr"
)

// FindOtherUses visits the names that an expression uses in another way than to look up an entry of what they stand for. What it reads in one of
// the parts that are evaluated once for all items is used in another way: later items do not look it up. These are given by their IDs, sorted.
func FindOtherUses(root ast.Expr, fixed []int64, visit func(name string)) {
	u := &uses{fixed: fixed, visit: visit}
	u.visitPart(root, false)
}

// uses goes through an expression.
type uses struct {
	fixed []int64
	once  int // how many parts are around the present one that are evaluated once
	visit func(name string)
}

// visitPart visits the names in a part. isLookedUp says that an entry of the part is looked up.
func (u *uses) visitPart(e ast.Expr, isLookedUp bool) {
	if _, once := slices.BinarySearch(u.fixed, e.ID()); once {
		u.once++
		defer func() { u.once-- }()
	}
	switch e.Kind() {
	case ast.IdentKind:
		if !isLookedUp || u.once > 0 {
			u.visit(strings.TrimPrefix(e.AsIdent(), ".")) // the checker's mark where a loop has a variable of that name
		}
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		for _, child := range []ast.Expr{loop.IterRange(), loop.AccuInit(), loop.LoopCondition(), loop.LoopStep(), loop.Result()} {
			u.visitPart(child, false)
		}
	default:
		from := findLookedUp(e)
		for _, child := range expr.ListChildren(e) {
			u.visitPart(child, child == from)
		}
	}
}

// findLookedUp returns the part that an expression looks up an entry of; nil if it is no lookup.
func findLookedUp(e ast.Expr) ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand()
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.In:
			return call.Args()[1]
		case operators.Index, operators.OptIndex, operators.OptSelect:
			return call.Args()[0]
		}
	}
	return nil
}
