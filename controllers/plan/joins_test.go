// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
)

// content gives an object a number of its content, and a version.
func content(o observed.Object, number int) observed.Object {
	o.Content, o.ResourceVersion = uint64(number), fmt.Sprint("v", number)
	o.Value["metadata"].(map[string]any)["resourceVersion"] = o.ResourceVersion
	return o
}

// A plan after a change of another target is the plan of all, where an expression reads more of that than it seems to, and where objects are looked at as they are.
func TestPlansAfterChangesOfOtherTargets(t *testing.T) {
	node := func(name string, number int, words ...string) observed.Object {
		return content(object(nodes, "Node", "", name, words...), number)
	}
	variable := func(name, expression string) v1alpha1.Variable {
		return v1alpha1.Variable{Name: name, Expression: expression}
	}
	byName := variable("byName", "nodes.items.indexBy(n, n.metadata.name)")
	keeps := func(r *v1alpha1.Rule) { r.Keep = new(intstr.FromInt32(5)) }
	// The same content at another version, as a store that inherits the number of the content shows it.
	newer := content(object(nodes, "Node", "", "n1", "bad:yes", "old:yes"), 101)
	newer.ResourceVersion = "another"
	for name, tc := range map[string]struct {
		variables     []v1alpha1.Variable
		rules         []func(*v1alpha1.Rule)
		before, after []observed.Object
	}{
		"Once for all items": {
			[]v1alpha1.Variable{byName},
			[]func(*v1alpha1.Rule){func(r *v1alpha1.Rule) {
				r.When = `["n1", "n9"].exists(n, n == "n9" && n in variables.byName) && item.metadata.name == "b"`
			}},
			[]observed.Object{node("n1", 101)}, []observed.Object{node("n1", 101), node("n9", 102)},
		},
		"Hidden by a loop": {
			[]v1alpha1.Variable{byName},
			[]func(*v1alpha1.Rule){func(r *v1alpha1.Rule) {
				r.When = `["a"].exists(variables, .variables.byName.exists(k, k == "n9") && item.metadata.name == "b")`
			}},
			[]observed.Object{node("n1", 101)}, []observed.Object{node("n1", 101), node("n9", 102)},
		},
		"Order of a map": {
			[]v1alpha1.Variable{variable("m", "nodes.items.map(n, n.spec.x).toSet()")},
			[]func(*v1alpha1.Rule){func(r *v1alpha1.Rule) {
				r.When = `["a"].exists(variables, .variables.m.map(k, k + item.spec.?none.orValue(""))[0] == "b")`
			}},
			[]observed.Object{node("n1", 101, "x:a"), node("n2", 102, "x:b")}, []observed.Object{node("n1", 103, "x:b"), node("n2", 104, "x:a")},
		},
		"Time zones": {
			[]v1alpha1.Variable{variable("since", "nodes.items.transformMapEntry(i, n, {n.metadata.name: timestamp(n.spec.at.replace('h', ':'))})")},
			[]func(*v1alpha1.Rule){func(r *v1alpha1.Rule) { r.When = `string(variables.since[item.spec.node]).endsWith("+02:00")` }},
			[]observed.Object{node("n1", 101, "at:2026-01-01T10h00h00Z")}, []observed.Object{node("n1", 102, "at:2026-01-01T12h00h00+02h00")},
		},
		"Twins": {
			[]v1alpha1.Variable{byName, variable("bad", "nodes.items.filter(n, has(n.spec.bad))"), variable("old", "nodes.items.filter(n, has(n.spec.old))")},
			[]func(*v1alpha1.Rule){
				func(r *v1alpha1.Rule) { r.When = "!(item.spec.node in variables.byName)" },
				func(r *v1alpha1.Rule) {
					r.ForEach, r.When, r.Keep = "variables.bad + variables.old", "true", new(intstr.FromInt32(1))
				},
			},
			[]observed.Object{node("n1", 101, "bad:yes", "old:yes")}, []observed.Object{newer},
		},
		"Order of what is kept": {
			[]v1alpha1.Variable{byName},
			[]func(*v1alpha1.Rule){keeps, func(r *v1alpha1.Rule) {
				r.When, r.Keep = "item.spec.node == 'n1'", new(intstr.FromInt32(5))
				r.OrderBy = []v1alpha1.OrderBy{{Expression: "variables.byName[item.spec.node].metadata.name"}}
			}},
			[]observed.Object{node("n1", 101), node("n2", 102)}, []observed.Object{node("n2", 102)},
		},
		"Deep values": {
			append(doubled(30), variable("deep", `{"n1": variables.v30}`)),
			[]func(*v1alpha1.Rule){func(r *v1alpha1.Rule) { r.When = `item.spec.node in variables.deep && item.spec.?none.hasValue()` }},
			[]observed.Object{node("n1", 101)}, []observed.Object{node("n1", 101), node("n9", 102)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var rules []v1alpha1.Rule
			for i, change := range tc.rules {
				r := rule(change)
				r.Name = fmt.Sprint("r", i)
				rules = append(rules, r)
			}
			work := cluster(rules...)
			work.Variables = tc.variables
			in := over(t, work, content(p("a", "node:n1"), 1), content(p("b", "node:n1"), 2))
			in.Snapshot[1].Objects, in.Results = tc.before, &reuse.Results{}
			for target := range in.Snapshot {
				in.Snapshot[target].At = 1
			}
			first, follow := ComputePlan(t.Context(), in), &follower{}
			follow.base, follow.before = first.Base, in.Snapshot
			in.Snapshot = append(observed.Snapshot{}, in.Snapshot...)
			in.Snapshot[1].Objects, in.Results = tc.after, nil
			want := ComputePlan(t.Context(), in)
			in.Results, in.Earlier = first.Results, first.Base
			got := ComputePlan(t.Context(), in)
			same := []cmp.Option{cmpopts.IgnoreFields(Plan{}, "Results", "Base", "Evaluated", "Reused"), cmpopts.IgnoreUnexported(Plan{}, Step{}), cmpopts.EquateErrors()}
			if diff := cmp.Diff(want, got, same...); diff != "" {
				t.Errorf("with what is known (-want +got):\n%s", diff)
			}
			if got, _, ok := follow.computeChange(in); ok {
				if diff := cmp.Diff(untimely(want), untimely(got), same...); diff != "" {
					t.Errorf("of the change (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// doubled are variables whose values name the one before twice, so that they are large to whoever goes through them.
func doubled(levels int) []v1alpha1.Variable {
	all := []v1alpha1.Variable{{Name: "v0", Expression: `[nodes.items.size() > 0 ? "a" : "b"]`}}
	for n := 1; n <= levels; n++ {
		all = append(all, v1alpha1.Variable{Name: fmt.Sprint("v", n), Expression: fmt.Sprintf("[variables.v%d, variables.v%d]", n-1, n-1)})
	}
	return all
}

// What is kept of values grows with no change, is no more than what they take, and is in room that is counted.
func TestKeptValuesDoNotGrow(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) {
		r.When = `item.spec.node in variables.byName && variables.late.size() > 1000`
	}))
	work.Variables = []v1alpha1.Variable{{Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}, {Name: "late", Expression: `lists.range(500).map(i, string(time))`}}
	in := over(t, work, content(p("a", "node:n1"), 1), content(p("b", "node:n1"), 2))
	in.Snapshot[1].Objects[0].Content, in.Results = 100, &reuse.Results{}
	last, sizes := ComputePlan(t.Context(), in), []int64{}
	for n := range 20 {
		in.Snapshot[1] = observed.Target{State: observed.Complete, Resource: nodes, Objects: []observed.Object{content(object(nodes, "Node", "", "n1"), 101+n)}, At: n}
		in.Results, in.Earlier = last.Results, last.Base
		last = ComputePlan(t.Context(), in)
		sizes = append(sizes, last.Base.CountBytes())
	}
	if first, end := sizes[0], sizes[len(sizes)-1]; first != end || first < 1<<10 || first > 16<<10 {
		t.Errorf("a Base of one Node takes %d bytes", sizes)
	}
}

// joinTest is an input over two Pods on n1 and that Node, of which a first plan was made.
func joinTest(t *testing.T, limits budget.Limits, variables []v1alpha1.Variable, rules ...v1alpha1.Rule) (Input, Plan) {
	t.Helper()
	work := cluster(rules...)
	work.Variables = variables
	in := over(t, work, content(p("a", "node:n1", "a:y"), 1), content(p("b", "node:n1"), 2))
	compiler, err := celenv.NewCompiler(celenv.Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	programs, errs := compiler.Compile(t.Context(), work)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	in.Programs = programs
	for target := range in.Snapshot {
		in.Snapshot[target].At = 1
	}
	in.Snapshot[1].Objects[0].Content, in.Results = 100, &reuse.Results{}
	return in, ComputePlan(t.Context(), in)
}

// next is the input of the next plan, in which a Node has come.
func next(in Input, last Plan, number int) Input {
	in.Results, in.Earlier, in.Snapshot = last.Results, last.Base, append(observed.Snapshot{}, in.Snapshot...)
	in.Snapshot[1] = nodesSeen("n1", "n2")
	in.Snapshot[1].Objects[0].Content, in.Snapshot[1].Objects[1].Content, in.Snapshot[1].At = 100, uint64(number), number
	return in
}

// What a value takes that another variable has is counted too, and nothing is kept of objects that were decoded for a plan alone.
func TestLookupsAreCounted(t *testing.T) {
	variables := []v1alpha1.Variable{
		{Name: "big", Expression: `lists.range(20000).map(i, "text of some length " + string(i))`},
		{Name: "v", Expression: `{"n1": nodes.items.size() >= 0 ? variables.big : []}`},
	}
	looks := rule(func(r *v1alpha1.Rule) { r.When = `variables.big.size() == 0 || item.metadata.name in variables.v` })
	in, first := joinTest(t, budget.Limits{}, variables, looks)
	for n := range 3 {
		if bytes := first.Base.CountBytes(); bytes < 20_000*20 || bytes > 50<<20 {
			t.Errorf("plan %d: 20000 texts count %d bytes", n, bytes)
		}
		first.Base.looksOnly = n == 1 // as that of a plan which acts
		in = next(in, first, 101+n)
		first = ComputePlan(t.Context(), in)
	}
	in.Snapshot[1].At = nil
	if d := ComputePlan(t.Context(), in); d.Base != nil {
		t.Errorf("of objects that were decoded for the plan, %d bytes are kept", d.Base.CountBytes())
	}
}

// A variable that no item reads any more takes nothing of what the others may take.
func TestComparingTakesNothingOfTheOthers(t *testing.T) {
	in, last := joinTest(t, budget.Limits{Steps: 24_000}, []v1alpha1.Variable{
		{Name: "v", Expression: `lists.range(nodes.items.size() * 3500).map(i, string(i)).toSet()`},
		{Name: "w", Expression: `lists.range(6000 + nodes.items.size()).map(i, string(i)).toSet()`},
	}, rule(func(r *v1alpha1.Rule) {
		r.Name, r.When = "r1", `item.spec.?a.hasValue() && item.metadata.name in variables.v`
	}),
		rule(func(r *v1alpha1.Rule) { r.Name, r.When = "r2", `!(item.metadata.name in variables.w)` }))
	in.Snapshot = append(observed.Snapshot{}, in.Snapshot...)
	in.Snapshot[0].Objects = []observed.Object{content(p("a", "node:n1"), 3), in.Snapshot[0].Objects[1]}
	in.Results, in.Earlier = last.Results, last.Base
	last = ComputePlan(t.Context(), in)
	for round := range 3 {
		in = next(in, last, 101+round)
		fresh := in
		fresh.Results, fresh.Earlier = nil, nil
		want := ComputePlan(t.Context(), fresh)
		if last = ComputePlan(t.Context(), in); last.Reason != want.Reason || len(last.Steps) != len(want.Steps) {
			t.Errorf("round %d: it is %s, and not %s: %s", round, last.Reason, want.Reason, last.Message)
		}
	}
}

// What has changed of a variable that looks at each object alone is found without the other objects: all of it would take too many steps here.
func TestAChangeIsComputedAlone(t *testing.T) {
	const name = `(lists.range(15000).map(i, string(i)).size() > 0 ? n.metadata.name : "")`
	for expression, alone := range map[string]bool{
		`nodes.items.indexBy(n, ` + name + `)`:                                                        true,
		`nodes.items.groupBy(n, ` + name + `)`:                                                        true,
		`nodes.items.countBy(n, ` + name + `)`:                                                        true,
		`nodes.items.map(n, ` + name + `).toSet()`:                                                    true,
		`(nodes.items + pools.items).map(n, ` + name + `).toSet()`:                                    true,
		`nodes == null ? {} : variables.listed.indexBy(n, ` + name + `)`:                              true,
		`nodes.items.map(n, ` + name + `).distinct().toSet()`:                                         false,
		`nodes.items.filter(n, nodes.items.size() > 0).indexBy(n, ` + name + `)`:                      false,
		`nodes.items.filter(n, variables.listed.size() > 0).map(n, ` + name + `).toSet()`:             false,
		`nodes.items.size() > 5 ? {"n1": true} : nodes.items.map(n, ` + name + `).toSet()`:            false,
		`nodes.items.map(n, ` + name + `).toSet().merge(nodes.items.map(n, n.metadata.name).toSet())`: false,
	} {
		in, last := joinTest(t, budget.Limits{Steps: 24_000}, []v1alpha1.Variable{
			{Name: "listed", Expression: "nodes.items.filter(n, n.metadata.name != '')"}, {Name: "v", Expression: expression},
		}, rule(func(r *v1alpha1.Rule) { r.When = `!(item.spec.node in variables.v) && item.spec.?done.hasValue()` }))
		follow := &follower{base: last.Base, before: in.Snapshot}
		if change, _, ok := follow.computeChange(next(in, last, 101)); ok != alone || change.Evaluated > 0 {
			t.Errorf("%s: it is %t that the change is enough, and %d items are evaluated", expression, ok, change.Evaluated)
		}
	}
}

// What is read for each object is no piece of the variable: where it changes, all of it may be another one.
func TestWhatIsReadForEachObject(t *testing.T) {
	variables := []v1alpha1.Variable{
		{Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"},
		{Name: "here", Expression: `pools.items.map(p, p.spec.addresses.filter(a, "n" + a.ip in variables.byName).map(a, a.pod)).flatten().toSet()`},
	}
	in, _ := joinTest(t, budget.Limits{}, variables, rule(func(r *v1alpha1.Rule) { r.When = "item.metadata.name in variables.here" }))
	in.Snapshot[2] = poolsSeen(content(pool("q1", "2=a"), 200))
	in.Snapshot[2].At, in.Results = 1, &reuse.Results{}
	last := ComputePlan(t.Context(), in)
	follow := &follower{base: last.Base, before: in.Snapshot}
	if last.Base == nil || len(last.Steps) > 0 {
		t.Fatalf("at first it wants %v", last.Steps)
	}
	if _, _, ok := follow.computeChange(next(in, last, 101)); ok {
		t.Error("the Node n2 has come, and concerns no item")
	}
	if d := ComputePlan(t.Context(), next(in, last, 101)); len(d.Steps) != 1 {
		t.Errorf("then it wants %v", d.Steps)
	}
}

// An object that refs finds through a variable is a piece, too.
func TestRefsOfAVariable(t *testing.T) {
	in, _ := joinTest(t, budget.Limits{}, []v1alpha1.Variable{
		{Name: "all", Expression: `nodes.items.filter(n, n.metadata.name != "n9")`},
		{Name: "used", Expression: `refs(variables.all, "Secret").toSet()`},
	}, rule(func(r *v1alpha1.Rule) { r.When = `!(item.metadata.name in variables.used)` }))
	one, other := content(object(nodes, "Node", "", "n1", "secretName:a"), 101), content(object(nodes, "Node", "", "n2", "secretName:b"), 102)
	in.Snapshot[1].Objects, in.Results = []observed.Object{one, other}, &reuse.Results{}
	first := ComputePlan(t.Context(), in)
	if first.Base == nil || len(first.Steps) > 0 {
		t.Fatalf("at first it wants %v: %s", first.Steps, first.Message)
	}
	follow := &follower{base: first.Base, before: in.Snapshot}
	in.Snapshot = append(observed.Snapshot{}, in.Snapshot...)
	in.Snapshot[1] = observed.Target{State: observed.Complete, Resource: nodes, At: 2, Objects: []observed.Object{one}}
	in.Results, in.Earlier = first.Results, first.Base
	if _, _, ok := follow.computeChange(in); ok {
		t.Error("nothing refers to b, and that concerns no item")
	}
	if d := ComputePlan(t.Context(), in); len(d.Steps) != 1 {
		t.Errorf("then it wants %v", d.Steps)
	}
}

// A list that another rule has read as a whole is read again for the objects that have changed.
func TestPiecesAfterTheWhole(t *testing.T) {
	in, _ := joinTest(t, budget.Limits{}, []v1alpha1.Variable{
		{Name: "listed", Expression: `nodes.items.filter(n, n.metadata.name != "n9")`},
		{Name: "whole", Expression: `variables.listed.map(n, n.metadata.name).distinct().toSet()`},
		{Name: "pieces", Expression: `variables.listed.countBy(n, n.spec.a)`},
	}, rule(func(r *v1alpha1.Rule) { r.Name, r.When = "r1", `item.spec.x in variables.whole` }),
		rule(func(r *v1alpha1.Rule) { r.Name, r.When = "r2", `item.metadata.name in variables.pieces` }))
	in.Snapshot[0].Objects = []observed.Object{content(p("a", "x:none"), 1), content(p("b", "x:none"), 2)}
	in.Snapshot[1].Objects, in.Results = []observed.Object{content(object(nodes, "Node", "", "n1", "a:c"), 101)}, &reuse.Results{}
	first := ComputePlan(t.Context(), in)
	follow := &follower{base: first.Base, before: in.Snapshot}
	in.Snapshot = append(observed.Snapshot{}, in.Snapshot...)
	in.Snapshot[1].Objects = append(in.Snapshot[1].Objects[:1:1], content(object(nodes, "Node", "", "n2", "a:b"), 102))
	in.Results = first.Results
	if got, _, ok := follow.computeChange(in); ok {
		t.Errorf("of the change it wants %s, and Pod b matches now", got.Reason)
	}
}

// Values that are not computed again keep objects that are gone: these are counted, and are not kept for long.
func TestObjectsThatAreGoneAreCounted(t *testing.T) {
	in, last := joinTest(t, budget.Limits{}, []v1alpha1.Variable{{Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}},
		rule(func(r *v1alpha1.Rule) { r.When = `item.spec.node in variables.byName && item.spec.?done.hasValue()` }))
	var sizes []int64
	for n := range maxDrifted + 2 {
		follow := &follower{base: last.Base, before: in.Snapshot}
		in = next(in, last, 101+n)
		change, _, ok := follow.computeChange(in)
		if !ok {
			t.Fatalf("change %d is not enough", n)
		}
		last, sizes = change, append(sizes, change.Base.CountBytes())
	}
	if most, end := sizes[maxDrifted-1]-sizes[0], sizes[maxDrifted]-sizes[0]; most < (maxDrifted-1)*objectBytes || end > objectBytes {
		t.Errorf("after %d changes it takes %d bytes more, and then %d", maxDrifted, most, end)
	}
}

// While no item looks anything up, a change of another target evaluates none.
func TestNothingLookedUp(t *testing.T) {
	in, last := joinTest(t, budget.Limits{}, []v1alpha1.Variable{{Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}},
		rule(func(r *v1alpha1.Rule) { r.When = `item.spec.?done.hasValue() && item.spec.node in variables.byName` }))
	for n := range 3 {
		follow := &follower{base: last.Base, before: in.Snapshot}
		in = next(in, last, 101+n)
		if change, _, ok := follow.computeChange(in); !ok || change.Evaluated > 0 {
			t.Errorf("change %d: it is %t that it is enough, and %d items are evaluated", n, ok, change.Evaluated)
		}
		if last = ComputePlan(t.Context(), in); last.Evaluated > 0 || last.Reused != 2 {
			t.Errorf("change %d: %d items are evaluated and %d reused", n, last.Evaluated, last.Reused)
		}
	}
}
