// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hoist finds the parts of expressions about items that give the same value for all items, and has each evaluated at most once in an
// evaluation: when its value is first needed. It changes no result, and it never evaluates what no expression needs.
package hoist

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// FindFixedParts returns the largest parts of an expression that always give the same value, and that cost more than to remember it: loops, and
// calls other than operators. They are returned by their IDs, sorted. Varies says that a variable has different values in one evaluation, or
// moves with the time.
func FindFixedParts(root ast.Expr, varies func(name string) bool) []int64 {
	s := &search{varies: varies, seen: map[ast.Expr]part{}}
	s.markFixed(root, s.visitPart(root))
	slices.Sort(s.found)
	return slices.Clip(slices.Compact(s.found))
}

// search goes through an expression.
type search struct {
	varies func(string) bool
	loops  []ast.Expr // around the part that is looked at, the outermost first
	seen   map[ast.Expr]part
	found  []int64
}

// part is what is known of a part of an expression.
type part struct {
	// outermost is the outermost loop whose variables it reads, counted from 0: -1 if it reads what varies, and free if it reads neither.
	outermost int
	reads     bool // a variable
	costs     bool // more than to remember its value
}

// free is the outermost loop of what reads no variable of a loop.
const free = 1 << 30

func (p *part) addPart(other part) {
	p.outermost = min(p.outermost, other.outermost)
	p.reads, p.costs = p.reads || other.reads, p.costs || other.costs
}

// isFixed says that a part gives the same value in all turns of the loops around it.
func (s *search) isFixed(p part) bool { return p.outermost >= len(s.loops) }

// markFixed notes a part that is fixed, where what is around it is not, or the parts of it whose values can be kept.
func (s *search) markFixed(e ast.Expr, p part) {
	switch {
	case !s.isFixed(p) || !p.reads || !p.costs:
	case isKept(e):
		s.found = append(s.found, e.ID())
	default:
		for _, child := range expr.ListChildren(e) {
			s.markFixed(child, s.visitPart(child))
		}
	}
}

// isKept says that the value of a part can be kept. What selects from a value is planned together with what it selects from.
func isKept(e ast.Expr) bool {
	switch e.Kind() {
	case ast.ComprehensionKind:
		return true
	case ast.CallKind:
		return !slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect, operators.Conditional}, e.AsCall().FunctionName())
	default:
		return false
	}
}

// visitPart looks at a part, once, and notes the fixed parts of one that is not fixed.
func (s *search) visitPart(e ast.Expr) part {
	known, seen := s.seen[e]
	if !seen {
		known = s.lookAtPart(e)
		s.seen[e] = known
	}
	return known
}

// lookAtPart is visitPart for a part that was not seen.
func (s *search) lookAtPart(e ast.Expr) part {
	switch e.Kind() {
	case ast.IdentKind:
		return part{outermost: s.findLoop(e.AsIdent()), reads: true}
	case ast.ComprehensionKind:
		return s.visitLoop(e)
	}
	all := part{outermost: free, costs: isCostly(e)}
	children := expr.ListChildren(e)
	parts := make([]part, len(children))
	for i, child := range children {
		parts[i] = s.visitPart(child)
		all.addPart(parts[i])
	}
	if !s.isFixed(all) {
		for i, child := range children {
			s.markFixed(child, parts[i])
		}
	}
	return all
}

// visitLoop is visitPart for a comprehension: its range and its first value are outside of it.
func (s *search) visitLoop(e ast.Expr) part {
	loop := e.AsComprehension()
	outside := []ast.Expr{loop.IterRange(), loop.AccuInit()}
	inside := []ast.Expr{loop.LoopCondition(), loop.LoopStep(), loop.Result()}
	all := part{outermost: free, costs: true}
	parts := make([]part, len(outside))
	for i, child := range outside {
		parts[i] = s.visitPart(child)
		all.addPart(parts[i])
	}
	s.loops = append(s.loops, e)
	for _, child := range inside {
		p := s.visitPart(child)
		s.markFixed(child, p) // also of a loop that is fixed itself: it has many turns
		all.addPart(p)
	}
	s.loops = s.loops[:len(s.loops)-1]
	if !s.isFixed(all) {
		for i, child := range outside {
			s.markFixed(child, parts[i])
		}
	}
	return all
}

// findLoop returns the loop that has a variable; -1 if it varies for another reason, and free if it does not.
func (s *search) findLoop(name string) int {
	name, global := strings.CutPrefix(name, ".") // the checker's mark where a loop has a variable of that name
	for i := len(s.loops) - 1; i >= 0 && !global; i-- {
		if expr.IsBound(name, s.loops[i:i+1]) {
			return i
		}
	}
	if s.varies(name) {
		return -1
	}
	return free
}

// isCostly says that a call may cost more than to remember its value.
func isCostly(e ast.Expr) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	switch name := e.AsCall().FunctionName(); name {
	case operators.Add: // of lists
		return true
	case "size", "or", "orValue", "hasValue", "value", "dyn", "type", "string", "int", "double", "bool", "duration",
		"optional.of", "optional.none", "optional.ofNonZeroValue", operators.Negate, operators.LogicalNot, operators.NotStrictlyFalse:
		return false
	default:
		return !strings.HasPrefix(name, "_")
	}
}

// Values are the values of fixed parts in one evaluation.
type Values struct {
	// budget is what pays for them.
	budget *budget.Budget
	of     []value
}

// value is the value of one part: why it has none, or what it is, which may be an error of CEL.
type value struct {
	is      ref.Val
	stopped *expr.Error
	bytes   int64 // about how many it takes
}

// BeginEvaluation forgets all values. There are so many parts, and what they cost is paid from one budget.
func (v *Values) BeginEvaluation(parts int, from *budget.Budget) {
	v.budget, v.of = from, make([]value, parts)
}

// Kept are values that an evaluation has found. They never change.
type Kept []value

// CountBytes is about how much memory they take.
func (k Kept) CountBytes() (bytes int64) {
	for i := range k {
		bytes += k[i].bytes
	}
	return bytes
}

// KeptValues returns the values that were found, without those that a limit has stopped.
func (v *Values) KeptValues() Kept {
	kept := slices.Clone(v.of)
	for i := range kept {
		kept[i].stopped = nil
	}
	return kept
}

// RestoreValues takes values over from an evaluation in which all fixed parts have the same.
func (v *Values) RestoreValues(kept Kept) { copy(v.of, kept) }

// EndEvaluation forgets all values.
func (v *Values) EndEvaluation() { v.budget, v.of = nil, nil }

// KeepValues has a program keep the values of its fixed parts, which m meters. The first of them has a place among all parts.
func (v *Values) KeepValues(parts []int64, first int, m *budget.Meter) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		switch i.(type) {
		case *keptPart, interpreter.InterpretableAttribute: // what is selected from a part has its ID
			return i, nil
		}
		at, fixed := slices.BinarySearch(parts, i.ID())
		if !fixed {
			return i, nil
		}
		return &keptPart{InterpretableV2: i, place: first + at, values: v, m: m}, nil
	}
}

// keptPart is a part whose value is kept.
type keptPart struct {
	interpreter.InterpretableV2
	place  int
	values *Values
	m      *budget.Meter
}

func (k *keptPart) Eval(a interpreter.Activation) ref.Val { return k.Exec(interpreter.AsFrame(a)) }

func (k *keptPart) Exec(f *interpreter.ExecutionFrame) ref.Val {
	switch known := &k.values.of[k.place]; {
	case known.is != nil:
		return known.is
	case known.stopped != nil:
		k.m.StopEvaluation(known.stopped)
	}
	return k.evaluatePart(f)
}

// evaluatePart evaluates the part. A limit that stops it also stops all that need its value later.
func (k *keptPart) evaluatePart(f *interpreter.ExecutionFrame) ref.Val {
	paying, known, held := k.m.Budget, &k.values.of[k.place], k.m.Held.CountLasting()
	k.m.Budget = k.values.budget
	defer func() {
		k.m.Budget = paying
		if known.is == nil {
			known.stopped = k.m.Stopped
		}
	}()
	known.is = k.InterpretableV2.Exec(f)
	known.bytes = k.m.Held.CountLasting() - held
	return known.is
}
