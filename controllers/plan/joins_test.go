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
		in.Snapshot[1] = observed.Target{State: observed.Complete, Resource: nodes, Objects: []observed.Object{content(object(nodes, "Node", "", "n1"), 101+n)}}
		in.Results, in.Earlier = last.Results, last.Base
		last = ComputePlan(t.Context(), in)
		sizes = append(sizes, last.Base.CountBytes())
	}
	if first, end := sizes[0], sizes[len(sizes)-1]; first != end || first < 1<<10 || first > 16<<10 {
		t.Errorf("a Base of one Node takes %d bytes", sizes)
	}
}
