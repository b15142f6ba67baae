// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/parts"
)

// explanation finds out why an expression failed: it runs it once more, watching every part. The program that answers
// stays free of that, as watching costs more than evaluating. It is made at the first failure of an evaluation, and
// dropped at its end.
type explanation struct {
	compiler   *Compiler
	expression *expression
	meter      *budget.Meter
	limits     budget.Limits

	program *program
	nodes   map[int64]expr.Node // of the expression
	// turns counts, for each loop under way, its turns from 0.
	turns map[int64]int64
	// values are the last ones of the parts.
	values map[int64]ref.Val
	// loopOf names the loop by its condition.
	loopOf map[int64]int64
}

// cause is an error where it first occurred.
type cause struct {
	err          error
	node         int64
	object, hint string
}

func (c *cause) Error() string { return c.err.Error() }
func (c *cause) Unwrap() error { return c.err }

// explainError says why the evaluation gave err. If that does not come out again, it says what cel-go said.
func (x *explanation) explainError(e *Evaluation, err *types.Err) *expr.Error {
	var c *cause
	again := x.runAgain(e)
	x.values = nil // they hold the objects
	if t := x.expression.tree; errors.As(again, &c) {
		return t.LocateError(&expr.Error{Kind: expr.Runtime, Message: expr.TruncateText(c.Error(), 512), Object: c.object, Hint: c.hint}, c.node)
	}
	return x.expression.tree.LocateError(&expr.Error{Kind: expr.Runtime, Message: expr.TruncateText(err.Error(), 512)}, err.NodeID())
}

// runAgain runs the expression, and returns its error. What its parts give is in values; the caller drops it.
func (x *explanation) runAgain(e *Evaluation) error {
	if x.program == nil {
		if err := x.planProgram(); err != nil {
			return err
		}
		e.explanations = append(e.explanations, x)
	}
	x.turns, x.values = map[int64]int64{}, map[int64]ref.Val{}
	before := *x.meter // another explanation can be under way
	budget := x.limits.NewSharedBudget(&e.extraSteps)
	x.meter.StartClock(e.p.meter.Clock.Ctx, x.limits.Wall)
	x.meter.Budget = &budget
	defer func() {
		x.meter.Clock.Release()
		*x.meter = before
	}()
	_, err := runProgram(x.program, (*activation)(e))
	return err
}

// listParts runs the expression again, and lists what its parts give, unless that takes too long.
func (x *explanation) listParts(e *Evaluation, of string) []parts.Part {
	env, err := x.expression.env.Extend(cel.EnableMacroCallTracking()) // only so are macros written as the author wrote them
	if err != nil {
		return nil
	}
	parsed, issues := env.Parse(x.expression.tree.Source)
	if issues.Err() != nil {
		return nil
	}
	_ = x.runAgain(e) // its error is the value of a part
	values := x.values
	x.values = nil
	return parts.ListParts(of, parsed.NativeRep(), values)
}

// maxPartVariables bounds for how many variables parts are listed.
const maxPartVariables = 16

// ListWhenParts evaluates `when` again, and lists what its parts give, and those of the variables that it has read.
func (i *Item) ListWhenParts() []parts.Part {
	e := i.bindItem()
	var out []parts.Part
	listed := map[*expression]bool{}
	var list func(of string, x *expression)
	list = func(of string, x *expression) {
		if listed[x] || len(listed) > maxPartVariables {
			return
		}
		listed[x] = true
		out = append(out, x.explanation.listParts(e, of)...)
		for _, name := range slices.Sorted(maps.Keys(x.names)) {
			v, memos := e.p.variables[name], e.memos
			if v == nil {
				v, memos = i.rule.p.variables[name], e.itemMemos
			}
			if v != nil && (memos[v.slot].value != nil || memos[v.slot].failure != nil) { // otherwise it was not read
				list(name, v.expression)
			}
		}
	}
	list("when", i.rule.p.when)
	return parts.LimitParts(out)
}

// releaseProgram drops what only one that runs needs, which is as much as the program that answers.
func (x *explanation) releaseProgram() { x.program, x.nodes, x.loopOf, x.turns = nil, nil, nil, nil }

func (x *explanation) planProgram() error {
	x.loopOf, x.nodes = map[int64]int64{}, expr.NewTree(x.expression.tree.Source, x.expression.ast.NativeRep()).Nodes
	for id, at := range x.nodes {
		if at.Expr.Kind() == ast.ComprehensionKind {
			x.loopOf[at.Expr.AsComprehension().LoopCondition().ID()] = id
		}
	}
	var err error
	x.program, err = x.compiler.planProgram(x.expression.env, x.expression.ast, x.meter, false, x.compiler.calls.MeterProgram(x.expression.ast, x.meter), parts.WatchNodes(x))
	return err
}

// BeginNode counts the turns of loops.
func (x *explanation) BeginNode(id int64) {
	if loop, ok := x.loopOf[id]; ok {
		x.turns[loop]++
	}
	if x.nodes[id].Expr.Kind() == ast.ComprehensionKind {
		x.turns[id] = -1
	}
}

// NoteValue remembers the value of a part, and turns an error that is new into its cause.
func (x *explanation) NoteValue(vars interpreter.Activation, id int64, out ref.Val) ref.Val {
	x.values[id] = out
	failure, ok := out.(*types.Err)
	if !ok {
		return out
	}
	var known *cause
	if errors.As(failure, &known) {
		return out
	}
	c := &cause{err: failure, node: id, object: x.describeObject(vars, id)}
	x.describeOperands(c, failure)
	return types.WrapErr(c)
}

// describeOperands says what the two sides of an operator were.
func (x *explanation) describeOperands(c *cause, failure *types.Err) {
	e := x.nodes[c.node].Expr
	if e == nil || e.Kind() != ast.CallKind || len(expr.ListChildren(e)) != 2 {
		return
	}
	left, right := x.findValue(expr.ListChildren(e)[0]), x.findValue(expr.ListChildren(e)[1])
	if left == nil || right == nil {
		return
	}
	c.hint = expr.SuggestTimeFix(budget.TypeOf(left), budget.TypeOf(right))
	if operator, ok := operators.FindReverseBinaryOperator(e.AsCall().FunctionName()); ok {
		c.err = fmt.Errorf("%w (%s %s %s)", failure, cel.FormatCELType(budget.TypeOf(left)), operator, cel.FormatCELType(budget.TypeOf(right)))
	}
}

// NoteLookup remembers what a field or an index was read from, and turns an error of it into its cause.
func (x *explanation) NoteLookup(vars interpreter.Activation, id int64, object any, err error) error {
	var known *cause
	if e := x.nodes[id].Expr; e != nil && len(expr.ListChildren(e)) > 0 {
		x.values[expr.ListChildren(e)[0].ID()] = x.expression.env.CELTypeAdapter().NativeToValue(object)
	}
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &cause{err: err, node: id, object: x.describeObject(vars, id), hint: x.suggestLookupFix(id, object)}
}

// findValue finds the last value of an expression.
func (x *explanation) findValue(e ast.Expr) ref.Val {
	if e.Kind() == ast.LiteralKind {
		return e.AsLiteral()
	}
	return x.values[e.ID()]
}

// suggestLookupFix says what to write instead of a field or an index that was not there.
func (x *explanation) suggestLookupFix(id int64, object any) string {
	at := x.nodes[id]
	if l, ok := expr.ParseLabelLookup(at.Expr); ok {
		return "write " + l.Hint
	}
	if at.Parent != nil {
		if l, ok := expr.ParseLabelLookup(at.Parent); ok { // there are no labels at all
			return "write " + l.Hint
		}
	}
	if at.Expr.Kind() != ast.SelectKind {
		return expr.SuggestIndexFix(at.Expr)
	}
	name := at.Expr.AsSelect().FieldName()
	if fields, ok := x.expression.env.CELTypeAdapter().NativeToValue(object).(traits.Mapper); ok {
		var names []string
		for it := fields.Iterator(); it.HasNext() == types.True; {
			if field, ok := it.Next().(types.String); ok {
				names = append(names, string(field))
			}
		}
		if hint := expr.SuggestName(name, names); hint != "" && !expr.IsOptionalMetadata(name) {
			return hint
		}
	}
	if operand, ok := expr.FormatPath(at.Expr.AsSelect().Operand()); ok {
		return fmt.Sprintf("test has(%s.%s) first, or write %s.?%s and .orValue(...) at the end", operand, name, operand, name)
	}
	return ""
}

// describeObject names the object that an expression was about: the one it read from, else the element of the innermost loop
// that is an object, else the target.
func (x *explanation) describeObject(vars interpreter.Activation, id int64) string {
	at := x.nodes[id]
	if at.Expr == nil {
		return ""
	}
	// What was read from: r.metadata.labels.app was read from r.metadata.labels, that from r.metadata, that from r.
	read := []ast.Expr{at.Expr}
	if expr.FindBase(at.Expr) == at.Expr {
		read = append(read, expr.ListChildren(at.Expr)...) // a call: what its operands were read from
	}
	var variables []ast.Expr
	for _, e := range read {
		for ; e != expr.FindBase(e); e = expr.ListChildren(e)[0] {
			if name := budget.ReadObjectName(x.values[e.ID()]); name != "" {
				return formatObject(e, name)
			}
		}
		variables = append(variables, e)
	}
	for _, loop := range at.Loops {
		for _, variable := range []string{loop.AsComprehension().IterVar2(), loop.AsComprehension().IterVar()} {
			if name := budget.ReadObjectName(resolveVariable(vars, variable)); name != "" {
				return x.formatElement(loop, variable) + " (" + name + ")"
			}
		}
		variables = append(variables, expr.FindBase(loop.AsComprehension().IterRange()))
	}
	for _, e := range variables {
		if e.Kind() != ast.IdentKind {
			continue
		}
		if name := budget.ReadObjectName(resolveVariable(vars, e.AsIdent())); name != "" {
			return formatObject(e, name)
		}
	}
	return ""
}

func formatObject(e ast.Expr, name string) string {
	if text, ok := expr.FormatPath(e); ok {
		return text + " (" + name + ")"
	}
	return name
}

// formatElement writes the element that a loop is at: revisions.items[1], or the variable when the list has no short name.
func (x *explanation) formatElement(e ast.Expr, variable string) string {
	list := e.AsComprehension().IterRange()
	text, ok := expr.FormatPath(list)
	if _, isList := x.findValue(list).(traits.Lister); ok && isList {
		return fmt.Sprintf("%s[%d]", text, x.turns[e.ID()])
	}
	return variable
}

// resolveVariable gives the value of a variable, nil when there is none.
func resolveVariable(vars interpreter.Activation, variable string) ref.Val {
	if value, ok := vars.ResolveName(variable); ok {
		return types.DefaultTypeAdapter.NativeToValue(value)
	}
	return nil
}
