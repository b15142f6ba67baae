// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/idlepatches"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

var (
	nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	pools = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pools"}
)

// object is an object as a watch shows it, with labels given as "key=value" and fields of its spec as "key:value".
func object(resource schema.GroupVersionResource, kind, namespace, name string, words ...string) observed.Object {
	meta := map[string]any{"name": name, "uid": "uid-" + name, "resourceVersion": "7"}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	labels, spec := map[string]string{}, map[string]any{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			labels[k] = v
		} else if k, v, ok := strings.Cut(w, ":"); ok {
			spec[k] = v
		}
	}
	shown := map[string]any{}
	for k, v := range labels {
		shown[k] = v
	}
	meta["labels"] = shown
	return observed.Object{
		Ref:    observed.Ref{Resource: resource, Kind: kind, Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Labels: labels, Protected: labels[v1alpha1.ProtectKey] == "true",
		Value: map[string]any{"apiVersion": resource.GroupVersion().String(), "kind": kind, "metadata": meta, "spec": spec},
	}
}

// p is a Pod in the Cleaner's namespace.
func p(name string, words ...string) observed.Object {
	return object(pods, "Pod", "shop", name, words...)
}

// terminating is an object that has so many seconds to end.
func terminating(o observed.Object, grace int64) observed.Object {
	o.Terminating = true
	meta := o.Value["metadata"].(map[string]any)
	meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = born.Format(time.RFC3339), grace
	return o
}

func held(o observed.Object, finalizers ...string) observed.Object {
	o.Finalizers = finalizers
	return o
}

func nodesSeen(names ...string) observed.Target {
	t := observed.Target{State: observed.Complete, Resource: nodes}
	for _, n := range names {
		t.Objects = append(t.Objects, object(nodes, "Node", "", n))
	}
	return t
}

// pool is an object that says for each of its addresses which Pod it thinks it belongs to.
func pool(name string, addresses ...string) observed.Object {
	o := object(pools, "Pool", "", name)
	list := []any{}
	for _, a := range addresses {
		ip, owner, _ := strings.Cut(a, "=")
		list = append(list, map[string]any{"ip": ip, "pod": owner})
	}
	o.Value["spec"] = map[string]any{"addresses": list}
	return o
}

func poolsSeen(objects ...observed.Object) observed.Target {
	return observed.Target{State: observed.Complete, Resource: pools, Objects: objects}
}

func target(name, kind string, change ...func(*v1alpha1.ClusterTarget)) v1alpha1.ClusterTarget {
	t := v1alpha1.ClusterTarget{Name: name, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: kind}}}
	for _, c := range change {
		c(&t)
	}
	return t
}

// cluster is the work of a ClusterCleaner that stays, over Pods, Nodes and pools.
func cluster(rules ...v1alpha1.Rule) *v1alpha1.Work {
	return &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring, Rules: rules},
		Targets:    []v1alpha1.ClusterTarget{target("pods", "Pod"), target("nodes", "Node"), target("pools", "Pool")},
		Cluster:    true,
	}
}

// over is the input of a ClusterCleaner over these Pods, the Node n1 and no pool.
func over(t testing.TB, work *v1alpha1.Work, objects ...observed.Object) Input {
	t.Helper()
	in := input(t, work, seen(objects...), nodesSeen("n1"), poolsSeen())
	in.Owner = Owner{Name: "c", UID: "cleaner", Created: born}
	return in
}

// raw is parameters as they are stored.
func raw(text string) *kruntime.RawExtension { return &kruntime.RawExtension{Raw: []byte(text)} }

func deletes(grace ...int64) v1alpha1.RuleAction {
	a := v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}
	if len(grace) > 0 {
		a.Delete.GracePeriodSeconds = &grace[0]
	}
	return a
}

func patches(expression string) v1alpha1.RuleAction {
	return v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: expression}}
}

// rule deletes all Pods, but for what is changed of it.
func rule(change ...func(*v1alpha1.Rule)) v1alpha1.Rule {
	r := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true", Actions: []v1alpha1.RuleAction{deletes()}}
	for _, c := range change {
		c(&r)
	}
	return r
}

// short is a step in one line: "rule verb object", "<keys" for more keys than one or keys of an author, "{patch}", "because
// reason" and "after" the places of what comes before.
func short(s *Step) string {
	out := fmt.Sprintf("%s %s %s", s.Rule, s.Verb, s.Object.Name)
	if s.Grace != nil {
		out += fmt.Sprintf(" in %d", *s.Grace)
	}
	if s.Verb == VerbDelete && s.Propagation != v1alpha1.PropagateBackground {
		out += " " + string(s.Propagation)
	}
	if len(s.Keys) > 1 || s.Keys[0] != string(s.Object.UID) {
		out += " <" + strings.Join(s.Keys, ",") + ">"
	}
	if s.Patch != nil {
		out += " " + string(s.Patch.Body)
	}
	if s.Finalizer != "" {
		out += " " + s.Finalizer
	}
	if s.Reason != "" {
		out += " because " + s.Reason
	}
	if len(s.After) > 0 {
		out += fmt.Sprintf(" after %v", s.After)
	}
	return out
}

func shorts(steps []Step) []string {
	var out []string
	for i := range steps {
		out = append(out, short(&steps[i]))
	}
	return out
}

func TestRules(t *testing.T) {
	ofNode := `item.spec.node`
	type want struct {
		Verdict  v1alpha1.Verdict
		Reason   string
		Steps    []string
		Withheld []string
		Errors   []string
		Pending  []string
		Tripped  string
	}
	act := func(steps ...string) want {
		return want{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Steps: steps}
	}
	nothing := want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNothingToDo}
	failing := func(errors ...string) want {
		return want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonEvaluationFailed, Errors: errors}
	}
	wide := func(w want, errors ...string) want { w.Errors = errors; return w }
	keep := func(n int) *intstr.IntOrString { return new(intstr.FromInt32(int32(n))) }
	keepCEL := func(s string) *intstr.IntOrString { return new(intstr.FromString(s)) }
	byAge := []v1alpha1.OrderBy{{Expression: "item.spec.age"}}
	label := `{"metadata": {"labels": {"a": "b"}}}`
	doing := func(name string, actions ...v1alpha1.RuleAction) v1alpha1.Rule {
		return rule(func(r *v1alpha1.Rule) { r.Name, r.When, r.Actions = name, `item.metadata.name != "z"`, actions })
	}
	idle := func(in *Input, _ *v1alpha1.Work) { // the label is there
		in.Idle = idlepatches.Patches{}
		in.Idle.NoteIdle(idlepatches.ID{UID: "uid-a", Rule: "r"}, "7", (&Patch{Type: v1alpha1.PatchMerge, Body: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}).Sum(), in.Now)
	}

	cases := map[string]struct {
		reason string
		rules  []v1alpha1.Rule
		pods   []observed.Object
		change func(*Input, *v1alpha1.Work)
		want   want
	}{
		"When": {
			reason: "those for which when holds are acted on, in the order of the list",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.labels["app"] == "x"` })},
			pods:   []observed.Object{p("a", "app=x"), p("b", "app=y"), p("c", "app=x")},
			want:   act("r delete a", "r delete c"),
		},
		"Nothing": {
			reason: "where nothing matches there is nothing to do",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = "false" })},
			pods:   []observed.Object{p("a")},
			want:   nothing,
		},
		"WhenFails": {
			reason: "an error leaves the others alone, and equal ones are one",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.spec.done == "yes"` })},
			pods:   []observed.Object{p("a"), p("b", "done:yes"), p("c")},
			want:   wide(act("r delete b"), "r Pod shop/a rules[0].when x2"),
		},
		"OnlyErrors": {
			reason: "where there is nothing but errors they are what is said",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.spec.done == "yes"` })},
			pods:   []observed.Object{p("a")},
			want:   failing("r Pod shop/a rules[0].when x1"),
		},
		"JoinFails": {
			reason: "an error names the item that is evaluated, not the object that its expression reads for it",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.When = `item.spec.wants == "none" || nodes.items.exists(n, n.spec[item.spec.wants] == "yes")`
			})},
			pods: []observed.Object{p("a", "wants:none"), p("b", "wants:ready")},
			want: wide(act("r delete a"), "r Pod shop/b rules[0].when x1"),
		},
		"ForEachFails": {
			reason: "an error in forEach stops its rule alone",
			rules: []v1alpha1.Rule{
				rule(func(r *v1alpha1.Rule) { r.Name, r.ForEach = "broken", "pods.items[0].spec.list" }), rule(),
			},
			pods: []observed.Object{p("a")},
			want: wide(act("r delete a"), "broken  rules[0].forEach x1"),
		},
		"Variables": {
			reason: "an error in a variable is one of what reads it",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Variables = []v1alpha1.Variable{{Name: "node", Expression: ofNode}}
				r.When = `!has(item.spec.fine) ? variables.node == "n2" : true`
			})},
			pods: []observed.Object{p("a"), p("b", "fine:yes"), p("c", "node:n2")},
			want: wide(act("r delete b", "r delete c"), "r Pod shop/a rules[0].when x1"),
		},
		"Order": {
			reason: "orderBy, then namespace and name",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.OrderBy = byAge })},
			pods:   []observed.Object{p("a", "age:2"), p("b", "age:1"), p("c", "age:2"), p("d", "age:0")},
			want:   act("r delete d", "r delete b", "r delete a", "r delete c"),
		},
		"OrderOfNames": {
			reason: "what orderBy does not tell apart is ordered by name, whatever the list says",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.OrderBy = "[pods.items[1], pods.items[0]]", []v1alpha1.OrderBy{{Expression: "1"}}
			})},
			pods: []observed.Object{p("a"), p("b")},
			want: act("r delete a", "r delete b"),
		},
		"OrderOfTheList": {
			reason: "without orderBy the list has the order",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.ForEach = "[pods.items[1], pods.items[0]]" })},
			pods:   []observed.Object{p("a"), p("b")},
			want:   act("r delete b", "r delete a"),
		},
		"Descending": {
			reason: "the other way round",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.OrderBy = []v1alpha1.OrderBy{{Expression: "item.spec.age", Descending: true}}
			})},
			pods: []observed.Object{p("a", "age:1"), p("b", "age:2")},
			want: act("r delete b", "r delete a"),
		},
		"Keep": {
			reason: "the last ones stay",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.OrderBy, r.Keep = byAge, keep(2) })},
			pods:   []observed.Object{p("a", "age:4"), p("b", "age:1"), p("c", "age:2"), p("d", "age:3")},
			want:   act("r delete b", "r delete c"),
		},
		"KeepMoreThanThereAre": {
			reason: "all of them, if there are no more",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Keep = keep(1000000) })},
			pods:   []observed.Object{p("a"), p("b")},
			want:   nothing,
		},
		"KeepCountsWhatMatches": {
			reason: "keep is about those for which when holds",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Keep, r.When = keep(1), `item.metadata.name != "c"` })},
			pods:   []observed.Object{p("a"), p("b"), p("c")},
			want:   act("r delete a"),
		},
		"KeepByExpression": {
			reason: "and may be computed of them",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Keep = keepCEL("size(items) / 2") })},
			pods:   []observed.Object{p("a"), p("b"), p("c"), p("d")},
			want:   act("r delete a", "r delete b"),
		},
		"KeepNotAsked": {
			reason: "it is not asked about nothing",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When, r.Keep = "false", keepCEL("1 / size(items)") })},
			pods:   []observed.Object{p("a")},
			want:   nothing,
		},
		"KeepFails": {
			reason: "an error in keep stops its group alone",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.GroupBy, r.Keep = `item.metadata.labels["app"]`, keepCEL(`items[0].metadata.labels["app"] == "x" ? -1 : 1`)
			})},
			pods: []observed.Object{p("a", "app=x"), p("b", "app=y"), p("c", "app=y")},
			want: wide(act("r delete b"), `r "x" rules[0].keep x1`),
		},
		"Groups": {
			reason: "each group has its own last ones",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.GroupBy, r.OrderBy, r.Keep = `item.metadata.labels["app"]`, byAge, keep(1)
			})},
			pods: []observed.Object{p("a", "app=x", "age:2"), p("b", "app=y", "age:2"), p("c", "app=x", "age:1"), p("d", "app=y", "age:1"), p("e", "app=z", "age:1")},
			want: act("r delete c", "r delete d"),
		},
		"GroupFails": {
			reason: "an item without a group counts in none",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.GroupBy, r.Keep = `item.metadata.labels["app"]`, keep(1)
			})},
			pods: []observed.Object{p("a", "app=x"), p("b", "app=x"), p("c")},
			want: wide(act("r delete a"), "r Pod shop/c rules[0].groupBy x1"),
		},
		"OrderFails": {
			reason: "an item without an order stops its group",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.GroupBy, r.OrderBy = `item.metadata.labels["app"]`, byAge
			})},
			pods: []observed.Object{p("a", "app=x", "age:1"), p("b", "app=x"), p("c", "app=y", "age:1")},
			want: wide(act("r delete c"), "r Pod shop/b rules[0].orderBy[0].expression x1"),
		},
		"OrderOfMixedTypes": {
			reason: "so do orders that cannot be compared",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.GroupBy = `item.metadata.labels["app"]`
				r.OrderBy = []v1alpha1.OrderBy{{Expression: `has(item.spec.age) ? dyn(item.spec.age) : dyn(1)`}}
			})},
			pods: []observed.Object{p("a", "app=x", "age:1"), p("b", "app=x"), p("c", "app=y", "age:1")},
			want: wide(act("r delete c"), `r "x" rules[0].orderBy[0].expression x1`),
		},
		"Unless": {
			reason: "keep the newest, and of the rest delete what is not used",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.OrderBy, r.Keep, r.Unless = byAge, keep(1), `"used" in item.spec`
			})},
			pods: []observed.Object{p("a", "age:1", "used:yes"), p("b", "age:2"), p("c", "age:3")},
			want: act("r delete b"),
		},
		"UnlessFails": {
			reason: "nobody knows whether it is spared, so it is",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Unless = `item.spec.used == "yes"` })},
			pods:   []observed.Object{p("a"), p("b", "used:no")},
			want:   wide(act("r delete b"), "r Pod shop/a rules[0].unless x1"),
		},
		"For": {
			reason: "it must hold for as long first",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.For = "40s" })},
			pods:   []observed.Object{p("a"), p("b")},
			want: want{
				Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonHolding, Pending: []string{"r Pod shop/a 40s", "r Pod shop/b 40s"},
			},
		},
		"ForNothing": {
			reason: "nothing is no time",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.For = `duration("0s")` })},
			pods:   []observed.Object{p("a")},
			want:   act("r delete a"),
		},
		"ForEachItsOwn": {
			reason: "each item has a time of its own",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.For = `item.spec.wait` })},
			pods:   []observed.Object{p("a", "wait:1m"), p("b", "wait:0s"), p("c", "wait:30s"), p("d", "wait:soon")},
			want: want{
				Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Steps: []string{"r delete b"},
				Pending: []string{"r Pod shop/c 30s", "r Pod shop/a 1m0s"}, Errors: []string{"r Pod shop/d rules[0].for x1"},
			},
		},
		"ForKey": {
			reason: "items can share a hold, which is one row, due when the first of them is",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.For, r.ForKey = "item.spec.wait", ofNode })},
			pods:   []observed.Object{p("a", "node:n1", "wait:50s"), p("b", "node:n1", "wait:40s"), p("c", "node:n2", "wait:1h"), p("d", "wait:1h")},
			want: want{
				Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonEvaluationFailed, Pending: []string{"r n1 40s", "r n2 1h0m0s"},
				Errors: []string{"r Pod shop/d rules[0].forKey x1"},
			},
		},
		"SparedIsNotPending": {
			reason: "what is kept or spared waits for nothing",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.For, r.Keep, r.Unless = "40s", keep(1), `item.metadata.name == "a"` })},
			pods:   []observed.Object{p("a"), p("b")},
			want:   nothing,
		},
		"Reason": {
			reason: "the author says why",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Reason = `"its node is " + item.spec.node` })},
			pods:   []observed.Object{p("a", "node:n2"), p("b")},
			want:   wide(act("r delete a because its node is n2"), "r Pod shop/b rules[0].reason x1"),
		},
		"Actions": {
			reason: "actions follow each other, each with what it says",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				first := patches(`{"metadata": {"labels": {"name": object.metadata.name, "b": "<&>"}}}`)
				first.When = `item.metadata.name != "b"`
				last := deletes(0)
				last.Delete.PropagationPolicy = v1alpha1.PropagateForeground
				r.Actions = []v1alpha1.RuleAction{first, last}
			})},
			pods: []observed.Object{p("a"), p("b")},
			want: act(`r patch a {"metadata":{"labels":{"b":"<&>","name":"a"}}}`, "r delete a in 0 Foreground after [0]", "r delete b in 0 Foreground"),
		},
		"ActionFails": {
			reason: "with one error nothing is done with the item",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				last := deletes()
				last.When = `item.spec.ok == "yes"`
				r.Actions = []v1alpha1.RuleAction{patches(`{}`), last}
			})},
			pods: []observed.Object{p("a"), p("b", "ok:yes")},
			want: wide(act("r patch b {}", "r delete b after [0]"), "r Pod shop/a rules[0].actions[1].when x1"),
		},
		"PatchFails": {
			reason: "also if it is in a patch",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}, patches(`{"spec": {"x": item.spec.x}}`)}
			})},
			pods: []observed.Object{p("a"), p("b", "x:1"), p("c")},
			want: wide(act("r report b", `r patch b {"spec":{"x":"1"}} after [0]`), "r Pod shop/a rules[0].actions[1].patch.expression x2"),
		},
		"PatchSetsOwners": {
			reason: "whose absence would have the object deleted",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Actions = []v1alpha1.RuleAction{patches(`{"metadata": {item.spec.?x.orValue("labels"): {}}}`)}
			})},
			pods: []observed.Object{p("a", "x:ownerReferences"), p("b")},
			want: wide(act(`r patch b {"metadata":{"labels":{}}}`), "r Pod shop/a rules[0].actions[0].patch.expression x1"),
		},
		"Evict": {
			reason: "an eviction has a grace",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Actions = []v1alpha1.RuleAction{{Evict: &v1alpha1.EvictAction{GracePeriodSeconds: new(int64(5))}}}
			})},
			pods: []observed.Object{p("a"), terminating(p("b"), 5)},
			want: act("r evict a in 5"),
		},
		"EvictOthers": {
			reason: "and is for Pods alone",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Actions = "nodes.items", []v1alpha1.RuleAction{{Evict: &v1alpha1.EvictAction{}}}
			})},
			want: failing("r Node n1 rules[0].actions[0].evict x1"),
		},
		"RemoveFinalizer": {
			reason: "a finalizer is taken off what has it",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Actions = []v1alpha1.RuleAction{{RemoveFinalizer: &v1alpha1.RemoveFinalizerAction{Name: "example.com/x"}}}
			})},
			pods: []observed.Object{held(p("a"), "example.com/x"), held(p("b"), "example.com/y"), p("c")},
			want: act("r removeFinalizer a example.com/x"),
		},
		"Terminating": {
			reason: "what is on its way is left alone, unless it gets shorter",
			rules: []v1alpha1.Rule{
				rule(func(r *v1alpha1.Rule) { r.Name = "plain" }),
				rule(func(r *v1alpha1.Rule) { r.Name, r.Actions = "short", []v1alpha1.RuleAction{deletes(5)} }),
			},
			pods: []observed.Object{terminating(p("a"), 30), terminating(p("b"), 5), terminating(p("c"), 0)},
			want: act("short delete a in 5"),
		},
		"FirstDelete": {
			reason: "of several deletes the first that applies is the one",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				first := deletes(0)
				first.When = `item.metadata.name == "a"`
				r.Actions = []v1alpha1.RuleAction{first, deletes(30)}
			})},
			pods: []observed.Object{p("a"), p("b"), terminating(p("c"), 60)},
			want: act("r delete a in 0", "r delete b in 30", "r delete c in 30"),
		},
		"FirstRule": {
			reason: "an object is acted on once, by the first rule; a report takes nothing from anybody",
			rules: []v1alpha1.Rule{
				rule(func(r *v1alpha1.Rule) {
					r.Name, r.Actions = "look", []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
				}),
				rule(func(r *v1alpha1.Rule) { r.Name, r.When = "first", `item.metadata.name == "a"` }), rule(),
			},
			pods: []observed.Object{p("a"), p("b")},
			want: act("look report a", "look report b", "first delete a", "r delete b"),
		},
		"TargetAfterRules": {
			reason: "targets with delete: true come last, and take what is left",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name == "a"` })},
			pods:   []observed.Object{p("a"), p("b"), terminating(p("c"), 30)},
			change: func(_ *Input, w *v1alpha1.Work) { w.Targets[0].Delete = true },
			want:   act("r delete a", "targets.pods delete b"),
		},
		"Protected": {
			reason: "what is protected is withheld, and ends its item",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}, patches("{}"), deletes()}
			})},
			pods: []observed.Object{object(pods, "Pod", "kube-system", "k"), p("a"), p("b", v1alpha1.ProtectKey+"=true")},
			want: func() want {
				w := act("r report k", "r report a", "r patch a {} after [1]", "r delete a after [1 2]", "r report b")
				w.Withheld = []string{`r patch k: namespace "kube-system" is protected`, `r patch b: it has the label or annotation cleaner.vtex.dev/protect: "true"`}
				return w
			}(),
		},
		"AllProtected": {
			reason: "a plan of nothing else is blocked",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{object(pods, "Pod", "kube-system", "k")},
			want: want{
				Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonProtected,
				Withheld: []string{`r delete k: namespace "kube-system" is protected`},
			},
		},
		"IncludeProtected": {
			reason: "a ClusterCleaner may include protected namespaces, but never the operator's own",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{object(pods, "Pod", "cleaner-system", "o"), object(pods, "Pod", "kube-system", "k")},
			change: func(in *Input, w *v1alpha1.Work) { w.IncludeProtected, in.Protection.Own = true, "cleaner-system" },
			want: func() want {
				w := act("r delete k")
				w.Withheld = []string{`r delete o: namespace "cleaner-system" is the namespace of the operator`}
				return w
			}(),
		},
		"ProtectedKinds": {
			reason: "kinds are protected from being deleted only",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Actions = "nodes.items", []v1alpha1.RuleAction{patches(`{"spec": {"unschedulable": true}}`), deletes()}
			})},
			want: func() want {
				w := act(`r patch n1 {"spec":{"unschedulable":true}}`)
				w.Withheld = []string{"r delete n1: nodes are protected unless the operator runs with --allow-protected-kinds=nodes"}
				return w
			}(),
		},
		"Object": {
			reason: "an action may be about another object, which is found by what the expression says of it",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				taint := patches(`{"spec": {"pod": item.metadata.name}}`)
				taint.Object = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": item.spec.node}}`
				r.Actions = []v1alpha1.RuleAction{taint}
			})},
			pods: []observed.Object{p("a", "node:n1"), p("b", "node:n2"), p("c")},
			want: wide(act(`r patch n1 <uid-a> {"spec":{"pod":"a"}}`),
				"r Pod shop/b rules[0].actions[0].object x1", "r Pod shop/c rules[0].actions[0].object x1"),
		},
		"ObjectOfAnotherUID": {
			reason: "an object of the same name and another UID is another object",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Key, r.ForEach = "item", `["uid-n1", "uid-old"]`
				taint := patches(`{"spec": {}}`)
				taint.Object = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": item}}`
				r.Actions = []v1alpha1.RuleAction{taint}
			})},
			want: wide(act(`r patch n1 {"spec":{}}`), "r uid-old rules[0].actions[0].object x1"),
		},
		"MadeUp": {
			reason: "what an expression made up is never acted on",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach = `[{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "z", "namespace": "shop", "uid": "uid-z"}}]`
			})},
			pods: []observed.Object{p("a")},
			want: failing("r  rules[0].forEach x1"),
		},
		"NotIncluded": {
			reason: "nor is an object of a target that expressions do not see",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach = `[{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}}]`
			})},
			pods:   []observed.Object{p("a")},
			change: func(_ *Input, w *v1alpha1.Work) { quiet(&w.Targets[0]) },
			want:   failing("r  rules[0].forEach x1"),
		},
		"KeyNeeded": {
			reason: "what is no object needs a key",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Actions = `["x"]`, []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
			})},
			want: failing("r  rules[0].key x1"),
		},
		"KeyEmpty": {
			reason: "that is not empty",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key, r.Actions = `["", "x", "y"]`, "item", []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
			})},
			want: wide(act("r report  <x>", "r report  <y>"), "r  rules[0].key x1"),
		},
		"KeyOfTwo": {
			reason: "and is no other item's",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key, r.Actions = `["x", "y", "x", "x"]`, "item", []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
			})},
			want: wide(act("r report  <y>"), "r x rules[0].key x1"),
		},
		"KeyOfTwoObjects": {
			reason: "whatever it is about; what is kept stays so",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Key, r.Keep = "item.spec.age", keep(1) })},
			pods:   []observed.Object{p("a", "age:1"), p("b", "age:1"), p("c", "age:2"), p("d", "age:3")},
			want:   wide(act("r delete c <2>"), "r 1 rules[0].key x1"),
		},
		"KeyOfOneThatWaitsAndOneThatDoesNot": {
			reason: "an item for which when does not hold may have any key",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Key, r.When, r.For = "item.spec.age", `item.metadata.name != "b"`, "40s"
			})},
			pods: []observed.Object{p("a", "age:1"), p("b", "age:1")},
			want: want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonHolding, Pending: []string{"r 1 40s"}},
		},
		"NoObject": {
			reason: "and something to act on",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.ForEach, r.Key = `["x"]`, "item" })},
			want:   failing("r x rules[0].actions[0] x1"),
		},
		"Fold": {
			reason: "what several items want of one object is one step, after what comes before it",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				release := patches(`{"spec": {"release": items.map(i, i.metadata.name)}}`)
				release.Object = "pools.items[0]"
				r.Reason = `"it is " + item.metadata.name`
				r.Actions = []v1alpha1.RuleAction{deletes(), release, {Report: &v1alpha1.ReportAction{}}}
			})},
			pods:   []observed.Object{p("a"), p("b"), p("c", v1alpha1.ProtectKey+"=true")},
			change: func(in *Input, _ *v1alpha1.Work) { in.Snapshot[2] = poolsSeen(pool("p1")) },
			want: func() want {
				w := act("r delete a because it is a", "r delete b because it is b",
					`r patch p1 <uid-a,uid-b> {"spec":{"release":["a","b"]}} because it is a, and 1 more after [0 1]`,
					"r report a because it is a after [0 2]", "r report b because it is b after [1 2]")
				w.Withheld = []string{`r delete c: it has the label or annotation cleaner.vtex.dev/protect: "true"`}
				return w
			}(),
		},
		"FoldOfOne": {
			reason: "one item alone sees itself",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				release := patches(`{"spec": {"release": item.metadata.name, "n": items.size(), "of": object.metadata.name}}`)
				release.Object = "pools.items[0]"
				r.Actions = []v1alpha1.RuleAction{release}
			})},
			pods:   []observed.Object{p("a")},
			change: func(in *Input, _ *v1alpha1.Work) { in.Snapshot[2] = poolsSeen(pool("p1")) },
			want:   act(`r patch p1 <uid-a> {"spec":{"n":1,"of":"p1","release":"a"}}`),
		},
		"FoldWithoutTheFailed": {
			reason: "an item with an error in its own patch is not in the fold",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				release := patches(`{"spec": {"release": items.map(i, i.metadata.name)}}`)
				release.Object = "pools.items[0]"
				r.Actions = []v1alpha1.RuleAction{patches(`{"spec": {"x": item.spec.x}}`), release}
			})},
			pods:   []observed.Object{p("a", "x:1"), p("b"), p("c", "x:2")},
			change: func(in *Input, _ *v1alpha1.Work) { in.Snapshot[2] = poolsSeen(pool("p1")) },
			want: wide(act(`r patch a {"spec":{"x":"1"}}`, `r patch c {"spec":{"x":"2"}}`,
				`r patch p1 <uid-a,uid-c> {"spec":{"release":["a","c"]}} after [0 1]`), "r Pod shop/b rules[0].actions[0].patch.expression x1"),
		},
		"FoldOfDeletes": {
			reason: "two entries about one object delete it once",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach = `pods.items.map(p, [1, 2].map(n, {"pod": p, "n": n})).flatten()`
				r.Key = `item.pod.metadata.name + string(item.n)`
				first := deletes(0)
				first.Object, first.When = "item.pod", "item.n == 1"
				second := deletes()
				second.Object = "item.pod"
				r.Actions = []v1alpha1.RuleAction{first, second}
			})},
			pods: []observed.Object{p("a")},
			want: act("r delete a in 0 <a1>"),
		},
		"OneObjectOfTwoItems": {
			reason: "what different items want of one object happens in the order of the actions",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key = `["x", "y"]`, "item"
				first, second := patches("{}"), deletes()
				first.Object, first.When = "pods.items[0]", `item == "y"`
				second.Object, second.When = "pods.items[0]", `item == "x"`
				r.Actions = []v1alpha1.RuleAction{first, second}
			})},
			pods: []observed.Object{p("a")},
			want: act("r patch a <y> {}", "r delete a <x> after [0]"),
		},
		"TakenFromAFold": {
			reason: "an item whose object an earlier rule took is in no fold",
			rules: []v1alpha1.Rule{
				rule(func(r *v1alpha1.Rule) { r.Name, r.When = "first", `item.metadata.name == "a"` }),
				rule(func(r *v1alpha1.Rule) {
					release := patches(`{"spec": {"release": items.map(i, i.metadata.name)}}`)
					release.Object = "pools.items[0]"
					r.Actions = []v1alpha1.RuleAction{deletes(), release}
				}),
			},
			pods:   []observed.Object{p("a"), p("b"), p("c")},
			change: func(in *Input, _ *v1alpha1.Work) { in.Snapshot[2] = poolsSeen(pool("p1")) },
			want: act("first delete a", "r delete b", "r delete c",
				`r patch p1 <uid-b,uid-c> {"spec":{"release":["b","c"]}} after [1 2]`),
		},
		"Gate": {
			reason: "conditions come first",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a")},
			change: func(_ *Input, w *v1alpha1.Work) { w.Conditions = []string{"pods.items.size() > 1"} },
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonConditionsNotMet},
		},
		"MaxActions": {
			reason: "over a limit nothing is done, and the plan says what it would have been",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a"), p("b")},
			change: func(_ *Input, w *v1alpha1.Work) { w.Limits = &v1alpha1.Limits{MaxActions: 1} },
			want: want{
				Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded, Tripped: "maxActions",
				Steps: []string{"r delete a", "r delete b"},
			},
		},
		"MaxActionsCountsObjects": {
			reason: "two deeds on an object are one, and a report is none",
			rules: []v1alpha1.Rule{
				rule(func(r *v1alpha1.Rule) { r.Actions = []v1alpha1.RuleAction{patches("{}"), deletes()} }),
				rule(func(r *v1alpha1.Rule) {
					r.Name, r.Actions = "look", []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
				}),
			},
			pods:   []observed.Object{p("a")},
			change: func(_ *Input, w *v1alpha1.Work) { w.Limits = &v1alpha1.Limits{MaxActions: 1, MaxPercent: 100} },
			want:   act("r patch a {}", "r delete a after [0]", "look report a"),
		},
		"MaxActionsCountsFolds": {
			reason: "a fold counts as its items",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				release := patches(`{}`)
				release.Object = "pools.items[0]"
				r.Actions = []v1alpha1.RuleAction{release}
			})},
			pods: []observed.Object{p("a"), p("b"), p("c")},
			change: func(in *Input, w *v1alpha1.Work) {
				in.Snapshot[2], w.Limits = poolsSeen(pool("p1")), &v1alpha1.Limits{MaxActions: 2}
			},
			want: want{
				Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded, Tripped: "maxActions", Steps: []string{"r patch p1 <uid-a,uid-b,uid-c> {}"},
			},
		},
		"MaxActionsOfTheLastHour": {
			reason: "what was done counts, as long as per says",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a")},
			change: func(in *Input, w *v1alpha1.Work) {
				w.Limits = &v1alpha1.Limits{MaxActions: 2, Per: "30m"}
				in.Done = limits.Done{
					{At: in.Now.Add(-30 * time.Minute), UID: "old", Items: limits.SumItems([]string{"1", "2", "3"})},
					{At: in.Now.Add(-29 * time.Minute), UID: "x", Items: limits.SumItems([]string{"1", "2"})},
				}
			},
			want: want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded, Tripped: "maxActions", Steps: []string{"r delete a"}},
		},
		"MaxActionsCountsAnObjectOnce": {
			reason: "what was patched and is deleted now is one object, and so is one that was patched twice",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a")},
			change: func(in *Input, w *v1alpha1.Work) {
				w.Limits = &v1alpha1.Limits{MaxActions: 2}
				in.Done = limits.Done{
					{At: in.Now, UID: "uid-a", Rule: "patch", Items: limits.SumItems([]string{"uid-a"})},
					{At: in.Now, UID: "x", Rule: "patch", Items: limits.SumItems([]string{"1"})}, {At: in.Now, UID: "x", Rule: "patch", Items: limits.SumItems([]string{"1"})},
				}
			},
			want: act("r delete a"),
		},
		"MaxActionsAddsItems": {
			reason: "what an object has stood for and stands for now is counted together",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a")},
			change: func(in *Input, w *v1alpha1.Work) {
				w.Limits = &v1alpha1.Limits{MaxActions: 3}
				in.Done = limits.Done{
					{At: in.Now, UID: "x", Rule: "patch", Items: limits.SumItems([]string{"1", "2"})}, {At: in.Now, UID: "x", Rule: "patch", Items: limits.SumItems([]string{"3"})},
				}
			},
			want: want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded, Tripped: "maxActions", Steps: []string{"r delete a"}},
		},
		"MaxPercent": {
			reason: "the percentage is of the objects of a target, and one target over it stops all",
			rules: []v1alpha1.Rule{
				rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name in ["a", "b"]` }),
				rule(func(r *v1alpha1.Rule) {
					r.Name, r.ForEach, r.Actions = "n", "nodes.items", []v1alpha1.RuleAction{patches("{}")}
				}),
			},
			pods:   []observed.Object{p("a"), p("b"), p("c"), p("d")},
			change: func(_ *Input, w *v1alpha1.Work) { w.Limits = &v1alpha1.Limits{MaxPercent: 50} },
			want: want{
				Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded, Tripped: "maxPercent",
				Steps: []string{"r delete a", "r delete b", "n patch n1 {}"},
			},
		},
		"MaxPercentJust": {
			reason: "at the limit is not over it",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name in ["a", "b"]` })},
			pods:   []observed.Object{p("a"), p("b"), p("c"), p("d")},
			change: func(_ *Input, w *v1alpha1.Work) { w.Limits = &v1alpha1.Limits{MaxPercent: 50} },
			want:   act("r delete a", "r delete b"),
		},
		"MaxPercentOfTheLastHour": {
			reason: "what was deleted counts on both sides: 3 of 6 would be gone",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name == "a"` })},
			pods:   []observed.Object{p("a"), p("b"), p("c"), p("d")},
			change: func(in *Input, w *v1alpha1.Work) {
				w.Limits = &v1alpha1.Limits{MaxPercent: 49}
				in.Done = limits.Done{{At: in.Now, UID: "x", Targets: []string{"pods"}}, {At: in.Now, UID: "y", Targets: []string{"pods"}}}
			},
			want: want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded, Tripped: "maxPercent", Steps: []string{"r delete a"}},
		},
		"MaxPercentOfWhatIsStillThere": {
			reason: "what was patched and is there counts on one side: 3 of 4 would be acted on",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name == "a"` })},
			pods:   []observed.Object{p("a"), p("b"), p("c"), p("d")},
			change: func(in *Input, w *v1alpha1.Work) {
				w.Limits = &v1alpha1.Limits{MaxPercent: 70}
				in.Done = limits.Done{
					{At: in.Now, UID: "uid-b", Targets: []string{"pods"}}, {At: in.Now, UID: "uid-c", Targets: []string{"pods"}},
					{At: in.Now, UID: "uid-a", Targets: []string{"pods"}}, {At: in.Now, UID: "uid-d", Targets: []string{"nodes"}},
				}
			},
			want: want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded, Tripped: "maxPercent", Steps: []string{"r delete a"}},
		},
		"Backoff": {
			reason: "what failed waits, and the others do not",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a"), p("b")},
			change: func(in *Input, _ *v1alpha1.Work) {
				in.Backoff = backoff.Failures{}
				in.Backoff.RecordFailure("uid-a", v1alpha1.ReasonDeletionRefused, "forbidden", in.Now)
			},
			want: act("r delete b"),
		},
		"IdlePatch": {
			reason: "a patch that has changed nothing is not sent to the same version again, and leaves the object to later rules",
			rules:  []v1alpha1.Rule{doing("r", patches(label)), doing("later", deletes())},
			pods:   []observed.Object{p("a"), p("b")},
			change: idle,
			want:   act(`r patch b {"metadata":{"labels":{"a":"b"}}}`, "later delete a"),
		},
		"OnlyIdlePatches": {
			reason: "and there is nothing to do, if there is nothing else",
			rules:  []v1alpha1.Rule{doing("r", patches(label))},
			pods:   []observed.Object{p("a")},
			change: idle,
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNothingToDo},
		},
		"IdlePatchBeforeAnother": {
			reason: "what comes after a patch waits for it, whatever it changes",
			rules:  []v1alpha1.Rule{doing("r", patches(label), deletes())},
			pods:   []observed.Object{p("a")},
			change: idle,
			want:   act(`r patch a {"metadata":{"labels":{"a":"b"}}}`, "r delete a after [0]"),
		},
		"OneOfTwoPatchesIsIdle": {
			reason: "all patches of an item are sent while one of them is of use",
			rules:  []v1alpha1.Rule{doing("r", patches(label), patches(`{"metadata": {"labels": {"c": "d"}}}`))},
			pods:   []observed.Object{p("a")},
			change: idle,
			want:   act(`r patch a {"metadata":{"labels":{"a":"b"}}}`, `r patch a {"metadata":{"labels":{"c":"d"}}} after [0]`),
		},
		"IdlePatchAndReport": {
			reason: "a report is made all the same",
			rules:  []v1alpha1.Rule{doing("r", patches(label), v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}})},
			pods:   []observed.Object{p("a")},
			change: idle,
			want:   act("r report a"),
		},
		"IdlePatchOfAnotherVersion": {
			reason: "an object that has changed meanwhile waits, but not for long",
			rules:  []v1alpha1.Rule{doing("r", patches(label))},
			pods:   []observed.Object{p("a"), p("b")},
			change: func(in *Input, _ *v1alpha1.Work) {
				in.Idle = idlepatches.Patches{}
				in.Idle.NoteIdle(idlepatches.ID{UID: "uid-a", Rule: "r"}, "older", stringhash.SumOf("another"), in.Now)
				in.Idle.NoteIdle(idlepatches.ID{UID: "uid-b", Rule: "r"}, "older", stringhash.SumOf("another"), in.Now.Add(-time.Minute))
			},
			want: act(`r patch b {"metadata":{"labels":{"a":"b"}}}`),
		},
		"OnlyBackoff": {
			reason: "and is what is said, where there is nothing else",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a")},
			change: func(in *Input, _ *v1alpha1.Work) {
				in.Backoff = backoff.Failures{}
				in.Backoff.RecordFailure("uid-a", v1alpha1.ReasonDeletionRefused, "forbidden", in.Now)
			},
			want: want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonDeletionRefused},
		},
		"OnlyBackoffPatch": {
			reason: "and names the request that was refused",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a")},
			change: func(in *Input, _ *v1alpha1.Work) {
				in.Backoff = backoff.Failures{}
				in.Backoff.RecordFailure("uid-a", v1alpha1.ReasonPatchRefused, "forbidden", in.Now)
			},
			want: want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPatchRefused},
		},
		"Unstable": {
			reason: "an object that always changes is called so",
			rules:  []v1alpha1.Rule{rule()},
			pods:   []observed.Object{p("a")},
			change: func(in *Input, _ *v1alpha1.Work) {
				in.Backoff = backoff.Failures{}
				for !in.Backoff["uid-a"].IsUnstable() {
					in.Backoff.RecordConflict("uid-a", v1alpha1.ReasonDeletionRefused, 1, in.Now)
				}
			},
			want: want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonTargetUnstable},
		},
		"Failed": {
			reason: "an item of which an earlier step failed is left alone, in folds too",
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				release := patches(`{"spec": {"release": items.map(i, i.metadata.name)}}`)
				release.Object = "pools.items[0]"
				r.Actions = []v1alpha1.RuleAction{deletes(), release}
			})},
			pods: []observed.Object{p("a"), p("b")},
			change: func(in *Input, _ *v1alpha1.Work) {
				in.Snapshot[2] = poolsSeen(pool("p1"))
				in.Failed = map[ItemKey]bool{{"r", "uid-a"}: true}
			},
			want: act("r delete b", `r patch p1 <uid-b> {"spec":{"release":["b"]}} after [0]`),
		},
		"Only": {
			reason: "others than those that are asked for count, and are left alone",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Keep = keep(1) })},
			pods:   []observed.Object{p("a"), p("b"), p("c")},
			change: func(in *Input, w *v1alpha1.Work) {
				w.Targets[0].Delete = true
				in.Only = map[ItemKey]bool{{"r", "uid-b"}: true, {"r", "uid-c"}: true}
			},
			want: act("r delete b"),
		},
		"Params": {
			reason: "parameters that are durations are those",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.For = "params.wait" })},
			pods:   []observed.Object{p("a")},
			change: func(_ *Input, w *v1alpha1.Work) {
				w.Parameters, w.Durations = raw(`{"wait": "2m"}`), []string{"wait"}
			},
			want: want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonHolding, Pending: []string{"r Pod shop/a 2m0s"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			work := cluster(tc.rules...)
			in := Input{Now: born.Add(24 * time.Hour), Protection: Protection{Namespaces: []string{"kube-system"}}, Snapshot: make(observed.Snapshot, 3)}
			if tc.change != nil {
				tc.change(&in, work)
			}
			base := over(t, work, tc.pods...)
			if in.Snapshot[2].State == observed.Complete {
				base.Snapshot[2] = in.Snapshot[2]
			}
			in.Owner, in.Spec, in.Programs, in.Snapshot = base.Owner, base.Spec, base.Programs, base.Snapshot

			plan := ComputePlan(t.Context(), in)
			got := want{Verdict: plan.Verdict, Reason: plan.Reason, Steps: shorts(plan.Steps), Tripped: plan.TrippedBy}
			for _, w := range plan.Withheld {
				got.Withheld = append(got.Withheld, fmt.Sprintf("%s %s %s: %s", w.Step.Rule, w.Step.Verb, w.Step.Object.Name, w.Because))
			}
			for _, e := range plan.Errors {
				got.Errors = append(got.Errors, fmt.Sprintf("%s %s %s x%d", e.Rule, e.Key, e.Field, e.Count))
			}
			for _, w := range plan.Pending {
				got.Pending = append(got.Pending, fmt.Sprintf("%s %s %s", w.Rule, w.Key, w.Until.Sub(in.Now)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s:\n-want +got\n%s%s", tc.reason, diff, plan.Message)
			}
			if plan.Message == "" {
				t.Error("a plan says why")
			}
		})
	}
}

// A limit that trips says what it allows, how many objects there would be, and which come first.
func TestATrippedLimitNamesObjects(t *testing.T) {
	in := over(t, cluster(rule()), p("a"), p("b"), p("c"), p("d"))
	in.Now, in.Spec.Limits = born.Add(24*time.Hour), &v1alpha1.Limits{MaxActions: 3}
	const want = "The Cleaner takes no action: the plan would exceed limits.maxActions (3 objects in 1h0m0s) with 4. " +
		"First: Pod shop/a, Pod shop/b, Pod shop/c."
	if got := ComputePlan(t.Context(), in); got.Message != want {
		t.Errorf("got %q, want %q", got.Message, want)
	}
}

// An author can make up items without end. Neither they nor what is asked about them is held on to beyond a bound: then
// nothing is decided, and it is said where that was found.
func TestWhatRulesRetainIsBounded(t *testing.T) {
	made := func(forEach string, change ...func(*v1alpha1.Rule)) v1alpha1.Rule {
		r := rule(change...)
		r.ForEach, r.When, r.Actions = forEach, "true", []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
		return r
	}
	long := "'" + strings.Repeat("0123456789", 100) + "' + string(item)"
	cases := map[string]struct {
		rule v1alpha1.Rule
		want string
	}{
		"Keys": {made("lists.range(200000)", func(r *v1alpha1.Rule) { r.Key = long }),
			"The Cleaner takes no action because of an error: spec.rules[0].when: what the rules want takes more than 100663296 bytes of memory; act on fewer items at once, or give shorter keys, reasons and patches."},
		"Holds": {made("lists.range(200000)", func(r *v1alpha1.Rule) { r.Key, r.For = "string(item)", "1h" }),
			"The Cleaner takes no action because of an error: spec.rules[0].when: what the rules want takes more than 100663296 bytes of memory; act on fewer items at once, or give shorter keys, reasons and patches."},
		"Steps": {made("lists.range(200000)", func(r *v1alpha1.Rule) { r.Key = "string(item)" }),
			"The Cleaner takes no action because of an error: spec.rules[0].actions: what the rules want takes more than 100663296 bytes of memory; act on fewer items at once, or give shorter keys, reasons and patches."},
		"StepsOfFewItems": {made("lists.range(20000)", func(r *v1alpha1.Rule) { r.Key = "string(item)" }),
			"The Cleaner takes no action because of an error: spec.rules[0].actions: what the rules want takes more than 100663296 bytes of memory; act on fewer items at once, or give shorter keys, reasons and patches."},
		"Items": {made("lists.range(300000)", func(r *v1alpha1.Rule) { r.Key = "string(item)" }),
			`The Cleaner takes no action because of an error: rule "r": spec.rules[0].forEach: at 1:12: forEach gives 300000 items, and a rule may have 250000; filter the list, or let the target select less`},
		"LongKey": {made("lists.range(15)", func(r *v1alpha1.Rule) { r.Key = "lists.range(2000).map(x, '0123456789').join() + string(item)" }),
			`The Cleaner takes no action because of an error: rule "r": spec.rules[0].key: at 1:47: key may have 1024 bytes, and this one has 20001; give a shorter text`},
	}
	several := cases["StepsOfFewItems"]
	several.rule.Actions = slices.Repeat(several.rule.Actions, 16)
	cases["StepsOfFewItems"] = several
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := over(t, cluster(tc.rule), p("a"))
			in.Holds = fortimers.Holds{"other": {Text: "kept"}}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := ComputePlan(t.Context(), in)
			runtime.GC()
			runtime.ReadMemStats(&after)
			if got.Verdict != v1alpha1.VerdictWait || got.Reason != v1alpha1.ReasonEvaluationFailed || placeless(got.Message) != placeless(tc.want) || len(got.Steps) > 0 {
				t.Errorf("%s %s with %d steps: %s\nwant %s", got.Verdict, got.Reason, len(got.Steps), got.Message, tc.want)
			}
			if left := int64(after.HeapAlloc) - int64(before.HeapAlloc); left > 8<<20 {
				t.Errorf("it holds on to %d MiB", left>>20)
			}
			if over := strings.Contains(tc.want, "bytes of memory"); over && (len(got.Holds) != 1 || len(got.Pending) > 0 || got.RulesEvaluated) {
				t.Errorf("after what it could not decide it has %d holds and %d pending", len(got.Holds), len(got.Pending))
			}
		})
	}
}

// What was answered before the end of the time is no basis for a decision.
func TestAnEvaluationThatIsCutOffDecidesNothing(t *testing.T) {
	first := rule(func(r *v1alpha1.Rule) { r.Name = "first" })
	second := rule(func(r *v1alpha1.Rule) {
		r.Name, r.ForEach, r.Key = "second", "lists.range(100000)", "string(item)"
		r.When = "lists.range(1000).all(x, item >= 0)"
	})
	in := over(t, cluster(first, second), p("a"), p("b"))
	in.Results = &reuse.Results{}
	got := ComputePlan(t.Context(), in)
	const want = "The Cleaner takes no action because of an error: spec.rules[1]." // the place where the steps or the time are over, whichever is first
	if got.Verdict != v1alpha1.VerdictWait || got.Reason != v1alpha1.ReasonEvaluationFailed || len(got.Steps) > 0 || got.RulesEvaluated ||
		got.Results != nil || !strings.HasPrefix(got.Message, want) {
		t.Errorf("%s %s, %d steps: %s", got.Verdict, got.Reason, len(got.Steps), got.Message)
	}
}

// placeless is a message up to its hint, without the position in the expression.
func placeless(message string) string {
	message, _, _ = strings.Cut(message, ";")
	return regexp.MustCompile(` at [0-9]+:[0-9]+`).ReplaceAllString(message, "")
}

// A rule that leaves objects to an earlier one says so, once for each two rules. A report, and a patch that changes nothing, leave them to it.
func TestShadowedRules(t *testing.T) {
	label := `{"metadata": {"labels": {"a": "b"}}}`
	named := func(name string, actions ...v1alpha1.RuleAction) v1alpha1.Rule {
		return rule(func(r *v1alpha1.Rule) { r.Name, r.When, r.Actions = name, `item.metadata.name != "z"`, actions })
	}
	look := v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}
	idle := idlepatches.Patches{}
	for _, uid := range []types.UID{"uid-a", "uid-b"} {
		idle.NoteIdle(idlepatches.ID{UID: uid, Rule: "warn"}, "7", (&Patch{Type: v1alpha1.PatchMerge, Body: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}).Sum(), born)
	}
	for name, tc := range map[string]struct {
		rules []v1alpha1.Rule
		idle  idlepatches.Patches
		want  []Shadow
		acts  string
	}{
		"Patched":  {[]v1alpha1.Rule{named("warn", patches(label)), named("remove", deletes())}, nil, []Shadow{{"remove", "warn", "Pod shop/a", 2}}, "warn"},
		"Idle":     {[]v1alpha1.Rule{named("warn", patches(label)), named("remove", deletes())}, idle, nil, "remove"},
		"Reported": {[]v1alpha1.Rule{named("look", look), named("remove", deletes())}, nil, nil, "look"},
		"Twice": {
			[]v1alpha1.Rule{named("warn", patches(label)), named("remove", deletes()), named("again", deletes())}, nil,
			[]Shadow{{"remove", "warn", "Pod shop/a", 2}, {"again", "warn", "Pod shop/a", 2}}, "warn",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := over(t, cluster(tc.rules...), p("a"), p("b"))
			in.Idle = tc.idle
			got := ComputePlan(t.Context(), in)
			if diff := cmp.Diff(tc.want, got.Shadowed); diff != "" || len(got.Steps) == 0 || got.Steps[0].Rule != tc.acts {
				t.Errorf("%d steps; shadowed are (-want +got)\n%s", len(got.Steps), diff)
			}
		})
	}
}

// Each item is counted where it is left out.
func TestRuleCounts(t *testing.T) {
	in := over(t, cluster(
		rule(func(r *v1alpha1.Rule) {
			r.Name, r.When, r.Keep, r.OrderBy = "kept", `item.metadata.name < "d"`, new(intstr.FromInt32(1)), []v1alpha1.OrderBy{{Expression: "item.metadata.name"}}
			r.Unless = `item.metadata.name == "a"`
		}),
		rule(func(r *v1alpha1.Rule) {
			r.Name, r.When = "later", `item.metadata.name != "f" || item.spec.missing == ""`
		}),
		rule(func(r *v1alpha1.Rule) { r.Name, r.When, r.For = "young", `item.metadata.name == "a"`, "1h" }),
	), p("a"), p("b"), p("c"), p("d", v1alpha1.ProtectKey+"=true"), p("e"), p("f"))
	in.Backoff = backoff.Failures{}
	in.Backoff.RecordFailure("uid-e", v1alpha1.ReasonDeletionRefused, "forbidden", in.Now)
	want := []RuleCount{
		{Rule: "kept", Items: 6, Matched: 3, Kept: 1, Spared: 1, Acted: 1},
		{Rule: "later", Items: 6, Matched: 5, Protected: 1, Shadowed: 1, Deferred: 1, Acted: 2},
		{Rule: "young", Items: 6, Matched: 1, Waiting: 1},
	}
	got := ComputePlan(t.Context(), in)
	if diff := cmp.Diff(want, got.Counts); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	told := []v1alpha1.RuleCounts{
		{Rule: "kept", Items: 6, Matched: 3, Kept: 1, Spared: 1, Acted: 1},
		{Rule: "later", Items: 6, Matched: 5, Protected: 1, Shadowed: 1, Deferred: 1, Errors: 1, Acted: 2},
		{Rule: "young", Items: 6, Matched: 1, Waiting: 1},
	}
	if diff := cmp.Diff(told, got.ListCounts()); diff != "" {
		t.Errorf("a status tells: -want +got\n%s", diff)
	}
	in.Spec.Suspend = true
	if p := ComputePlan(t.Context(), in); len(p.ListCounts()) > 0 {
		t.Errorf("counts of rules that are not evaluated: %v", p.ListCounts())
	}
}

// Rules act on objects of a target of all kinds only in ways that are reviewed for each kind, also where an expression makes up the object.
func TestOnlyDeletesActOnObjectsOfAllKinds(t *testing.T) {
	const made = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}}`
	patch := patches(`{"metadata": {"labels": {"x": "y"}}}`)
	byObject := patch
	byObject.Object = made
	for name, tc := range map[string]struct {
		forEach string
		action  v1alpha1.RuleAction
		steps   int
	}{
		"Delete":          {"pods.items", deletes(), 1},
		"Report":          {"pods.items", v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}, 1},
		"DeleteMade":      {"[" + made + "]", deletes(), 1},
		"Evict":           {"pods.items", v1alpha1.RuleAction{Evict: &v1alpha1.EvictAction{}}, 0},
		"RemoveFinalizer": {"pods.items", v1alpha1.RuleAction{RemoveFinalizer: &v1alpha1.RemoveFinalizerAction{Name: "example.com/a"}}, 0},
		"Patch":           {"pods.items", patch, 0},
		"PatchMade":       {"[" + made + "]", patch, 0},
		"PatchByObject":   {"nodes.items", byObject, 0},
	} {
		t.Run(name, func(t *testing.T) {
			work := cluster(rule(func(r *v1alpha1.Rule) { r.ForEach, r.Actions = tc.forEach, []v1alpha1.RuleAction{tc.action} }))
			work.Targets[0].Reference = v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Kind: v1alpha1.AnyKind}, HasAnnotation: "x"}
			in := over(t, work, held(p("a"), "example.com/a"))
			in.Snapshot[0].Kinds = []observed.KindState{{Resource: pods, State: observed.Complete}}
			got := ComputePlan(t.Context(), in)
			if len(got.Steps) != tc.steps {
				t.Errorf("steps: %v, errors: %+v", shorts(got.Steps), got.Errors)
			}
			if tc.steps == 0 && (len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Message, "only delete and report act on objects of a target of kind")) {
				t.Errorf("errors: %+v", got.Errors)
			}
		})
	}
}

// A target of all kinds selects the records of Helm releases by chance only: then no record is deleted, whatever other targets select.
func TestNoRecordGoesByATargetOfAllKinds(t *testing.T) {
	record := object(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", "shop", v1alpha1.ReleaseSecretPrefix+"web.v1", "owner=helm", "status=superseded")
	ofType := target("records", "Secret", func(t *v1alpha1.ClusterTarget) { t.Reference.FieldSelector = "type=" + v1alpha1.ReleaseSecretType })
	work := &v1alpha1.Work{Cluster: true, Targets: []v1alpha1.ClusterTarget{ofType}}
	if because := (Protection{}).ForSpec(work).ForbidsDelete(&record); because != "" {
		t.Fatalf("by its type alone it does not go: %s", because)
	}
	work.Targets = append(work.Targets, v1alpha1.ClusterTarget{Name: "all", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Kind: v1alpha1.AnyKind}}})
	if because := (Protection{}).ForSpec(work).ForbidsDelete(&record); because == "" {
		t.Error("it goes by a target of all kinds too")
	}
}

// The record of a revision that cannot be read stays, whatever the rule says and whatever its labels say; and an error about it says why it cannot be
// read. Others go only once Helm has labelled them superseded.
func TestRecordsOfReleasesThatCannotBeRead(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	revision := func(n int, status, unreadable string) observed.Object {
		o := object(secrets, "Secret", "shop", fmt.Sprintf("%sweb.v%d", v1alpha1.ReleaseSecretPrefix, n), "owner=helm", "status="+status)
		o.OfRelease, o.Unreadable = true, unreadable
		if unreadable == "" {
			o.Value["status"] = status
		}
		return o
	}
	newestTwo := func(r *v1alpha1.Rule) { // by a group that only records that can be read have
		r.GroupBy, r.OrderBy, r.Keep = `item.status == "" ? "none" : "all"`, []v1alpha1.OrderBy{{Expression: "item.metadata.name"}}, new(intstr.FromInt32(2))
	}
	for name, tc := range map[string]struct {
		when      string
		change    func(*v1alpha1.Rule)
		steps     []string
		protected int
		errors    string
	}{
		"All":    {when: "true", steps: []string{"v1"}, protected: 2},
		"ByRead": {when: "item.status == 'superseded'", steps: []string{"v1"}, errors: "the record of the Helm release cannot be read: it is empty"},
		"Absent": {when: "!has(item.status)", protected: 1},
		"Kept":   {when: "true", change: newestTwo, errors: "the record of the Helm release cannot be read: it is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			work := cluster(rule(func(r *v1alpha1.Rule) {
				if r.When, r.Actions = tc.when, []v1alpha1.RuleAction{deletes()}; tc.change != nil {
					tc.change(r)
				}
			}))
			work.Targets[0] = v1alpha1.ClusterTarget{Name: "pods", HelmReleases: &v1alpha1.ClusterHelmReleases{}}
			work.Targets = v1alpha1.ResolveTargets(work.Targets)
			in := over(t, work, revision(1, "superseded", ""), revision(2, "superseded", "it is empty"), revision(3, "deployed", ""))
			in.Protection = Protection{}.ForSpec(work)
			got := ComputePlan(t.Context(), in)
			var steps []string
			for _, s := range got.Steps {
				steps = append(steps, strings.TrimPrefix(s.Object.Name, v1alpha1.ReleaseSecretPrefix+"web."))
			}
			if diff := cmp.Diff(tc.steps, steps); diff != "" || got.Counts[0].Protected != tc.protected {
				t.Errorf("%d are protected; steps (-want +got):\n%s", got.Counts[0].Protected, diff)
			}
			if tc.errors == "" && len(got.Errors) > 0 || tc.errors != "" && (len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Message, tc.errors)) {
				t.Errorf("errors: %+v, want %q", got.Errors, tc.errors)
			}
		})
	}
}

// A record that one target cannot read stays also where a rule makes up the object and another target shows the Secret: whichever comes first.
func TestUnreadableRecordsStayWhereTheObjectIsMadeUp(t *testing.T) {
	record := object(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", "shop", v1alpha1.ReleaseSecretPrefix+"web.v1", "owner=helm", "status=superseded")
	unread := record
	unread.OfRelease, unread.Unreadable, unread.Value = true, "it is empty", maps.Clone(record.Value)
	releases := v1alpha1.ResolveTargets([]v1alpha1.ClusterTarget{{Name: "pods", HelmReleases: &v1alpha1.ClusterHelmReleases{}}})[0]
	secrets := target("records", "Secret", func(t *v1alpha1.ClusterTarget) { t.Reference.FieldSelector = "type=" + v1alpha1.ReleaseSecretType })
	for name, tc := range map[string]struct {
		forEach string
		steps   int
	}{
		"MadeUp":  {forEach: `pods.items.map(r, {"apiVersion": r.apiVersion, "kind": r.kind, "metadata": r.metadata})`},
		"Secrets": {forEach: "records.items", steps: 1},
	} {
		for first := range 2 {
			work := cluster(rule(func(r *v1alpha1.Rule) { r.ForEach, r.Actions = tc.forEach, []v1alpha1.RuleAction{deletes()} }))
			work.Targets[first], work.Targets[1-first] = releases, secrets
			in := over(t, work)
			in.Snapshot[1] = in.Snapshot[0]
			in.Snapshot[first].Objects, in.Snapshot[1-first].Objects = []observed.Object{unread}, []observed.Object{record}
			in.Protection = Protection{}.ForSpec(work)
			if got := ComputePlan(t.Context(), in); len(got.Steps) != tc.steps || len(got.Errors) > 0 {
				t.Errorf("%s, %s first: steps %v, errors %+v", name, work.Targets[0].Name, shorts(got.Steps), got.Errors)
			}
		}
	}
}

// TestAnObjectThatIsGivenTwiceIsOneItem shows that keep and leave keep an object, and do not also let it go.
func TestAnObjectThatIsGivenTwiceIsOneItem(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *v1alpha1.Rule)
		acts   int
	}{
		"Keep":  {func(r *v1alpha1.Rule) { r.Keep = new(intstr.FromInt32(1)) }, 0},
		"Leave": {func(r *v1alpha1.Rule) { r.Leave = new(intstr.FromInt32(1)) }, 0},
		"None":  {func(*v1alpha1.Rule) {}, 1},
	} {
		work := cluster(rule(func(r *v1alpha1.Rule) { r.ForEach, r.When = "pods.items + pods.items", "true" }, tc.change))
		got := ComputePlan(t.Context(), over(t, work, object(pods, "Pod", "shop", "a")))
		if len(got.Steps) != tc.acts || got.Counts[0].Acted != tc.acts || got.Counts[0].Items != 1 || len(got.Errors) > 0 {
			t.Errorf("%s: %v, counts %+v, errors %v", name, shorts(got.Steps), got.Counts, got.Errors)
		}
	}
}
