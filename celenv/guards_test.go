// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

func TestWarnings(t *testing.T) {
	cases := map[string]struct {
		expression string
		want       []string // the hints
	}{
		"Annotation":        {`svc.metadata.annotations["a/b"] == ""`, []string{`write svc.metadata.?annotations[?"a/b"].orValue("")`}},
		"Label as a field":  {`svc.metadata.labels.app == ""`, []string{`write svc.metadata.?labels[?"app"].orValue("")`}},
		"Label of an item":  {`revisions.items.all(r, r.metadata.labels["a"] == "")`, []string{`write r.metadata.?labels[?"a"].orValue("")`}},
		"Key in a variable": {`svc.metadata.labels[params.key] == ""`, []string{`write svc.metadata.?labels[?params.key].orValue("")`}},
		"Split":             {`svc.metadata.annotations["a"].split(",").size() == 1`, []string{`write svc.metadata.?annotations[?"a"].orValue("")`}},
		"Of a template":     {`svc.spec.template.metadata.labels["a"] == ""`, []string{`write svc.spec.template.metadata.?labels[?"a"].orValue("")`}},
		"Twice":             {`svc.metadata.labels.a == svc.metadata.labels.b`, []string{`write svc.metadata.?labels[?"a"].orValue("")`, `write svc.metadata.?labels[?"b"].orValue("")`}},
		"Optional index":    {`svc.metadata.labels[?"a"].orValue("") == ""`, nil},
		"Optional field":    {`svc.metadata.?labels["a"].orValue("") == ""`, nil},
		"Presence":          {`has(svc.metadata.labels.a)`, nil},
		"In":                {`"a" in svc.metadata.labels && svc.metadata.labels["a"] == ""`, nil},
		"In, as a field":    {`"a" in svc.metadata.labels && svc.metadata.labels.a == ""`, nil},
		"Has":               {`has(svc.metadata.labels.a) && (svc.x == 1 || svc.metadata.labels.a == "")`, nil},
		"Guard behind":      {`svc.metadata.labels.a == "" && has(svc.metadata.labels.a)`, nil},
		"Or":                {`!("a" in svc.metadata.labels) || svc.metadata.labels["a"] == ""`, nil},
		"Or, not and":       {`!("a" in svc.metadata.labels && svc.x) || svc.metadata.labels["a"] == ""`, nil},
		"Ternary":           {`"a" in svc.metadata.labels ? svc.metadata.labels["a"] == "" : false`, nil},
		"Ternary reversed":  {`!has(svc.metadata.labels.a) ? false : svc.metadata.labels["a"] == ""`, nil},
		"Guard in a loop":   {`revisions.items.exists(r, has(r.metadata.labels.a) && r.metadata.labels.a == "x")`, nil},
		"Wrong branch":      {`"a" in svc.metadata.labels ? false : svc.metadata.labels["a"] == ""`, []string{`write svc.metadata.?labels[?"a"].orValue("")`}},
		"Wrong key":         {`has(svc.metadata.labels.b) && svc.metadata.labels.a == ""`, []string{`write svc.metadata.?labels[?"a"].orValue("")`}},
		"Wrong operator":    {`has(svc.metadata.labels.a) || svc.metadata.labels.a == ""`, []string{`write svc.metadata.?labels[?"a"].orValue("")`}},
		"Wrong object":      {`revisions.items.exists(r, has(svc.metadata.labels.a) && r.metadata.labels.a == "")`, []string{`write r.metadata.?labels[?"a"].orValue("")`}},
		"Only the map":      {`has(svc.metadata.labels) && svc.metadata.labels.a == ""`, []string{`write svc.metadata.?labels[?"a"].orValue("")`}},
		"Other fields":      {`svc.status.labels["a"] == "" && svc.labels.b == ""`, nil},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var hints []string
			for _, w := range programs(t, c, tc.expression).Warnings() {
				hints = append(hints, w.Hint)
			}
			if diff := cmp.Diff(tc.want, hints); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
			}
		})
	}
}

// What refs gives are keys: a name is none of them, and a rule about what is in use nowhere would act on everything.
func TestNamesAmongKeys(t *testing.T) {
	for expression, want := range map[string]string{
		`!(p.metadata.name in refs([config], "Secret"))`:                                          "write key(p)",
		`p.metadata.name in refs([config], "Secret").toSet()`:                                     "write key(p)",
		`config.metadata.name in refs(pods, "Secret") + refs(config, "ConfigMap")`:                "write key(config)",
		`p.metadata.name in refs([config], "Secret").filter(k, k != "a")`:                         "write key(p)",
		`!(p.metadata.name in variables.used)`:                                                    "write key(p)",
		`!(p.metadata.name in variables.set)`:                                                     "write key(p)",
		`key(p) in refs([config], "Secret")`:                                                      "",
		`!(key(p) in variables.used) && !(p.metadata.name in variables.used)`:                     "",
		`p.metadata.name in podRefs(p.spec, "Secret")`:                                            "",
		`p.metadata.name in variables.names`:                                                      "",
		`p.metadata.name in refs([config], "Secret").map(k, k.split("/")[1])`:                     "",
		`p.metadata.namespace + "/" + p.metadata.name in refs([config], "Secret")`:                "",
		`p.metadata.name in refs([config], "Secret") + pods.items.map(q, q.metadata.name).sort()`: "",
	} {
		w := podWork([]string{`used: refs([pods], "Secret")`, "set: variables.used.toSet()", "names: pods.items.map(p, p.metadata.name)"})
		w.Conditions = []string{"pods.items.all(p, " + expression + ")"}
		got := ""
		for _, warning := range compileWork(t, budget.Limits{}, w).Warnings() {
			if !strings.HasPrefix(warning.Message, "refs gives keys, such as shop/settings: ") || warning.Path != "conditions[0]" || warning.Line != 1 || warning.Column < len("pods.items.all(") {
				t.Errorf("%s: %+v", expression, warning)
			}
			got += warning.Hint
		}
		if got != want {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

func TestWarningOfTheProposal(t *testing.T) {
	got := programs(t, newCompiler(t, budget.Limits{}), "true", proposal).Warnings()
	want := []expr.Warning{{
		Path: "conditions[1]", Line: 2, Column: 25,
		Message: `objects without "serving.knative.dev/routes" in r.metadata.annotations make this an error, and an error never deletes`,
		Snippet: "  |   r.metadata.annotations[\"serving.knative.dev/routes\"].split(\",\")\n" +
			"  |                         ^",
		Hint: `write r.metadata.?annotations[?"serving.knative.dev/routes"].orValue("")`,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A label that a target asks for is not warned of: in rules over its objects, and in loops over them.
func TestNoWarningOfSelectedLabels(t *testing.T) {
	w := podWork(nil, v1alpha1.Rule{
		Name: "r", ForEach: "pods.items.filter(p, p.metadata.labels.among != '')", When: "item.metadata.labels.there == '' && item.metadata.labels.not == ''",
		Unless: "pods.items.exists(p, p.metadata.labels.given == item.metadata.labels.gone)", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}},
	}, v1alpha1.Rule{
		Name: "both", ForEach: "pods.items + nodes.items", When: "item.metadata.labels.given == item.metadata.labels.there", Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}},
	})
	for i := range w.Targets {
		w.Targets[i].Reference.MatchLabels = map[string]string{"given": "x"}
		if w.Targets[i].Name == "pods" {
			w.Targets[i].Reference.MatchExpressions = []metav1.LabelSelectorRequirement{
				{Key: "there", Operator: metav1.LabelSelectorOpExists}, {Key: "among", Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}},
				{Key: "not", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}, {Key: "gone", Operator: metav1.LabelSelectorOpDoesNotExist},
			}
		}
	}
	var got []string
	for _, warning := range compileWork(t, budget.Limits{}, w).Warnings() {
		got = append(got, warning.Path+": "+warning.Hint)
	}
	want := []string{
		`rules[0].when: write item.metadata.?labels[?"not"].orValue("")`, `rules[0].unless: write item.metadata.?labels[?"gone"].orValue("")`,
		`rules[1].when: write item.metadata.?labels[?"there"].orValue("")`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What `when` tests needs no test in what is evaluated only for items for which it is true. groupBy with leave is evaluated for all items.
func TestWhenGuardsWhatFollows(t *testing.T) {
	const label = "item.metadata.labels.a"
	one := intstr.FromInt32(1)
	rule := func(when string, leave *intstr.IntOrString) v1alpha1.Rule {
		return v1alpha1.Rule{
			Name: "r", ForEach: "pods.items", When: when, Variables: variablesOf([]string{"v: " + label}), For: label, ForKey: label, GroupBy: label, Leave: leave,
			OrderBy: []v1alpha1.OrderBy{{Expression: label}}, Unless: label + " == ''", Key: label, Reason: label, Confirm: []v1alpha1.Confirm{{Target: "nodes", Name: label, Namespace: label}},
			Actions: []v1alpha1.RuleAction{
				{When: label + " == ''", Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: "{'a': object.metadata.labels.a}"}},
				{Object: "config", Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: "{'a': " + label + ", 'b': object.metadata.labels.a}"}},
			},
		}
	}
	all := []string{"for", "forKey", "groupBy", "orderBy[0].expression", "unless", "confirm[0].name", "confirm[0].namespace", "key", "reason", "actions[0].when", "actions[0].patch.expression", "actions[1].patch.expression", "actions[1].patch.expression"}
	for name, tc := range map[string]struct {
		rule v1alpha1.Rule
		want []string
	}{
		"Guarded":        {rule("has(item.metadata.labels.a) && item.metadata.name != 'b'", nil), []string{"actions[1].patch.expression"}},
		"GuardedByName":  {rule("'a' in object.metadata.labels", nil), []string{"actions[1].patch.expression"}},
		"GroupedForAll":  {rule("has(item.metadata.labels.a)", &one), []string{"groupBy", "actions[1].patch.expression"}},
		"Alternative":    {rule("has(item.metadata.labels.a) || item.metadata.name == 'b'", nil), all},
		"OfAnotherLabel": {rule("has(item.metadata.labels.b)", nil), all},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range compileWork(t, budget.Limits{}, podWork(nil, tc.rule)).Warnings() {
				got = append(got, strings.TrimPrefix(w.Path, "rules[0]."))
			}
			want := append([]string{"variables[0].expression"}, tc.want...) // a variable is also read before when is known
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What the `when` of an action tests is there for its object and its patch, and not for another action.
func TestWhenOfAnActionGuardsTheAction(t *testing.T) {
	const has, label = "has(item.metadata.labels.a)", "item.metadata.labels.a"
	patch := func(when, object, expression string) v1alpha1.RuleAction {
		return v1alpha1.RuleAction{When: when, Object: object, Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: expression}}
	}
	w := podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true", Actions: []v1alpha1.RuleAction{
		patch(has, "", "{'a': "+label+", 'b': object.metadata.labels.a}"), patch(has, label+" == '' ? config : item", "{'a': "+label+"}"), patch("", "", "{'a': "+label+"}"),
	}})
	var got []string
	for _, warning := range compileWork(t, budget.Limits{}, w).Warnings() {
		got = append(got, warning.Path)
	}
	if diff := cmp.Diff([]string{"rules[0].actions[2].patch.expression"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What the list of a rule is filtered by needs no test in what follows: the items have passed it.
func TestFiltersOfForEachGuardTheItem(t *testing.T) {
	const lookup = `item.metadata.annotations["x"] == "y"`
	hint := `rules[0].when: write item.metadata.?annotations[?"x"].orValue("")`
	for forEach, want := range map[string]string{
		`pods.items.filter(p, has(p.metadata.annotations) && "x" in p.metadata.annotations)`: "",
		`pods.items.filter(p, p.metadata.?annotations[?"x"].hasValue())`:                     "",
		`pods.items.filter(p, "x" in p.metadata.annotations).filter(q, q.spec.y)`:            "",
		`variables.pods.filter(p, "x" in p.metadata.annotations)`:                            "",
		`pods.items.filter(p, has(p.metadata.annotations))`:                                  hint,
		`pods.items.filter(p, "z" in p.metadata.annotations)`:                                hint,
		`pods.items.filter(p, "x" in p.metadata.annotations) + nodes.items`:                  hint,
	} {
		w := podWork([]string{"pods: pods.items"}, v1alpha1.Rule{Name: "r", ForEach: forEach, When: lookup})
		got := ""
		for _, warning := range compileWork(t, budget.Limits{}, w).Warnings() {
			got += warning.Path + ": " + warning.Hint
		}
		if got != want {
			t.Errorf("%s: %q, want %q", forEach, got, want)
		}
	}
}
