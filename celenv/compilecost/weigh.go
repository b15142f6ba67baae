// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compilecost

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// countTypeParameters says how many types a call of each function leaves open, which the checker then has to find. The time that
// it takes grows with the square of their number.
func countTypeParameters(env *cel.Env) map[string]int64 {
	all := map[string]int64{}
	for name, function := range env.Functions() {
		for _, overload := range function.OverloadDecls() {
			all[name] = max(all[name], int64(len(overload.TypeParams())))
		}
	}
	return all
}

// resolveCall gives the function that a parsed call is of, and its arguments. Before it is checked, optional.of(x) is a call of "of" on
// something called optional.
func (s *Scale) resolveCall(call ast.CallExpr) (function string, args []ast.Expr) {
	if !call.IsMemberFunction() {
		return call.FunctionName(), call.Args()
	}
	if namespace, ok := expr.FormatPath(call.Target()); ok {
		if _, known := s.typeParameters[namespace+"."+call.FunctionName()]; known {
			return namespace + "." + call.FunctionName(), call.Args()
		}
	}
	return call.FunctionName(), slices.Insert(slices.Clone(call.Args()), 0, call.Target())
}

// shape is how large the type of a part can become, and how deep: a variable that occurs twice in a map makes a type that is twice as
// large, and one in a list makes one that is deeper.
type shape struct{ size, depth int64 }

// newLeaf gives the shape of a type that has no parts.
func newLeaf() shape { return shape{size: 1, depth: 1} }

// cover gives a shape that is as large and deep as both.
func (s shape) cover(other shape) shape {
	return shape{size: max(s.size, other.size), depth: max(s.depth, other.depth)}
}

// wrap gives the shape of a type with these parts.
func wrap(parts ...shape) shape {
	whole := newLeaf()
	for _, part := range parts {
		whole.size, whole.depth = budget.AddCapped(whole.size, part.size), max(whole.depth, budget.AddCapped(1, part.depth))
	}
	return whole
}

// weight is how long the checker takes for a type: it looks at each part, and writes each down as text with all that is in it.
func (s shape) weight() int64 {
	written := budget.MultiplyCapped(s.size, budget.MultiplyCapped(s.depth, s.depth)) / writtenWeight
	return min(budget.AddCapped(budget.MultiplyCapped(sizeWeight, s.size), written), maxWeight)
}

// weigher estimates how long the checker takes for an expression: by how many types are open in it, and by the shape of the type of
// each part.
type weigher struct {
	scale      *Scale
	open, left int64
}

// shapedLocal is a variable of a loop, with the shape of its type.
type shapedLocal struct {
	name  string
	shape shape
	outer *shapedLocal
}

func (l *shapedLocal) withLocal(name string, s shape) *shapedLocal {
	return &shapedLocal{name: name, shape: s, outer: l}
}

func (l *shapedLocal) findShape(name string) shape {
	for ; l != nil; l = l.outer {
		if l.name == name {
			return l.shape
		}
	}
	return newLeaf()
}

// The weights of a value in the type of a node, and of a pair of open types; and how much of a type written down weighs 1.
const (
	sizeWeight    = 4
	openPairs     = 10
	writtenWeight = 1024
)

// weighExpression subtracts the weight of an expression, and returns the shape of its type.
func (w *weigher) weighExpression(e ast.Expr, locals *shapedLocal) shape {
	if w.left < 0 || e == nil {
		return newLeaf()
	}
	s := w.measureType(e, locals)
	w.left -= s.weight()
	return s
}

// openTypes takes off what it weighs that so many more types are open.
func (w *weigher) openTypes(n int64) {
	w.left -= n * w.open / openPairs
	w.open += n
}

func (w *weigher) measureType(e ast.Expr, locals *shapedLocal) shape {
	switch e.Kind() {
	case ast.IdentKind:
		return locals.findShape(e.AsIdent())
	case ast.SelectKind:
		return w.weighExpression(e.AsSelect().Operand(), locals)
	case ast.CallKind:
		return w.weighCall(e.AsCall(), locals)
	case ast.ListKind:
		return w.weighList(e.AsList().Elements(), locals)
	case ast.MapKind:
		return w.weighMap(e.AsMap().Entries(), locals)
	case ast.ComprehensionKind:
		return w.weighLoop(e.AsComprehension(), locals)
	default:
		return newLeaf()
	}
}

func (w *weigher) weighCall(call ast.CallExpr, locals *shapedLocal) shape {
	function, args := w.scale.resolveCall(call)
	largest := newLeaf()
	shapes := make([]shape, 0, len(args))
	for _, arg := range args {
		s := w.weighExpression(arg, locals)
		largest, shapes = largest.cover(s), append(shapes, s)
		if w.scale.calls.TakesPattern(function) {
			w.weighPattern(arg)
		}
	}
	open := w.scale.typeParameters[function]
	w.openTypes(open)
	switch function {
	case operators.Add, operators.Conditional, operators.Index, operators.OptIndex, operators.OptSelect, "or", "orValue", "value":
		return largest
	case operators.Equals, operators.NotEquals, operators.In, "dyn":
		return newLeaf()
	}
	all := wrap(shapes...)
	if open == 0 {
		return shape{size: min(all.size, sizeWeight), depth: min(all.depth, sizeWeight)} // such as a map of lists
	}
	return all
}

// weighPattern takes off what a regular expression weighs, which is compiled with the expression. One that is too large weighs
// no more than the largest, since it is refused by itself, with a message that names it.
func (w *weigher) weighPattern(arg ast.Expr) {
	if arg.Kind() != ast.LiteralKind {
		return
	}
	if text, ok := arg.AsLiteral().(types.String); ok {
		w.left -= min(budget.MeasurePattern(string(text)), budget.MaxPatternSize)
	}
}

func (w *weigher) weighList(elements []ast.Expr, locals *shapedLocal) shape {
	largest := newLeaf()
	for _, element := range elements {
		largest = largest.cover(w.weighExpression(element, locals))
	}
	if len(elements) == 0 {
		w.openTypes(1)
	}
	return wrap(largest)
}

func (w *weigher) weighMap(entries []ast.EntryExpr, locals *shapedLocal) shape {
	key, value := newLeaf(), newLeaf()
	for _, entry := range entries {
		key = key.cover(w.weighExpression(entry.AsMapEntry().Key(), locals))
		value = value.cover(w.weighExpression(entry.AsMapEntry().Value(), locals))
	}
	if len(entries) == 0 {
		w.openTypes(2)
	}
	return wrap(key, value)
}

// weighLoop weighs a loop, or what cel.bind and the like become.
func (w *weigher) weighLoop(c ast.ComprehensionExpr, locals *shapedLocal) shape {
	over := w.weighExpression(c.IterRange(), locals)
	result := w.weighExpression(c.AccuInit(), locals)
	inside := locals.withLocal(c.AccuVar(), result).withLocal(c.IterVar(), over)
	if c.HasIterVar2() {
		inside = inside.withLocal(c.IterVar2(), over)
	}
	w.weighExpression(c.LoopCondition(), inside)
	result = result.cover(w.weighExpression(c.LoopStep(), inside))
	return w.weighExpression(c.Result(), locals.withLocal(c.AccuVar(), result))
}
