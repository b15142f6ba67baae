// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/resulttype"
)

func dataPrograms(t *testing.T, limits budget.Limits, expression string) *Programs {
	t.Helper()
	s := spec("true")
	s.CloudEventData = expression
	p, errs := newCompiler(t, limits).Compile(t.Context(), s)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

func TestData(t *testing.T) {
	in := Input{
		Time:   at("2026-01-01T00:00:00Z"),
		Params: map[string]any{"team": "search"},
		Targets: map[string]any{
			"svc":       map[string]any{"metadata": map[string]any{"name": "s"}, "spec": map[string]any{"image": "shop:1", "big": int64(9007199254740993)}},
			"revisions": list(revision("a", "sfj-1", "False", "2025-01-01T00:00:00Z")),
		},
	}
	cases := map[string]struct{ expression, want string }{
		"None":      {"", ""},
		"Map":       {`{"z": svc.spec.image, "a": params.team}`, `{"a":"search","z":"shop:1"}`},
		"Integer":   {"svc.spec.big", "9007199254740993"},
		"Double":    {"1.5", "1.5"},
		"List":      {"revisions.items.map(r, r.metadata.name)", `["a"]`},
		"Null":      {"null", "null"},
		"Bool":      {"svc.metadata.name == 's'", "true"},
		"Time":      {"time", `"2026-01-01T00:00:00Z"`},
		"Duration":  {`duration("90m")`, `"5400s"`},
		"Object":    {"svc", `{"metadata":{"name":"s"},"spec":{"big":9007199254740993,"image":"shop:1"}}`},
		"NotForWeb": {`"<a>&b"`, `"<a>&b"`},
		"Optional":  {`svc.?nope.orValue({})`, "{}"},
		"Largest":   {`lists.range(1170).map(i, 100000)`, "[" + strings.Repeat("100000,", 1169) + "100000]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := dataPrograms(t, budget.Limits{}, tc.expression)
			for range 2 { // the same each time
				got, problem := p.EvaluateData(t.Context(), in)
				if problem != nil {
					t.Fatal(problem)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
				}
			}
		})
	}
}

func TestDataErrors(t *testing.T) {
	in := Input{Targets: map[string]any{"svc": map[string]any{"metadata": map[string]any{"name": "s"}}}}
	cases := map[string]struct {
		expression string
		want       expr.Error
	}{
		"MissingKey": {`{"image": svc.spec.image}`, expr.Error{
			Kind: expr.Runtime, Line: 1, Column: 15, Message: "no such key: spec", Object: "svc (s)",
			Hint:    "test has(svc.spec) first, or write svc.?spec and .orValue(...) at the end",
			Snippet: "  | {\"image\": svc.spec.image}\n  |               ^",
		}},
		"NoneInAList": {`[optional.none()]`, expr.Error{
			Kind: expr.Runtime, Line: 1, Column: 1, Message: "a value of type optional_type cannot be written", Hint: resulttype.HintJSON,
			Snippet: "  | [optional.none()]\n  | ^",
		}},
		"Type": {`dyn(type(svc))`, expr.Error{
			Kind: expr.Runtime, Line: 1, Column: 1, Message: "a value of type type cannot be written", Hint: resulttype.HintJSON,
			Snippet: "  | dyn(type(svc))\n  | ^",
		}},
		"Key": {`{1: "x"}`, expr.Error{
			Kind: expr.Runtime, Line: 1, Column: 1, Message: "a key of a map is no string, but a int", Hint: resulttype.HintJSON,
			Snippet: "  | {1: \"x\"}\n  | ^",
		}},
		"Infinite": {`1.0 / double(svc.metadata.name.size() - 1)`, expr.Error{
			Kind: expr.Runtime, Line: 1, Column: 5, Message: "JSON cannot say +Inf", Hint: resulttype.HintJSON,
			Snippet: "  | 1.0 / double(svc.metadata.name.size() - 1)\n  |     ^",
		}},
		"TooLarge": {`lists.range(1171).map(i, 100000)`, expr.Error{
			Kind: expr.Exhausted, Line: 1, Column: 22, Message: "the value has more than 8192 bytes as JSON", Hint: "give less: the names of objects, say, and not the objects",
			Snippet: "  | lists.range(1171).map(i, 100000)\n  |                      ^",
		}},
		"Exploding": {`cel.bind(a, lists.range(999), cel.bind(b, a.map(x, a), a.map(x, b)))`, expr.Error{
			Kind: expr.Exhausted, Line: 1, Column: 9, Message: "the value has more than 8192 bytes as JSON", Hint: "give less: the names of objects, say, and not the objects",
			Snippet: "  | cel.bind(a, lists.range(999), cel.bind(b, a.map(x, a), a.map(x, b)))\n  |         ^",
		}},
		"Steps": {`lists.range(1000000).map(i, i)`, expr.Error{
			Kind: expr.Exhausted, Message: "the evaluation needs more than 10000 steps",
			Hint: "look things up in list.indexBy(x, key) instead of searching a list for each element of another",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Path = "cloudEventData"
			got, problem := dataPrograms(t, budget.Limits{Steps: 10000}, tc.expression).EvaluateData(t.Context(), in)
			if diff := cmp.Diff(&tc.want, problem); diff != "" || got != "" {
				t.Errorf("%s gave %q (-want +got):\n%s", tc.expression, got, diff)
			}
		})
	}

	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, problem := dataPrograms(t, budget.Limits{}, "1").EvaluateData(over, in)
	if want := "cloudEventData: the evaluation was interrupted"; problem == nil || problem.Error() != want {
		t.Errorf("got %v, want %s", problem, want)
	}
}

func TestDataCompileErrors(t *testing.T) {
	cases := map[string]struct{ expression, want string }{
		"Unknown": {"svd.metadata.name", "1:1: there is no target or variable \"svd\"; did you mean \"svc\"?\n" +
			"  | svd.metadata.name\n  | ^"},
		"NotSeen": {"nginx", "1:1: the target \"nginx\" has includeWhenEvaluating: false, so expressions do not see it\n" +
			"  | nginx\n  | ^"},
		"Optional": {"svc.?metadata", "1:4: an event carries JSON, and this is of type optional_type(dyn); add .orValue(...)\n" +
			"  | svc.?metadata\n  |    ^"},
		"Type": {"type(svc)", "1:1: an event carries JSON, and this is of type type(dyn); " + resulttype.HintJSON + "\n" +
			"  | type(svc)\n  | ^"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := spec("true")
			s.CloudEventData = tc.expression
			p, errs := newCompiler(t, budget.Limits{}).Compile(t.Context(), s)
			if p != nil || len(errs) != 1 || errs[0].Field != "spec.cloudEventData" {
				t.Fatalf("got %v", errs)
			}
			if diff := cmp.Diff(tc.want, errs[0].Detail); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
			}
		})
	}
}

func TestDataWarnings(t *testing.T) {
	w := dataPrograms(t, budget.Limits{}, `{"owner": svc.metadata.labels.owner}`).Warnings()
	if len(w) != 1 || w[0].FieldPath() != "spec.cloudEventData" || w[0].Hint != `write svc.metadata.?labels[?"owner"].orValue("")` {
		t.Errorf("got %+v", w)
	}
	if w := programs(t, newCompiler(t, budget.Limits{}), "true", `svc.metadata.labels.owner == ""`).Warnings(); len(w) != 1 || w[0].FieldPath() != "spec.conditions[1]" {
		t.Errorf("got %+v", w)
	}
}
