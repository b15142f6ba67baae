// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timedependence

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/expr"
)

// unforeseen is a part of an expression whose changes cannot be predicted, or that changes every second.
type unforeseen struct {
	// function is the call that does not say; empty for what an expression gives.
	function string
	// eachSecond says that its changes are predicted, and are too many.
	eachSecond bool
	// isOrder says that it is what orderBy gives.
	isOrder bool
}

// shortGrain is how often a number may change without a warning.
const shortGrain = time.Minute

// noteUnforeseen notes a call whose result is known only until what it is given changes, if that is often.
func (m *Analysis) noteUnforeseen(e ast.Expr, function string, args []ast.Expr) {
	if function == operators.Equals || function == operators.NotEquals {
		m.noteComparison(e, args)
		return
	}
	for i, arg := range args {
		if m.moving[arg.ID()] && (!followsArgument(function, i) || m.convertsNumber(function, arg)) {
			m.noteOften(e.ID(), arg, function)
		}
	}
}

// convertsNumber says that a call makes a time of a number.
func (m *Analysis) convertsNumber(function string, arg ast.Expr) bool {
	return (function == "timestamp" || function == "duration") && m.typeOf(arg).Kind() == types.IntKind
}

// noteOften notes a part of an expression if the value that it depends on changes often.
func (m *Analysis) noteOften(id int64, value ast.Expr, function string) {
	t := m.typeOf(value)
	switch grain, known := m.findGrain(value); {
	case isTimeOrHolds(t):
		m.unforeseen[id] = unforeseen{function: function}
	case known && grain < shortGrain:
		m.unforeseen[id] = unforeseen{function: function, eachSecond: true}
	}
}

// followsArgument says that a call knows when an argument that moves changes its result, if it is a time or a number; or that it only passes it on.
func followsArgument(function string, nth int) bool {
	switch function {
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, "@sortByAssociatedKeys":
		return true
	case operators.In:
		return nth == 0
	default:
		return nth == 0 && CountsElements(function) || KeepsMovement(function)
	}
}

// noteComparison notes a comparison of lists or maps that hold times.
func (m *Analysis) noteComparison(e ast.Expr, args []ast.Expr) {
	for _, arg := range args {
		if t := m.typeOf(arg); m.moving[arg.ID()] && (t.Kind() == types.ListKind || t.Kind() == types.MapKind) {
			m.noteOften(e.ID(), arg, e.AsCall().FunctionName())
		}
	}
}

// Purpose says what becomes of the value of an expression.
type Purpose int8

const (
	// Answer: it says what is done.
	Answer Purpose = iota
	// Order: it is compared with others of its own.
	Order
	// Variable: other expressions read it.
	Variable
)

// noteResult notes an expression that gives what always changes. One that gives an order may, if it changes evenly.
func (m *Analysis) noteResult(e ast.Expr, purpose Purpose) {
	isOrder := purpose == Order
	if purpose == Variable || isOrder && isTimeOrHolds(m.typeOf(e)) {
		return
	}
	m.noteOften(e.ID(), e, "")
	if noted, ok := m.unforeseen[e.ID()]; ok && isOrder {
		noted.isOrder = true
		m.unforeseen[e.ID()] = noted
	}
}

// typeOf gives the type of an expression, as far as it is known.
func (m *Analysis) typeOf(e ast.Expr) *types.Type {
	t, ok := m.types[e.ID()]
	if !ok {
		t = types.DynType
	}
	if e.Kind() == ast.IdentKind && t.Kind() == types.DynKind {
		if named := m.typeOfName(e.AsIdent()); named != nil {
			return named
		}
	}
	return t
}

// isTimeOrHolds says that a value is a timestamp or a duration, or a list, a map or an optional of such.
func isTimeOrHolds(t *types.Type) bool {
	switch t.Kind() {
	case types.TimestampKind, types.DurationKind:
		return true
	case types.ListKind, types.MapKind, types.OpaqueKind:
		parts := t.Parameters()
		return len(parts) > 0 && isTimeOrHolds(parts[len(parts)-1])
	default:
		return false
	}
}

// findGrain says how often a moving number changes at most, if that is known.
func (m *Analysis) findGrain(e ast.Expr) (grain time.Duration, known bool) {
	if e.Kind() != ast.CallKind || !m.moving[e.ID()] {
		return 0, false
	}
	args := expr.ListChildren(e)
	switch function := e.AsCall().FunctionName(); function {
	case "getMilliseconds":
		return time.Millisecond, true
	case "getSeconds":
		return time.Second, true
	case "int":
		if t := m.typeOf(args[0]).Kind(); t == types.TimestampKind || t == types.DurationKind {
			return time.Second, true
		}
		return m.findGrain(args[0])
	case "double", "math.ceil", "math.floor", "math.round", "math.trunc", operators.Negate:
		return m.findGrain(args[0])
	case operators.Divide:
		grain, known = m.findGrain(args[0])
		return min(grain*m.findDivisor(e, args[1]), time.Hour), known
	case operators.Add, operators.Subtract, operators.Multiply, operators.Modulo:
		return m.findSmallerGrain(args[0], args[1])
	default:
		return 0, false
	}
}

// findDivisor gives the number by which whole numbers are divided, as far as that matters; 1 if it is not known.
func (m *Analysis) findDivisor(e, divisor ast.Expr) time.Duration {
	if divisor.Kind() != ast.LiteralKind || m.typeOf(e).Kind() != types.IntKind {
		return 1
	}
	by, _ := divisor.AsLiteral().(types.Int)
	return time.Duration(min(max(by, 1), types.Int(shortGrain/time.Millisecond)))
}

// findSmallerGrain is findGrain of a number that is made of two.
func (m *Analysis) findSmallerGrain(a, b ast.Expr) (grain time.Duration, known bool) {
	left, leftKnown := m.findGrain(a)
	right, rightKnown := m.findGrain(b)
	if leftKnown && rightKnown {
		return min(left, right), true
	}
	return left + right, leftKnown || rightKnown
}

// maxWarnings is how many warnings there are of one expression: who mends these sees the next.
const maxWarnings = 4

// DescribeUnforeseen warns of what cannot be predicted in an expression, or changes every second. It is asked once.
func (m *Analysis) DescribeUnforeseen(t *expr.Tree, path string) []expr.Warning {
	var found []expr.Warning
	for _, id := range slices.Sorted(maps.Keys(m.unforeseen)) {
		if len(found) == maxWarnings {
			break
		}
		w := m.unforeseen[id].describe()
		w.Path = path
		w.Line, w.Column = t.FindPlace(id)
		w.Snippet = expr.MakeSnippet(t.Source, w.Line, w.Column)
		found = append(found, w)
	}
	m.unforeseen = nil
	return found
}

// describe says what is wrong, and what to write instead.
func (u unforeseen) describe() expr.Warning {
	what := "what it gives"
	if u.function != "" {
		what = fmt.Sprintf("what %s() gives of the time", strings.Trim(u.function, "@_"))
	}
	switch u.function {
	case operators.Equals, operators.NotEquals:
		what = "whether these are equal"
	case operators.Index:
		what = "what is looked up by the time"
	}
	if u.isOrder {
		return expr.Warning{Message: what + " changes every second, and so may the order", Hint: "order by a time itself, as in item.metadata.creationTimestamp or age(item)"}
	}
	if u.eachSecond {
		return expr.Warning{
			Message: what + " changes every second, and is evaluated as often",
			Hint:    `compare the number instead, as in int(time) % 3600 < 600, or write time.getHours("Europe/Berlin") == 22, or age(x) > duration("1h")`,
		}
	}
	return expr.Warning{
		Message: "when " + what + " changes cannot be predicted, and is noticed at the latest after retry.period",
		Hint:    `compare times with < and >=, as in time >= timestamp("2026-01-31T00:00:00Z") or age(x) > duration("1h"), or parts of them, as in time.getHours("Europe/Berlin") == 22`,
	}
}
