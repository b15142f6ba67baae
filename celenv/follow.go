// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"time"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// carries says that a function gives what it gets, or a part of it, without looking at it: its first argument, and the
// value that is put into a map.
func carries(function string) bool {
	switch function {
	case "cel.@mapInsert", "dyn", "first", "last", "optional.of", "reverse", "slice", "value":
		return true
	default:
		return counts(function)
	}
}

// counts says that a function only looks at how much there is.
func counts(function string) bool { return function == "hasValue" || function == "size" }

// keeps says that the result of a function can move, or hold what does, when its arguments do.
func keeps(function string) bool {
	switch function {
	case operators.Add, operators.Subtract, operators.Divide, "int", "timestamp", "duration", "max", "min",
		"getHours", "getMinutes", "getSeconds", "getMilliseconds":
		return true
	default:
		return carries(function) && !counts(function)
	}
}

// followed has the calls that can be given what moves follow it. It is an error if they are not all found in the program:
// then cel-go plans them in a way that is not known here.
func (c *Compiler) followed(calls map[int64]bool, l *lookout, m *meter) (follow interpreter.InterpretableDecoratorV2, complete func() error) {
	found := map[int64]bool{}
	follow = func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		node, ok := i.(interpreter.InterpretableCall)
		if !ok || !calls[i.ID()] { // what selects from a call has the call's id too, and is none
			return i, nil
		}
		found[i.ID()] = true
		return c.follower(node, l, m)
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
	id       int64
	function string
	args     []interpreter.InterpretableV2
	places   []argument // of the arguments of call
	call     interpreter.InterpretableV2
	l        *lookout
	m        *meter
}

func (c *Compiler) follower(node interpreter.InterpretableCall, l *lookout, m *meter) (interpreter.InterpretableV2, error) {
	f := &follower{id: node.ID(), function: node.Function(), args: node.Args(), places: make([]argument, len(node.Args())), l: l, m: m}
	args := make([]interpreter.InterpretableV2, len(f.places))
	for i := range f.places {
		args[i] = &f.places[i]
	}
	var err error
	f.call, err = c.paid(interpreter.NewCall(f.id, f.function, node.OverloadID(), args, nil), c.charges[f.function], m)
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
			return f.two(a, b)
		}
		return f.several([]ref.Val{a, b})
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
	if m, ok := args[0].(*moving); ok && len(args) == 1 {
		return f.one(m)
	}
	return f.several(args)
}

// of is what the call makes of arguments. It needs no variables, so that it can be asked later, too.
func (f *follower) of(args ...ref.Val) ref.Val {
	for i, arg := range args {
		f.places[i].value = arg
	}
	result := f.call.Exec(nil)
	for i := range f.places {
		f.places[i].value = nil
	}
	return result
}

// several is a call with arguments that can hold what moves.
func (f *follower) several(args []ref.Val) ref.Val {
	switch {
	case f.function == operators.Add && isList(args[0]) && isList(args[1]), f.function == "cel.@mapInsert":
		return f.of(args...)
	case carries(f.function):
		for i := 1; i < len(args); i++ {
			args[i], _ = f.l.still(args[i], f.m)
		}
		return f.of(args...)
	case len(args) == 1 && isList(args[0]) && (f.function == "max" || f.function == "min"):
		return f.extreme(args[0].(traits.Lister))
	default:
		return f.still(args...)
	}
}

// still is a call that nothing is known of: it is given what its arguments are now, and when they change, its result may.
func (f *follower) still(args ...ref.Val) ref.Val {
	now := make([]ref.Val, len(args))
	for i, arg := range args {
		now[i], _ = f.l.still(arg, f.m)
	}
	return f.of(now...)
}

// one is a call with one argument, which moves.
func (f *follower) one(m *moving) ref.Val {
	isTimestamp := typeOf(m.now).Kind() == types.TimestampKind
	switch f.function {
	case "dyn", "optional.of":
		return f.of(m)
	case "timestamp", "duration":
		if m.step == nil && isTimestamp == (f.function == "timestamp") {
			return m
		}
	case "int":
		if m.step != nil {
			return m
		}
		return f.stepping(m)
	case "getHours", "getMinutes", "getSeconds", "getMilliseconds":
		if m.step == nil && !isTimestamp {
			return f.stepping(m)
		}
	}
	if after, ok := f.turns(m, nil); ok {
		f.l.change(after)
		return f.of(m.now)
	}
	return f.still(m)
}

// stepping is the int that a call makes of a timestamp or a duration at any time. None of these calls gives less when it is
// given more.
func (f *follower) stepping(m *moving) ref.Val {
	isTimestamp := typeOf(m.now).Kind() == types.TimestampKind
	return f.stepped(m, f.of(m.now), func(x int64) int64 {
		var then ref.Val = types.Duration{Duration: time.Duration(x)}
		if isTimestamp {
			then = types.Timestamp{Time: time.Unix(0, x).UTC()}
		}
		n, ok := f.of(then).(types.Int)
		if !ok {
			f.l.lose()
		}
		return int64(n)
	})
}

// stepped is an int that moves as m does.
func (f *follower) stepped(m *moving, now ref.Val, step func(int64) int64) ref.Val {
	if _, ok := now.(types.Int); !ok {
		f.l.lose()
		return now
	}
	return &moving{now: now, base: m.base, slope: m.slope, step: step, l: f.l}
}

// turns is when a part of a timestamp that goes with the time becomes another one, in nanoseconds from now.
func (f *follower) turns(m *moving, place ref.Val) (after int64, ok bool) {
	now, ok := m.now.(types.Timestamp)
	if !ok || m.slope != 1 {
		return 0, false
	}
	at := now.UTC()
	if place != nil {
		name, isText := place.(types.String)
		if !isText {
			return 0, false
		}
		location, known := zone(string(name))
		if !known {
			return 0, false
		}
		at = at.In(location)
	}
	next, ok := turnOf(f.function, at)
	return int64(next.Sub(at)), ok
}

// two is a call with two arguments, of which at least one moves.
func (f *follower) two(a, b ref.Val) ref.Val {
	switch f.function {
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.Equals, operators.NotEquals:
		if f.compares(a, b) {
			return f.of(nowOf(a), nowOf(b))
		}
	case operators.Add, operators.Subtract:
		return f.shift(a, b)
	case operators.Divide:
		if m, n, ok := stepAndNumber(a, b); ok && n > 0 {
			return f.stepped(m, f.of(m.now, b), func(x int64) int64 { return m.step(x) / n })
		}
	}
	if m, ok := a.(*moving); ok && !isMoving(b) {
		if after, known := f.turns(m, b); known {
			f.l.change(after)
			return f.of(m.now, b)
		}
	}
	return f.several([]ref.Val{a, b})
}

// compares notes when two values compare in another way. It is not ok for what it cannot say that of.
func (f *follower) compares(a, b ref.Val) bool {
	if isTime(a) && isTime(b) {
		one, oneKnown := lineOf(a)
		other, otherKnown := lineOf(b)
		switch {
		case !oneKnown || !otherKnown:
			return false
		case one.kind == other.kind: // a timestamp and a duration always compare in the same way
			f.l.cross(f.function, one, other)
		}
		return true
	}
	if m, n, ok := stepAndNumber(a, b); ok {
		m.passes(f.function, n)
		return true
	}
	if m, n, ok := stepAndNumber(b, a); ok {
		m.passes(mirrored(f.function), n)
		return true
	}
	return false
}

// stepAndNumber are a moving int and a number, of which no sum is too large within the horizon.
func stepAndNumber(a, b ref.Val) (m *moving, n int64, ok bool) {
	m, isMoving := a.(*moving)
	number, isInt := b.(types.Int)
	const large, tooLarge = 1 << 60, 1 << 62
	if !isMoving || m.step == nil || !isInt || number <= -large || large <= number {
		return nil, 0, false
	}
	for _, k := range []int64{0, m.last()} {
		if x := m.at(k); x <= -tooLarge || tooLarge <= x {
			return nil, 0, false
		}
	}
	return m, int64(number), true
}

// shift is a sum or a difference.
func (f *follower) shift(a, b ref.Val) ref.Val {
	subtracts := f.function == operators.Subtract
	if m, n, ok := stepAndNumber(a, b); ok {
		if subtracts {
			n = -n
		}
		return f.stepped(m, f.of(m.now, b), func(x int64) int64 { return m.step(x) + n })
	}
	if m, n, ok := stepAndNumber(b, a); ok {
		if !subtracts {
			return f.stepped(m, f.of(a, m.now), func(x int64) int64 { return m.step(x) + n })
		}
		// What is taken off rises: seen from the other side it never falls.
		back := &moving{base: -m.base, slope: -m.slope}
		return f.stepped(back, f.of(a, m.now), func(x int64) int64 { return n - m.step(-x) })
	}
	one, oneKnown := lineOf(a)
	other, otherKnown := lineOf(b)
	if !oneKnown || !otherKnown {
		return f.several([]ref.Val{a, b})
	}
	slope := one.slope + other.slope
	if subtracts {
		slope = one.slope - other.slope
	}
	result := f.of(nowOf(a), nowOf(b))
	sum, known := lineOf(result)
	if !known || slope < -maxSlope || slope > maxSlope { // an error, or too far away
		f.l.lose()
		return result
	}
	return f.l.move(result, sum.base, slope)
}

// extreme is max or min of a list. It is the same element until another one overtakes it.
func (f *follower) extreme(list traits.Lister) ref.Val {
	var lines []line
	var found ref.Val
	best := 0
	for it := list.Iterator(); it.HasNext() == types.True; {
		f.m.work(1)
		element := it.Next()
		next, known := lineOf(element)
		if !known || len(lines) > 0 && lines[0].kind != next.kind {
			return f.still(list)
		}
		if found == nil || f.function == "max" && lines[best].base < next.base || f.function == "min" && next.base < lines[best].base {
			found, best = element, len(lines)
		}
		lines = append(lines, next)
	}
	if found == nil {
		return f.still(list)
	}
	for i, other := range lines {
		switch {
		case i == best:
		case f.function == "max":
			f.l.cross(operators.Less, lines[best], other)
		default:
			f.l.cross(operators.Greater, lines[best], other)
		}
	}
	return found
}

func isMoving(v ref.Val) bool {
	_, ok := v.(*moving)
	return ok
}

func isList(v ref.Val) bool {
	_, ok := v.(traits.Lister)
	return ok
}

// still is a value as it is now, and whether there was anything in it that moves. That is noted: an int for when it becomes
// another one, and what is always another one as unknown.
func (l *lookout) still(v ref.Val, m *meter) (now ref.Val, moved bool) {
	switch v := v.(type) {
	case *moving:
		if v.step == nil {
			l.lose()
		} else {
			v.steps()
		}
		return v.now, true
	case *nativeList, *sortedMap: // of the Input
		return v, false
	case *types.Optional:
		if v.HasValue() {
			if value, moved := l.still(v.GetValue(), m); moved {
				return types.OptionalOf(value), true
			}
		}
	case traits.Lister:
		var all []ref.Val
		for it := v.Iterator(); it.HasNext() == types.True; {
			m.work(1)
			element, other := l.still(it.Next(), m)
			all, moved = append(all, element), moved || other
		}
		if moved {
			return types.NewRefValList(adapter{Adapter: types.DefaultTypeAdapter}, all), true
		}
	case traits.Mapper:
		all := map[ref.Val]ref.Val{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			m.work(1)
			key := it.Next()
			value, other := l.still(v.Get(key), m)
			all[key], moved = value, moved || other
		}
		if moved {
			return types.NewRefValMap(adapter{Adapter: types.DefaultTypeAdapter}, all), true
		}
	}
	return v, false
}
