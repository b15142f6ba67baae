// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// describeEntry is an entry in one line.
func describeEntry(e itemtrace.Entry) string {
	out := fmt.Sprintf("%s %s", e.Rule, e.Outcome)
	if e.ByAction {
		out += " by " + e.Item.Name
	}
	if e.Because != "" {
		out += ": " + e.Because
	}
	if !e.Until.IsZero() {
		out += " until " + e.Until.Format(time.TimeOnly)
	}
	return out
}

// TestTrace follows one Pod through rules, of which each leaves it out at another step.
func TestTrace(t *testing.T) {
	two := intstr.FromInt32(2)
	for name, tc := range map[string]struct {
		rules []v1alpha1.Rule
		want  []string
	}{
		"Acted":  {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Reason = `"it is " + item.metadata.name` })}, []string{"r Acted: it is b"}},
		"When":   {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name == "a"` })}, []string{"r NotMatched"}},
		"NoItem": {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.ForEach = `pods.items.filter(p, p.metadata.name == "a")` })}, nil},
		"Keep": {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
			r.Keep, r.OrderBy = &two, []v1alpha1.OrderBy{{Expression: "item.metadata.name"}}
		})}, []string{"r Kept"}},
		"Unless":     {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Unless = `item.metadata.name == "b"` })}, []string{"r Spared"}},
		"For":        {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.For = "10m" })}, []string{"r Waiting until 00:10:00"}},
		"Protected":  {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.ForEach = "nodes.items" }), rule(func(r *v1alpha1.Rule) { r.Name = "x"; r.When = "item.spec.guarded == 'yes'" })}, []string{`x Protected: it has the label or annotation cleaner.vtex.dev/protect: "true"`}},
		"Shadowed":   {[]v1alpha1.Rule{rule(), rule(func(r *v1alpha1.Rule) { r.Name = "later" })}, []string{"r Acted", "later Shadowed: r"}},
		"Unchanged":  {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Actions[0].When = "false" })}, []string{"r Unchanged"}},
		"WhenError":  {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.spec.missing == ""` })}, []string{"r Failed: rules[0].when at 1:11: no such key: missing; test has(item.spec.missing) first, or write item.spec.?missing and .orValue(...) at the end"}},
		"PatchError": {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Actions = []v1alpha1.RuleAction{patches(`{"spec": item.spec.missing}`)} })}, []string{"r Failed: rules[0].actions[0].patch.expression at 1:20: no such key: missing; test has(item.spec.missing) first, or write item.spec.?missing and .orValue(...) at the end"}},
		"TwinKey":    {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Key = `"same"` })}, []string{"r Failed: rules[0].key Pod shop/a and Pod shop/b have the same key; return a unique string for each item"}},
		"OtherItem": {[]v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
			r.ForEach, r.Key, r.Actions[0].Object = "nodes.items", "item.metadata.name", `pods.items.filter(p, p.metadata.name == "b")[0]`
		})}, []string{"r Acted by n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := p("b", "guarded:no")
			if name == "Protected" {
				b = p("b", v1alpha1.ProtectKey+"=true", "guarded:yes")
			}
			in := over(t, cluster(tc.rules...), p("a"), b, p("c"))
			untraced := ComputePlan(t.Context(), in)
			in.Trace = itemtrace.NewTrace(types.UID("uid-b"))
			for range 2 { // a second plan begins with nothing
				traced := ComputePlan(t.Context(), in)
				if diff := cmp.Diff(shorts(untraced.Steps), shorts(traced.Steps)); diff != "" || untraced.Reason != traced.Reason {
					t.Errorf("the trace changes the plan: -without +with\n%s", diff)
				}
				var got []string
				for _, e := range in.Trace.ListEntries() {
					got = append(got, describeEntry(e))
					if hasParts := len(e.Parts) > 0; hasParts != (tc.rules[0].When != "true" && !e.ByAction) && name != "Protected" {
						t.Errorf("%s: parts of when: %v", describeEntry(e), e.Parts)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			}
		})
	}
}

// TestTraceOfNoRule shows that nothing is left of an earlier plan where no rule is evaluated.
func TestTraceOfNoRule(t *testing.T) {
	in := over(t, cluster(rule()), p("b"))
	in.Trace = itemtrace.NewTrace(types.UID("uid-b"))
	ComputePlan(t.Context(), in)
	if n := len(in.Trace.ListEntries()); n != 1 {
		t.Fatalf("%d entries", n)
	}
	in.Snapshot[0].State, in.Snapshot[0].Detail = observed.Failed, "no answer"
	if p := ComputePlan(t.Context(), in); p.RulesEvaluated || len(in.Trace.ListEntries()) > 0 {
		t.Errorf("rules are evaluated: %t, and the trace has %v", p.RulesEvaluated, in.Trace.ListEntries())
	}
}

// TestTraceIsBounded has more items about one object than a trace has room for.
func TestTraceIsBounded(t *testing.T) {
	in := over(t, cluster(rule(func(r *v1alpha1.Rule) {
		r.ForEach, r.Key, r.Actions[0].Object = "lists.range(300)", "string(item)", "pods.items[0]"
	})), p("b"))
	in.Trace = itemtrace.NewTrace(types.UID("uid-b"))
	ComputePlan(t.Context(), in)
	if n := len(in.Trace.ListEntries()); n == 0 || n > 200 {
		t.Errorf("%d entries", n)
	}
}
