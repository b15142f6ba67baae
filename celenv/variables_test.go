// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// variablesSpec is spec with variables, each as "name: expression".
func variablesSpec(variables []string, conditions ...string) *v1alpha1.Work {
	s := spec(conditions...)
	s.Variables = variablesOf(variables)
	return s
}

func TestVariables(t *testing.T) {
	in := Input{
		Time: at("2025-01-01T00:00:00Z"),
		Targets: map[string]any{
			"svc":       map[string]any{"metadata": map[string]any{"name": "s", "labels": map[string]any{"a": "b"}}, "maybe": map[string]any{"x": int64(1)}},
			"revisions": list(map[string]any{"n": int64(1)}, map[string]any{"n": int64(2)}),
		},
	}
	cases := map[string]struct {
		variables  []string
		expression string
	}{
		"Value":                {[]string{"one: 1"}, "variables.one == 1"},
		"Null":                 {[]string{"none: null"}, "variables.none == null && variables.none == null"},
		"Earlier":              {[]string{"one: 1", "two: variables.one + variables.one"}, "variables.two == 2"},
		"Field":                {[]string{"m: svc.metadata"}, `variables.m.name == "s" && has(variables.m.labels) && !has(variables.m.nope)`},
		"Index":                {[]string{"m: svc.metadata"}, `variables.m["name"] == "s" && variables.m[?"nope"].orValue("x") == "x"`},
		"Optional goes on":     {[]string{"m: svc.metadata"}, `variables.m.?labels.a.orValue("") == "b" && variables.m.?nope.a.orValue("x") == "x"`},
		"Optional value":       {[]string{"m: svc.?maybe", "n: svc.?nope"}, `variables.m.x.orValue(0) == 1 && variables.m.?x.orValue(0) == 1 && !variables.n.hasValue() && variables.n.?x.orValue(3) == 3`},
		"In a loop":            {[]string{"big: 1"}, "revisions.items.filter(r, r.n > variables.big).size() == 1"},
		"Loop named variables": {[]string{"n: 7"}, "revisions.items.all(variables, variables.n < 3)"},
		"Loop, and the global": {[]string{"n: 7"}, "revisions.items.all(variables, .variables.n == 7)"},
		"Loop named item":      {nil, "revisions.items.all(item, item.n < 3) && revisions.items.exists(items, items.n == 2) && cel.bind(object, svc, object.metadata.name == 's')"},
		"In another's loop":    {[]string{"index: revisions.items.indexBy(r, string(r.n))"}, `"2" in variables.index && variables.index["2"].n == 2`},
		"As a key":             {[]string{"key: 'name'"}, `svc.metadata[variables.key] == "s"`},
		"Time":                 {[]string{"now: time"}, `variables.now - duration("1h") < time && timestamp("2024-12-31T00:00:00Z") < variables.now`},
		"Not read":             {[]string{"bad: svc.nope"}, "true || variables.bad"},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, errs := c.Compile(t.Context(), variablesSpec(tc.variables, tc.expression))
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			for range 2 {
				if got := p.EvaluateConditions(t.Context(), in)[0]; got.Err != nil || !got.Value {
					t.Errorf("%s: %v", tc.expression, got.Err)
				}
			}
		})
	}
}

// A variable is computed once in an evaluation: whoever reads it first pays for it.
func TestVariablesAreComputedOnce(t *testing.T) {
	s := variablesSpec([]string{"sum: lists.range(100).filter(x, x > 49).size()"}, "variables.sum == 50", "variables.sum + variables.sum == 100")
	s.CloudEventData = "variables.sum"
	p, errs := newCompiler(t, budget.Limits{}).Compile(t.Context(), s)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	e := begin(t, p, Input{})
	got := e.EvaluateConditions()
	if got[0].Cost < 100 || got[1].Cost != 0 || !got[0].Value || !got[1].Value {
		t.Errorf("got %+v", got)
	}
	if data, problem := e.EvaluateData(); data != "50" || problem != nil {
		t.Errorf("got %s, %v", data, problem)
	}
}

func TestVariableErrors(t *testing.T) {
	in := Input{Targets: map[string]any{"svc": map[string]any{"metadata": map[string]any{"name": "s"}}, "revisions": list()}}
	const noKey = "variables.bad has no value: no such key: nope (variables[0].expression at 1:5)"
	cases := map[string]struct {
		variables  []string
		expression string
		want       expr.Error
	}{
		"Read": {[]string{"bad: svc.nope"}, "true && variables.bad", expr.Error{
			Kind: expr.Runtime, Path: "conditions[0]", Line: 1, Column: 19, Message: noKey, Object: "svc (s)",
			Hint:    "test has(svc.nope) first, or write svc.?nope and .orValue(...) at the end",
			Snippet: "  | true && variables.bad\n  |                   ^",
		}},
		"Through another": {[]string{"bad: svc.nope", "worse: variables.bad"}, "variables.worse", expr.Error{
			Kind: expr.Runtime, Path: "conditions[0]", Line: 1, Column: 11, Message: "variables.worse has no value: " + noKey + " (variables[1].expression at 1:11)", Object: "svc (s)",
			Hint:    "test has(svc.nope) first, or write svc.?nope and .orValue(...) at the end",
			Snippet: "  | variables.worse\n  |           ^",
		}},
		"Exhausted": {[]string{"much: lists.range(1000).all(x, true)"}, "true || variables.much", expr.Error{}},
		"Exhausted, and no || hides it": {[]string{"much: lists.range(1000).all(x, true)"}, "variables.much || true", expr.Error{
			Kind: expr.Exhausted, Path: "conditions[0]", Message: "variables.much has no value: the evaluation needs more than 500 steps (variables[0].expression)",
			Hint: "look things up in list.indexBy(x, key) instead of searching a list for each element of another",
		}},
	}
	c := newCompiler(t, budget.Limits{Steps: 500})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, errs := c.Compile(t.Context(), variablesSpec(tc.variables, tc.expression, tc.expression))
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			all := p.EvaluateConditions(t.Context(), in)
			if len(all) != 2 {
				t.Fatalf("%d conditions were evaluated", len(all))
			}
			for i, got := range all { // the second time it is known
				want := &tc.want
				if want.Path = expr.PathOfCondition(i); want.Kind == "" {
					want = nil
				}
				if diff := cmp.Diff(want, got.Err); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
				}
			}
		})
	}
}

func TestVariablesThatCannotBeRead(t *testing.T) {
	rule := v1alpha1.Rule{Name: "r", ForEach: "revisions.items", When: "true", Variables: variablesOf([]string{"own: item"})}
	cases := map[string]struct {
		variables  []string
		expression string
		want       string // a part
	}{
		"Unknown":       {[]string{"byName: 1"}, "variables.byNmae == 1", `1:1: there is no variable "byNmae"; did you mean "byName"?`},
		"None near":     {nil, "variables.quux == 1", `1:1: there is no variable "quux"; add it to variables, before what reads it`},
		"Alone":         {[]string{"a: 1"}, "variables == 1", `1:1: variables are read one by one; write variables.x for the variable x`},
		"Asked for":     {[]string{"a: 1"}, "has(variables.a)", `the variable "a" is always there; write variables.a, or ask for a part of it: has(variables.a.x), variables.a.?x`},
		"Optionally":    {[]string{"a: 1"}, "variables.?a.orValue(true)", `the variable "a" is always there`},
		"Item":          {nil, "item.x == 1", "1:1: item cannot be read here: only expressions about an item of a rule see it\n  | item.x == 1\n  | ^"},
		"Object":        {nil, "true || object.x == 1", "1:9: object cannot be read here"},
		"Items":         {nil, "items.size() == 1", "items cannot be read here: only keep, leave and patch.expression"},
		"Of a rule":     {nil, "variables.own == 1", "variables.own cannot be read here: it is a variable of a rule"},
		"Not suggested": {nil, "itm.x == 1", `there is no target or variable "itm"; add a target`},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := variablesSpec(tc.variables, tc.expression)
			s.Rules = []v1alpha1.Rule{rule}
			p, errs := c.Compile(t.Context(), s)
			if p != nil || len(errs) != 1 || errs[0].Field != "spec.conditions[0]" || !strings.Contains(errs[0].Detail, tc.want) {
				t.Errorf("%s: got %v", tc.expression, errs)
			}
		})
	}
}

// A variable sees only those before it, and names are taken once.
func TestVariableDeclarations(t *testing.T) {
	cases := map[string]struct {
		spec, rule []string
		want       string
	}{
		"Itself":         {[]string{"a: variables.a"}, nil, "spec.variables[0].expression: variables.a cannot be read here: a variable sees only those before it"},
		"Later":          {[]string{"a: variables.b", "b: 1"}, nil, "spec.variables[0].expression: variables.b cannot be read here: a variable sees only those before it"},
		"Later, of rule": {nil, []string{"a: variables.b", "b: 1"}, "spec.rules[0].variables[0].expression: variables.b cannot be read here: a variable sees only those before it"},
		"Item":           {[]string{"a: item"}, nil, "spec.variables[0].expression: item cannot be read here: only expressions about an item of a rule see it"},
		"Rule's":         {[]string{"a: variables.b"}, []string{"b: 1"}, "spec.variables[0].expression: variables.b cannot be read here: it is a variable of a rule, and only expressions about an item of that rule see it"},
		"Twice":          {[]string{"a: 1", "a: 2"}, nil, "spec.variables[1].name: another variable has this name: rename one of them"},
		"Shadow":         {[]string{"a: 1"}, []string{"b: 1", "a: 2"}, "spec.rules[0].variables[1].name: a variable of the spec has this name, and a rule's own would hide it: choose another one"},
		"Name":           {[]string{"a b: 1"}, nil, "spec.variables[0].name: is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit"},
		"Syntax":         {[]string{"a: 1 +"}, nil, "spec.variables[0].expression: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := variablesSpec(tc.spec)
			s.Rules = []v1alpha1.Rule{{Name: "r", ForEach: "revisions.items", When: "true", Variables: variablesOf(tc.rule)}}
			p, errs := c.Compile(t.Context(), s)
			if p != nil || len(errs) != 1 {
				t.Fatalf("got %v", errs)
			}
			detail, _, _ := strings.Cut(errs[0].Detail, "\n")
			if at, rest, ok := strings.Cut(detail, ": "); ok && strings.HasPrefix(at, "1:") {
				detail = rest
			}
			if diff := cmp.Diff(tc.want, errs[0].Field+": "+detail); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The search for the moment sees through variables: those that read the time are computed anew.
func TestWhenTrueThroughVariables(t *testing.T) {
	p, errs := newCompiler(t, budget.Limits{}).Compile(t.Context(), variablesSpec([]string{"age: age(svc)", "fixed: svc.metadata.name"}, `variables.age > duration("2h") && variables.fixed == "a"`))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if !readsTime(p.conditions[0]) {
		t.Error("the conditions do not read the time")
	}
	in := Input{Time: at("2025-01-01T01:00:00Z"), Targets: map[string]any{"svc": young()}}
	found, ok := p.FindTrueTime(t.Context(), in, p.EvaluateConditions(t.Context(), in), time.Time{}, in.Time.Add(5*time.Hour))
	if want := at("2025-01-01T02:00:01Z"); !ok || !found.Equal(want) {
		t.Errorf("got %s, %v; want %s", found, ok, want)
	}
}

// What an evaluation has found out is not evaluated again by another one that sees the same targets, unless it changes with the time.
func TestKeptValues(t *testing.T) {
	p := compileWork(t, budget.Limits{}, podWork(
		[]string{`names: nodes.items.map(n, n.metadata.name + "!")`, `hour: time.getHours()`},
		v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: `variables.names.size() + nodes.items.map(n, n.metadata.name + "?").size() > 0 && variables.hour == 3`, Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}},
	))
	nodes := make([]any, 500)
	for i := range nodes {
		nodes[i] = clusterNode(fmt.Sprint("n", i))
	}
	hour := func(h int, kept *Kept) Input {
		return Input{Time: time.Date(2026, 1, 1, h, 0, 0, 0, time.UTC), Kept: kept, Targets: map[string]any{
			"pods": map[string]any{"items": []any{pod("p", "n1", "Running")}}, "nodes": map[string]any{"items": nodes}, "config": nil,
		}}
	}
	ask := func(in Input) (answer bool, kept *Kept, bytes, cost int64) {
		e := begin(t, p, in)
		defer e.Close()
		r := e.SelectRule(0)
		answer = must[bool](t)(items(t, r)[0].EvaluateWhen())
		kept, bytes = e.KeepValues()
		return answer, kept, bytes, e.sharedBudget.SumCost()
	}
	at3, kept, bytes, first := ask(hour(3, nil))
	at4, again, _, second := ask(hour(4, kept))
	back, _, _, _ := ask(hour(3, again))
	if !at3 || at4 || !back {
		t.Errorf("the answers are %t, %t and %t, want true, false and true", at3, at4, back)
	}
	if bytes < 500 || second > first/10 {
		t.Errorf("%d bytes are kept, and what cost %d costs %d", bytes, first, second)
	}
}
