// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
)

// manyPods are so many Pods, on three Nodes.
func manyPods(n int) Input {
	pods := make([]any, n)
	for i := range pods {
		pods[i] = pod(fmt.Sprint("pod-", i), fmt.Sprint("node-", i%3), "Running")
	}
	return Input{Time: at("2025-01-01T00:00:00Z"), Targets: map[string]any{"pods": list(pods...), "nodes": list(clusterNode("node-0"), clusterNode("node-1")), "config": nil}}
}

// What an expression about an item needs of all objects is evaluated once, and not for each item, wherever it stands in the expression.
func TestFixedPartsAreEvaluatedOnce(t *testing.T) {
	for name, rule := range map[string]v1alpha1.Rule{
		"When":     {When: `!(item.spec.nodeName in nodes.items.map(n, n.metadata.name)) && pods.items.map(p, p.metadata.name).exists(n, n == "pod-0")`},
		"Refs":     {When: `!(key(item) in refs([pods], "Secret"))`},
		"Variable": {When: `size(variables.names) > 0`, Variables: []v1alpha1.Variable{{Name: "names", Expression: `pods.items.map(p, p.metadata.name)`}}},
		"InALoop":  {When: `["a", item.metadata.name].exists(n, n in pods.items.map(p, p.metadata.name).toSet())`},
	} {
		t.Run(name, func(t *testing.T) {
			rule.Name, rule.ForEach = "r", "pods.items"
			p := compileWork(t, budget.Limits{}, podWork(nil, rule))
			steps := func(n int) int64 {
				e := begin(t, p, manyPods(n))
				defer e.Close()
				before := e.answerSteps
				for _, item := range items(t, e.SelectRule(0)) {
					if _, problem := item.EvaluateWhen(); problem != nil {
						t.Fatal(problem)
					}
				}
				return before - e.answerSteps
			}
			if few, many := steps(50), steps(500); many > 15*few {
				t.Errorf("for 500 items it takes %d steps, and for 50 %d: more than ten times as many", many, few)
			}
		})
	}
}

// What no item needs is not evaluated: an error that && and || and ?: leave out stays left out, and one that items need is said of each of them, at
// its place.
func TestErrorsOfFixedParts(t *testing.T) {
	rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: `item.metadata.name == "pod-1" && nodes.items.map(n, n.spec.absent).size() > 0`}
	for range 2 {
		e := begin(t, compileWork(t, budget.Limits{}, podWork(nil, rule)), manyPods(3))
		for i, item := range items(t, e.SelectRule(0)) {
			_, problem := item.EvaluateWhen()
			switch {
			case i != 1 && problem != nil:
				t.Errorf("item %d: %v", i, problem)
			case i == 1 && (problem == nil || problem.Line != 1 || problem.Column != 55):
				t.Errorf("item %d: %v", i, problem)
			}
			if _, again := item.EvaluateWhen(); fmt.Sprint(again) != fmt.Sprint(problem) {
				t.Errorf("then %v, and before %v", again, problem)
			}
		}
		e.Close()
	}
}

// What all items share is paid once from what all share, and a limit that it is over stops each of them without evaluating it again.
func TestLimitsOfFixedParts(t *testing.T) {
	rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: `item.metadata.name in pods.items.map(p, pods.items.map(q, q.metadata.name + p.metadata.name).join()).map(x, x + "1")`}
	e := begin(t, compileWork(t, budget.Limits{Steps: 3000}, podWork(nil, rule)), manyPods(100))
	defer e.Close()
	var first string
	for i, item := range items(t, e.SelectRule(0)) {
		before := e.answerSteps
		_, problem := item.EvaluateWhen()
		if problem == nil {
			t.Fatalf("item %d is answered", i)
		}
		if i == 0 {
			first = problem.Error()
		} else if problem.Error() != first || before-e.answerSteps > 100 {
			t.Errorf("item %d takes %d steps and says %s; the first says %s", i, before-e.answerSteps, problem, first)
		}
	}
}

// Each evaluation sees its own objects.
func TestFixedPartsOfAnotherEvaluation(t *testing.T) {
	rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: `pods.items.map(p, p.metadata.name).size() == 3`}
	p := compileWork(t, budget.Limits{}, podWork(nil, rule))
	for _, n := range []int{3, 4, 3} {
		e := begin(t, p, manyPods(n))
		for _, item := range items(t, e.SelectRule(0)) {
			if is := must[bool](t)(item.EvaluateWhen()); is != (n == 3) {
				t.Errorf("of %d Pods it says %t", n, is)
			}
		}
		e.Close()
	}
}

// A part that reads the time, also through a variable, is not fixed: until when its result is valid is known.
func TestPartsThatReadTheTime(t *testing.T) {
	for name, when := range map[string]string{
		"Time":     `item.metadata.name != "" && pods.items.filter(p, time > timestamp("2025-01-01T01:00:00Z")).size() > 0`,
		"Variable": `item.metadata.name != "" && pods.items.filter(p, variables.noon).size() > 0`,
	} {
		t.Run(name, func(t *testing.T) {
			rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: when}
			e := begin(t, compileWork(t, budget.Limits{}, podWork([]string{`noon: time > timestamp("2025-01-01T01:00:00Z")`}, rule)), manyPods(2))
			for _, item := range items(t, e.SelectRule(0)) {
				if must[bool](t)(item.EvaluateWhen()) {
					t.Error("it is true already")
				}
			}
			if f := e.Foresight(); f.Unknown || f.Until.Sub(at("2025-01-01T01:00:00Z")) > 1 || f.Until.Before(at("2025-01-01T01:00:00Z")) {
				t.Errorf("it is valid until %s (unknown is %t)", f.Until, f.Unknown)
			}
		})
	}
}

// Names that loops, binds and macros give, errors that are left out, and lists that are added to change nothing: each item is answered as by programs
// that evaluate each part whenever it is reached, and all of these are true.
func TestFixedPartsChangeNoAnswer(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	for _, when := range []string{
		`cel.bind(pods, {"items": [item]}, pods.items.map(p, p.metadata.name) == [item.metadata.name])`,
		`[item].exists(nodes, [nodes].map(n, n.metadata.name) == [item.metadata.name])`,
		`[item].map(x, [x].map(x, x.metadata.name)[0]) == [item.metadata.name]`,
		`["a", "b"].map(i, pods.items.map(p, i)[0]) == ["a", "b"] && item.metadata.name != ""`,
		`{"k": item.metadata.name}.transformMap(k, v, [v].map(x, x + k)[0])["k"] == item.metadata.name + "k"`,
		`{"k": item.metadata.name}.transformList(k, v, [k, v].map(x, x))[0] == ["k", item.metadata.name]`,
		`[item.metadata.name].sortBy(x, pods.items.map(p, x).size())[0] == item.metadata.name`,
		`[item].groupBy(x, [x].map(y, y.metadata.name)[0])[item.metadata.name][0] == item`,
		`optional.of(item).optMap(x, [x].map(y, y.metadata.name)[0]).orValue("") == item.metadata.name`,
		`optional.of("q").optFlatMap(x, optional.of([x].map(y, y + item.metadata.name)[0])).orValue("") == "q" + item.metadata.name`,
		`cel.bind(a, pods.items.map(p, p.metadata.name), cel.bind(b, a + [item.metadata.name], b.size() == a.size() + 1 && b[b.size() - 1] == item.metadata.name))`,
		`(pods.items.map(p, p.metadata.name) + [item.metadata.name]).size() == pods.items.size() + 1 && pods.items.map(p, p.metadata.name).size() == pods.items.size()`,
		`variables.own == item.metadata.name && [1].map(z, variables.own)[0] == item.metadata.name && [variables.own].map(x, x)[0] == item.metadata.name`,
		`[object].map(o, o.metadata.name)[0] == item.metadata.name`,
		`(item.metadata.name == "" ? pods.items.map(p, p.nope) : nodes.items.map(n, n.metadata.name)).size() == 2`,
		`(pods.items.map(p, p.nope).size() > 0 || true) && item.metadata.name != ""`,
	} {
		rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: when, Variables: []v1alpha1.Variable{{Name: "own", Expression: "[item].map(i, i.metadata.name)[0]"}}}
		for name, p := range map[string]*Programs{"fixed": compileWork(t, budget.Limits{}, podWork(nil, rule)), "stock": stockPrograms(t, c, podWork(nil, rule))} {
			e := begin(t, p, manyPods(3))
			for i, item := range append(items(t, e.SelectRule(0)), items(t, e.SelectRule(0))...) {
				if is, problem := item.EvaluateWhen(); !is || problem != nil {
					t.Errorf("%s, %s, item %d: %t, %v", when, name, i, is, problem)
				}
			}
			e.Close()
		}
	}
}

// A list that is kept, of a fixed part or of a variable, is not changed by what an item adds to it, nor is one that a loop has bound.
func TestKeptListsAreNotChanged(t *testing.T) {
	for _, list := range []string{
		`cel.bind(none, pods.items.filter(p, p.spec.nodeName == "nope"), [none])[0]`,
		`optional.of(pods.items.filter(p, false)).optMap(x, {"a": x}).value().a`,
		`nodes.items.map(n, cel.bind(own, pods.items.filter(p, p.spec.nodeName == n.metadata.name + "x"), {"pods": own}))[0].pods`,
		`variables.v[0]`,
	} {
		w := podWork([]string{`v: cel.bind(x, pods.items.filter(p, false), [x])`}, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "(" + list + " + [item]).size() > 1"})
		e := begin(t, compileWork(t, budget.Limits{}, w), manyPods(3))
		for i, item := range append(items(t, e.SelectRule(0)), items(t, e.SelectRule(0))...) {
			if is, problem := item.EvaluateWhen(); is || problem != nil {
				t.Errorf("%s, item %d: %t, %v", list, i, is, problem)
			}
		}
		e.Close()
	}
	for source, want := range map[string]bool{
		`cel.bind(x, [], [1, 2].map(i, (x + [i]).size())) == [1, 1]`:                                                true,
		`cel.bind(x, [], cel.bind(y, x + [1], cel.bind(z, x + [2], y == [1] && z == [2] && x == [])))`:              true,
		`optional.of([]).optMap(x, [x + [1], x + [2], x]).value() == [[1], [2], []]`:                                true,
		`cel.bind(x, {}, [1, 2].map(i, {"a": x}.size())) == [1, 1]`:                                                 true,
		`[[]].map(x, [1, 2].map(i, (x + [i]).size()))[0] == [1, 1]`:                                                 true,
		`lists.range(1000).map(x, x).size() == 1000 && lists.range(9).filter(x, x > 3).map(x, [x])[4] == [8]`:       true,
		`[1, 2].map(a, [3, 4].map(b, a + b)) == [[4, 5], [5, 6]] && [[1], [2]].map(x, x + [0]) == [[1, 0], [2, 0]]`: true,
	} {
		e := begin(t, compileWork(t, budget.Limits{}, podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: source + ` && item.metadata.name != ""`})), manyPods(3))
		for i, item := range items(t, e.SelectRule(0)) {
			if is, problem := item.EvaluateWhen(); is != want || problem != nil {
				t.Errorf("%s, item %d: %t, %v", source, i, is, problem)
			}
		}
		e.Close()
	}
}
