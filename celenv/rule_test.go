// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
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

func compileWork(t testing.TB, limits Limits, w *v1alpha1.Work) *Programs {
	t.Helper()
	p, errs := newCompiler(t, limits).Compile(w)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

func begin(t testing.TB, p *Programs, in Input) *Evaluation {
	t.Helper()
	e, problem := p.Begin(t.Context(), in)
	if problem != nil {
		t.Fatal(problem)
	}
	t.Cleanup(e.Close)
	return e
}

func items(t testing.TB, r *RuleEvaluation) []*Item {
	t.Helper()
	found, problem := r.Items()
	if problem != nil {
		t.Fatal(problem)
	}
	return found
}

// must is the value of a call that must not fail.
func must[T any](t testing.TB) func(T, *Error) T {
	return func(value T, problem *Error) T {
		t.Helper()
		if problem != nil {
			t.Fatal(problem)
		}
		return value
	}
}

func TestOrphaned(t *testing.T) {
	in := podInput()
	r := begin(t, compileWork(t, Limits{}, podWork([]string{nodesByName}, orphaned())), in).Rule(0)
	var wanted []string
	for i, item := range items(t, r) {
		object := item.Object()
		if want := in.Targets["pods"].(map[string]any)["items"].([]any)[i].(map[string]any); fmt.Sprintf("%p", object) != fmt.Sprintf("%p", want) {
			t.Error("the object is not the very map of the input")
		}
		if !must[bool](t)(item.When()) {
			continue
		}
		names, namespace, problem := item.Confirm(0)
		if problem != nil {
			t.Fatal(problem)
		}
		wanted = append(wanted, fmt.Sprint(object["metadata"].(map[string]any)["name"], " ", must[time.Duration](t)(item.For()), " ", must[string](t)(item.ForKey()),
			" ", names, namespace, " ", must[string](t)(item.Reason()), " ", must[bool](t)(item.ActionWhen(0)), must[bool](t)(item.ActionWhen(1)),
			must[string](t)(item.Key()), must[string](t)(item.Group()), must[bool](t)(item.Unless())))
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
	keep := intstr.FromString("items.size() - params.keep")
	rule := v1alpha1.Rule{
		Name: "r", ForEach: "pods.items", When: "variables.name == 'b' && object == item",
		Variables: variablesOf([]string{"name: item.metadata.name", "twice: variables.name + variables.name"}),
		For:       `"1d"`, ForKey: "variables.twice", Key: `key(item) + "/" + variables.shared`, GroupBy: `{"node": item.spec.?nodeName.orValue(""), "n": 1.0}`,
		OrderBy: []v1alpha1.OrderBy{{Expression: "item.status.phase", Descending: true}, {Expression: "item.metadata.name"}},
		Keep:    &keep, Unless: `item.metadata.name == "b"`, Reason: `"because"`,
		Confirm: []v1alpha1.Confirm{{Target: "nodes", Name: `["x", "", "y", "x"]`, Namespace: "item.metadata.namespace"}, {Target: "nodes"}, {Target: "nodes", Name: `""`, Namespace: `""`}},
		Actions: []v1alpha1.RuleAction{
			{Object: `nodes.items[0]`, Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"spec": {"by": items.map(i, i.metadata.name), "of": object.metadata.name, "n": 18446744073709551615u}}`}},
			{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchJSON, Expression: `[{"op": "test", "path": "/x", "value": variables.twice}]`}},
		},
	}
	e := begin(t, compileWork(t, Limits{}, podWork([]string{`shared: "s"`}, rule)), podInput())
	r := e.Rule(0)
	all := items(t, r)
	b := all[1]
	got := map[string]any{
		"when": must[bool](t)(b.When()), "for": must[time.Duration](t)(b.For()), "forKey": must[string](t)(b.ForKey()), "key": must[string](t)(b.Key()),
		"group": must[string](t)(b.Group()), "unless": must[bool](t)(b.Unless()), "keep": must[int](t)(r.Keep(all)),
		"patch one": must[any](t)(r.Patch(1, b.Object(), all[1:2])), "patch all": must[any](t)(r.Patch(0, clusterNode("x"), all)),
		"object": must[map[string]any](t)(b.ActionObject(0)), "object of the item": must[map[string]any](t)(b.ActionObject(1)),
	}
	want := map[string]any{
		"when": true, "for": 24 * time.Hour, "forKey": "bb", "key": "ns/b/s", "group": `{"n":1,"node":"gone"}`, "unless": true, "keep": 2,
		"patch one": []any{map[string]any{"op": "test", "path": "/x", "value": "bb"}},
		"patch all": map[string]any{"spec": map[string]any{"by": []any{"a", "b", "c", "d"}, "of": "x", "n": json.Number("18446744073709551615")}},
		"object":    clusterNode("n1"), "object of the item": pod("b", "gone", "Running"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for entry, want := range []string{"[x y] ns false", "[]  true", "[]  false"} {
		names, namespace, problem := b.Confirm(entry)
		if got := fmt.Sprint(names, " ", namespace, " ", r.ConfirmsAll(entry)); problem != nil || got != want {
			t.Errorf("entry %d: got %s, %v; want %s", entry, got, problem, want)
		}
	}
	slices.SortFunc(all, func(x, y *Item) int {
		return must[int](t)(r.Compare(must[Order](t)(x.Order()), must[Order](t)(y.Order())))
	})
	var order string
	for _, item := range all {
		order += item.Object()["metadata"].(map[string]any)["name"].(string)
	}
	if order != "abcd" {
		t.Errorf("the order is %s", order)
	}
}
