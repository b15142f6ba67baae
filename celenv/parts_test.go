// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/parts"
)

// describeParts writes parts as a reader sees them.
func describeParts(all []parts.Part) []string {
	var out []string
	for _, p := range all {
		value := p.Value
		switch {
		case p.NotNeeded:
			value = "not needed"
		case p.Failed:
			value = "error: " + value
		}
		out = append(out, fmt.Sprintf("%s%s %s => %s", strings.Repeat(" ", p.Depth), p.Of, p.Expression, value))
	}
	return out
}

func TestListWhenParts(t *testing.T) {
	gone := "gone: object.spec.nodeName"
	for name, tc := range map[string]struct {
		when      string
		variables []string
		want      []string
	}{
		"And": {`item.status.phase == "Failed" && age(item) > parseDuration("2h") && has(item.spec.x)`, nil, []string{
			`when item.status.phase == "Failed" && age(item) > parseDuration("2h") && has(item.spec.x) => false`,
			` when item.status.phase == "Failed" => true`,
			`  when item.status.phase => "Failed"`,
			` when age(item) > parseDuration("2h") => false`,
			`  when age(item) => 1h0m0s`,
			`  when parseDuration("2h") => 2h0m0s`,
			` when has(item.spec.x) => not needed`,
		}},
		"NotAndOptional": {`!controller(item).hasValue() || item.?status.reason.orValue("") == "Evicted"`, nil, []string{
			`when !controller(item).hasValue() || item.?status.reason.orValue("") == "Evicted" => true`,
			` when !controller(item).hasValue() => true`,
			`  when controller(item).hasValue() => false`,
			`   when controller(item) => optional.none()`,
			` when item.?status.reason.orValue("") == "Evicted" => not needed`,
		}},
		"LoopAndList": {`nodes.items.exists(n, n.metadata.name == item.spec.nodeName)`, nil, []string{
			`when nodes.items.exists(n, n.metadata.name == item.spec.nodeName) => false`,
			` when nodes.items => a list of 2`,
		}},
		"LoopOfLoop": {`nodes.items.filter(n, n.metadata.name != "").exists(n, n.metadata.name == item.spec.nodeName)`, nil, []string{
			`when nodes.items.filter(n, n.metadata.name != "").exists(n, n.metadata.name == item.spec.nodeName) => false`,
			` when nodes.items.filter(n, n.metadata.name != "") => a list of 2`,
			`  when nodes.items => a list of 2`,
		}},
		"Choice": {`config == null ? item.metadata.name in ["d", "e"] : false`, nil, []string{
			`when (config == null) ? (item.metadata.name in ["d", "e"]) : false => true`,
			` when config == null => true`,
			` when item.metadata.name in ["d", "e"] => true`,
			`  when item.metadata.name => "d"`,
		}},
		"Variables": {`!(variables.node in variables.nodesByName) && variables.old`, []string{"node: object.spec.nodeName", "old: age(object) > duration(\"30m\")", "unread: object.spec.x"}, []string{
			`when !(variables.node in variables.nodesByName) && variables.old => true`,
			` when !(variables.node in variables.nodesByName) => true`,
			`  when variables.node in variables.nodesByName => false`,
			`   when variables.node => "gone"`,
			`   when variables.nodesByName => a map with 2 keys`,
			` when variables.old => true`,
			`variables.node object.spec.nodeName => "gone"`,
			`variables.nodesByName nodes.items.indexBy(n, n.metadata.name) => a map with 2 keys`,
			` variables.nodesByName nodes.items => a list of 2`,
			`variables.old age(object) > duration("30m") => true`,
			` variables.old age(object) => 1h0m0s`,
			` variables.old duration("30m") => 30m0s`,
		}},
		"UnreadVariables": {`false && variables.gone == ""`, []string{gone}, []string{
			`when false && variables.gone == "" => false`,
			` when variables.gone == "" => not needed`,
		}},
		"Error": {`item.status.reason == "x"`, nil, []string{
			`when item.status.reason == "x" => error: no such key: reason`,
			` when item.status.reason => error: no such key: reason`,
		}},
		"Bind": {`cel.bind(n, item.spec.nodeName, n == "gone")`, nil, []string{`when cel.bind(n, item.spec.nodeName, n == "gone") => true`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := podWork([]string{nodesByName}, v1alpha1.Rule{
				Name: "r", ForEach: "pods.items", When: tc.when, Variables: variablesOf(tc.variables), Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}},
			})
			e := begin(t, compileWork(t, budget.Limits{}, w), podInput())
			item := items(t, e.SelectRule(0))[3]
			before, problem := item.EvaluateWhen()
			for range 2 { // the second time with the explanation already made
				if diff := cmp.Diff(tc.want, describeParts(item.ListWhenParts())); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			}
			if after, again := item.EvaluateWhen(); after != before || (again == nil) != (problem == nil) {
				t.Errorf("explaining changes the result: %v, %v before, %v, %v after", before, problem, after, again)
			}
		})
	}
}

// TestPartsAreBounded lists the parts of long expressions about large values.
func TestPartsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 4000)
	var terms []string
	for i := range 200 {
		terms = append(terms, fmt.Sprintf("item.metadata.name != %q", fmt.Sprintf("%s%d", long[:50], i)))
	}
	for name, when := range map[string]string{
		"Terms": strings.Join(terms, " && "),
		"Text":  fmt.Sprintf("(item.metadata.name + %q).size() > 0", long),
		"Deep":  strings.Repeat("!(", 60) + "item.status.phase == 'x'" + strings.Repeat(")", 60),
		"Value": `pods.items.map(p, p.metadata.name + "` + long[:1000] + `") != []`,
	} {
		t.Run(name, func(t *testing.T) {
			w := podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: when, Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}})
			e := begin(t, compileWork(t, budget.Limits{}, w), podInput())
			all := items(t, e.SelectRule(0))[0].ListWhenParts()
			if len(all) == 0 || len(all) > 64 {
				t.Errorf("%d parts are listed", len(all))
			}
			for _, p := range all {
				if len(p.Expression) > 210 || len(p.Value) > 130 {
					t.Errorf("a part has %d bytes, and its value %d", len(p.Expression), len(p.Value))
				}
			}
		})
	}
}
