// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compilecost

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/ext"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// language parses expressions, and has the scale of its environment.
type language struct {
	env   *cel.Env
	scale *Scale
}

func newLanguage(t *testing.T) language {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("x", cel.DynType), cel.OptionalTypes(), ext.Bindings())
	if err != nil {
		t.Fatal(err)
	}
	calls, _, err := budget.NewCalls(env)
	if err != nil {
		t.Fatal(err)
	}
	return language{env: env, scale: NewScale(env, calls)}
}

func (l language) parse(t *testing.T, source string) (*expr.Tree, *ast.AST) {
	t.Helper()
	parsed, issues := l.env.Parse(source)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", source, issues.Err())
	}
	return expr.NewTree(source, parsed.NativeRep()), parsed.NativeRep()
}

// weight is what an expression takes off the allowance of a spec.
func (l language) weight(t *testing.T, source string) int64 {
	t.Helper()
	a := l.scale.NewAllowance()
	tree, parsed := l.parse(t, source)
	if problem := a.ReserveWeight(tree, parsed); problem != nil {
		t.Fatalf("%s: %v", source, problem)
	}
	return maxWeight - a.weight
}

func (l language) footprint(t *testing.T, source string) int64 {
	t.Helper()
	_, parsed := l.parse(t, source)
	return l.scale.EstimateFootprint(source, parsed)
}

// bind gives variables one after the other, each made of the one before it.
func bind(times int, made string) string {
	return "cel.bind(a, [1], " + strings.Repeat("cel.bind(a, "+made+", ", times) + "a == null" + strings.Repeat(")", times+1)
}

// among makes a list of so many of an expression.
func among(n int, of string) string { return "[" + strings.Repeat(of+", ", n-1) + of + "]" }

// What the checker takes longer for weighs more than what looks much like it.
func TestWeights(t *testing.T) {
	l := newLanguage(t)
	for _, tc := range []struct{ light, heavy string }{
		{"x", "x.a.b.c"},
		{"x == 1", "x == 1 && x == 2"},
		{"[x, x]", "[[x], [x]]"},
		{"{'a': x}", "{'a': {'a': {'a': x}}}"},
		{"x.all(y, y > 1)", "x.all(y, y.all(z, z > 1))"},
		{"x.startsWith('[a-z]{20}')", "x.matches('[a-z]{20}')"},
		{bind(6, "[a]"), bind(6, "{a: a}")},
		{among(200, "[x]"), among(200, "[]")},
		{among(200, "{x: x}"), among(200, "{}")},
	} {
		if light, heavy := l.weight(t, tc.light), l.weight(t, tc.heavy); light <= 0 || light >= heavy {
			t.Errorf("%s weighs %d, and %s %d", tc.light, light, tc.heavy, heavy)
		}
	}
	// A type that doubles with each variable weighs about twice as much with one more; one that only grows does not.
	doubled := float64(l.weight(t, bind(9, "{a: a}"))) / float64(l.weight(t, bind(8, "{a: a}")))
	grown := float64(l.weight(t, bind(9, "[a]"))) / float64(l.weight(t, bind(8, "[a]")))
	if doubled < 1.8 || grown > 1.3 {
		t.Errorf("one more variable makes %.2f times the weight of a type that doubles, and %.2f times that of one that grows", doubled, grown)
	}
}

// An expression that is refused takes nothing, and those that fit still do.
func TestWeightIsBounded(t *testing.T) {
	l := newLanguage(t)
	refuses := func(a *Allowance, source string) bool {
		tree, parsed := l.parse(t, source)
		problem := a.ReserveWeight(tree, parsed)
		if problem != nil && (problem.Kind != expr.Invalid || !strings.Contains(problem.Message, "too involved to be checked") || problem.Hint == "" || problem.Line != 1) {
			t.Errorf("it is refused by %+v", problem)
		}
		return problem != nil
	}
	a := l.scale.NewAllowance()
	if !refuses(a, bind(40, "{a: a}")) || a.weight != maxWeight {
		t.Errorf("one expression weighs more than one may, and %d of %d is left", a.weight, maxWeight)
	}
	many := among(2000, "x.a")
	each, fit := l.weight(t, many), 0
	for !refuses(a, many) {
		fit++
	}
	if want := maxWeight / each; int64(fit) != want || a.weight != maxWeight-want*each {
		t.Errorf("%d expressions that weigh %d fit, and %d is left", fit, each, a.weight)
	}
	if refuses(a, "x") {
		t.Error("a small one does not fit any more")
	}
}

func TestRoomIsBounded(t *testing.T) {
	l := newLanguage(t)
	a := l.scale.NewAllowance()
	tree, _ := l.parse(t, "x")
	if problem := a.ReserveRoom(tree, MaxFootprint-10); problem != nil || a.UsedRoom() != MaxFootprint-10 {
		t.Errorf("%v, and %d bytes are used", problem, a.UsedRoom())
	}
	problem := a.ReserveRoom(tree, 11)
	if want := fmt.Sprintf("more than %d MiB of memory", MaxFootprint>>20); problem == nil || problem.Kind != expr.Invalid || !strings.Contains(problem.Message, want) || problem.Line != 1 {
		t.Errorf("one byte too many gives %+v", problem)
	}
	if problem := a.ReserveRoom(tree, 10); problem != nil || a.UsedRoom() != MaxFootprint {
		t.Errorf("the last bytes: %v, and %d are used", problem, a.UsedRoom())
	}
}

func TestEstimateFootprint(t *testing.T) {
	l := newLanguage(t)
	for _, tc := range []struct{ small, large string }{
		{"1", "x"},
		{"x", "x.a"},
		{"'a'", "'aaaaaaaaaaaaaaaa'"},
		{"[1, 2]", "[x, x]"},
		{"x.contains('[a-z]{50}')", "x.matches('[a-z]{50}')"},
		{"x.matches('[a-z]{5}')", "x.matches('[a-z]{50}')"},
	} {
		if a, b := l.footprint(t, tc.small), l.footprint(t, tc.large); a <= 0 || a >= b {
			t.Errorf("%s takes %d bytes, and %s %d", tc.small, a, tc.large, b)
		}
	}
	// A pattern that is too large is refused by itself, and counts no more than the largest one.
	if got, most := l.footprint(t, "x.matches('((a{999}){999}){999}')"), int64(footprintOfPattern*budget.MaxPatternSize)+10_000; got > most {
		t.Errorf("a pattern takes %d bytes, more than %d", got, most)
	}
}
