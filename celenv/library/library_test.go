// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

// example is an expression with what it gives: a value as types.Format writes it, or "error: " and a message.
type example struct{ expression, want string }

// checkExamples evaluates expressions that have the functions of one library, and the variables time and object.
func checkExamples(t *testing.T, library cel.EnvOption, cases map[string]example) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := evaluateExpression(t, library, tc.expression); got != tc.want {
				t.Errorf("%s\ngives %s\nwant  %s", tc.expression, got, tc.want)
			}
		})
	}
}

func evaluateExpression(t *testing.T, library cel.EnvOption, expression string) string {
	t.Helper()
	program, err := compileExpression(t, library, expression)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := program.Eval(map[string]any{
		"time": time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		// As a target has it: a map of Go.
		"object": map[string]any{"metadata": map[string]any{"name": "web", "creationTimestamp": "2026-01-31T10:30:00Z"}},
	})
	if err != nil {
		return "error: " + err.Error()
	}
	return types.Format(got)
}

func compileExpression(t *testing.T, library cel.EnvOption, expression string) (cel.Program, error) {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes(), ext.Strings(), library, cel.Variable("time", cel.TimestampType), cel.Variable("object", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	return env.Program(ast)
}

// Each function refuses arguments of a wrong type before anything is evaluated, where the types are known.
func TestWrongTypesDoNotCompile(t *testing.T) {
	for name, tc := range map[string]struct {
		functions cel.EnvOption
		wrong     []string
	}{
		"Conditions": {Conditions(), []string{`condition({}, 1)`, `condition({})`, `condition({}, "Ready") == 1`, `setCondition([])`, `setCondition([], {}) == 1`}},
		"Durations":  {Durations(), []string{`parseDuration(1)`, `parseTimestamp(1)`, `seconds("1")`, `seconds(1.5)`, `seconds(1u)`}},
		"Index": {Index(), []string{
			`1.toSet()`, `{}.toSet()`, `[1].indexBy(x)`, `[1].indexBy(1, 2)`, `[1].groupBy(x.y, 2)`, `[1].countBy("x", 2)`,
			`[1].indexBy(x, x)["a"] == 1`, `[1].groupBy(x, "k")["k"] == 1`, `[1].countBy(x, "k")["k"] == "a"`, `[1].toSet()["a"]`,
		}},
		"Certificates": {Certificates(), []string{`certificates(1)`, `certificates("") == 1`, `certificates("")[0] == 1`}},
		"Pods":         {Pods(), []string{`podSpec({}) == 1`, `podLabels({}) == 1`, `podLabels({})["a"] == 1`, `podRefs({}, 1)`, `podRefs({}, "Secret") == 1`, `podRefs({}, "Secret")[0] == 1`}},
		"References":   {References(), []string{`refs({}, 1)`, `refs({}, "Secret") == 1`, `refs({}, "Secret")[0] == 1`}},
		"JSON":         {JSON(), []string{`json.unmarshal(1)`, `json.valid(b"1")`, `json.marshal(1) == 1`}},
		"Network":      {Network(), []string{`cidrUsable("10.0.0.0/24", "1")`, `cidrUsable(1, 1)`, `ipsWithout("10.0.0.1", [])`, `ipsWithout([], [1])`, `ipsWithout([], [])[0] == 1`, `ipsValid([1])`, `ipsShared(["10.0.0.1"])`, `ipsShared({})[0] == 1`, `ipsShared({})[0][1]`}},
		"Objects":      {Objects(), []string{`key({}) == 1`, `controller({}) == 1`, `key()`}},
		"Selectors":    {Selectors(), []string{`selects({})`, `matchesSelector({}, {}) == "a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, expression := range tc.wrong {
				if _, err := compileExpression(t, tc.functions, expression); err == nil {
					t.Errorf("%s compiles", expression)
				}
			}
		})
	}
}
