// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
	kubernetes "k8s.io/apiserver/pkg/cel/library"

	"github.com/vtex/cleaner/celenv/library"
)

// Calls knows how the functions of the language are called, and what that costs.
type Calls struct {
	// Charges says what each function costs, by its name.
	Charges map[string]Charge
	// bindings says how each is called once that is paid, by its overload or its name.
	bindings map[string]*functions.Overload
}

// NewCalls reads the functions of an environment. It also returns all functions, for planning programs.
func NewCalls(env *cel.Env) (*Calls, interpreter.Dispatcher, error) {
	bindings, all := map[string]*functions.Overload{}, interpreter.NewDispatcher()
	for name, f := range env.Functions() {
		overloads, err := f.Bindings()
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the overloads of %q: %w", name, err)
		}
		for i := range overloads {
			overloads[i] = library.ExtendBinding(overloads[i])
			bindings[overloads[i].Operator] = overloads[i]
		}
		if err := all.Add(overloads...); err != nil {
			return nil, nil, fmt.Errorf("cannot add the overloads of %q: %w", name, err)
		}
	}
	return &Calls{Charges: newChargeTable(), bindings: bindings}, all, nil
}

// TakesPattern says that an argument of a function is a regular expression.
func (c *Calls) TakesPattern(function string) bool { return c.Charges[function].forPattern != nil }

// MeterProgram has the program pay m for each turn of a loop, each call that is not free, and each list and map that it
// builds. cel-go's own cost tracking observes every value and takes four to six times as long.
func (c *Calls) MeterProgram(a *cel.Ast, m *Meter) interpreter.InterpretableDecoratorV2 {
	// A loop's condition is evaluated once a turn, whatever the loop does. (Its step can be an attribute, such as the
	// conditional of filter(), and those cannot be wrapped.)
	loops, maps, literals := map[int64]bool{}, map[int64]bool{}, findLiterals(a.NativeRep().Expr())
	ast.PreOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			loop := e.AsComprehension()
			loops[loop.LoopCondition().ID()] = true
			maps[loop.AccuInit().ID()] = loop.AccuInit().Kind() == ast.MapKind
		}
	}))
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		id := i.ID()
		switch node := i.(type) {
		case interpreter.InterpretableCall:
			if !c.Charges[node.Function()].IsFree() {
				var err error
				if i, err = c.MeterCall(node, m); err != nil {
					return nil, err
				}
			}
		case interpreter.InterpretableConstructor:
			if l := literals[id]; l != nil && !areConstant(node.InitVals()) { // cel-go builds a constant one only once
				i = newMeteredLiteral(l, node.InitVals(), m)
			}
		}
		if maps[id] {
			return &meteredMap{InterpretableV2: i, m: m}, nil
		}
		if loops[id] {
			return &meteredTurn{InterpretableV2: i, m: m}, nil
		}
		return i, nil
	}
}

func areConstant(values []interpreter.InterpretableV2) bool {
	for _, v := range values {
		if _, ok := v.(interpreter.InterpretableConst); !ok {
			return false
		}
	}
	return true
}

// meteredTurn is the condition of a loop.
type meteredTurn struct {
	interpreter.InterpretableV2
	m *Meter
}

func (t *meteredTurn) Eval(a interpreter.Activation) ref.Val { return t.Exec(interpreter.AsFrame(a)) }

func (t *meteredTurn) Exec(f *interpreter.ExecutionFrame) ref.Val {
	t.m.PaySteps(1)
	return t.InterpretableV2.Exec(f)
}

// meteredMap is the empty map in which a loop collects.
type meteredMap struct {
	interpreter.InterpretableV2
	m *Meter
}

func (e *meteredMap) Eval(a interpreter.Activation) ref.Val { return e.Exec(interpreter.AsFrame(a)) }

func (e *meteredMap) Exec(f *interpreter.ExecutionFrame) ref.Val {
	const mapSize = 256 // with some entries
	e.m.payBuilding(mapSize)
	return e.InterpretableV2.Exec(f)
}

// meteredEquality is == or !=. It is the call that loops make most, so it is spared what other calls need.
type meteredEquality struct {
	id          int64
	left, right interpreter.InterpretableV2
	not         bool
	m           *Meter
}

func (e *meteredEquality) ID() int64 { return e.id }

func (e *meteredEquality) Eval(a interpreter.Activation) ref.Val {
	return e.Exec(interpreter.AsFrame(a))
}

func (e *meteredEquality) Exec(f *interpreter.ExecutionFrame) ref.Val {
	left, right := e.left.Exec(f), e.right.Exec(f)
	if types.IsUnknownOrError(left) {
		return left
	}
	if types.IsUnknownOrError(right) {
		return right
	}
	chargeEquality(e.m, left, right)
	equal := types.Equal(left, right)
	if e.not {
		return types.Bool(equal != types.True)
	}
	return equal
}

// meteredCall is a call that is paid for. It evaluates its arguments, pays, and then does what cel-go's own call would have
// done: paying first is what keeps a large result from being allocated.
type meteredCall struct {
	id       int64
	function string
	args     []interpreter.InterpretableV2
	Charge   Charge
	apply    func([]ref.Val) ref.Val
	m        *Meter
}

// MeterCall makes a call that pays of one that does not.
func (c *Calls) MeterCall(node interpreter.InterpretableCall, m *Meter) (interpreter.InterpretableV2, error) {
	charge := c.Charges[node.Function()]
	args := node.Args()
	paid := &meteredCall{id: node.ID(), function: node.Function(), args: args, Charge: charge, m: m}
	switch node.Function() {
	case operators.Equals, operators.NotEquals:
		return &meteredEquality{id: node.ID(), left: args[0], right: args[1], not: node.Function() == operators.NotEquals, m: m}, nil
	case operators.In:
		if _, ok := args[1].(interpreter.InterpretableConst); ok { // cel-go makes a set of it
			return &meteredMembership{InterpretableCall: node, args: []interpreter.InterpretableV2{&meteredLookup{InterpretableV2: args[0], m: m}, args[1]}}, nil
		}
	}
	if convertsConstant(node) {
		return node, nil // cel-go does it once
	}
	paid.apply = c.BindFunction(node, len(args))
	if node.Function() == operators.Add {
		paid.apply = flattenAddition(paid.apply, isAccumulator(args[0]), m)
	}
	if charge.forPattern != nil {
		return paid, paid.meterPattern(node)
	}
	return paid, nil
}

// convertsConstant says that a call makes a value of another type of a constant, which is short.
func convertsConstant(node interpreter.InterpretableCall) bool {
	args := node.Args()
	if !overloads.IsTypeConversionFunction(node.Function()) || len(args) != 1 {
		return false
	}
	constant, ok := args[0].(interpreter.InterpretableConst)
	return ok && MeasureText(constant.Value()) <= maxShortText
}

// flattenAddition gives addition that makes one list of two. cel-go's own gives a view of them, whose elements take the longer to find
// the more lists were added. Only what a macro collects is appended to in place: cel-go also makes an empty list mutable that cel.bind or optMap
// names, and everything else that holds that list would see what was added.
func flattenAddition(add func([]ref.Val) ref.Val, collects bool, m *Meter) func([]ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		left, ok := args[0].(traits.Lister)
		if _, mutable := left.(traits.MutableLister); !ok || mutable && collects {
			return add(args)
		}
		right, ok := args[1].(traits.Lister)
		if !ok {
			return add(args)
		}
		if one, ok := left.(*NativeList); ok {
			if other, ok := right.(*NativeList); ok {
				return m.wrapValue(slices.Concat(one.Native, other.Native))
			}
		}
		all := make([]ref.Val, 0, MeasureLength(left)+MeasureLength(right))
		for _, list := range []traits.Lister{left, right} {
			for it := list.Iterator(); it.HasNext() == types.True; {
				all = append(all, it.Next())
			}
		}
		return types.NewRefValList(NewAdapter(m), all)
	}
}

// isAccumulator says that a value is what a macro collects in a loop. No expression can name it.
func isAccumulator(value interpreter.InterpretableV2) bool {
	attribute, ok := value.(interpreter.InterpretableAttribute)
	if !ok {
		return false
	}
	variable, ok := attribute.Attr().(interpreter.NamespacedAttribute)
	return ok && len(variable.Qualifiers()) == 0 && slices.Contains(variable.CandidateVariableNames(), parser.HiddenAccumulatorName)
}

// meteredMembership is "in" a list of constants.
type meteredMembership struct {
	interpreter.InterpretableCall
	args []interpreter.InterpretableV2
}

// Args are the arguments of a call: the first one pays for being looked up.
func (s *meteredMembership) Args() []interpreter.InterpretableV2 { return s.args }

// meteredLookup is a value that is looked up in a map.
type meteredLookup struct {
	interpreter.InterpretableV2
	m *Meter
}

func (h *meteredLookup) Eval(a interpreter.Activation) ref.Val { return h.Exec(interpreter.AsFrame(a)) }

func (h *meteredLookup) Exec(f *interpreter.ExecutionFrame) ref.Val {
	v := h.InterpretableV2.Exec(f)
	h.m.payReading(MeasureText(v) / lookupBytes)
	return v
}

// meteredAttributes has what is looked up in maps pay for that: cel-go plans no calls for it.
type meteredAttributes struct {
	interpreter.AttributeFactory
	m *Meter
}

// NewAttributes has what is looked up in maps pay m for that.
func NewAttributes(of interpreter.AttributeFactory, m *Meter) interpreter.AttributeFactory {
	return &meteredAttributes{AttributeFactory: of, m: m}
}

// RelativeAttribute is a value that is looked up, or that something is looked up in.
func (f *meteredAttributes) RelativeAttribute(id int64, operand interpreter.Interpretable) interpreter.Attribute {
	if operand, ok := operand.(interpreter.InterpretableV2); ok {
		return f.AttributeFactory.RelativeAttribute(id, &meteredLookup{InterpretableV2: operand, m: f.m})
	}
	return f.AttributeFactory.RelativeAttribute(id, operand)
}

// NewQualifier is a key or an index.
func (f *meteredAttributes) NewQualifier(of *types.Type, id int64, key any, optional bool) (interpreter.Qualifier, error) {
	if attribute, ok := key.(interpreter.InterpretableAttribute); ok {
		key = &meteredKey{InterpretableAttribute: attribute, factory: f}
	}
	return f.AttributeFactory.NewQualifier(of, id, key, optional)
}

// Moving is a value that changes as time passes, and that can be taken for what it is now.
type Moving interface{ Freeze() ref.Val }

// meteredKey is a key that is a variable, or a part of one.
type meteredKey struct {
	interpreter.InterpretableAttribute
	factory *meteredAttributes
}

// resolveQualifier gives the key as it is now, once it is paid that it is looked up.
func (k *meteredKey) resolveQualifier(vars interpreter.Activation) (interpreter.Qualifier, error) {
	v, err := k.Resolve(vars)
	if err != nil {
		return nil, err
	}
	if moving, ok := v.(Moving); ok {
		v = moving.Freeze()
	}
	switch key := v.(type) {
	case string:
		k.factory.m.payReading(int64(len(key)) / lookupBytes)
	case ref.Val:
		k.factory.m.payReading(MeasureText(key) / lookupBytes)
	}
	return k.factory.AttributeFactory.NewQualifier(nil, k.ID(), v, k.IsOptional())
}

// Qualify looks the key up.
func (k *meteredKey) Qualify(vars interpreter.Activation, object any) (any, error) {
	q, err := k.resolveQualifier(vars)
	if err != nil {
		return nil, err
	}
	return q.Qualify(vars, object)
}

// QualifyIfPresent looks the key up where it may be missing.
func (k *meteredKey) QualifyIfPresent(vars interpreter.Activation, object any, presenceOnly bool) (any, bool, error) {
	q, err := k.resolveQualifier(vars)
	if err != nil {
		return nil, false, err
	}
	return q.QualifyIfPresent(vars, object, presenceOnly)
}

// meterPattern has the call pay for its regular expression, which is compiled once when it is a literal.
func (c *meteredCall) meterPattern(node interpreter.InterpretableCall) error {
	match := c.Charge.forPattern
	constant, ok := c.args[PatternArgument].(interpreter.InterpretableConst)
	if !ok {
		c.Charge.BeforeCall = func(m *Meter, args []ref.Val) ref.Val {
			pattern, _ := args[PatternArgument].(types.String)
			if err := checkDynamicPattern(string(pattern)); err != nil {
				return types.WrapErr(err)
			}
			size := MeasurePattern(string(pattern))
			m.PaySteps(size)
			match(m, size, args)
			return nil
		}
		return nil
	}
	pattern, ok := constant.Value().(types.String)
	if !ok {
		return nil // the call says it in its own words
	}
	size := MeasurePattern(string(pattern))
	c.Charge.BeforeCall = func(m *Meter, args []ref.Val) ref.Val {
		match(m, size, args)
		return nil
	}
	return c.precompilePattern(node, string(pattern))
}

// BindFunction gives how cel-go would call the function of the node: by the overload that the checker chose, else by name.
func (c *Calls) BindFunction(node interpreter.InterpretableCall, arity int) func([]ref.Val) ref.Val {
	function, overload := node.Function(), node.OverloadID()
	binding := c.bindings[overload]
	if binding == nil {
		binding = c.bindings[function]
	}
	if binding == nil {
		binding = &functions.Overload{}
	}
	var apply func([]ref.Val) ref.Val
	switch {
	case arity == 1 && binding.Unary != nil:
		apply = func(args []ref.Val) ref.Val { return binding.Unary(args[0]) }
	case arity == 2 && binding.Binary != nil:
		apply = func(args []ref.Val) ref.Val { return binding.Binary(args[0], args[1]) }
	case binding.Function != nil:
		apply = func(args []ref.Val) ref.Val { return binding.Function(args...) }
	}
	return func(args []ref.Val) ref.Val {
		if apply != nil && (binding.OperandTrait == 0 || args[0].Type().HasTrait(binding.OperandTrait)) {
			return apply(args)
		}
		if receiver, ok := args[0].(traits.Receiver); ok && args[0].Type().HasTrait(traits.ReceiverType) {
			return receiver.Receive(function, overload, args[1:])
		}
		return types.NewErr("no such overload: %s", function)
	}
}

// precompilePattern compiles the pattern now, for the functions for which cel-go and Kubernetes know how to.
func (c *meteredCall) precompilePattern(node interpreter.InterpretableCall, pattern string) error {
	var optimization *interpreter.RegexOptimization
	switch c.function {
	case "matches":
		optimization = interpreter.MatchesRegexOptimization
	case "find":
		optimization = kubernetes.FindRegexOptimization
	case "findAll":
		optimization = kubernetes.FindAllRegexOptimization
	default:
		return nil
	}
	// Their call would evaluate its arguments. Ours are evaluated already: it gets places to read them from.
	places := make([]EvaluatedArgument, len(c.args))
	args := make([]interpreter.InterpretableV2, len(c.args))
	for i := range places {
		args[i] = &places[i]
	}
	compiled, err := optimization.Factory(interpreter.NewCall(c.id, c.function, node.OverloadID(), args, nil), pattern)
	if err != nil {
		return err
	}
	c.apply = func(values []ref.Val) ref.Val {
		for i, v := range values {
			places[i].Value = v
		}
		return compiled.Eval(interpreter.EmptyActivation())
	}
	return nil
}

// EvaluatedArgument is one that has been evaluated.
type EvaluatedArgument struct{ Value ref.Val }

// ID says that it stands at no place of an expression.
func (*EvaluatedArgument) ID() int64 { return 0 }

// Eval gives the value.
func (a *EvaluatedArgument) Eval(interpreter.Activation) ref.Val { return a.Value }

// Exec gives the value.
func (a *EvaluatedArgument) Exec(*interpreter.ExecutionFrame) ref.Val { return a.Value }

func (c *meteredCall) ID() int64 { return c.id }

func (c *meteredCall) Eval(a interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(a)) }

func (c *meteredCall) Exec(f *interpreter.ExecutionFrame) ref.Val {
	var args []ref.Val
	switch len(c.args) {
	case 1:
		one := c.args[0].Exec(f)
		c.m.operands[0] = one
		args = c.m.operands[:1]
	case 2:
		one, two := c.args[0].Exec(f), c.args[1].Exec(f)
		c.m.operands[0], c.m.operands[1] = one, two
		args = c.m.operands[:2]
	default:
		args = make([]ref.Val, len(c.args))
		for i := range c.args {
			args[i] = c.args[i].Exec(f)
		}
	}
	for _, arg := range args {
		if types.IsUnknownOrError(arg) {
			return arg
		}
	}
	if c.Charge.BeforeCall != nil {
		if err := c.Charge.BeforeCall(c.m, args); err != nil {
			return types.LabelErrNode(c.id, err)
		}
	}
	result := c.apply(args)
	if c.Charge.AfterCall != nil && !types.IsUnknownOrError(result) {
		c.Charge.AfterCall(c.m, result)
	}
	return types.LabelErrNode(c.id, result)
}
