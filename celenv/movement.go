// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/expr"
)

// movement is where an expression can have values that change as time passes. It knows from the text alone, so it can
// only say where there are none.
type movement struct {
	// calls are those that can be given one. All others are left as they are, and cost nothing more.
	calls map[int64]bool
	// result says that the value of the expression can be one, or hold one.
	result bool
	// blind says that one can get to where no call stands in its way, such as into an index. Nothing is foreseen then.
	blind bool

	types map[int64]*types.Type
	// canNameMove says of the names that no loop has whether they can move.
	canNameMove func(name string) bool
}

// analyzeMovement goes through an expression.
func analyzeMovement(a *ast.AST, names func(string) bool) movement {
	m := movement{calls: map[int64]bool{}, types: a.TypeMap(), canNameMove: names}
	m.result = m.traceExpression(a.Expr(), nil)
	m.types, m.canNameMove = nil, nil
	return m
}

// movingLocal is a variable of a loop, and whether it can move.
type movingLocal struct {
	name  string
	moves bool
	outer *movingLocal
}

// traceExpression says whether the value of an expression can move, and marks the calls in it that can be given what moves.
func (m *movement) traceExpression(e ast.Expr, locals *movingLocal) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return false
	case ast.IdentKind:
		name, global := strings.CutPrefix(e.AsIdent(), ".") // as in tree.CollectReads
		for l := locals; l != nil && !global; l = l.outer {
			if l.name == name {
				return l.moves
			}
		}
		return m.canNameMove(name)
	case ast.SelectKind:
		return m.traceExpression(e.AsSelect().Operand(), locals) && !e.AsSelect().IsTestOnly() && m.canHold(e)
	case ast.ListKind:
		return m.traceAll(e.AsList().Elements(), locals)
	case ast.MapKind:
		value := false
		for _, entry := range e.AsMap().Entries() {
			m.markBlindIfMoving(entry.AsMapEntry().Key(), locals)
			value = m.traceExpression(entry.AsMapEntry().Value(), locals) || value
		}
		return value
	case ast.CallKind:
		return m.traceCall(e, locals)
	case ast.ComprehensionKind:
		return m.traceLoop(e, locals)
	default: // messages, which this language has none of
		m.blind = true
		return true
	}
}

func (m *movement) traceAll(all []ast.Expr, locals *movingLocal) bool {
	one := false
	for _, e := range all {
		one = m.traceExpression(e, locals) || one
	}
	return one
}

func (m *movement) markBlindIfMoving(e ast.Expr, locals *movingLocal) {
	m.blind = m.traceExpression(e, locals) || m.blind
}

// canHold says that a value of the type that the checker found can move, or hold what does.
func (m *movement) canHold(e ast.Expr) bool {
	t, ok := m.types[e.ID()]
	if !ok {
		return true
	}
	switch t.Kind() {
	case types.BoolKind, types.BytesKind, types.DoubleKind, types.NullTypeKind, types.StringKind, types.TypeKind, types.UintKind:
		return false
	default:
		return true
	}
}

// traceCall marks a call that can be given what moves, unless the value only goes through it.
func (m *movement) traceCall(e ast.Expr, locals *movingLocal) bool {
	function, args := e.AsCall().FunctionName(), expr.ListChildren(e)
	switch function {
	case operators.Conditional:
		m.traceExpression(args[0], locals)
		return m.traceAll(args[1:], locals) && m.canHold(e)
	case operators.Index, operators.OptIndex:
		m.markBlindIfMoving(args[1], locals)
		return m.traceExpression(args[0], locals) && m.canHold(e)
	case operators.OptSelect:
		return m.traceExpression(args[0], locals) && m.canHold(e)
	case operators.LogicalAnd, operators.LogicalOr, operators.NotStrictlyFalse:
		m.traceAll(args, locals) // of what is no bool they make an error
		return false
	case "or", "orValue": // cel-go evaluates their second operand only if it needs it
		return m.traceAll(args, locals) && m.canHold(e)
	case "cel.@mapInsert":
		if len(args) == 3 {
			m.markBlindIfMoving(args[1], locals)
		}
	}
	if !m.traceAll(args, locals) {
		return false
	}
	m.calls[e.ID()] = true
	return keepsMovement(function) && m.canHold(e)
}

// traceLoop goes through a loop until it is known whether what it collects can move.
func (m *movement) traceLoop(e ast.Expr, locals *movingLocal) bool {
	loop := e.AsComprehension()
	elements := m.traceExpression(loop.IterRange(), locals)
	collected := m.traceExpression(loop.AccuInit(), locals)
	for {
		inside := &movingLocal{name: loop.IterVar(), moves: elements && !loop.HasIterVar2(), outer: locals} // a key, or an index, does not
		if loop.HasIterVar2() {
			inside = &movingLocal{name: loop.IterVar2(), moves: elements, outer: inside}
		}
		inside = &movingLocal{name: loop.AccuVar(), moves: collected, outer: inside}
		m.traceExpression(loop.LoopCondition(), inside)
		if step := m.traceExpression(loop.LoopStep(), inside); !step || collected {
			break
		}
		collected = true
	}
	return m.traceExpression(loop.Result(), &movingLocal{name: loop.AccuVar(), moves: collected, outer: locals}) && m.canHold(e)
}
