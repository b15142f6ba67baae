// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timedependence

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
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
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate,
		"int", "double", "timestamp", "duration", "max", "min", "sum", "merge", "math.ceil", "math.floor", "math.round", "math.trunc":
		return true
	default:
		return isGetter(function) || carriesArgument(function) && !CountsElements(function)
	}
}

// isGetter says that a function gives a part of a time, or how long a duration is.
func isGetter(function string) bool {
	switch function {
	case "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds":
		return true
	default:
		return false
	}
}

// FollowCalls has the calls that can be given what moves follow it. It is an error if they are not all found in the program:
// then cel-go plans them in a way that is not known here.
func FollowCalls(a *Analysis, c *budget.Calls, l *Lookout, m *budget.Meter) (follow interpreter.InterpretableDecoratorV2, complete func() error) {
	found, calls := map[int64]bool{}, a.Calls
	follow = func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		node, ok := i.(interpreter.InterpretableCall)
		if !ok || !calls[i.ID()] { // what selects from a call has the call's id too, and is none
			return i, nil
		}
		found[i.ID()] = true
		return newFollower(node, a.Keys[i.ID()], c, l, m)
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
	isKey         bool // what it gives is looked up
	l             *Lookout
	m             *budget.Meter
}

func newFollower(node interpreter.InterpretableCall, isKey bool, c *budget.Calls, l *Lookout, m *budget.Meter) (interpreter.InterpretableV2, error) {
	f := &follower{id: node.ID(), function: node.Function(), args: node.Args(), evaluatedArgs: make([]budget.EvaluatedArgument, len(node.Args())), isKey: isKey, l: l, m: m}
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
	result := f.follow(frame)
	if m, ok := result.(*Value); ok && f.isKey {
		return m.Freeze()
	}
	return result
}

// follow evaluates the arguments and makes the call.
func (f *follower) follow(frame *interpreter.ExecutionFrame) ref.Val {
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
	case f.joinsParts(args):
		return f.applyCall(args...)
	case f.function == "@sortByAssociatedKeys" && len(args) == 2 && isList(args[1]):
		return sortByKeys(f, args[0], args[1].(traits.Lister))
	case f.function == "sum" && isList(args[0]):
		return addUp(f, args[0].(traits.Lister))
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

// joinsParts says that the call makes a list or a map of the parts of its arguments, whatever they are.
func (f *follower) joinsParts(args []ref.Val) bool {
	return f.function == "cel.@mapInsert" || f.function == "merge" || f.function == operators.Add && isList(args[0]) && isList(args[1])
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
	apply := func(n ref.Val) ref.Val { return f.applyCall(n) }
	var result ref.Val
	switch f.function {
	case "dyn", "optional.of":
		return f.applyCall(m)
	case "timestamp", "duration":
		if m.steps == nil && isTimestamp == (f.function == "timestamp") {
			return m
		}
	case "int":
		if m.steps == nil {
			return f.convertToSteps(m)
		}
		result = f.deriveSteps(m, false, apply)
	case "double", "math.ceil", "math.floor", "math.round", "math.trunc":
		result = f.deriveSteps(m, false, apply)
	case operators.Negate:
		result = f.deriveSteps(m, true, apply)
	default:
		switch {
		case !isGetter(f.function) || m.steps != nil:
		case isTimestamp:
			result = f.followPart(m)
		default:
			return f.convertToSteps(m)
		}
	}
	if result != nil {
		return result
	}
	return f.applyFrozen(m)
}

// convertToSteps gives the number that a call makes of a timestamp or a duration at any time. None of these calls gives less when it is given
// more.
func (f *follower) convertToSteps(m *Value) ref.Val {
	isTimestamp := budget.TypeOf(m.now).Kind() == types.TimestampKind
	s := newSteps(func(k int64) ref.Val {
		if isTimestamp {
			return f.applyCall(types.Timestamp{Time: time.Unix(0, m.base+m.Slope*k).UTC()})
		}
		return f.applyCall(types.Duration{Duration: time.Duration(m.base + m.Slope*k)})
	}, m.Slope < 0, m.computeSpan())
	if isTimestamp && m.Slope == 1 { // whole seconds
		s.unit = int64(time.Second)
		s.first = s.unit - (m.base%s.unit+s.unit)%s.unit
	}
	if result := f.moveBySteps(f.applyCall(m.now), s); result != nil {
		return result
	}
	return f.applyFrozen(m)
}

// moveBySteps gives a number that moves. It is nil if that may be no number at some time.
func (f *follower) moveBySteps(now ref.Val, s *steps) ref.Val {
	if !isNumber(now) || !s.isFine() {
		return nil
	}
	return &Value{now: now, steps: s, l: f.l}
}

// deriveSteps gives a number that is made of one that moves, in the same direction or in the other. It is nil if there is none.
func (f *follower) deriveSteps(m *Value, turns bool, compute func(n ref.Val) ref.Val) ref.Val {
	if m.steps == nil {
		return nil
	}
	derived := *m.steps
	derived.at = func(k int64) ref.Val { return compute(m.steps.at(k)) }
	derived.falls = m.steps.falls != turns
	return f.moveBySteps(compute(m.now), &derived)
}

// followPart gives a part of a timestamp that goes with the time. It is nil if that cannot be followed.
func (f *follower) followPart(m *Value, place ...ref.Val) ref.Val {
	now, ok := m.now.(types.Timestamp)
	if !ok || m.Slope != 1 {
		return nil
	}
	at := now.UTC()
	if len(place) > 0 {
		name, isText := place[0].(types.String)
		if !isText {
			return nil
		}
		location, known := parseZone(string(name))
		if !known {
			return nil
		}
		at = at.In(location)
	}
	s, ok := splitTime(f.function, at)
	if !ok {
		return nil
	}
	s.end = min(s.end, m.computeSpan())
	part := f.applyCall(append([]ref.Val{m.now}, place...)...)
	if part.Equal(s.at(0)) != types.True {
		return nil
	}
	return f.moveBySteps(part, s)
}

// applyTwo makes a call with two arguments. At least one of them moves.
func (f *follower) applyTwo(a, b ref.Val) ref.Val {
	switch f.function {
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.Equals, operators.NotEquals:
		if f.noteComparison(a, b) {
			return f.applyCall(NowOf(a), NowOf(b))
		}
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		result := f.computeSteps(a, b)
		if result == nil {
			result = f.computeLine(a, b)
		}
		if result != nil {
			return result
		}
	case operators.In:
		if m, ok := a.(*Value); ok && isList(b) && f.noteMembership(m, b.(traits.Lister)) {
			return f.applyCall(m.now, b)
		}
	default:
		if m, ok := a.(*Value); ok && isGetter(f.function) && !isMoving(b) {
			if part := f.followPart(m, b); part != nil {
				return part
			}
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
	if m, ok := matchSteps(a); ok && !isMoving(b) {
		return m.notePassing(f.function, b)
	}
	if m, ok := matchSteps(b); ok && !isMoving(a) {
		return m.notePassing(mirrorOperator(f.function), a)
	}
	return false
}

// noteMembership records when a value is another element of a list, or none any longer. It is not ok if that cannot be predicted.
func (f *follower) noteMembership(m *Value, list traits.Lister) bool {
	const steps = 16 // what looking for a moment takes
	value, _ := lineOf(m)
	for it := list.Iterator(); it.HasNext() == types.True; {
		f.m.PaySteps(steps)
		element := it.Next()
		other, isLine := lineOf(element)
		switch {
		case isMoving(element) || m.steps == nil && isTime(element) && !isLine:
			return false
		case m.steps != nil && isNumber(element):
			m.notePassing(operators.Equals, element)
		case m.steps == nil && isLine && value.kind == other.kind:
			f.l.noteCrossing(operators.Equals, value, other)
		}
	}
	return true
}

// matchSteps says whether a value is a moving number.
func matchSteps(v ref.Val) (m *Value, ok bool) {
	m, ok = v.(*Value)
	return m, ok && m.steps != nil
}

// computeSteps calculates with a moving number, and another number. It is nil if the result cannot be followed.
func (f *follower) computeSteps(a, b ref.Val) ref.Val {
	left, leftMoves := matchSteps(a)
	right, rightMoves := matchSteps(b)
	switch {
	case leftMoves && rightMoves:
		return addSteps(f, left, right)
	case leftMoves && isNumber(b):
		return computeLeft(f, left, b)
	case rightMoves && isNumber(a) && f.function != operators.Divide && f.function != operators.Modulo:
		turns := f.function == operators.Subtract || f.function == operators.Multiply && signOf(a) < 0
		return f.deriveSteps(right, turns, func(n ref.Val) ref.Val { return f.applyCall(a, n) })
	default:
		return nil
	}
}

// computeLeft calculates with a moving number on the left.
func computeLeft(f *follower, m *Value, b ref.Val) ref.Val {
	compute := func(n ref.Val) ref.Val { return f.applyCall(n, b) }
	switch f.function {
	case operators.Add, operators.Subtract:
		return f.deriveSteps(m, false, compute)
	case operators.Multiply, operators.Divide:
		return f.deriveSteps(m, signOf(b) < 0, compute)
	default:
		return deriveRemainder(f, m, b, compute)
	}
}

// deriveRemainder gives the remainder of a moving number. It begins again when the quotient is another one.
func deriveRemainder(f *follower, m *Value, b ref.Val, compute func(ref.Val) ref.Val) ref.Val {
	by, isInt := b.(types.Int)
	now, nowIsInt := m.now.(types.Int)
	if !isInt || !nowIsInt || by == 0 || by == -1 {
		return nil
	}
	again := m.steps.findFirst(func(k int64) bool {
		n, ok := m.steps.at(k).(types.Int)
		return !ok || n/by != now/by
	})
	until := *m.steps
	until.end = min(until.end, again)
	return f.deriveSteps(&Value{now: m.now, steps: &until}, false, compute)
}

// addSteps adds or subtracts two moving numbers, if the result only rises or only falls.
func addSteps(f *follower, a, b *Value) ref.Val {
	subtracts := f.function == operators.Subtract
	if f.function != operators.Add && !subtracts || (a.steps.falls == b.steps.falls) == subtracts {
		return nil
	}
	sum := *a.steps
	sum.mergeGrid(b.steps)
	sum.at = func(k int64) ref.Val { return f.applyCall(a.steps.at(k), b.steps.at(k)) }
	return f.moveBySteps(f.applyCall(a.now, b.now), &sum)
}

// computeLine calculates with timestamps and durations. It is nil if the result cannot be followed.
func (f *follower) computeLine(a, b ref.Val) ref.Val {
	one, oneKnown := lineOf(a)
	other, otherKnown := lineOf(b)
	slope := int64(0)
	switch {
	case f.function == operators.Multiply:
		line, times := one, b
		if !oneKnown {
			line, times = other, a
		}
		n, isInt := times.(types.Int)
		if oneKnown == otherKnown || !isInt || n < -maxSlope || n > maxSlope {
			return nil
		}
		slope = line.slope * int64(n)
	case !oneKnown || !otherKnown:
		return nil
	case f.function == operators.Add:
		slope = one.slope + other.slope
	case f.function == operators.Subtract:
		slope = one.slope - other.slope
	default:
		return nil
	}
	return f.moveLine(f.applyCall(NowOf(a), NowOf(b)), slope)
}

// moveLine has the result of a calculation move.
func (f *follower) moveLine(result ref.Val, slope int64) ref.Val {
	made, known := lineOf(result)
	if !known || slope < -maxSlope || slope > maxSlope { // an error, or too far away
		f.l.NoteUnknown()
		return result
	}
	return f.l.newMoving(result, made.base, slope)
}

// listLines gives the elements of a list, and what they are now, if all of them are timestamps, or all durations.
func listLines(list traits.Lister, m *budget.Meter) (lines []line, now []ref.Val) {
	for it := list.Iterator(); it.HasNext() == types.True; {
		m.PaySteps(1)
		element := it.Next()
		next, known := lineOf(element)
		if !known || len(lines) > 0 && lines[0].kind != next.kind {
			return nil, nil
		}
		lines, now = append(lines, next), append(now, NowOf(element))
	}
	return lines, now
}

// addUp makes the sum of a list.
func addUp(f *follower, list traits.Lister) ref.Val {
	lines, now := listLines(list, f.m)
	if len(lines) == 0 || lines[0].kind != types.DurationKind {
		return f.applyFrozen(list)
	}
	slope := int64(0)
	for _, l := range lines {
		slope += l.slope
	}
	return f.moveLine(f.applyCall(types.NewRefValList(budget.NewAdapter(nil), now)), slope)
}

// sortByKeys sorts a list by keys. It stays in its order until two keys that are beside each other then compare in another way.
func sortByKeys(f *follower, list ref.Val, keys traits.Lister) ref.Val {
	lines, now := listLines(keys, f.m)
	if len(lines) == 0 {
		frozen, _ := f.l.FreezeValue(keys, f.m)
		return f.applyCall(list, frozen)
	}
	if slices.ContainsFunc(lines, func(l line) bool { return l.slope != lines[0].slope }) {
		f.m.PaySteps(int64(len(lines) * bits.Len(uint(len(lines)))))
		slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.base, b.base) })
		for i := range lines[1:] {
			operator := operators.Less
			if lines[i].base == lines[i+1].base {
				operator = operators.Equals
			}
			f.l.noteCrossing(operator, lines[i], lines[i+1])
		}
	}
	return f.applyCall(list, types.NewRefValList(budget.NewAdapter(nil), now))
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
		return v.Freeze(), true
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
