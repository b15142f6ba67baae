// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timedependence

import (
	"fmt"
	"time"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/budget"
)

// carriesArgument says that a function gives what it gets, or a part of it, without looking at it: its first argument, and the
// value that is put into a map.
func carriesArgument(function string) bool {
	switch function {
	case "cel.@mapInsert", "dyn", "first", "last", "optional.of", "reverse", "slice", "value":
		return true
	default:
		return CountsElements(function)
	}
}

// CountsElements says that a function only looks at how much there is.
func CountsElements(function string) bool { return function == "hasValue" || function == "size" }

// KeepsMovement says that the result of a function can move, or hold what does, when its arguments do.
func KeepsMovement(function string) bool {
	switch function {
	case operators.Add, operators.Subtract, operators.Divide, "int", "timestamp", "duration", "max", "min",
		"getHours", "getMinutes", "getSeconds", "getMilliseconds":
		return true
	default:
		return carriesArgument(function) && !CountsElements(function)
	}
}

// FollowCalls has the calls that can be given what moves follow it. It is an error if they are not all found in the program:
// then cel-go plans them in a way that is not known here.
func FollowCalls(calls map[int64]bool, c *budget.Calls, l *Lookout, m *budget.Meter) (follow interpreter.InterpretableDecoratorV2, complete func() error) {
	found := map[int64]bool{}
	follow = func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		node, ok := i.(interpreter.InterpretableCall)
		if !ok || !calls[i.ID()] { // what selects from a call has the call's id too, and is none
			return i, nil
		}
		found[i.ID()] = true
		return newFollower(node, c, l, m)
	}
	complete = func() error {
		if len(found) < len(calls) {
			return fmt.Errorf("%d of %d calls are not planned as calls", len(calls)-len(found), len(calls))
		}
		return nil
	}
	return follow, complete
}

// follower is a call that can be given what moves. It evaluates its arguments, notes until when what it makes of them
// holds, and has the call that programs which answer have make it of what they are now.
//
// It is no InterpretableCall: what cel-go would put in its place does not know what moves.
type follower struct {
	id            int64
	function      string
	args          []interpreter.InterpretableV2
	evaluatedArgs []budget.EvaluatedArgument // of the arguments of call
	call          interpreter.InterpretableV2
	l             *Lookout
	m             *budget.Meter
}

func newFollower(node interpreter.InterpretableCall, c *budget.Calls, l *Lookout, m *budget.Meter) (interpreter.InterpretableV2, error) {
	f := &follower{id: node.ID(), function: node.Function(), args: node.Args(), evaluatedArgs: make([]budget.EvaluatedArgument, len(node.Args())), l: l, m: m}
	args := make([]interpreter.InterpretableV2, len(f.evaluatedArgs))
	for i := range f.evaluatedArgs {
		args[i] = &f.evaluatedArgs[i]
	}
	var err error
	f.call, err = c.MeterCall(interpreter.NewCall(f.id, f.function, node.OverloadID(), args, nil), m)
	return f, err
}

func (f *follower) ID() int64 { return f.id }

func (f *follower) Eval(a interpreter.Activation) ref.Val { return f.Exec(interpreter.AsFrame(a)) }

func (f *follower) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if len(f.args) == 2 { // as comparisons, sums and differences have
		a, b := f.args[0].Exec(frame), f.args[1].Exec(frame)
		switch {
		case types.IsUnknownOrError(a):
			return a
		case types.IsUnknownOrError(b):
			return b
		case isMoving(a) || isMoving(b):
			return f.applyTwo(a, b)
		}
		return f.applySeveral([]ref.Val{a, b})
	}
	args := make([]ref.Val, len(f.args))
	for i, a := range f.args {
		args[i] = a.Exec(frame)
	}
	for _, arg := range args {
		if types.IsUnknownOrError(arg) {
			return arg
		}
	}
	if m, ok := args[0].(*Value); ok && len(args) == 1 {
		return f.applyOne(m)
	}
	return f.applySeveral(args)
}

// applyCall gives what the call makes of arguments. It needs no variables, so that it can be asked later, too.
func (f *follower) applyCall(args ...ref.Val) ref.Val {
	for i, arg := range args {
		f.evaluatedArgs[i].Value = arg
	}
	result := f.call.Exec(nil)
	for i := range f.evaluatedArgs {
		f.evaluatedArgs[i].Value = nil
	}
	return result
}

// applySeveral makes a call with arguments that can hold what moves.
func (f *follower) applySeveral(args []ref.Val) ref.Val {
	switch {
	case f.function == operators.Add && isList(args[0]) && isList(args[1]), f.function == "cel.@mapInsert":
		return f.applyCall(args...)
	case carriesArgument(f.function):
		for i := 1; i < len(args); i++ {
			args[i], _ = f.l.FreezeValue(args[i], f.m)
		}
		return f.applyCall(args...)
	case len(args) == 1 && isList(args[0]) && (f.function == "max" || f.function == "min"):
		return f.findExtreme(args[0].(traits.Lister))
	default:
		return f.applyFrozen(args...)
	}
}

// applyFrozen makes a call that nothing is known of: it is given what its arguments are now, and when they change, its result may.
func (f *follower) applyFrozen(args ...ref.Val) ref.Val {
	now := make([]ref.Val, len(args))
	for i, arg := range args {
		now[i], _ = f.l.FreezeValue(arg, f.m)
	}
	return f.applyCall(now...)
}

// applyOne makes a call with one argument, which moves.
func (f *follower) applyOne(m *Value) ref.Val {
	isTimestamp := budget.TypeOf(m.now).Kind() == types.TimestampKind
	switch f.function {
	case "dyn", "optional.of":
		return f.applyCall(m)
	case "timestamp", "duration":
		if m.step == nil && isTimestamp == (f.function == "timestamp") {
			return m
		}
	case "int":
		if m.step != nil {
			return m
		}
		return f.convertToStep(m)
	case "getHours", "getMinutes", "getSeconds", "getMilliseconds":
		if m.step == nil && !isTimestamp {
			return f.convertToStep(m)
		}
	}
	if after, ok := f.findTurn(m, nil); ok {
		f.l.noteChange(after)
		return f.applyCall(m.now)
	}
	return f.applyFrozen(m)
}

// convertToStep gives the int that a call makes of a timestamp or a duration at any time. None of these calls gives less when it is
// given more.
func (f *follower) convertToStep(m *Value) ref.Val {
	isTimestamp := budget.TypeOf(m.now).Kind() == types.TimestampKind
	return f.deriveStep(m, f.applyCall(m.now), func(x int64) int64 {
		var then ref.Val = types.Duration{Duration: time.Duration(x)}
		if isTimestamp {
			then = types.Timestamp{Time: time.Unix(0, x).UTC()}
		}
		n, ok := f.applyCall(then).(types.Int)
		if !ok {
			f.l.NoteUnknown()
		}
		return int64(n)
	})
}

// deriveStep gives an int that moves as m does.
func (f *follower) deriveStep(m *Value, now ref.Val, step func(int64) int64) ref.Val {
	if _, ok := now.(types.Int); !ok {
		f.l.NoteUnknown()
		return now
	}
	return &Value{now: now, base: m.base, Slope: m.Slope, step: step, l: f.l}
}

// findTurn finds when a part of a timestamp that goes with the time becomes another one, in nanoseconds from now.
func (f *follower) findTurn(m *Value, place ref.Val) (after int64, ok bool) {
	now, ok := m.now.(types.Timestamp)
	if !ok || m.Slope != 1 {
		return 0, false
	}
	at := now.UTC()
	if place != nil {
		name, isText := place.(types.String)
		if !isText {
			return 0, false
		}
		location, known := parseZone(string(name))
		if !known {
			return 0, false
		}
		at = at.In(location)
	}
	next, ok := findNextTurn(f.function, at)
	return int64(next.Sub(at)), ok
}

// applyTwo makes a call with two arguments. At least one of them moves.
func (f *follower) applyTwo(a, b ref.Val) ref.Val {
	switch f.function {
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.Equals, operators.NotEquals:
		if f.noteComparison(a, b) {
			return f.applyCall(NowOf(a), NowOf(b))
		}
	case operators.Add, operators.Subtract:
		return f.addOrSubtract(a, b)
	case operators.Divide:
		if m, n, ok := matchStepAndNumber(a, b); ok && n > 0 {
			return f.deriveStep(m, f.applyCall(m.now, b), func(x int64) int64 { return m.step(x) / n })
		}
	}
	if m, ok := a.(*Value); ok && !isMoving(b) {
		if after, known := f.findTurn(m, b); known {
			f.l.noteChange(after)
			return f.applyCall(m.now, b)
		}
	}
	return f.applySeveral([]ref.Val{a, b})
}

// noteComparison records when the comparison of two values may change. It is not ok if that cannot be predicted.
func (f *follower) noteComparison(a, b ref.Val) bool {
	if isTime(a) && isTime(b) {
		one, oneKnown := lineOf(a)
		other, otherKnown := lineOf(b)
		switch {
		case !oneKnown || !otherKnown:
			return false
		case one.kind == other.kind: // a timestamp and a duration always compare in the same way
			f.l.noteCrossing(f.function, one, other)
		}
		return true
	}
	if m, n, ok := matchStepAndNumber(a, b); ok {
		m.notePassing(f.function, n)
		return true
	}
	if m, n, ok := matchStepAndNumber(b, a); ok {
		m.notePassing(mirrorOperator(f.function), n)
		return true
	}
	return false
}

// matchStepAndNumber returns a moving int and a number whose sum stays within an int up to the horizon.
func matchStepAndNumber(a, b ref.Val) (m *Value, n int64, ok bool) {
	m, isMoving := a.(*Value)
	number, isInt := b.(types.Int)
	const large, tooLarge = 1 << 60, 1 << 62
	if !isMoving || m.step == nil || !isInt || number <= -large || large <= number {
		return nil, 0, false
	}
	for _, k := range []int64{0, m.computeSpan()} {
		if x := m.valueAt(k); x <= -tooLarge || tooLarge <= x {
			return nil, 0, false
		}
	}
	return m, int64(number), true
}

// addOrSubtract makes a sum or a difference.
func (f *follower) addOrSubtract(a, b ref.Val) ref.Val {
	subtracts := f.function == operators.Subtract
	if m, n, ok := matchStepAndNumber(a, b); ok {
		if subtracts {
			n = -n
		}
		return f.deriveStep(m, f.applyCall(m.now, b), func(x int64) int64 { return m.step(x) + n })
	}
	if m, n, ok := matchStepAndNumber(b, a); ok {
		if !subtracts {
			return f.deriveStep(m, f.applyCall(a, m.now), func(x int64) int64 { return m.step(x) + n })
		}
		// What is taken off rises: seen from the other side it never falls.
		back := &Value{base: -m.base, Slope: -m.Slope}
		return f.deriveStep(back, f.applyCall(a, m.now), func(x int64) int64 { return n - m.step(-x) })
	}
	one, oneKnown := lineOf(a)
	other, otherKnown := lineOf(b)
	if !oneKnown || !otherKnown {
		return f.applySeveral([]ref.Val{a, b})
	}
	slope := one.slope + other.slope
	if subtracts {
		slope = one.slope - other.slope
	}
	result := f.applyCall(NowOf(a), NowOf(b))
	sum, known := lineOf(result)
	if !known || slope < -maxSlope || slope > maxSlope { // an error, or too far away
		f.l.NoteUnknown()
		return result
	}
	return f.l.newMoving(result, sum.base, slope)
}

// findExtreme makes max or min of a list. It is the same element until another one overtakes it.
func (f *follower) findExtreme(list traits.Lister) ref.Val {
	var lines []line
	var found ref.Val
	best := 0
	for it := list.Iterator(); it.HasNext() == types.True; {
		f.m.PaySteps(1)
		element := it.Next()
		next, known := lineOf(element)
		if !known || len(lines) > 0 && lines[0].kind != next.kind {
			return f.applyFrozen(list)
		}
		if found == nil || f.function == "max" && lines[best].base < next.base || f.function == "min" && next.base < lines[best].base {
			found, best = element, len(lines)
		}
		lines = append(lines, next)
	}
	if found == nil {
		return f.applyFrozen(list)
	}
	for i, other := range lines {
		switch {
		case i == best:
		case f.function == "max":
			f.l.noteCrossing(operators.Less, lines[best], other)
		default:
			f.l.noteCrossing(operators.Greater, lines[best], other)
		}
	}
	return found
}

func isMoving(v ref.Val) bool {
	_, ok := v.(*Value)
	return ok
}

func isList(v ref.Val) bool {
	_, ok := v.(traits.Lister)
	return ok
}

// FreezeValue gives a value as it is now, and whether there was anything in it that moves. That is noted: an int for when it becomes
// another one, and what is always another one as unknown.
func (l *Lookout) FreezeValue(v ref.Val, m *budget.Meter) (now ref.Val, moved bool) {
	switch v := v.(type) {
	case *Value:
		if v.step == nil {
			l.NoteUnknown()
		} else {
			v.NoteNextStep()
		}
		return v.now, true
	case *budget.NativeList, *budget.SortedMap: // of the Input
		return v, false
	case *types.Optional:
		if v.HasValue() {
			if value, moved := l.FreezeValue(v.GetValue(), m); moved {
				return types.OptionalOf(value), true
			}
		}
	case traits.Lister:
		var all []ref.Val
		for it := v.Iterator(); it.HasNext() == types.True; {
			m.PaySteps(1)
			element, other := l.FreezeValue(it.Next(), m)
			all, moved = append(all, element), moved || other
		}
		if moved {
			return types.NewRefValList(budget.NewAdapter(nil), all), true
		}
	case traits.Mapper:
		all := map[ref.Val]ref.Val{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			m.PaySteps(1)
			key := it.Next()
			value, other := l.FreezeValue(v.Get(key), m)
			all[key], moved = value, moved || other
		}
		if moved {
			return types.NewRefValMap(budget.NewAdapter(nil), all), true
		}
	}
	return v, false
}
