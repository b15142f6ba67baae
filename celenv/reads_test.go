// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
)

// What is depended on through variables counts.
func TestReadsSeeThroughVariables(t *testing.T) {
	w := podWork([]string{nodesByName, "indirect: variables.nodesByName.size()", "now: time"},
		orphaned(),
		v1alpha1.Rule{Name: "b", ForEach: "[1]", When: "variables.late", Variables: variablesOf([]string{"late: variables.now > timestamp('2025-01-01T00:00:00Z')"})},
		v1alpha1.Rule{Name: "c", ForEach: "[1]", When: "true", Actions: []v1alpha1.RuleAction{{Object: "config"}}},
	)
	w.Conditions = []string{"variables.indirect > 0", "config == null || has(pods.items)", "[pods].all(nodes, nodes.items.size() > 0 || .nodes.items.size() > 0)"}
	w.CloudEventData = "variables.indirect"
	p := compileWork(t, budget.Limits{}, w)
	got := map[string]any{
		"0": p.ListConditionTargets(0), "1": p.ListConditionTargets(1), "2": p.ListConditionTargets(2), "gate": collectTargets(p.conditions...), "data": collectTargets(p.data), "gate time": slices.ContainsFunc(p.conditions, readsTime),
	}
	for i := range 3 {
		got[fmt.Sprint("rule ", i)] = p.ListRuleTargets(i)
		got[fmt.Sprint("time ", i)] = slices.ContainsFunc(p.rules[i].listExpressions(), readsTime)
	}
	want := map[string]any{
		"0": []string{"nodes"}, "1": []string{"config", "pods"}, "2": []string{"nodes", "pods"}, "gate": []string{"config", "nodes", "pods"},
		"data": []string{"nodes"}, "gate time": false,
		"rule 0": []string{"nodes", "pods"}, "rule 1": []string(nil), "rule 2": []string{"config"}, "time 0": false, "time 1": true, "time 2": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func readsTime(x *expression) bool { return x != nil && x.readsTime }

func TestWhatARuleRestsOnIsProved(t *testing.T) {
	three := intstr.FromInt32(3)
	for name, tc := range map[string]struct {
		forEach, when, unless string
		change                func(*v1alpha1.Rule)
		confirm               []v1alpha1.Confirm
		want                  []string
	}{
		"Confirmed":               {"pods.items", "!(item.spec.nodeName in variables.nodesByName)", "", nil, []v1alpha1.Confirm{{Target: "nodes"}}, nil},
		"All confirmed":           {"pods.items", "!(item.spec.nodeName in variables.nodesByName) && config == null", "", nil, []v1alpha1.Confirm{{Target: "*"}}, nil},
		"Not confirmed":           {"pods.items", "true && !(item.spec.nodeName in variables.nodesByName)", "", nil, nil, []string{"nodes"}},
		"All, and kept":           {"pods.items", "nodes == null", "", func(r *v1alpha1.Rule) { r.Keep = &three }, []v1alpha1.Confirm{{Target: "*"}}, []string{"pods"}},
		"Another confirmed":       {"pods.items", "item.x in nodes.items && config == null", "", nil, []v1alpha1.Confirm{{Target: "config"}}, []string{"nodes"}},
		"Unless, once each":       {"pods.items", "nodes == null", "nodes == null || config == null", nil, nil, []string{"nodes", "config"}},
		"Own":                     {"pods.items", "pods.items.size() > 3", "", nil, nil, []string{"pods"}},
		"Own, confirmed":          {"pods.items", "pods.items.size() > 3", "", nil, []v1alpha1.Confirm{{Target: "pods"}}, nil},
		"Own, in the list":        {"pods.items.filter(p, pods.items.exists(q, q.x == p.y))", "true", "", nil, nil, []string{"pods"}},
		"Own, through variables":  {"variables.near", "true", "", nil, nil, []string{"pods"}},
		"Own, through a variable": {"pods.items", "variables.running.size() > 3", "", nil, nil, []string{"pods"}},
		"No join":                 {"pods.items.filter(p, has(p.x)).filter(p, has(p.y))", "true", "", nil, nil, nil},
		"A loop of that name":     {"pods.items.filter(pods, has(pods.x))", "true", "", nil, nil, nil},
		"In the list":             {"pods.items.filter(p, p.x in variables.nodesByName)", "true", "", nil, nil, []string{"nodes"}},
		"Bound":                   {"cel.bind(names, nodes.items.map(n, n.x), pods.items.filter(p, p.x in names))", "true", "", nil, nil, []string{"nodes", "pods"}},
		"A list in a variable":    {"variables.running", "has(item.x)", "", nil, nil, nil},
		"Rule's variable":         {"variables.running", "variables.own", "", nil, nil, []string{"config"}},
		"Several targets":         {"(pods.items + nodes.items).filter(x, has(x.x)) + pods.items.filter(x, !has(x.x))", "config == null", "", nil, nil, []string{"config", "pods"}},
		"Two targets":             {"(pods.items + nodes.items).filter(x, has(x.x))", "config == null", "", nil, nil, []string{"config"}},
		"Held against each other": {"pods.items + nodes.items", "item.x in nodes.items.map(n, n.x)", "", nil, nil, []string{"nodes"}},
		"Of no target":            {"params.list", "item in nodes.items", "", nil, nil, []string{"nodes"}},
		"Kept":                    {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.Keep = &three }, nil, []string{"pods"}},
		"Left":                    {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.Leave = &three }, nil, []string{"pods"}},
		"Grouped":                 {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.GroupBy = "item.x" }, nil, []string{"pods"}},
		"Grouped by another":      {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.GroupBy = "string(config)" }, nil, []string{"config", "pods"}},
		"Ordered by another":      {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.OrderBy = []v1alpha1.OrderBy{{Expression: "config"}} }, nil, []string{"config"}},
		"For":                     {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.For = "config.x" }, nil, []string{"config"}},
		"Action":                  {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.Actions[0].When = "config == null" }, nil, []string{"config"}},
		"Told":                    {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.Reason = "string(config)" }, nil, []string{"config"}},
		"For whom":                {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.For, r.ForKey = "1h", "string(config)" }, nil, []string{"config"}},
		"Key":                     {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.Key = "item.x" }, nil, []string{"pods"}},
		"Act on another":          {"pods.items", "true", "", func(r *v1alpha1.Rule) { r.Actions[0].Object = "config" }, nil, []string{"config", "pods"}},
		"Not as they are":         {"pods.items.map(p, p.x)", "true", "", func(r *v1alpha1.Rule) { r.Key = "item" }, nil, []string{"pods"}},
		"A part":                  {"pods.items.sortBy(p, p.x).slice(0, 1)", "true", "", nil, nil, []string{"pods"}},
		"Bound part":              {"cel.bind(l, pods.items, l.slice(0, l.size() - 1))", "true", "", nil, nil, []string{"pods"}},
		"If there are some":       {"pods.items.size() > 1 ? pods.items : []", "true", "", nil, nil, []string{"pods"}},
		"Changed on the way":      {"pods.items.map(p, has(p.x), p.y)", "true", "", func(r *v1alpha1.Rule) { r.Key = "'k'" }, nil, []string{"pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := v1alpha1.Rule{Name: "r", ForEach: tc.forEach, When: tc.when, Unless: tc.unless, Confirm: tc.confirm, Variables: variablesOf([]string{"own: config == null"}), Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}}
			if tc.change != nil {
				tc.change(&rule)
			}
			p := compileWork(t, budget.Limits{}, podWork([]string{nodesByName, "running: pods.items.filter(p, has(p.status))", "near: variables.running.filter(p, variables.running.exists(q, q.x == p.y))"}, rule))
			got := p.rules[0].unprovenTargets
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Two targets may have the same objects: what an earlier rule over one of them claims is not for a later rule over the other.
func TestRulesOverTargetsOfOneKind(t *testing.T) {
	of := func(name, group, kind string) v1alpha1.ClusterTarget {
		return v1alpha1.ClusterTarget{Name: name, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{APIGroup: group, Version: "v1", Kind: kind}}}
	}
	rule := func(name, forEach, when string) v1alpha1.Rule {
		return v1alpha1.Rule{Name: name, ForEach: forEach, When: when, Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}
	}
	every := of("every", "", v1alpha1.AnyKind)
	every.Reference.Version, every.Reference.MatchLabels = "", map[string]string{"a": "b"}
	for name, tc := range map[string]struct {
		later v1alpha1.ClusterTarget
		want  []string
	}{
		"SameKind":     {of("others", "", "Pod"), []string{"maps", "pods"}},
		"ByItsPlural":  {of("others", "", "pods"), []string{"maps", "pods"}},
		"AnyKind":      {every, []string{"maps", "pods"}},
		"AnotherKind":  {of("others", "", "ConfigMap"), nil},
		"AnotherGroup": {of("others", "apps", "Pod"), nil},
	} {
		work := &v1alpha1.Work{Cluster: true, Targets: []v1alpha1.ClusterTarget{of("pods", "", "Pod"), of("maps", "", "ConfigMap"), tc.later}}
		work.Lifecycle = v1alpha1.LifecycleRecurring
		work.Rules = []v1alpha1.Rule{rule("first", "pods.items", "maps.items.size() > 3"), rule("second", tc.later.Name+".items", "true")}
		if got := compileWork(t, budget.Limits{}, work).ListUnprovenTargets(1); !slices.Equal(got, tc.want) {
			t.Errorf("%s: it rests on %q, want %q", name, got, tc.want)
		}
	}
}

// With leave, what other rules delete decides too, wherever they stand; without it, what earlier rules claim whose objects may be the same.
func TestTargetsOfOtherRules(t *testing.T) {
	one := intstr.FromInt32(1)
	named := func(name, forEach, when string, leave *intstr.IntOrString) v1alpha1.Rule {
		return v1alpha1.Rule{Name: name, ForEach: forEach, When: when, Leave: leave, Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}
	}
	p := compileWork(t, budget.Limits{}, podWork(nil,
		named("left", "pods.items", "true", &one), named("plain", "pods.items", "config == null", nil), named("later", "pods.items", "true", nil), named("also", "nodes.items", "true", &one)))
	var got [][]string
	for _, r := range p.rules {
		got = append(got, r.unprovenTargets)
	}
	if diff := cmp.Diff([][]string{{"config", "pods"}, {"config"}, {"config"}, {"config", "nodes", "pods"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Unguarded lookups are warned of in all expressions of a rule, at their fields.
func TestRuleWarnings(t *testing.T) {
	const label = "item.metadata.labels.a"
	rule := v1alpha1.Rule{
		Name: "r", ForEach: "pods.items.filter(p, p.metadata.labels.a == '')", When: label + " == ''", Variables: variablesOf([]string{"v: " + label}), For: label, ForKey: label, GroupBy: label,
		OrderBy: []v1alpha1.OrderBy{{Expression: label}}, Unless: label + " == ''", Key: label, Reason: label, Confirm: []v1alpha1.Confirm{{Target: "nodes", Name: label, Namespace: label}},
		Actions: []v1alpha1.RuleAction{{When: label + " == ''", Object: label, Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: "{'a': object.metadata.labels.a}"}}},
	}
	var got []string
	for _, w := range compileWork(t, budget.Limits{}, podWork([]string{"v0: config.metadata.labels.a"}, rule)).Warnings() {
		got = append(got, w.FieldPath())
	}
	want := []string{
		"spec.variables[0].expression", "spec.rules[0].forEach", "spec.rules[0].variables[0].expression", "spec.rules[0].when", "spec.rules[0].for", "spec.rules[0].forKey",
		"spec.rules[0].groupBy", "spec.rules[0].orderBy[0].expression", "spec.rules[0].unless", "spec.rules[0].confirm[0].name", "spec.rules[0].confirm[0].namespace",
		"spec.rules[0].key", "spec.rules[0].reason", "spec.rules[0].actions[0].when", "spec.rules[0].actions[0].object", "spec.rules[0].actions[0].patch.expression",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
