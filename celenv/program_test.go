// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/params"
	"github.com/vtex/cleaner/celenv/resulttype"
)

// proposal is the condition of the proposal's manifest.
const proposal = `!revisions.items.exists(r,
  r.metadata.annotations["serving.knative.dev/routes"].split(",")
    .exists(route, !route.startsWith("sfj-") && !route.startsWith("preview-"))
  || r.status.conditions.filter(c, c.type == "Active")
    .exists(c, c.status == "True" || time - timestamp(c.lastTransitionTime) < duration("360h")))
`

// revision has the annotation of its routes, or none at all, and has been in its state since the given time.
func revision(name, routes, active, since string) map[string]any {
	metadata := map[string]any{"name": name, "namespace": "ns", "annotations": map[string]any{"a": "b"}}
	if routes != "" {
		metadata["annotations"] = map[string]any{"serving.knative.dev/routes": routes}
	}
	return map[string]any{
		"metadata": metadata,
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": since},
			map[string]any{"type": "Active", "status": active, "lastTransitionTime": since},
		}},
	}
}

func TestProposal(t *testing.T) {
	const old, young = "2024-12-01T00:00:00Z", "2024-12-30T00:00:00Z"
	unrouted := &expr.Error{
		Kind: expr.Runtime, Path: "conditions[0]", Line: 2, Column: 25,
		Message: "no such key: serving.knative.dev/routes",
		Snippet: "  |   r.metadata.annotations[\"serving.knative.dev/routes\"].split(\",\")\n" +
			"  |                         ^",
		Object: "revisions.items[1] (ns/b)",
		Hint:   `write r.metadata.?annotations[?"serving.knative.dev/routes"].orValue("")`,
	}
	cases := map[string]struct {
		reason    string
		revisions map[string]any
		want      Result
	}{
		"None":     {"no Revision is in use", list(), Result{Value: true}},
		"Idle":     {"only preview routes, inactive for long", list(revision("a", "sfj-1,preview-2", "False", old)), Result{Value: true, Cost: 103}},
		"Routed":   {"a route of production", list(revision("a", "sfj-1,www", "False", old)), Result{Cost: 51}},
		"Active":   {"it serves", list(revision("a", "sfj-1", "True", old)), Result{Cost: 85}},
		"Young":    {"it stopped serving only lately", list(revision("a", "sfj-1", "False", young)), Result{Cost: 86}},
		"Unrouted": {"an error that nothing outweighs", list(revision("a", "sfj-1", "False", old), revision("b", "", "False", old)), Result{Cost: 139, Err: unrouted}},
		"Outweighed": {"whatever the unrouted Revision is, another is in use",
			list(revision("b", "", "False", old), revision("a", "www", "False", old)), Result{Cost: 87}},
	}
	p := programs(t, newCompiler(t, budget.Limits{}), proposal)
	if diff := cmp.Diff([]string{"revisions"}, p.ListConditionTargets(0)); diff != "" {
		t.Errorf("Reads (-want +got):\n%s", diff)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := p.EvaluateConditions(t.Context(), Input{Targets: map[string]any{"revisions": tc.revisions}, Time: at("2025-01-01T00:00:00Z")})
			if diff := cmp.Diff([]Result{tc.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The form that the hint gives must do what it promises, with no annotations at all too.
func TestProposalGuarded(t *testing.T) {
	guarded := strings.Replace(proposal,
		`r.metadata.annotations["serving.knative.dev/routes"]`,
		`r.metadata.?annotations[?"serving.knative.dev/routes"].orValue("sfj-")`, 1)
	p := programs(t, newCompiler(t, budget.Limits{}), guarded)
	bare := revision("b", "", "False", "2024-12-01T00:00:00Z")
	delete(bare["metadata"].(map[string]any), "annotations")
	got := p.EvaluateConditions(t.Context(), Input{
		Targets: map[string]any{"revisions": list(bare, revision("c", "", "False", "2024-12-01T00:00:00Z"))},
		Time:    at("2025-01-01T00:00:00Z"),
	})
	if got[0].Err != nil || !got[0].Value {
		t.Errorf("got %v, %v", got[0].Value, got[0].Err)
	}
	if w := p.Warnings(); len(w) > 0 {
		t.Errorf("the guarded form is warned about: %v", w)
	}
}

func TestRuntimeErrors(t *testing.T) {
	object := func(name string) any {
		return map[string]any{
			"metadata": map[string]any{"name": name, "labels": map[string]any{"app": "x"}, "creationTimestamp": "2024-01-01T00:00:00Z"},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready"}}},
		}
	}
	in := Input{
		Targets: map[string]any{"revisions": list(object("a"), object("b")), "svc": object("svc")},
		Time:    at("2025-01-01T00:00:00Z"),
	}
	cases := map[string]struct {
		expression string
		want       expr.Error
	}{
		"Timestamp": {`time - svc.metadata.creationTimestamp > duration("1h")`, expr.Error{
			Line: 1, Column: 6, Message: "no such overload (timestamp - string)", Object: "svc (svc)",
			Hint:    "date-time fields are strings: wrap in timestamp()",
			Snippet: "  | time - svc.metadata.creationTimestamp > duration(\"1h\")\n  |      ^",
		}},
		"Misspelled": {`revisions.items.all(r, r.metadata.nam == "a")`, expr.Error{
			Line: 1, Column: 35, Message: "no such key: nam", Object: "revisions.items[0] (a)", Hint: `did you mean "name"?`,
			Snippet: "  | revisions.items.all(r, r.metadata.nam == \"a\")\n  |                                   ^",
		}},
		"Nested": {`revisions.items.exists(r, r.metadata.name == "b" && r.status.conditions.exists(c, c.reason == ""))`, expr.Error{
			Line: 1, Column: 85, Message: "no such key: reason", Object: "revisions.items[1] (b)",
			Hint:    "test has(c.reason) first, or write c.?reason and .orValue(...) at the end",
			Snippet: "  | revisions.items.exists(r, r.metadata.name == \"b\" && r.status.conditions.exists(c, c.reason == \"\"))\n  |" + strings.Repeat(" ", 85) + "^",
		}},
		"NoLabelsAtAll": {`svc.metadata.annotations["x"] == ""`, expr.Error{
			Line: 1, Column: 14, Message: "no such key: annotations", Object: "svc (svc)",
			Hint:    `write svc.metadata.?annotations[?"x"].orValue("")`,
			Snippet: "  | svc.metadata.annotations[\"x\"] == \"\"\n  |              ^",
		}},
		"Sorted": {`revisions.items.sortBy(r, r.metadata.name)[1].status.phase == ""`, expr.Error{
			Line: 1, Column: 54, Message: "no such key: phase", Object: "b",
			Snippet: "  | revisions.items.sortBy(r, r.metadata.name)[1].status.phase == \"\"\n  |                                                      ^",
		}},
		"Filtered": {`revisions.items.filter(r, true).all(r, r.spec == 1)`, expr.Error{
			Line: 1, Column: 42, Message: "no such key: spec", Object: "r (a)",
			Hint:    "test has(r.spec) first, or write r.?spec and .orValue(...) at the end",
			Snippet: "  | revisions.items.filter(r, true).all(r, r.spec == 1)\n  |                                          ^",
		}},
		"OutOfBounds": {`revisions.items[7] == 1`, expr.Error{
			Line: 1, Column: 16, Message: "index out of bounds: 7",
			Snippet: "  | revisions.items[7] == 1\n  |                ^",
			Hint:    "write revisions.items[?7] and .orValue(...) at the end",
		}},
		"NoSuchIndex": {`revisions.items.indexBy(r, r.metadata.name)["z"] == 1`, expr.Error{
			Line: 1, Column: 44, Message: "no such key: z",
			Snippet: "  | revisions.items.indexBy(r, r.metadata.name)[\"z\"] == 1\n  |                                            ^",
			Hint:    `write [?"z"] for the index and .orValue(...) at the end`,
		}},
		"DivisionByZero": {`1 / (revisions.items.size() - 2) == 1`, expr.Error{
			Line: 1, Column: 3, Message: "division by zero (int / int)",
			Snippet: "  | 1 / (revisions.items.size() - 2) == 1\n  |   ^",
		}},
		"NoBool": {`svc.metadata.name`, expr.Error{
			Line: 1, Column: 14, Message: "a condition must be true or false, and this gave a string",
			Snippet: "  | svc.metadata.name\n  |              ^",
		}},
		"NoBoolInAnd": {`svc.metadata.name && true`, expr.Error{
			Line: 1, Column: 19, Message: "no such overload (string && bool)", Object: "svc (svc)",
			Snippet: "  | svc.metadata.name && true\n  |                   ^",
		}},
		"Tabs": {"true &&\n\tsvc.x", expr.Error{
			Line: 2, Column: 6, Message: "no such key: x", Object: "svc (svc)",
			Hint:    "test has(svc.x) first, or write svc.?x and .orValue(...) at the end",
			Snippet: "  | \tsvc.x\n  | \t    ^",
		}},
		"Null": {`params.x == 1`, expr.Error{
			Line: 1, Column: 8, Message: "no such key: x",
			Hint:    "test has(params.x) first, or write params.?x and .orValue(...) at the end",
			Snippet: "  | params.x == 1\n  |        ^",
		}},
		"Function": {`int(svc.metadata.name) == 1`, expr.Error{
			Line: 1, Column: 1, Message: "type conversion error from 'string' to 'int'", Object: "svc (svc)",
			Snippet: "  | int(svc.metadata.name) == 1\n  | ^",
		}},
		"Pattern": {`"x".matches(svc.metadata.name + "(")`, expr.Error{
			Line: 1, Column: 5, Message: `"svc(" is no regular expression: error parsing regexp: missing closing ): ` + "`svc(`",
			Snippet: "  | \"x\".matches(svc.metadata.name + \"(\")\n  |     ^",
		}},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Kind, tc.want.Path = expr.Runtime, "conditions[0]"
			p := programs(t, c, tc.expression)
			for range 2 { // the second time with the explanation already made
				got := p.EvaluateConditions(t.Context(), in)[0]
				if diff := cmp.Diff(&tc.want, got.Err); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
				}
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	cases := map[string]struct {
		err  expr.Error
		want string
	}{
		"All":     {expr.Error{Path: "conditions[2]", Line: 1, Column: 5, Message: "no such key: x", Object: "svc (ns/svc)", Hint: "test has(svc.x)"}, "conditions[2] at 1:5: no such key: x on svc (ns/svc); test has(svc.x)"},
		"Message": {expr.Error{Path: "conditions[0]", Message: "interrupted"}, "conditions[0]: interrupted"},
		"No path": {expr.Error{Message: "interrupted"}, "interrupted"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongLinesAreCut(t *testing.T) {
	got := expr.MakeSnippet(strings.Repeat("é", 1000)+"!"+strings.Repeat("y", 1000), 1, 1001)
	want := "  | …" + strings.Repeat("é", 99) + "!" + strings.Repeat("y", 59) + "…\n  | " + strings.Repeat(" ", 100) + "^"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// All conditions are evaluated, whatever becomes of the others, and they share one budget.
func TestConditionsShareTheBudget(t *testing.T) {
	loop := "revisions.items.all(r, true)"
	in := Input{Targets: map[string]any{"revisions": list(1, 2, 3, 4, 5, 6)}}
	got := programs(t, newCompiler(t, budget.Limits{Steps: 10}), loop, "svc.x", loop, "true", "1 == 2").EvaluateConditions(t.Context(), in)
	var summary []string
	for i, r := range got {
		text := fmt.Sprintf("%v %d", r.Value, r.Cost)
		if r.Err != nil {
			text += fmt.Sprintf(" %s %s", r.Err.Kind, r.Err.Path)
		}
		if r.Err != nil && r.Err.Path != expr.PathOfCondition(i) {
			t.Errorf("the error of condition %d says %s", i, r.Err.Path)
		}
		summary = append(summary, text)
	}
	want := []string{"true 6", "false 0 Runtime conditions[1]", "false 4 Exhausted conditions[2]", "true 0", "false 0"}
	if diff := cmp.Diff(want, summary); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The next call has a full budget again.
	if again := programs(t, newCompiler(t, budget.Limits{Steps: 10}), loop).EvaluateConditions(t.Context(), in); again[0].Err != nil {
		t.Error(again[0].Err)
	}
}

func TestInterruption(t *testing.T) {
	endless := "lists.range(9000).exists(a, lists.range(9000).exists(b, a + b < 0))"
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	soon, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	cases := map[string]struct {
		reason string
		ctx    context.Context
		limits budget.Limits
		want   expr.Error
	}{
		"Before": {"the context has ended before", cancelled, budget.Limits{}, expr.Error{Kind: expr.Interrupted, Message: "the evaluation was interrupted"}},
		"During": {"the context ends in the loop", soon, budget.Limits{Steps: 1 << 40}, expr.Error{Kind: expr.Interrupted, Message: "the evaluation was interrupted"}},
		"Wall":   {"our own deadline passes", t.Context(), budget.Limits{Steps: 1 << 40, Wall: 20 * time.Millisecond}, expr.Error{Kind: expr.Exhausted, Message: "the evaluation takes longer than 20ms", Hint: budget.HintTooLong}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := programs(t, newCompiler(t, tc.limits), endless).EvaluateConditions(tc.ctx, Input{})
			tc.want.Path = "conditions[0]"
			if diff := cmp.Diff(&tc.want, got[0].Err); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPanicsAreInternalErrors(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	c.calls.Charges["size"] = budget.Charge{BeforeCall: func(*budget.Meter, []ref.Val) ref.Val { panic("boom") }}
	got := programs(t, c, "svc.size() == 0", "true").EvaluateConditions(t.Context(), Input{Targets: map[string]any{"svc": "x"}})
	if got[0].Err == nil || got[0].Err.Kind != expr.Internal || !strings.Contains(got[0].Err.Message, "boom") {
		t.Errorf("got %v", got[0].Err)
	}
	if !got[1].Value {
		t.Errorf("the condition after it gave %v", got[1].Err)
	}

	_, problems := c.compileExpression(&scope{}, "conditions[3]", "true", resulttype.Bool, &Programs{}) // without an environment
	if len(problems) != 1 || problems[0].Kind != expr.Internal || problems[0].Path != "conditions[3]" {
		t.Errorf("got %v", problems)
	}
}

func TestConcurrentUse(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	p := programs(t, c, proposal, "svc.x == 1")
	young := Input{Time: at("2025-01-01T00:00:00Z"), Targets: map[string]any{"revisions": list(revision("a", "sfj-1", "False", "2024-12-30T00:00:00Z"))}}
	old := Input{Time: at("2025-01-01T00:00:00Z"), Targets: map[string]any{"revisions": list(revision("a", "sfj-1", "False", "2024-01-01T00:00:00Z"))}}
	var wg sync.WaitGroup
	for range 8 {
		for want, in := range map[bool]Input{false: young, true: old} {
			wg.Go(func() {
				for range 20 {
					got := p.EvaluateConditions(t.Context(), in)
					if got[0].Err != nil || got[0].Value != want || got[1].Err == nil {
						t.Errorf("got %v, want %v", got, want)
						return
					}
				}
			})
		}
	}
	for range 4 { // different Programs, and an error value that cel-go shares between all of them
		wg.Go(func() {
			q, errs := c.Compile(t.Context(), spec("svc + 1 == 2", "svc && true"))
			if len(errs) > 0 {
				t.Error(errs.ToAggregate())
				return
			}
			for range 20 {
				got := q.EvaluateConditions(t.Context(), Input{Targets: map[string]any{"svc": map[string]any{}}})
				if got[0].Err == nil || got[0].Err.Column != 5 || got[1].Err == nil || got[1].Err.Column != 5 {
					t.Errorf("got %v, %v", got[0].Err, got[1].Err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// The same input gives the same answer, error and cost, although Go's maps have no order.
func TestEvaluationIsDeterministic(t *testing.T) {
	labels := map[string]any{}
	for i := range 50 {
		labels[fmt.Sprint("l", i)] = fmt.Sprint(i)
	}
	in := Input{Targets: map[string]any{"svc": map[string]any{"metadata": map[string]any{"name": "s", "labels": labels}}}}
	p := programs(t, newCompiler(t, budget.Limits{}), `svc.metadata.labels.map(k, k)[0] == "l0"`, `svc.metadata.labels.all(k, v, int(v) < 30 && v.nope)`, `svc.metadata.labels.exists(k, k == "l9")`)
	first := p.EvaluateConditions(t.Context(), in)
	for range 20 {
		if diff := cmp.Diff(first, p.EvaluateConditions(t.Context(), in)); diff != "" {
			t.Fatalf("(-first +later):\n%s", diff)
		}
	}
}

func TestParamsInExpressions(t *testing.T) {
	decoded, err := params.DecodeParams(&runtime.RawExtension{Raw: []byte(`{"keep":3,"ttl":"7d","gone":null}`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := programs(t, newCompiler(t, budget.Limits{}), `params.keep == 3 && type(params.keep) == int`, `parseDuration(params.ttl) == duration("168h")`, `!has(params.gone)`)
	all := p.EvaluateConditions(t.Context(), Input{Params: decoded})
	if len(all) != 3 {
		t.Errorf("%d conditions were evaluated", len(all))
	}
	for i, got := range all {
		if !got.Value {
			t.Errorf("condition %d: %v", i, got.Err)
		}
	}
}
