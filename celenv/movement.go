// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
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
	// names says of the names that no loop has whether they can move.
	names func(name string) bool
}

// movementOf goes through an expression.
func movementOf(a *ast.AST, names func(string) bool) movement {
	m := movement{calls: map[int64]bool{}, types: a.TypeMap(), names: names}
	m.result = m.moves(a.Expr(), nil)
	m.types, m.names = nil, nil
	return m
}

// local is a variable of a loop, and whether it can move.
type local struct {
	name  string
	moves bool
	outer *local
}

// moves says that the value of an expression can move.
func (m *movement) moves(e ast.Expr, locals *local) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return false
	case ast.IdentKind:
		name, global := strings.CutPrefix(e.AsIdent(), ".") // as in tree.reads
		for l := locals; l != nil && !global; l = l.outer {
			if l.name == name {
				return l.moves
			}
		}
		return m.names(name)
	case ast.SelectKind:
		return m.moves(e.AsSelect().Operand(), locals) && !e.AsSelect().IsTestOnly() && m.canHold(e)
	case ast.ListKind:
		return m.anyMoves(e.AsList().Elements(), locals)
	case ast.MapKind:
		value := false
		for _, entry := range e.AsMap().Entries() {
			m.mustNotMove(entry.AsMapEntry().Key(), locals)
			value = m.moves(entry.AsMapEntry().Value(), locals) || value
		}
		return value
	case ast.CallKind:
		return m.callMoves(e, locals)
	case ast.ComprehensionKind:
		return m.loopMoves(e, locals)
	default: // messages, which this language has none of
		m.blind = true
		return true
	}
}

func (m *movement) anyMoves(all []ast.Expr, locals *local) bool {
	one := false
	for _, e := range all {
		one = m.moves(e, locals) || one
	}
	return one
}

func (m *movement) mustNotMove(e ast.Expr, locals *local) {
	m.blind = m.moves(e, locals) || m.blind
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

// callMoves marks a call that can be given what moves, unless the value only goes through it.
func (m *movement) callMoves(e ast.Expr, locals *local) bool {
	function, args := e.AsCall().FunctionName(), children(e)
	switch function {
	case operators.Conditional:
		m.moves(args[0], locals)
		return m.anyMoves(args[1:], locals) && m.canHold(e)
	case operators.Index, operators.OptIndex:
		m.mustNotMove(args[1], locals)
		return m.moves(args[0], locals) && m.canHold(e)
	case operators.OptSelect:
		return m.moves(args[0], locals) && m.canHold(e)
	case operators.LogicalAnd, operators.LogicalOr, operators.NotStrictlyFalse:
		m.anyMoves(args, locals) // of what is no bool they make an error
		return false
	case "or", "orValue": // cel-go evaluates their second operand only if it needs it
		return m.anyMoves(args, locals) && m.canHold(e)
	case "cel.@mapInsert":
		if len(args) == 3 {
			m.mustNotMove(args[1], locals)
		}
	}
	if !m.anyMoves(args, locals) {
		return false
	}
	m.calls[e.ID()] = true
	return keeps(function) && m.canHold(e)
}

// loopMoves goes through a loop until it is known whether what it collects can move.
func (m *movement) loopMoves(e ast.Expr, locals *local) bool {
	loop := e.AsComprehension()
	elements := m.moves(loop.IterRange(), locals)
	collected := m.moves(loop.AccuInit(), locals)
	for {
		inside := &local{name: loop.IterVar(), moves: elements && !loop.HasIterVar2(), outer: locals} // a key, or an index, does not
		if loop.HasIterVar2() {
			inside = &local{name: loop.IterVar2(), moves: elements, outer: inside}
		}
		inside = &local{name: loop.AccuVar(), moves: collected, outer: inside}
		m.moves(loop.LoopCondition(), inside)
		if step := m.moves(loop.LoopStep(), inside); !step || collected {
			break
		}
		collected = true
	}
	return m.moves(loop.Result(), &local{name: loop.AccuVar(), moves: collected, outer: locals}) && m.canHold(e)
}
