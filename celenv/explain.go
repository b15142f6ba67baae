// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// explanation finds out why an expression failed: it runs it once more, watching every part. The program that answers
// stays free of that, as watching costs more than evaluating. It is made at the first failure of an evaluation, and
// dropped at its end.
type explanation struct {
	compiler   *Compiler
	expression *expression
	meter      *meter
	limits     Limits

	program *program
	nodes   map[int64]node // of the expression
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

// of says why the evaluation gave err. If that does not come out again, it says what cel-go said.
func (x *explanation) of(e *Evaluation, err *types.Err) *Error {
	t := x.expression.tree
	plain := t.locate(&Error{Kind: Runtime, Message: cut(err.Error(), 512)}, err.NodeID())
	if x.program == nil {
		if x.plan() != nil {
			return plain
		}
		e.explained = append(e.explained, x)
	}
	x.turns, x.values = map[int64]int64{}, map[int64]ref.Val{}
	before := *x.meter // another explanation can be under way
	budget := x.limits.evaluation(&e.besides)
	x.meter.begin(e.p.meter.ctx, x.limits.Wall)
	x.meter.budget = &budget
	defer func() {
		x.values = nil // they hold the objects
		x.meter.cancel()
		*x.meter = before
	}()
	_, again := run(x.program, (*activation)(e))
	var c *cause
	if !errors.As(again, &c) {
		return plain
	}
	return t.locate(&Error{Kind: Runtime, Message: cut(c.Error(), 512), Object: c.object, Hint: c.hint}, c.node)
}

// forget drops what only one that runs needs, which is as much as the program that answers.
func (x *explanation) forget() { x.program, x.nodes, x.loopOf, x.turns = nil, nil, nil, nil }

func (x *explanation) plan() error {
	x.loopOf, x.nodes = map[int64]int64{}, newTree(x.expression.tree.source, x.expression.ast.NativeRep()).nodes
	for id, at := range x.nodes {
		if at.expr.Kind() == ast.ComprehensionKind {
			x.loopOf[at.expr.AsComprehension().LoopCondition().ID()] = id
		}
	}
	var err error
	x.program, err = x.compiler.plan(x.expression.env, x.expression.ast, x.meter, false, x.compiler.metered(x.expression.ast, x.meter), x.watch)
	return err
}

func (x *explanation) watch(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch node := i.(type) {
	case *watched, *watchedAttribute, interpreter.InterpretableConst:
		return i, nil
	case interpreter.InterpretableAttribute: // what selects from it must still find an attribute
		return &watchedAttribute{InterpretableAttribute: node, x: x}, nil
	default:
		return &watched{InterpretableV2: node, x: x}, nil
	}
}

// watched is any part but an attribute.
type watched struct {
	interpreter.InterpretableV2
	x *explanation
}

func (w *watched) Eval(a interpreter.Activation) ref.Val { return w.Exec(interpreter.AsFrame(a)) }

func (w *watched) Exec(f *interpreter.ExecutionFrame) ref.Val {
	id := w.ID()
	if loop, ok := w.x.loopOf[id]; ok {
		w.x.turns[loop]++
	}
	if w.x.nodes[id].expr.Kind() == ast.ComprehensionKind {
		w.x.turns[id] = -1
	}
	out := w.InterpretableV2.Exec(f)
	return w.x.saw(f, id, out)
}

// watchedAttribute is a variable with its fields and indexes.
type watchedAttribute struct {
	interpreter.InterpretableAttribute
	x *explanation
}

func (w *watchedAttribute) Eval(a interpreter.Activation) ref.Val {
	return w.Exec(interpreter.AsFrame(a))
}

func (w *watchedAttribute) Exec(f *interpreter.ExecutionFrame) ref.Val {
	return w.x.saw(f, w.ID(), w.InterpretableAttribute.Exec(f))
}

// AddQualifier adds a field or an index, and watches it.
func (w *watchedAttribute) AddQualifier(q interpreter.Qualifier) (interpreter.Attribute, error) {
	var step interpreter.Qualifier = &watchedQualifier{Qualifier: q, x: w.x}
	if constant, ok := q.(interpreter.ConstantQualifier); ok {
		step = &watchedConstant{ConstantQualifier: constant, x: w.x}
	}
	_, err := w.InterpretableAttribute.AddQualifier(step)
	return w, err
}

type watchedQualifier struct {
	interpreter.Qualifier
	x *explanation
}

func (w *watchedQualifier) Qualify(vars interpreter.Activation, object any) (any, error) {
	value, err := w.Qualifier.Qualify(vars, object)
	return value, w.x.missed(vars, w.ID(), object, err)
}

func (w *watchedQualifier) QualifyIfPresent(vars interpreter.Activation, object any, presenceOnly bool) (any, bool, error) {
	value, present, err := w.Qualifier.QualifyIfPresent(vars, object, presenceOnly)
	return value, present, w.x.missed(vars, w.ID(), object, err)
}

type watchedConstant struct {
	interpreter.ConstantQualifier
	x *explanation
}

func (w *watchedConstant) Qualify(vars interpreter.Activation, object any) (any, error) {
	value, err := w.ConstantQualifier.Qualify(vars, object)
	return value, w.x.missed(vars, w.ID(), object, err)
}

func (w *watchedConstant) QualifyIfPresent(vars interpreter.Activation, object any, presenceOnly bool) (any, bool, error) {
	value, present, err := w.ConstantQualifier.QualifyIfPresent(vars, object, presenceOnly)
	return value, present, w.x.missed(vars, w.ID(), object, err)
}

// saw remembers the value of a part, and turns an error that is new into its cause.
func (x *explanation) saw(vars interpreter.Activation, id int64, out ref.Val) ref.Val {
	x.values[id] = out
	failure, ok := out.(*types.Err)
	if !ok {
		return out
	}
	var known *cause
	if errors.As(failure, &known) {
		return out
	}
	c := &cause{err: failure, node: id, object: x.object(vars, id)}
	x.describeOperands(c, failure)
	return types.WrapErr(c)
}

// describeOperands says what the two sides of an operator were.
func (x *explanation) describeOperands(c *cause, failure *types.Err) {
	e := x.nodes[c.node].expr
	if e == nil || e.Kind() != ast.CallKind || len(children(e)) != 2 {
		return
	}
	left, right := x.value(children(e)[0]), x.value(children(e)[1])
	if left == nil || right == nil {
		return
	}
	c.hint = timeHint(typeOf(left), typeOf(right))
	if operator, ok := operators.FindReverseBinaryOperator(e.AsCall().FunctionName()); ok {
		c.err = fmt.Errorf("%w (%s %s %s)", failure, cel.FormatCELType(typeOf(left)), operator, cel.FormatCELType(typeOf(right)))
	}
}

// missed remembers what a field or an index was read from, and turns an error of it into its cause.
func (x *explanation) missed(vars interpreter.Activation, id int64, object any, err error) error {
	var known *cause
	if e := x.nodes[id].expr; e != nil && len(children(e)) > 0 {
		x.values[children(e)[0].ID()] = x.expression.env.CELTypeAdapter().NativeToValue(object)
	}
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &cause{err: err, node: id, object: x.object(vars, id), hint: x.lookupHint(id, object)}
}

// value is the last value of an expression.
func (x *explanation) value(e ast.Expr) ref.Val {
	if e.Kind() == ast.LiteralKind {
		return e.AsLiteral()
	}
	return x.values[e.ID()]
}

func typeOf(v ref.Val) *types.Type {
	if t, ok := v.Type().(*types.Type); ok {
		return t
	}
	return types.DynType
}

// lookupHint says what to write instead of a field or an index that was not there.
func (x *explanation) lookupHint(id int64, object any) string {
	at := x.nodes[id]
	if l, ok := labelLookup(at.expr); ok {
		return "write " + l.hint
	}
	if at.parent != nil {
		if l, ok := labelLookup(at.parent); ok { // there are no labels at all
			return "write " + l.hint
		}
	}
	if at.expr.Kind() != ast.SelectKind {
		return ""
	}
	name := at.expr.AsSelect().FieldName()
	if fields, ok := x.expression.env.CELTypeAdapter().NativeToValue(object).(traits.Mapper); ok {
		var names []string
		for it := fields.Iterator(); it.HasNext() == types.True; {
			if field, ok := it.Next().(types.String); ok {
				names = append(names, string(field))
			}
		}
		if hint := didYouMean(name, names); hint != "" {
			return hint
		}
	}
	if operand, ok := path(at.expr.AsSelect().Operand()); ok {
		return fmt.Sprintf("test has(%s.%s) first, or write %s.?%s and .orValue(...) at the end", operand, name, operand, name)
	}
	return ""
}

// object names the object that an expression was about: the one it read from, else the element of the innermost loop
// that is an object, else the target.
func (x *explanation) object(vars interpreter.Activation, id int64) string {
	at := x.nodes[id]
	if at.expr == nil {
		return ""
	}
	// What was read from: r.metadata.labels.app was read from r.metadata.labels, that from r.metadata, that from r.
	read := []ast.Expr{at.expr}
	if base(at.expr) == at.expr {
		read = append(read, children(at.expr)...) // a call: what its operands were read from
	}
	var variables []ast.Expr
	for _, e := range read {
		for ; e != base(e); e = children(e)[0] {
			if name := nameOf(x.values[e.ID()]); name != "" {
				return label(e, name)
			}
		}
		variables = append(variables, e)
	}
	for _, loop := range at.loops {
		for _, variable := range []string{loop.AsComprehension().IterVar2(), loop.AsComprehension().IterVar()} {
			if name := nameOf(resolve(vars, variable)); name != "" {
				return x.element(loop, variable) + " (" + name + ")"
			}
		}
		variables = append(variables, base(loop.AsComprehension().IterRange()))
	}
	for _, e := range variables {
		if e.Kind() != ast.IdentKind {
			continue
		}
		if name := nameOf(resolve(vars, e.AsIdent())); name != "" {
			return label(e, name)
		}
	}
	return ""
}

func label(e ast.Expr, name string) string {
	if text, ok := path(e); ok {
		return text + " (" + name + ")"
	}
	return name
}

// element writes the element that a loop is at: revisions.items[1], or the variable when the list has no short name.
func (x *explanation) element(e ast.Expr, variable string) string {
	list := e.AsComprehension().IterRange()
	text, ok := path(list)
	if _, isList := x.value(list).(traits.Lister); ok && isList {
		return fmt.Sprintf("%s[%d]", text, x.turns[e.ID()])
	}
	return variable
}

// resolve is the value of a variable, nil when there is none.
func resolve(vars interpreter.Activation, variable string) ref.Val {
	if value, ok := vars.ResolveName(variable); ok {
		return types.DefaultTypeAdapter.NativeToValue(value)
	}
	return nil
}

// nameOf is the namespace and name of an object, and empty when the value is something else.
func nameOf(v ref.Val) string {
	metadata := fieldOf(v, "metadata")
	name, _ := fieldOf(metadata, "name").(types.String)
	namespace, _ := fieldOf(metadata, "namespace").(types.String)
	if name != "" && namespace != "" {
		return string(namespace + "/" + name)
	}
	return string(name)
}

func fieldOf(v ref.Val, name types.String) ref.Val {
	if m, ok := v.(traits.Mapper); ok {
		if value, found := m.Find(name); found {
			return value
		}
	}
	return types.NullValue
}
