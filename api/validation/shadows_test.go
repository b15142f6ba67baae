// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

func TestShadows(t *testing.T) {
	deletes := []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}
	patches := []v1alpha1.RuleAction{{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: "{}"}}}
	base := func() (earlier, later v1alpha1.Rule) {
		return v1alpha1.Rule{Name: "remove", ForEach: "pods.items", When: `item.x == "a b"`, Actions: deletes},
			v1alpha1.Rule{Name: "warn", ForEach: "pods.items", When: `item.x == "a b"`, Actions: patches}
	}
	for name, tc := range map[string]struct {
		change func(earlier, later *v1alpha1.Rule)
		warns  bool
	}{
		"Same": {func(*v1alpha1.Rule, *v1alpha1.Rule) {}, true},
		"All":  {func(e, _ *v1alpha1.Rule) { e.When = " true " }, true},
		"MoreTerms": {func(e, l *v1alpha1.Rule) {
			e.When, l.When = "a && b.exists(x, x || y)", "c && b.exists(x, x || y) &&\n a"
		}, true},
		"Optional": {func(e, l *v1alpha1.Rule) { e.When, l.When = "item.?x.hasValue()", "item.?x.hasValue() && b" }, true},
		"Shorter":  {func(e, l *v1alpha1.Rule) { e.For, l.For = "4d", "5d" }, true},
		"SameLong": {func(e, l *v1alpha1.Rule) { e.For, l.For = "params.x", "params.x" }, true},
		"AtOnce":   {func(_, l *v1alpha1.Rule) { l.For = "params.x" }, true},
		"Spaces":   {func(_, l *v1alpha1.Rule) { l.ForEach = " pods.items\n" }, true},
		"Variables": {func(e, l *v1alpha1.Rule) {
			e.Variables = []v1alpha1.Variable{{Name: "v", Expression: "1"}}
			l.Variables = slices.Clone(e.Variables)
		}, true},
		"BothDelete":  {func(_, l *v1alpha1.Rule) { l.Actions = deletes }, true},
		"FewerTerms":  {func(e, l *v1alpha1.Rule) { e.When, l.When = "a && b", "a" }, false},
		"Or":          {func(e, l *v1alpha1.Rule) { e.When, l.When = "a", "a && b || c" }, false},
		"Choice":      {func(e, l *v1alpha1.Rule) { e.When, l.When = "a", "b ? c : d && a" }, false},
		"Quoted":      {func(e, l *v1alpha1.Rule) { e.When, l.When = `a`, `x == "b && a && c"` }, false},
		"QuotedSpace": {func(_, l *v1alpha1.Rule) { l.When = `item.x == "a  b"` }, false},
		"Comment":     {func(e, l *v1alpha1.Rule) { e.When, l.When = "a", "b // && a && c" }, false},
		"Escaped":     {func(e, l *v1alpha1.Rule) { e.When, l.When = "a", `b == "\" && a && c == "` }, false},
		"Longer":      {func(e, l *v1alpha1.Rule) { e.For, l.For = "5d", "4d" }, false},
		"Unknown":     {func(e, l *v1alpha1.Rule) { e.For, l.For = "params.x", "5d" }, false},
		"ForKey":      {func(e, l *v1alpha1.Rule) { e.For, e.ForKey, l.For = "4d", "item.node", "5d" }, false},
		"Keep":        {func(e, _ *v1alpha1.Rule) { e.Keep = new(intstr.FromInt32(1)) }, false},
		"Unless":      {func(e, _ *v1alpha1.Rule) { e.Unless = "a" }, false},
		"ActionWhen": {func(e, _ *v1alpha1.Rule) {
			e.Actions = []v1alpha1.RuleAction{{When: "a", Delete: &v1alpha1.DeleteAction{}}}
		}, false},
		"Object": {func(e, _ *v1alpha1.Rule) {
			e.Actions = []v1alpha1.RuleAction{{Object: "a", Delete: &v1alpha1.DeleteAction{}}}
		}, false},
		"LaterObject": {func(_, l *v1alpha1.Rule) {
			l.Actions = []v1alpha1.RuleAction{{Object: "a", Delete: &v1alpha1.DeleteAction{}}}
		}, false},
		"Patch":  {func(e, _ *v1alpha1.Rule) { e.Actions = patches }, false},
		"Report": {func(_, l *v1alpha1.Rule) { l.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}} }, false},
		"Force": {func(_, l *v1alpha1.Rule) {
			l.Actions = []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{GracePeriodSeconds: new(int64)}}}
		}, false},
		"Finalizer": {func(_, l *v1alpha1.Rule) {
			l.Actions = []v1alpha1.RuleAction{{RemoveFinalizer: &v1alpha1.RemoveFinalizerAction{Name: "x"}}}
		}, false},
		"Terminating": {func(_, l *v1alpha1.Rule) { l.When += " && has(item.metadata.deletionTimestamp)" }, false},
		"OtherItems":  {func(_, l *v1alpha1.Rule) { l.ForEach = "jobs.items" }, false},
		"OtherValues": {func(e, _ *v1alpha1.Rule) { e.Variables = []v1alpha1.Variable{{Name: "v", Expression: "1"}} }, false},
		"Confirm":     {func(e, _ *v1alpha1.Rule) { e.Confirm = []v1alpha1.Confirm{{Target: "pods"}} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			earlier, later := base()
			tc.change(&earlier, &later)
			var f Findings
			checkShadows(&f, []v1alpha1.Rule{earlier, later}, field.NewPath("spec", "rules"))
			if (len(f) == 1) != tc.warns || len(f) > 1 {
				t.Fatalf("warnings are %v", f)
			}
			if tc.warns && (f[0].Path != "spec.rules[1]" || f[0].Severity != Warning || !strings.Contains(f[0].Message, `rule "remove"`)) {
				t.Errorf("the warning is %v", f[0])
			}
			f = nil
			if checkShadows(&f, []v1alpha1.Rule{later, earlier}, field.NewPath("spec", "rules")); name == "Same" && len(f) > 0 {
				t.Errorf("in the other order warnings are %v", f)
			}
		})
	}
}

// Many rules with long expressions are compared in a moment, and each is warned about once.
func TestShadowsOfManyRules(t *testing.T) {
	when := strings.TrimSuffix(strings.Repeat("a && ", 3000), " && ")
	var rules []v1alpha1.Rule
	for range maxRules {
		rules = append(rules, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: when, Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}})
	}
	var f Findings
	began := time.Now()
	checkShadows(&f, rules, field.NewPath("spec", "rules"))
	if took := time.Since(began); len(f) != maxRules-1 || took > 5*time.Second {
		t.Errorf("%d warnings after %s", len(f), took)
	}
}
