// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/meter"
)

// What the expressions of one spec may be together. cel-go's checker cannot be interrupted, so what it is given is bounded:
// a spec of the greatest weight takes it about a second.
const (
	// maxWeight is how much all expressions may weigh, and maxExpressionWeight one of them. A node weighs about 4.
	maxWeight           = 200_000
	maxExpressionWeight = 50_000
	// maxCompilations is how many specs are compiled at a time.
	maxCompilations = 2
)

// checkSourceSize says that a spec has more source than is compiled; nil if it has not.
func checkSourceSize(spec *v1alpha1.Work) field.ErrorList {
	if n := spec.ExpressionBytes(); n > v1alpha1.MaxExpressionBytes {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, fmt.Sprintf(
			"the expressions are %d bytes long together; at most %d are allowed: shorten them, or use several Cleaners", n, v1alpha1.MaxExpressionBytes))}
	}
	return nil
}

// reserveWeight takes the weight of a parsed expression off what its spec has left. It is an error if that is too little.
func (s *scope) reserveWeight(t *expr.Tree, parsed *ast.AST) *expr.Error {
	w := &weigher{typeParameters: s.compiler.typeParameters, calls: s.compiler.calls, left: min(maxExpressionWeight, *s.weight)}
	w.weighExpression(parsed.Expr(), nil)
	weight := min(maxExpressionWeight, *s.weight) - w.left
	if w.left < 0 {
		return t.LocateError(&expr.Error{
			Kind: expr.Invalid, Message: "the expression is too involved to be checked, by itself or together with those before it",
			Hint: "use fewer empty lists and maps, and fewer cel.bind and optMap in one another; put parts into variables, or several Cleaners",
		}, t.Root.ID())
	}
	*s.weight -= weight
	return nil
}

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

// weigher estimates how long the checker takes for an expression: by how many types are open in it, and how large the type
// of each part can become. A variable that occurs twice in a map makes a type that is twice as large.
type weigher struct {
	typeParameters map[string]int64
	calls          *meter.Calls
	open, left     int64
}

// sizedLocal is a variable of a loop, with the size of its type.
type sizedLocal struct {
	name  string
	size  int64
	outer *sizedLocal
}

func (l *sizedLocal) withLocal(name string, size int64) *sizedLocal {
	return &sizedLocal{name: name, size: size, outer: l}
}

func (l *sizedLocal) findSize(name string) int64 {
	for ; l != nil; l = l.outer {
		if l.name == name {
			return l.size
		}
	}
	return 1
}

// The weights of a value in the type of a node, and of a pair of open types.
const (
	sizeWeight = 4
	openPairs  = 10
)

// weighExpression takes the weight of an expression off, and gives the size of its type.
func (w *weigher) weighExpression(e ast.Expr, locals *sizedLocal) int64 {
	if w.left < 0 || e == nil {
		return 1
	}
	size := w.measureType(e, locals)
	w.left -= min(meter.MultiplyCapped(sizeWeight, size), maxWeight)
	return size
}

// openTypes takes off what it weighs that so many more types are open.
func (w *weigher) openTypes(n int64) {
	w.left -= n * w.open / openPairs
	w.open += n
}

func (w *weigher) measureType(e ast.Expr, locals *sizedLocal) int64 {
	switch e.Kind() {
	case ast.IdentKind:
		return locals.findSize(e.AsIdent())
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
		return 1
	}
}

func (w *weigher) weighCall(call ast.CallExpr, locals *sizedLocal) int64 {
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	largest, all := int64(1), int64(1)
	for _, arg := range args {
		size := w.weighExpression(arg, locals)
		largest, all = max(largest, size), meter.AddCapped(all, size)
		if w.calls.TakesPattern(call.FunctionName()) {
			w.weighPattern(arg)
		}
	}
	open := w.typeParameters[call.FunctionName()]
	w.openTypes(open)
	switch call.FunctionName() {
	case operators.Add, operators.Conditional, operators.Index, operators.OptIndex, operators.OptSelect, "or", "orValue", "value":
		return largest
	case operators.Equals, operators.NotEquals, operators.In:
		return 1
	}
	if open == 0 {
		return min(all, sizeWeight) // such as a map of lists
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
		w.left -= min(meter.MeasurePattern(string(text)), meter.MaxPatternSize)
	}
}

func (w *weigher) weighList(elements []ast.Expr, locals *sizedLocal) int64 {
	largest := int64(1)
	for _, element := range elements {
		largest = max(largest, w.weighExpression(element, locals))
	}
	if len(elements) == 0 {
		w.openTypes(1)
	}
	return meter.AddCapped(1, largest)
}

func (w *weigher) weighMap(entries []ast.EntryExpr, locals *sizedLocal) int64 {
	key, value := int64(1), int64(1)
	for _, entry := range entries {
		key = max(key, w.weighExpression(entry.AsMapEntry().Key(), locals))
		value = max(value, w.weighExpression(entry.AsMapEntry().Value(), locals))
	}
	if len(entries) == 0 {
		w.openTypes(2)
	}
	return meter.AddCapped(1, key, value)
}

// weighLoop weighs a loop, or what cel.bind and the like become.
func (w *weigher) weighLoop(c ast.ComprehensionExpr, locals *sizedLocal) int64 {
	over := w.weighExpression(c.IterRange(), locals)
	result := w.weighExpression(c.AccuInit(), locals)
	inside := locals.withLocal(c.AccuVar(), result).withLocal(c.IterVar(), over)
	if c.HasIterVar2() {
		inside = inside.withLocal(c.IterVar2(), over)
	}
	w.weighExpression(c.LoopCondition(), inside)
	result = max(result, w.weighExpression(c.LoopStep(), inside))
	return w.weighExpression(c.Result(), locals.withLocal(c.AccuVar(), result))
}

// acquirePlace takes one of the places for compilations. It is false when the context ends before there is one.
func (c *Compiler) acquirePlace(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
	}
	select {
	case c.places <- struct{}{}:
		return true
	case <-done:
		return false
	}
}
