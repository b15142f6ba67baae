// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
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
	kubernetes "k8s.io/apiserver/pkg/cel/library"
)

// metered has the program pay m for each turn of a loop, each call that is not free, and each list and map that it
// builds. cel-go's own cost tracking observes every value and takes four to six times as long.
func (c *Compiler) metered(a *cel.Ast, m *meter) interpreter.InterpretableDecoratorV2 {
	// A loop's condition is evaluated once a turn, whatever the loop does. (Its step can be an attribute, such as the
	// conditional of filter(), and those cannot be wrapped.)
	loops := map[int64]bool{}
	ast.PreOrderVisit(a.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			loops[e.AsComprehension().LoopCondition().ID()] = true
		}
	}))
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		id := i.ID()
		switch node := i.(type) {
		case interpreter.InterpretableCall:
			if charge := c.charges[node.Function()]; !charge.free() {
				var err error
				if i, err = c.paid(node, charge, m); err != nil {
					return nil, err
				}
			}
		case interpreter.InterpretableConstructor:
			if !constant(node.InitVals()) { // cel-go builds a constant one only once
				i = &literal{InterpretableV2: node, m: m, size: literalSize(node)}
			}
		}
		if loops[id] {
			return &turn{InterpretableV2: i, m: m}, nil
		}
		return i, nil
	}
}

func constant(values []interpreter.InterpretableV2) bool {
	for _, v := range values {
		if _, ok := v.(interpreter.InterpretableConst); !ok {
			return false
		}
	}
	return true
}

func literalSize(node interpreter.InterpretableConstructor) int64 {
	n := int64(len(node.InitVals()))
	if node.Type() == types.ListType {
		return valueSize * (1 + n)
	}
	return valueSize + entrySize*n/2 // keys and values
}

// turn is the condition of a loop.
type turn struct {
	interpreter.InterpretableV2
	m *meter
}

func (t *turn) Eval(a interpreter.Activation) ref.Val { return t.Exec(interpreter.AsFrame(a)) }

func (t *turn) Exec(f *interpreter.ExecutionFrame) ref.Val {
	t.m.work(1)
	return t.InterpretableV2.Exec(f)
}

// literal is a list or a map with parts that are evaluated.
type literal struct {
	interpreter.InterpretableV2
	m    *meter
	size int64
}

func (l *literal) Eval(a interpreter.Activation) ref.Val { return l.Exec(interpreter.AsFrame(a)) }

func (l *literal) Exec(f *interpreter.ExecutionFrame) ref.Val {
	l.m.build(l.size)
	return l.InterpretableV2.Exec(f)
}

// equality is == or !=. It is the call that loops make most, so it is spared what other calls need.
type equality struct {
	id          int64
	left, right interpreter.InterpretableV2
	not         bool
	m           *meter
}

func (e *equality) ID() int64 { return e.id }

func (e *equality) Eval(a interpreter.Activation) ref.Val { return e.Exec(interpreter.AsFrame(a)) }

func (e *equality) Exec(f *interpreter.ExecutionFrame) ref.Val {
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

// call is a call that is paid for. It evaluates its arguments, pays, and then does what cel-go's own call would have
// done: paying first is what keeps a large result from being allocated.
type call struct {
	id       int64
	function string
	args     []interpreter.InterpretableV2
	charge   charge
	apply    func([]ref.Val) ref.Val
	m        *meter
}

// paid makes a call that pays of one that does not.
func (c *Compiler) paid(node interpreter.InterpretableCall, charge charge, m *meter) (interpreter.InterpretableV2, error) {
	args := node.Args()
	paid := &call{id: node.ID(), function: node.Function(), args: args, charge: charge, m: m}
	switch node.Function() {
	case operators.Equals, operators.NotEquals:
		return &equality{id: node.ID(), left: args[0], right: args[1], not: node.Function() == operators.NotEquals, m: m}, nil
	case operators.In:
		if _, ok := args[1].(interpreter.InterpretableConst); ok { // cel-go makes a set of it
			return &membership{InterpretableCall: node, args: []interpreter.InterpretableV2{&hashed{InterpretableV2: args[0], m: m}, args[1]}}, nil
		}
	}
	if converts(node) {
		return node, nil // cel-go does it once
	}
	paid.apply = c.application(node, len(args))
	if node.Function() == operators.Add {
		paid.apply = flat(paid.apply)
	}
	if charge.match != nil {
		return paid, paid.matches(node)
	}
	return paid, nil
}

// converts says that a call makes a value of another type of a constant, which is short.
func converts(node interpreter.InterpretableCall) bool {
	args := node.Args()
	if !overloads.IsTypeConversionFunction(node.Function()) || len(args) != 1 {
		return false
	}
	constant, ok := args[0].(interpreter.InterpretableConst)
	return ok && textSize(constant.Value()) <= maxShort
}

// flat is addition that makes one list of two. cel-go's own gives a view of them, whose elements take the longer to find
// the more lists were added.
func flat(add func([]ref.Val) ref.Val) func([]ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		left, ok := args[0].(traits.Lister)
		if _, collects := left.(traits.MutableLister); !ok || collects {
			return add(args)
		}
		right, ok := args[1].(traits.Lister)
		if !ok {
			return add(args)
		}
		if one, ok := left.(*nativeList); ok {
			if other, ok := right.(*nativeList); ok {
				return adapter{Adapter: types.DefaultTypeAdapter}.NativeToValue(slices.Concat(one.native, other.native))
			}
		}
		all := make([]ref.Val, 0, length(left)+length(right))
		for _, list := range []traits.Lister{left, right} {
			for it := list.Iterator(); it.HasNext() == types.True; {
				all = append(all, it.Next())
			}
		}
		return types.NewRefValList(adapter{Adapter: types.DefaultTypeAdapter}, all)
	}
}

// membership is "in" a list of constants.
type membership struct {
	interpreter.InterpretableCall
	args []interpreter.InterpretableV2
}

// Args are the arguments of a call: the first one pays for being looked up.
func (s *membership) Args() []interpreter.InterpretableV2 { return s.args }

// hashed is a value that is looked up in a map.
type hashed struct {
	interpreter.InterpretableV2
	m *meter
}

func (h *hashed) Eval(a interpreter.Activation) ref.Val { return h.Exec(interpreter.AsFrame(a)) }

func (h *hashed) Exec(f *interpreter.ExecutionFrame) ref.Val {
	v := h.InterpretableV2.Exec(f)
	h.m.read(textSize(v))
	return v
}

// meteredAttributes has what is looked up in maps pay for that: cel-go plans no calls for it.
type meteredAttributes struct {
	interpreter.AttributeFactory
	m *meter
}

// RelativeAttribute is a value that is looked up, or that something is looked up in.
func (f *meteredAttributes) RelativeAttribute(id int64, operand interpreter.Interpretable) interpreter.Attribute {
	if operand, ok := operand.(interpreter.InterpretableV2); ok {
		return f.AttributeFactory.RelativeAttribute(id, &hashed{InterpretableV2: operand, m: f.m})
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

// meteredKey is a key that is a variable, or a part of one.
type meteredKey struct {
	interpreter.InterpretableAttribute
	factory *meteredAttributes
}

// qualifier is the key as it is now, once it is paid that it is looked up.
func (k *meteredKey) qualifier(vars interpreter.Activation) (interpreter.Qualifier, error) {
	v, err := k.Resolve(vars)
	if err != nil {
		return nil, err
	}
	switch key := v.(type) {
	case string:
		k.factory.m.read(int64(len(key)))
	case ref.Val:
		k.factory.m.read(textSize(key))
	}
	return k.factory.AttributeFactory.NewQualifier(nil, k.ID(), v, k.IsOptional())
}

// Qualify looks the key up.
func (k *meteredKey) Qualify(vars interpreter.Activation, object any) (any, error) {
	q, err := k.qualifier(vars)
	if err != nil {
		return nil, err
	}
	return q.Qualify(vars, object)
}

// QualifyIfPresent looks the key up where it may be missing.
func (k *meteredKey) QualifyIfPresent(vars interpreter.Activation, object any, presenceOnly bool) (any, bool, error) {
	q, err := k.qualifier(vars)
	if err != nil {
		return nil, false, err
	}
	return q.QualifyIfPresent(vars, object, presenceOnly)
}

// matches has the call pay for its regular expression, which is compiled once when it is a literal.
func (c *call) matches(node interpreter.InterpretableCall) error {
	match := c.charge.match
	constant, ok := c.args[patternArgument].(interpreter.InterpretableConst)
	if !ok {
		c.charge.before = func(m *meter, args []ref.Val) ref.Val {
			pattern, _ := args[patternArgument].(types.String)
			if err := checkDynamicPattern(string(pattern)); err != nil {
				return types.WrapErr(err)
			}
			size := patternSize(string(pattern))
			m.work(size)
			match(m, size, args)
			return nil
		}
		return nil
	}
	pattern, ok := constant.Value().(types.String)
	if !ok {
		return nil // the call says it in its own words
	}
	size := patternSize(string(pattern))
	c.charge.before = func(m *meter, args []ref.Val) ref.Val {
		match(m, size, args)
		return nil
	}
	return c.precompile(node, string(pattern))
}

// application is how cel-go would call the function of the node: by the overload that the checker chose, else by name.
func (c *Compiler) application(node interpreter.InterpretableCall, arity int) func([]ref.Val) ref.Val {
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

// precompile compiles the pattern now, for the functions for which cel-go and Kubernetes know how to.
func (c *call) precompile(node interpreter.InterpretableCall, pattern string) error {
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
	places := make([]argument, len(c.args))
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
			places[i].value = v
		}
		return compiled.Eval(interpreter.EmptyActivation())
	}
	return nil
}

// argument is one that has been evaluated.
type argument struct{ value ref.Val }

func (*argument) ID() int64                                  { return 0 }
func (a *argument) Eval(interpreter.Activation) ref.Val      { return a.value }
func (a *argument) Exec(*interpreter.ExecutionFrame) ref.Val { return a.value }

func (c *call) ID() int64 { return c.id }

func (c *call) Eval(a interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(a)) }

func (c *call) Exec(f *interpreter.ExecutionFrame) ref.Val {
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
	if c.charge.before != nil {
		if err := c.charge.before(c.m, args); err != nil {
			return types.LabelErrNode(c.id, err)
		}
	}
	result := c.apply(args)
	if c.charge.after != nil && !types.IsUnknownOrError(result) {
		c.charge.after(c.m, result)
	}
	return types.LabelErrNode(c.id, result)
}
