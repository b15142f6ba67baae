// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/resulttype"
)

// podWork is a spec with the targets "pods", "nodes" and "config", these variables, each as "name: expression", and rules.
func podWork(variables []string, rules ...v1alpha1.Rule) *v1alpha1.Work {
	return &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Variables: variablesOf(variables), Rules: rules},
		Targets:    []v1alpha1.ClusterTarget{{Name: "pods"}, {Name: "nodes"}, {Name: "config"}},
	}
}

func variablesOf(texts []string) []v1alpha1.Variable {
	var all []v1alpha1.Variable
	for _, text := range texts {
		name, expression, _ := strings.Cut(text, ": ")
		all = append(all, v1alpha1.Variable{Name: name, Expression: expression})
	}
	return all
}

func pod(name, node, phase string) map[string]any {
	p := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": "ns", "uid": "uid-" + name, "creationTimestamp": "2025-01-01T00:00:00Z"},
		"spec":     map[string]any{}, "status": map[string]any{"phase": phase},
	}
	if node != "" {
		p["spec"].(map[string]any)["nodeName"] = node
	}
	return p
}

func clusterNode(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}
}

func podInput() Input {
	return Input{
		Time:   at("2025-01-01T01:00:00Z"),
		Params: map[string]any{"quarantine": 40 * time.Second, "keep": int64(2)},
		Targets: map[string]any{
			"pods":   list(pod("a", "n1", "Running"), pod("b", "gone", "Running"), pod("c", "", "Pending"), pod("d", "gone", "Failed")),
			"nodes":  list(clusterNode("n1"), clusterNode("n2")),
			"config": nil,
		},
	}
}

// orphaned is the rule about Pods whose Node is gone.
func orphaned() v1alpha1.Rule {
	return v1alpha1.Rule{
		Name: "orphaned", ForEach: "pods.items",
		When:    "has(item.spec.nodeName) && !(item.spec.nodeName in variables.nodesByName)",
		For:     "params.quarantine",
		ForKey:  "item.spec.nodeName",
		Confirm: []v1alpha1.Confirm{{Target: "nodes", Name: "item.spec.nodeName"}},
		Reason:  `"node " + item.spec.nodeName + " no longer exists"`,
		Actions: []v1alpha1.RuleAction{
			{
				When:  `!(item.status.phase in ["Succeeded", "Failed"])`,
				Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchStrategic, Subresource: "status", Expression: `{"status": {"phase": "Failed"}}`},
			},
			{Delete: &v1alpha1.DeleteAction{}},
		},
	}
}

const nodesByName = "nodesByName: nodes.items.indexBy(n, n.metadata.name)"

func compileWork(t testing.TB, limits budget.Limits, w *v1alpha1.Work) *Programs {
	t.Helper()
	p, errs := newCompiler(t, limits).Compile(t.Context(), w)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

func begin(t testing.TB, p *Programs, in Input) *Evaluation {
	t.Helper()
	e, problem := p.BeginEvaluation(t.Context(), in)
	if problem != nil {
		t.Fatal(problem)
	}
	t.Cleanup(e.Close)
	return e
}

func items(t testing.TB, r *RuleEvaluation) []*Item {
	t.Helper()
	found, problem := r.EvaluateItems()
	if problem != nil {
		t.Fatal(problem)
	}
	return listItems(found)
}

func listItems(l ItemList) (all []*Item) {
	for place := range l.CountItems() {
		all = append(all, l.MakeItem(place))
	}
	return all
}

// must is the value of a call that must not fail.
func must[T any](t testing.TB) func(T, *expr.Error) T {
	return func(value T, problem *expr.Error) T {
		t.Helper()
		if problem != nil {
			t.Fatal(problem)
		}
		return value
	}
}

func TestOrphaned(t *testing.T) {
	in := podInput()
	r := begin(t, compileWork(t, budget.Limits{}, podWork([]string{nodesByName}, orphaned())), in).SelectRule(0)
	var wanted []string
	for i, item := range items(t, r) {
		object := item.AsObject()
		if want := in.Targets["pods"].(map[string]any)["items"].([]any)[i].(map[string]any); fmt.Sprintf("%p", object) != fmt.Sprintf("%p", want) {
			t.Error("the object is not the very map of the input")
		}
		if !must[bool](t)(item.EvaluateWhen()) {
			continue
		}
		names, namespace, problem := item.EvaluateConfirm(0)
		if problem != nil {
			t.Fatal(problem)
		}
		wanted = append(wanted, fmt.Sprint(object["metadata"].(map[string]any)["name"], " ", must[time.Duration](t)(item.EvaluateFor()), " ", must[string](t)(item.EvaluateForKey()),
			" ", names, namespace, " ", must[string](t)(item.EvaluateReason()), " ", must[bool](t)(item.EvaluateActionWhen(0)), must[bool](t)(item.EvaluateActionWhen(1)),
			must[string](t)(item.EvaluateKey()), must[string](t)(item.EvaluateGroup()), must[bool](t)(item.EvaluateUnless())))
	}
	want := []string{
		"b 40s gone [gone] node gone no longer exists true truefalse",
		"d 40s gone [gone] node gone no longer exists false truefalse",
	}
	if diff := cmp.Diff(want, wanted); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.ConfirmsAll(0) {
		t.Error("an entry with a name reads the whole target")
	}
}

// Each row of a rule is an expression about the second Pod, and what it gives.
func TestItemAnswers(t *testing.T) {
	keep, leave := intstr.FromString("items.size() - params.keep"), intstr.FromString("items.size() - 1")
	rule := v1alpha1.Rule{
		Name: "r", ForEach: "pods.items", When: "variables.name == 'b' && object == item",
		Variables: variablesOf([]string{"name: item.metadata.name", "twice: variables.name + variables.name"}),
		For:       `"1d"`, ForKey: "variables.twice", Key: `key(item) + "/" + variables.shared`, GroupBy: `{"node": item.spec.?nodeName.orValue(""), "n": 1.0}`,
		OrderBy: []v1alpha1.OrderBy{{Expression: "item.status.phase", Descending: true}, {Expression: "item.metadata.name"}},
		Keep:    &keep, Leave: &leave, Unless: `item.metadata.name == "b"`, Reason: `"because"`,
		Confirm: []v1alpha1.Confirm{{Target: "nodes", Name: `["x", "", "y", "x"]`, Namespace: "item.metadata.namespace"}, {Target: "nodes"}, {Target: "nodes", Name: `""`, Namespace: `""`}},
		Actions: []v1alpha1.RuleAction{
			{Object: `nodes.items[0]`, Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"spec": {"by": items.map(i, i.metadata.name), "of": object.metadata.name, "n": 18446744073709551615u}}`}},
			{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchJSON, Expression: `[{"op": "test", "path": "/x", "value": variables.twice}]`}},
		},
	}
	e := begin(t, compileWork(t, budget.Limits{}, podWork([]string{`shared: "s"`}, rule)), podInput())
	r := e.SelectRule(0)
	all := items(t, r)
	b := all[1]
	got := map[string]any{
		"when": must[bool](t)(b.EvaluateWhen()), "for": must[time.Duration](t)(b.EvaluateFor()), "forKey": must[string](t)(b.EvaluateForKey()), "key": must[string](t)(b.EvaluateKey()),
		"group": must[string](t)(b.EvaluateGroup()), "unless": must[bool](t)(b.EvaluateUnless()), "keep": must[int](t)(r.EvaluateKeep(all)), "leave": must[int](t)(r.EvaluateLeave(all)),
		"patch one": must[any](t)(r.EvaluatePatch(1, b.AsObject(), all[1:2])), "patch all": must[any](t)(r.EvaluatePatch(0, clusterNode("x"), all)),
		"object": must[map[string]any](t)(b.EvaluateActionObject(0)), "object of the item": must[map[string]any](t)(b.EvaluateActionObject(1)),
	}
	want := map[string]any{
		"when": true, "for": 24 * time.Hour, "forKey": "bb", "key": "ns/b/s", "group": `{"n":1,"node":"gone"}`, "unless": true, "keep": 2, "leave": 3,
		"patch one": []any{map[string]any{"op": "test", "path": "/x", "value": "bb"}},
		"patch all": map[string]any{"spec": map[string]any{"by": []any{"a", "b", "c", "d"}, "of": "x", "n": json.Number("18446744073709551615")}},
		"object":    clusterNode("n1"), "object of the item": pod("b", "gone", "Running"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for entry, want := range []string{"[x y] ns false", "[]  true", "[]  false"} {
		names, namespace, problem := b.EvaluateConfirm(entry)
		if got := fmt.Sprint(names, " ", namespace, " ", r.ConfirmsAll(entry)); problem != nil || got != want {
			t.Errorf("entry %d: got %s, %v; want %s", entry, got, problem, want)
		}
	}
	slices.SortFunc(all, func(x, y *Item) int {
		return must[int](t)(r.CompareOrders(must[Order](t)(x.EvaluateOrder()), must[Order](t)(y.EvaluateOrder())))
	})
	var order string
	for _, item := range all {
		order += item.AsObject()["metadata"].(map[string]any)["name"].(string)
	}
	if order != "abcd" {
		t.Errorf("the order is %s", order)
	}
}

// What is wrong with a rule is said at its field, in the words of that field.
func TestRuleCompileErrors(t *testing.T) {
	keep := intstr.FromString(`"3"`)
	negative := intstr.FromInt32(-1)
	ofOne := intstr.FromString("item.x")
	ownInGroup := intstr.FromString("variables.own")
	cases := map[string]struct {
		change func(*v1alpha1.Rule)
		want   string // the field and the detail's beginning
	}{
		"forEach, a map":   {func(r *v1alpha1.Rule) { r.ForEach = "{}" }, `spec.rules[0].forEach: 1:1: forEach must be a list, and this is of type map(`},
		"forEach, an item": {func(r *v1alpha1.Rule) { r.ForEach = "[item]" }, `spec.rules[0].forEach: 1:2: item cannot be read here`},
		"when, a string":   {func(r *v1alpha1.Rule) { r.When = `"x"` }, `spec.rules[0].when: 1:1: when must be true or false, and this is of type string; compare it with something`},
		"when, unknown":    {func(r *v1alpha1.Rule) { r.When = "itme.x" }, `spec.rules[0].when: 1:1: there is no target or variable "itme"; did you mean "item"?` + "\n  | itme.x\n  | ^"},
		"when, items":      {func(r *v1alpha1.Rule) { r.When = "items.size() > 0" }, `spec.rules[0].when: 1:1: items cannot be read here: only keep, leave and patch.expression`},
		"for, a number":    {func(r *v1alpha1.Rule) { r.For = "40" }, "spec.rules[0].for: 1:1: for must be a duration, or a string such as \"40s\", and this is of type int; a number has no unit: write seconds(x)"},
		"for, too long":    {func(r *v1alpha1.Rule) { r.For = "1000000d" }, `spec.rules[0].for: "1000000d"`},
		"forKey, an int":   {func(r *v1alpha1.Rule) { r.ForKey = "1" }, "spec.rules[0].forKey: 1:1: forKey must be a string, and this is of type int; wrap in string()"},
		"groupBy, type":    {func(r *v1alpha1.Rule) { r.GroupBy = "type(1)" }, "spec.rules[0].groupBy: 1:1: groupBy must be a value that JSON can hold, and this is of type type(int)"},
		"orderBy, a list":  {func(r *v1alpha1.Rule) { r.OrderBy = []v1alpha1.OrderBy{{Expression: "[1]"}} }, "spec.rules[0].orderBy[0].expression: 1:1: orderBy must be a string, a number, a bool, a timestamp or a duration, and this is of type list(int)"},
		"keep, a string":   {func(r *v1alpha1.Rule) { r.Keep = &keep }, "spec.rules[0].keep: 1:1: keep must be a whole number, and this is of type string; wrap in int()"},
		"keep, negative":   {func(r *v1alpha1.Rule) { r.Keep = &negative }, "spec.rules[0].keep: must not be negative"},
		"keep, an item":    {func(r *v1alpha1.Rule) { r.Keep = &ofOne }, "spec.rules[0].keep: 1:1: item cannot be read here: keep is about a whole group: ask items"},
		"leave, a string":  {func(r *v1alpha1.Rule) { r.Leave = &keep }, "spec.rules[0].leave: 1:1: leave must be a whole number, and this is of type string; wrap in int()"},
		"leave, negative":  {func(r *v1alpha1.Rule) { r.Leave = &negative }, "spec.rules[0].leave: must not be negative"},
		"leave, an item":   {func(r *v1alpha1.Rule) { r.Leave = &ofOne }, "spec.rules[0].leave: 1:1: item cannot be read here: leave is about a whole group: ask items"},
		"keep, a variable": {func(r *v1alpha1.Rule) { r.Keep = &ownInGroup }, "spec.rules[0].keep: 1:11: variables.own cannot be read here: it is a variable of a rule"},
		"unless":           {func(r *v1alpha1.Rule) { r.Unless = "1" }, "spec.rules[0].unless: 1:1: unless must be"},
		"confirm, a word":  {func(r *v1alpha1.Rule) { r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "quux"}} }, `spec.rules[0].confirm[0].name: 1:1: there is no target or variable "quux"`},
		"confirm, an int": {func(r *v1alpha1.Rule) {
			r.Confirm = []v1alpha1.Confirm{{Target: "nodes"}, {Target: "nodes", Name: "1"}}
		}, `spec.rules[0].confirm[1].name: 1:1: name must be a string, or a list of strings, and this is of type int`},
		"namespace": {func(r *v1alpha1.Rule) {
			r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "'x'", Namespace: "[]"}}
		}, `spec.rules[0].confirm[0].namespace: 1:1: namespace must be a string`},
		"key":             {func(r *v1alpha1.Rule) { r.Key = "item.?x" }, "spec.rules[0].key: 1:5: key must be a string, and this is of type optional_type(dyn); add .orValue(...)"},
		"reason":          {func(r *v1alpha1.Rule) { r.Reason = "age(item)" }, "spec.rules[0].reason: 1:4: reason must be a string, and this is of type duration; wrap in string()"},
		"action's when":   {func(r *v1alpha1.Rule) { r.Actions[0].When = "1" }, "spec.rules[0].actions[0].when: 1:1: when must be true or false"},
		"action's object": {func(r *v1alpha1.Rule) { r.Actions[0].Object = "'x'" }, "spec.rules[0].actions[0].object: 1:1: object must be an object of a target, and this is of type string"},
		"patch, a list":   {func(r *v1alpha1.Rule) { r.Actions[1].Patch.Expression = "[]" }, "spec.rules[0].actions[1].patch.expression: 1:1: the patch must be a map, and this is of type list(dyn); a list of operations is a patch of type: JSON"},
		"patch, JSON": {func(r *v1alpha1.Rule) {
			r.Actions[1].Patch.Type, r.Actions[1].Patch.Expression = v1alpha1.PatchJSON, "{}"
		},
			"spec.rules[0].actions[1].patch.expression: 1:1: the patch must be a list of {op, path, value}, as its type is JSON, and this is of type map("},
		"variable": {func(r *v1alpha1.Rule) { r.Variables[0].Expression = "itm" }, `spec.rules[0].variables[0].expression: 1:1: there is no target or variable "itm"; did you mean "item"?`},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rule := v1alpha1.Rule{
				Name: "r", ForEach: "pods.items", When: "true", Variables: variablesOf([]string{"own: item.metadata.name"}),
				Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}, {Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: "{}"}}},
			}
			tc.change(&rule)
			p, errs := c.Compile(t.Context(), podWork(nil, rule))
			if p != nil || len(errs) != 1 {
				t.Fatalf("got %v", errs)
			}
			if got := errs[0].Field + ": " + errs[0].Detail; !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// An error of an item names the field and the place, and is no other item's.
func TestItemErrors(t *testing.T) {
	bad := intstr.FromString("items.size() - 100")
	rule := v1alpha1.Rule{
		Name: "r", ForEach: "pods.items + [1, {'name': 'x'}, params.wait]", When: "item.spec.nodeName == 'gone' || variables.name == ''",
		Variables: variablesOf([]string{"name: item.metadata.nam"}),
		For:       "dyn(item)", ForKey: "dyn(item.metadata.uid) + dyn(1)", GroupBy: "[[item], optional.of(1)]", OrderBy: []v1alpha1.OrderBy{{Expression: "dyn(item)"}}, Keep: &bad,
		Unless: "object.kind == 'Pod'", Key: "item.metadata.labels.a", Reason: "dyn(1)",
		Confirm: []v1alpha1.Confirm{{Target: "nodes", Name: "['a', 1]"}, {Target: "nodes", Name: "'a'", Namespace: "''"}},
		Actions: []v1alpha1.RuleAction{
			{When: "1 / 0 == 1", Object: "{'kind': 'Pod'}", Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: "{'a': item.metadata.name + variables.name}"}},
			{Delete: &v1alpha1.DeleteAction{}},
			{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: "{'a': optional.of(object.metadata.name)}"}},
		},
	}
	in := podInput()
	in.Params["wait"] = time.Minute
	r := begin(t, compileWork(t, budget.Limits{}, podWork(nil, rule)), in).SelectRule(0)
	all := items(t, r)
	b, pending, number, record, wait := all[1], all[2], all[4], all[5], all[6]
	problem := func(_ any, p *expr.Error) *expr.Error { return p }
	_, _, confirm0 := b.EvaluateConfirm(0)
	_, _, confirm1 := b.EvaluateConfirm(1)
	cases := map[string]struct {
		got  *expr.Error
		want string
	}{
		"when":               {problem(pending.EvaluateWhen()), "rules[0].when at 1:11: no such key: nodeName on item (ns/c); test has(item.spec.nodeName) first, or write item.spec.?nodeName and .orValue(...) at the end"},
		"when, of no object": {problem(number.EvaluateWhen()), "rules[0].when at 1:6: no such key: spec; test has(item.spec) first, or write item.?spec and .orValue(...) at the end"},
		"for":                {problem(b.EvaluateFor()), `rules[0].for at 1:1: for must be a duration, or a string such as "40s", and this gave a map`},
		"for, a number":      {problem(number.EvaluateFor()), `rules[0].for at 1:1: for must be a duration, or a string such as "40s", and this gave a int; a number has no unit: write seconds(x), or a string such as "40s"`},
		"forKey":             {problem(b.EvaluateForKey()), "rules[0].forKey at 1:24: no such overload (string + int)"},
		"groupBy":            {problem(b.EvaluateGroup()), "rules[0].groupBy at 1:1: a value of type optional_type cannot be written; " + resulttype.HintJSON},
		"orderBy":            {problem(b.EvaluateOrder()), "rules[0].orderBy[0].expression at 1:1: orderBy must be a string, a number, a bool, a timestamp or a duration, and this gave a map"},
		"unless, no object":  {problem(record.EvaluateUnless()), "rules[0].unless at 1:8: this item is no object"},
		"key":                {problem(b.EvaluateKey()), `rules[0].key at 1:15: no such key: labels on item (ns/b); write item.metadata.?labels[?"a"].orValue("")`},
		"reason":             {problem(b.EvaluateReason()), "rules[0].reason at 1:1: reason must be a string, and this gave a int; wrap in string()"},
		"confirm":            {confirm0, "rules[0].confirm[0].name at 1:1: name must be a string, or a list of strings, and this list has a int in it"},
		"namespace":          {confirm1, "rules[0].confirm[1].namespace at 1:1: the namespace is empty; leave it out for the namespace of the item, and for cluster-scoped kinds"},
		"action's when":      {problem(b.EvaluateActionWhen(0)), "rules[0].actions[0].when at 1:3: division by zero (int / int)"},
		"action's object":    {problem(b.EvaluateActionObject(0)), "rules[0].actions[0].object at 1:1: this is no object: it has no apiVersion, kind and metadata.name; give an object of a target"},
		"no object":          {problem(record.EvaluateActionObject(1)), "rules[0].actions[1]: the item is no object, and the action does not say what it is about; add object: to the action"},
		"patch, several":     {problem(r.EvaluatePatch(0, b.AsObject(), all[:2])), "rules[0].actions[0].patch.expression at 1:21: there is no item here: several share this patch, and it sees items"},
		"patch, one":         {problem(r.EvaluatePatch(0, b.AsObject(), all[1:2])), `rules[0].actions[0].patch.expression at 1:38: variables.name has no value: no such key: nam (rules[0].variables[0].expression at 1:15) on item (ns/b); did you mean "name"?`},
		"patch, no JSON":     {problem(r.EvaluatePatch(2, b.AsObject(), all[1:2])), "rules[0].actions[2].patch.expression at 1:1: a value of type optional_type cannot be written; " + resulttype.HintJSON},
		"patch, none":        {problem(r.EvaluatePatch(1, b.AsObject(), all[1:2])), "rules[0].actions[1]: the action is no patch"},
		"keep":               {problem(r.EvaluateKeep(all)), "rules[0].keep at 1:14: keep must not be negative, and this gave -93"},
		"fine":               {problem(b.EvaluateWhen()), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if tc.got != nil {
				got = tc.got.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := must[time.Duration](t)(wait.EvaluateFor()); got != time.Minute {
		t.Errorf("an item that is a duration holds %s", got)
	}
	if record.AsObject() != nil || cmp.Diff(any(map[string]any{"name": "x"}), record.AsNative()) != "" || number.AsNative() != int64(1) {
		t.Errorf("got %v, %v, %v", record.AsObject(), record.AsNative(), number.AsNative())
	}
}

func TestForEachErrors(t *testing.T) {
	for forEach, want := range map[string]string{
		"pods":         "rules[0].forEach at 1:1: forEach must be a list, and this gave a map; write x.items for the objects of a target x, or x.transformList(k, v, v) for the values of a map",
		"config.items": "rules[0].forEach at 1:8: no such key: items; test has(config.items) first, or write config.?items and .orValue(...) at the end",
		"lists.range(6000).map(x, lists.range(6000))": "rules[0].forEach: the evaluation builds more than 134217728 bytes of strings, lists and maps; filter before you map, and join or concatenate less",
	} {
		t.Run(forEach, func(t *testing.T) {
			r := begin(t, compileWork(t, budget.Limits{}, podWork(nil, v1alpha1.Rule{Name: "r", ForEach: forEach, When: "true"})), podInput()).SelectRule(0)
			found, problem := r.EvaluateItems()
			if problem == nil {
				t.Fatalf("got %d items", found.CountItems())
			}
			if diff := cmp.Diff(want, problem.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestForAndKeep(t *testing.T) {
	three, text := intstr.FromInt32(3), intstr.FromString("uint(items.size())")
	cases := map[string]struct {
		hold     string
		keep     *intstr.IntOrString
		wantHold string // or the error
		wantKeep int
	}{
		"None":      {"", nil, "0s", 0},
		"Constant":  {"1d12h", &three, "36h0m0s", 3},
		"Duration":  {`duration("90s")`, &text, "1m30s", 4},
		"Text":      {`"1w"`, nil, "168h0m0s", 0},
		"Parameter": {"params.quarantine", nil, "40s", 0},
		"Negative":  {`duration("-1s")`, nil, `rules[0].for at 1:1: a duration below 0: -1s; to act at once, give duration("0s")`, 0},
		"No text":   {`"forty"`, nil, `rules[0].for at 1:1: "forty" is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m"`, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := begin(t, compileWork(t, budget.Limits{}, podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true", For: tc.hold, Keep: tc.keep})), podInput()).SelectRule(0)
			all := items(t, r)
			hold, problem := all[0].EvaluateFor()
			got := hold.String()
			if problem != nil {
				got = problem.Error()
			}
			if keep := must[int](t)(r.EvaluateKeep(all)); got != tc.wantHold || keep != tc.wantKeep {
				t.Errorf("got %s, %d; want %s, %d", got, keep, tc.wantHold, tc.wantKeep)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	cases := map[string]struct {
		orderBy []v1alpha1.OrderBy
		forEach string
		want    string // the items, joined, or the error
	}{
		"Numbers":    {[]v1alpha1.OrderBy{{Expression: "item"}}, "[3, 1.5, 2u]", "1.5 2 3"},
		"Descending": {[]v1alpha1.OrderBy{{Expression: "item", Descending: true}}, "['a', 'c', 'b']", "c b a"},
		"Second":     {[]v1alpha1.OrderBy{{Expression: "size(item)"}, {Expression: "item", Descending: true}}, "['bb', 'a', 'aa', 'b']", "b a bb aa"},
		"Durations":  {[]v1alpha1.OrderBy{{Expression: "duration(item)"}}, "['1h', '2m']", "2m 1h"},
		"Timestamps": {[]v1alpha1.OrderBy{{Expression: "timestamp(item)"}}, "['2025-01-01T01:00:00+01:00', '2024-12-31T23:00:00Z']", "2024-12-31T23:00:00Z 2025-01-01T01:00:00+01:00"},
		"Bools":      {[]v1alpha1.OrderBy{{Expression: "item"}}, "[true, false]", "false true"},
		"Equal":      {[]v1alpha1.OrderBy{{Expression: "1"}}, "['b', 'a']", "b a"},
		"None":       {nil, "['b', 'a']", "b a"},
		"Mixed":      {[]v1alpha1.OrderBy{{Expression: "1"}, {Expression: "item"}}, "['b', 1]", "rules[0].orderBy[1].expression at 1:1: the items give values that cannot be compared: "},
		"NaN":        {[]v1alpha1.OrderBy{{Expression: "item"}}, "[1.0, 0.0 / 0.0]", "rules[0].orderBy[0].expression at 1:1: the items give values that cannot be compared: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := begin(t, compileWork(t, budget.Limits{}, podWork(nil, v1alpha1.Rule{Name: "r", ForEach: tc.forEach, When: "true", OrderBy: tc.orderBy})), podInput()).SelectRule(0)
			all := items(t, r)
			var failed *expr.Error
			slices.SortStableFunc(all, func(x, y *Item) int {
				n, problem := r.CompareOrders(must[Order](t)(x.EvaluateOrder()), must[Order](t)(y.EvaluateOrder()))
				if problem != nil {
					failed = problem
				}
				return n
			})
			var texts []string
			for _, item := range all {
				texts = append(texts, fmt.Sprint(item.AsNative()))
			}
			got := strings.Join(texts, " ")
			if failed != nil {
				got = failed.Error()
			}
			if ok := got == tc.want || failed != nil && strings.HasPrefix(got, tc.want); !ok {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// What one item may take is its own: the others and the conditions do not notice.
func TestItemsHaveBudgetsOfTheirOwn(t *testing.T) {
	rule := v1alpha1.Rule{
		Name: "r", ForEach: "[10, 1000, 20, 30]", When: "lists.range(item).all(x, true) && variables.index.size() == 300", Reason: "lists.range(item).map(x, 'a').join()",
		Variables: variablesOf([]string{"sum: lists.range(item).map(x, x).size()"}), Key: "string(variables.sum)",
		Actions: []v1alpha1.RuleAction{{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: "{'n': items.map(i, lists.range(20).size())}"}}},
	}
	w := podWork([]string{"index: lists.range(300).indexBy(x, x)"}, rule)
	p := compileWork(t, budget.Limits{Steps: 700, ItemSteps: 100, ItemGrowth: 32768}, w)
	e := begin(t, p, podInput())
	r := e.SelectRule(0)
	var got []string
	all := items(t, r)
	for _, item := range all {
		when, problem := item.EvaluateWhen()
		text := fmt.Sprint(when)
		if problem != nil {
			text = fmt.Sprintf("%s %s: %s", problem.Kind, problem.Path, problem.Message)
		}
		got = append(got, text)
		if key, problem := item.EvaluateKey(); problem == nil {
			got = append(got, key)
		}
	}
	const large = "Exhausted rules[0].when: the item needs more than 100 steps"
	if diff := cmp.Diff([]string{"true", "10", large, "true", "20", "true", "30"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, problem := r.EvaluatePatch(0, pod("x", "", ""), all); problem != nil {
		t.Errorf("several items have not what they have together: %v", problem)
	}
	if _, problem := r.EvaluateKeep(all); problem != nil {
		t.Error(problem)
	}
}

// All expressions together have one time, and each evaluation has its own.
func TestAllExpressionsShareOneTime(t *testing.T) {
	rule := v1alpha1.Rule{Name: "r", ForEach: "lists.range(1000)", When: "lists.range(9000).exists(a, lists.range(9000).exists(b, a + b < 0))"}
	in := Input{Targets: map[string]any{"pods": list(pod("a", "", ""), pod("b", "", "")), "nodes": list(pod("c", "", ""))}}
	const want = "rules[0].when: the evaluation takes longer than 50ms"
	p := compileWork(t, budget.Limits{
		Steps: 1 << 40, Growth: 1 << 40, ItemSteps: 1 << 40, ItemGrowth: 1 << 40, AllSteps: 1 << 40, Wall: 50 * time.Millisecond,
	}, podWork(nil, rule))
	e := begin(t, p, in)
	all := items(t, e.SelectRule(0))
	if e.AbortReason() != nil {
		t.Fatal(e.AbortReason())
	}
	for _, item := range all[:2] {
		_, problem := item.EvaluateWhen()
		if problem == nil || problem.Kind != expr.Exhausted || problem.Error() != want+"; "+budget.HintTooLong || e.AbortReason() != problem {
			t.Errorf("got %v, want %s", problem, want)
		}
	}
	e.Close()
	e.Close()
	again := begin(t, p, in)
	if _, problem := again.SelectRule(0).EvaluateItems(); problem != nil {
		t.Errorf("the next evaluation has no time: %v", problem)
	}
	again.Close()
}

// What all expressions do together is bounded too, and it is said at which one it was used up.
func TestAllStepsTogether(t *testing.T) {
	rule := v1alpha1.Rule{Name: "r", ForEach: "lists.range(1000)", When: "lists.range(50).all(x, item >= 0)"}
	e := begin(t, compileWork(t, budget.Limits{AllSteps: 5000}, podWork(nil, rule)), podInput())
	answered := 0
	var over *expr.Error
	for _, item := range items(t, e.SelectRule(0)) {
		if _, problem := item.EvaluateWhen(); problem == nil {
			answered++
		} else {
			over = problem
		}
	}
	if want := "rules[0].when: all expressions together need more than 5000 steps; " + budget.HintTooLong; over == nil || over.Error() != want || e.AbortReason() != over {
		t.Errorf("got %v, want %s", over, want)
	}
	if answered < 50 || 100 < answered {
		t.Errorf("%d items were answered", answered)
	}
	if _, problem := e.SelectRule(0).EvaluateItems(); problem != over {
		t.Errorf("after the end there is an answer: %v", problem)
	}
}

// A context that ends stops the evaluation at once: in a loop, and in a function that looks at much.
func TestTheCallersContextEndsIt(t *testing.T) {
	for name, when := range map[string]string{
		"Loop":     "lists.range(9000).all(a, lists.range(9000).all(b, a + b + item > 0))",
		"Equality": nested(60, "[1]", "[V, V]", "V == V"),
		"Refs":     nested(40, "[pods]", "[V, V]", "refs(V, 'Secret') == []"),
	} {
		t.Run(name, func(t *testing.T) {
			rule := v1alpha1.Rule{Name: "r", ForEach: "[1]", When: when}
			huge := int64(1) << 50
			p := compileWork(t, budget.Limits{ItemSteps: huge, ItemGrowth: huge, Value: huge, AllSteps: huge, Wall: time.Hour}, podWork(nil, rule))
			ctx, cancel := context.WithCancel(t.Context())
			e, problem := p.BeginEvaluation(ctx, podInput())
			if problem != nil {
				t.Fatal(problem)
			}
			defer e.Close()
			one := items(t, e.SelectRule(0))[0]
			began := make(chan struct{})
			done := make(chan *expr.Error)
			go func() {
				close(began)
				_, problem := one.EvaluateWhen()
				done <- problem
			}()
			<-began
			cancel()
			select {
			case problem := <-done:
				if problem == nil || problem.Kind != expr.Interrupted {
					t.Errorf("got %v", problem)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("it goes on")
			}
		})
	}
}

// What is held on to for each item is short, and the items are not too many.
func TestWhatIsRetainedIsBounded(t *testing.T) {
	long := func(n int) string { return fmt.Sprintf("lists.range(%d).map(x, 'a').join()", n) }
	cases := map[string]struct {
		change func(*v1alpha1.Rule)
		ask    func(*Item) error
		want   string
	}{
		"Key":     {func(r *v1alpha1.Rule) { r.Key = long(1025) }, func(i *Item) error { _, err := i.EvaluateKey(); return asError(err) }, "rules[0].key: key may have 1024 bytes, and this one has 1025; give a shorter text"},
		"ForKey":  {func(r *v1alpha1.Rule) { r.For, r.ForKey = "1h", long(1025) }, func(i *Item) error { _, err := i.EvaluateForKey(); return asError(err) }, "rules[0].forKey: forKey may have 1024 bytes, and this one has 1025; give a shorter text"},
		"Reason":  {func(r *v1alpha1.Rule) { r.Reason = long(1025) }, func(i *Item) error { _, err := i.EvaluateReason(); return asError(err) }, "rules[0].reason: reason may have 1024 bytes, and this one has 1025; give a shorter text"},
		"GroupBy": {func(r *v1alpha1.Rule) { r.GroupBy = long(4097) }, func(i *Item) error { _, err := i.EvaluateGroup(); return asError(err) }, "rules[0].groupBy: groupBy may have 4096 bytes, and this one has 4097; give a shorter text"},
		"GroupByList": {func(r *v1alpha1.Rule) { r.GroupBy = "lists.range(1500)" }, func(i *Item) error { _, err := i.EvaluateGroup(); return asError(err) },
			"rules[0].groupBy: groupBy may have 4096 bytes, and this one has 6391; give a shorter text"},
		"GroupByAliases": {func(r *v1alpha1.Rule) { r.GroupBy = nested(18, "[1]", "[V, V]", "V") }, func(i *Item) error { _, err := i.EvaluateGroup(); return asError(err) },
			"rules[0].groupBy: groupBy may have 4096 bytes as JSON, and this value has more; group by a text or a number"},
		"OrderBy": {func(r *v1alpha1.Rule) { r.OrderBy = []v1alpha1.OrderBy{{Expression: long(4097)}} }, func(i *Item) error { _, err := i.EvaluateOrder(); return asError(err) },
			"rules[0].orderBy[0].expression: orderBy may have 4096 bytes, and this one has 4097; give a shorter text"},
		"ConfirmName": {func(r *v1alpha1.Rule) { r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: long(254)}} }, func(i *Item) error { _, _, err := i.EvaluateConfirm(0); return asError(err) },
			"rules[0].confirm[0].name: name may have 253 bytes, and this one has 254; give a shorter text"},
		"ConfirmNames": {func(r *v1alpha1.Rule) {
			r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "lists.range(1001).map(x, string(x))"}}
		}, func(i *Item) error { _, _, err := i.EvaluateConfirm(0); return asError(err) },
			"rules[0].confirm[0].name: confirm may name 1000 objects for an item, and this names 1001; leave name out to read the whole target"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true"}
			tc.change(&rule)
			e := begin(t, compileWork(t, budget.Limits{}, podWork(nil, rule)), podInput())
			if err := tc.ask(items(t, e.SelectRule(0))[0]); err == nil || placeless(err) != tc.want {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
	t.Run("Items", func(t *testing.T) {
		e := begin(t, compileWork(t, budget.Limits{Items: 10}, podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "lists.range(11)", When: "true"})), podInput())
		_, problem := e.SelectRule(0).EvaluateItems()
		if want := "rules[0].forEach: forEach gives 11 items, and a rule may have 10; filter the list, or let the target select less"; problem == nil || placeless(problem) != want || e.AbortReason() != nil {
			t.Errorf("got %v, %v", problem, e.AbortReason())
		}
	})
	t.Run("AllItems", func(t *testing.T) {
		e := begin(t, compileWork(t, budget.Limits{Items: 10}, podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "lists.range(10)", When: "true"})), podInput())
		if all := items(t, e.SelectRule(0)); len(all) != 10 {
			t.Errorf("a rule that may have 10 items has %d", len(all))
		}
	})
	t.Run("Memory", func(t *testing.T) {
		e := begin(t, compileWork(t, budget.Limits{Retained: 1000}, podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "lists.range(10)", When: "true"})), podInput())
		items(t, e.SelectRule(0))
		if !e.RetainBytes("rules[0].key", 500) || e.RetainBytes("rules[0].key", 400) || e.RetainBytes("rules[0].key", 0) {
			t.Error("bytes are not counted")
		}
		if want := "rules[0].key: what the rules want takes more than 1000 bytes of memory; act on fewer items at once, or give shorter keys, reasons and patches"; e.AbortReason() == nil || e.AbortReason().Error() != want {
			t.Errorf("got %v", e.AbortReason())
		}
	})
}

// Items are of one group if their values are equal, and of the same type: else fewer would be kept than each value asks for.
func TestGroupsAreOfEqualValues(t *testing.T) {
	values := []string{`"1"`, "1", `"\"1\""`, `["1"]`, "[1]", "true", `"true"`, "null", `"null"`, `""`, "{}", `"{}"`}
	rule := v1alpha1.Rule{Name: "r", ForEach: "[" + strings.Join(append(values, values...), ", ") + "]", When: "true", GroupBy: "item"}
	e := begin(t, compileWork(t, budget.Limits{}, podWork(nil, rule)), podInput())
	groups := map[string]string{}
	for i, item := range items(t, e.SelectRule(0)) {
		group, problem := item.EvaluateGroup()
		if problem != nil {
			t.Fatal(problem)
		}
		value := values[i%len(values)]
		if other, taken := groups[group]; taken && other != value {
			t.Errorf("%s and %s are of one group, %s", other, value, group)
		}
		groups[group] = value
	}
	if len(groups) != len(values) {
		t.Errorf("%d values make %d groups", len(values), len(groups))
	}
}

// placeless is an error without the position in the expression.
func placeless(err error) string {
	return regexp.MustCompile(` at [0-9]+:[0-9]+`).ReplaceAllString(err.Error(), "")
}

func asError(e *expr.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// A variable of a rule is computed once while its item is asked, and anew for the next.
func TestRuleVariablesAreOfTheItem(t *testing.T) {
	rule := v1alpha1.Rule{
		Name: "r", ForEach: "[1, 2]", When: "variables.list[0] == item", Unless: "variables.list[0] == item", Key: "string(variables.list[0])",
		Variables: variablesOf([]string{"list: lists.range(80).map(x, item)"}),
	}
	r := begin(t, compileWork(t, budget.Limits{ItemSteps: 100}, podWork(nil, rule)), podInput()).SelectRule(0)
	all := items(t, r)
	for range 2 {
		for i, item := range all {
			if !must[bool](t)(item.EvaluateWhen()) || !must[bool](t)(item.EvaluateUnless()) { // twice as much would be too much
				t.Errorf("item %d sees another one's variable", i)
			}
			if got := must[string](t)(item.EvaluateKey()); got != fmt.Sprint(i+1) {
				t.Errorf("item %d has the key %s", i, got)
			}
		}
	}
}

// Two rules can have variables of one name, and two evaluations of the same Programs take turns.
func TestRulesAreApart(t *testing.T) {
	one := v1alpha1.Rule{Name: "a", ForEach: "pods.items", When: "variables.v == 'a'", Variables: variablesOf([]string{"v: item.metadata.name"})}
	two := v1alpha1.Rule{Name: "b", ForEach: "nodes.items", When: "variables.v == 1 && variables.w == 2", Variables: variablesOf([]string{"w: 2", "v: 1"})}
	p := compileWork(t, budget.Limits{}, podWork([]string{nodesByName}, one, two))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				e, problem := p.BeginEvaluation(t.Context(), podInput())
				if problem != nil {
					t.Error(problem)
					return
				}
				found := ""
				for i := range 2 {
					all, problem := e.SelectRule(i).EvaluateItems()
					if problem != nil {
						t.Error(problem)
					}
					for _, item := range listItems(all) {
						when, problem := item.EvaluateWhen()
						found += fmt.Sprint(" ", when)
						if problem != nil {
							t.Error(problem)
						}
					}
				}
				e.Close()
				if want := " true false false false true true"; found != want {
					t.Errorf("got%s, want%s", found, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestBeginIsInterrupted(t *testing.T) {
	p := compileWork(t, budget.Limits{Wall: 20 * time.Millisecond}, podWork(nil, orphanedWithoutIndex()))
	e := begin(t, p, podInput())
	if _, problem := p.BeginEvaluation(t.Context(), podInput()); problem == nil || problem.Error() != "the evaluation takes longer than 20ms" {
		t.Errorf("while another evaluation is under way: %v", problem)
	}
	e.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, problem := p.BeginEvaluation(over, podInput()); problem == nil || problem.Kind != expr.Interrupted {
		t.Errorf("without time: %v", problem)
	}
	if f, problem := p.BeginEvaluation(t.Context(), podInput()); problem != nil {
		t.Error(problem)
	} else {
		f.Close()
	}
}

func orphanedWithoutIndex() v1alpha1.Rule {
	return v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "!nodes.items.exists(n, n.metadata.name == item.spec.nodeName)"}
}

func TestPanicsAboutItemsAreErrors(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	c.calls.Charges["size"] = budget.Charge{BeforeCall: func(*budget.Meter, []ref.Val) ref.Val { panic("boom") }}
	rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true || variables.n == 1", Unless: "variables.n == 1 || true", Variables: variablesOf([]string{"n: item.size()"})}
	p, errs := c.Compile(t.Context(), podWork(nil, rule))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	item := items(t, begin(t, p, podInput()).SelectRule(0))[0]
	if !must[bool](t)(item.EvaluateWhen()) {
		t.Error("what is not read is no error")
	}
	if _, problem := item.EvaluateUnless(); problem == nil || problem.Kind != expr.Internal || !strings.Contains(problem.Message, "boom") {
		t.Errorf("got %v", problem)
	}
}
