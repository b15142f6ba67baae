// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timedependence

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/expr"
)

// Analysis is where an expression can have values that change as time passes. It knows from the text alone, so it can
// only say where there are none.
type Analysis struct {
	// Calls are those that can be given one. All others are left as they are, and cost nothing more.
	Calls map[int64]bool
	// Keys are those of them whose result is looked up, in a list or a map.
	Keys map[int64]bool
	// Result says that the value of the expression can be one, or hold one.
	Result bool
	// Blind means that a moving value can reach a place where no call can follow it, such as the key of a map. Then nothing is predicted.
	Blind bool

	// unforeseen are the parts whose changes cannot be predicted, or are too many.
	unforeseen map[int64]unforeseen

	// moving are the parts that can move. collecting are the loops that collect what can move, as far as is known, and grown says that one was found in this turn.
	moving     map[int64]bool
	collecting map[int64]bool
	grown      bool

	types map[int64]*types.Type
	// typeOfName gives the type of a name that no loop has, if it can move; nil if it cannot.
	typeOfName func(name string) *types.Type
}

// Analyze goes through an expression until nothing more is found that can move: as a whole, because loops in loops, each gone through
// twice by itself, would be gone through twice as often with each of them. purpose says what becomes of its value.
func Analyze(a *ast.AST, purpose Purpose, names func(string) *types.Type) Analysis {
	m := Analysis{
		Calls: map[int64]bool{}, Keys: map[int64]bool{}, unforeseen: map[int64]unforeseen{}, moving: map[int64]bool{}, collecting: map[int64]bool{}, grown: true,
		types: a.TypeMap(), typeOfName: names,
	}
	for m.grown {
		m.grown = false
		m.Result = m.traceExpression(a.Expr(), nil)
	}
	if m.Result {
		m.noteResult(a.Expr(), purpose)
	}
	m.moving, m.collecting, m.types, m.typeOfName = nil, nil, nil, nil
	return m
}

// local is a variable of a loop, and whether it can move.
type local struct {
	name  string
	moves bool
	outer *local
}

// traceExpression says whether the value of an expression can move, and marks the calls in it that can be given what moves.
func (m *Analysis) traceExpression(e ast.Expr, locals *local) bool {
	moves := m.traceKind(e, locals)
	if moves {
		m.moving[e.ID()] = true
	}
	return moves
}

func (m *Analysis) traceKind(e ast.Expr, locals *local) bool {
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
		return m.typeOfName(name) != nil
	case ast.SelectKind:
		return m.traceExpression(e.AsSelect().Operand(), locals) && !e.AsSelect().IsTestOnly() && m.canHold(e)
	case ast.ListKind:
		return m.traceAll(e.AsList().Elements(), locals)
	case ast.MapKind:
		return m.traceMap(e.AsMap().Entries(), locals)
	case ast.CallKind:
		return m.traceCall(e, locals)
	case ast.ComprehensionKind:
		return m.traceLoop(e, locals)
	default: // messages, which this language has none of
		m.Blind = true
		return true
	}
}

func (m *Analysis) traceAll(all []ast.Expr, locals *local) bool {
	one := false
	for _, e := range all {
		one = m.traceExpression(e, locals) || one
	}
	return one
}

// traceMap says whether a value of a map can move. No key may.
func (m *Analysis) traceMap(entries []ast.EntryExpr, locals *local) bool {
	value := false
	for _, entry := range entries {
		m.traceKey(entry.AsMapEntry().Key(), locals, false)
		value = m.traceExpression(entry.AsMapEntry().Value(), locals) || value
	}
	return value
}

// traceKey goes through what is looked up, or becomes the key of a map. A call gives what it is now, and so does a name or a part of one that is an
// index: budget.NewAttributes sees to it.
func (m *Analysis) traceKey(e ast.Expr, locals *local, isIndex bool) {
	if !m.traceExpression(e, locals) {
		return
	}
	switch {
	case e.Kind() == ast.CallKind && m.Calls[e.ID()]:
		m.Keys[e.ID()] = true
		m.noteOften(e.ID(), e, operators.Index)
	case !isIndex || e.Kind() != ast.IdentKind && e.Kind() != ast.SelectKind:
		m.Blind = true
		m.unforeseen[e.ID()] = unforeseen{function: operators.Index}
	}
}

// canHold says that a value of the type that the checker found can move, or hold what does.
func (m *Analysis) canHold(e ast.Expr) bool {
	t, ok := m.types[e.ID()]
	if !ok {
		return true
	}
	switch t.Kind() {
	case types.BoolKind, types.BytesKind, types.NullTypeKind, types.StringKind, types.TypeKind, types.UintKind:
		return false
	default:
		return true
	}
}

// traceCall marks a call that can be given what moves, unless the value only goes through it.
func (m *Analysis) traceCall(e ast.Expr, locals *local) bool {
	function, args := e.AsCall().FunctionName(), expr.ListChildren(e)
	switch function {
	case operators.Conditional:
		m.traceExpression(args[0], locals)
		return m.traceAll(args[1:], locals) && m.canHold(e)
	case operators.Index, operators.OptIndex:
		m.traceKey(args[1], locals, true)
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
			m.traceKey(args[1], locals, false)
		}
	}
	return m.traceArguments(e, function, args, locals)
}

// traceArguments marks a call if one of its arguments can move. The keys by which a list is sorted only say in which order.
func (m *Analysis) traceArguments(e ast.Expr, function string, args []ast.Expr, locals *local) bool {
	if !m.traceAll(args, locals) {
		return false
	}
	m.Calls[e.ID()] = true
	m.noteUnforeseen(e, function, args)
	switch {
	case function == "@sortByAssociatedKeys":
		return m.moving[args[0].ID()]
	case len(args) == 1 && m.convertsNumber(function, args[0]):
		return false
	default:
		return KeepsMovement(function) && m.canHold(e)
	}
}

// traceLoop goes through a loop. What it collects can move if its beginning can, or what a turn makes of it.
func (m *Analysis) traceLoop(e ast.Expr, locals *local) bool {
	loop := e.AsComprehension()
	elements := m.traceExpression(loop.IterRange(), locals)
	collected := m.traceExpression(loop.AccuInit(), locals) || m.collecting[e.ID()]
	inside := &local{name: loop.IterVar(), moves: elements && !loop.HasIterVar2(), outer: locals} // a key, or an index, does not
	if loop.HasIterVar2() {
		inside = &local{name: loop.IterVar2(), moves: elements, outer: inside}
	}
	inside = &local{name: loop.AccuVar(), moves: collected, outer: inside}
	m.traceExpression(loop.LoopCondition(), inside)
	if step := m.traceExpression(loop.LoopStep(), inside); step && !collected {
		m.collecting[e.ID()], m.grown, collected = true, true, true
	}
	return m.traceExpression(loop.Result(), &local{name: loop.AccuVar(), moves: collected, outer: locals}) && m.canHold(e)
}
