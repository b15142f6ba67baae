// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// leaves is a rule that deletes the Pods that are done, the oldest first, and leaves so many of each app.
func leaves(n int, change ...func(*v1alpha1.Rule)) v1alpha1.Rule {
	return rule(append([]func(*v1alpha1.Rule){func(r *v1alpha1.Rule) {
		r.When, r.GroupBy = `has(item.spec.done)`, `item.metadata.labels["app"]`
		r.OrderBy, r.Leave = []v1alpha1.OrderBy{{Expression: "item.spec.age"}}, new(intstr.FromInt32(int32(n)))
	}}, change...)...)
}

func TestLeave(t *testing.T) {
	named := func(name string) func(*v1alpha1.Rule) { return func(r *v1alpha1.Rule) { r.Name = name } }
	expression := func(text string) func(*v1alpha1.Rule) {
		return func(r *v1alpha1.Rule) { r.Leave = new(intstr.FromString(text)) }
	}
	done := func(name string, words ...string) observed.Object {
		return p(name, append([]string{"done:yes", "app=x", "age:" + name}, words...)...)
	}
	used := func(name string, words ...string) observed.Object {
		return p(name, append([]string{"app=x"}, words...)...)
	}
	for name, tc := range map[string]struct {
		reason string
		rules  []v1alpha1.Rule
		pods   []observed.Object
		change func(*Input)
		want   []string
		errors int
		kept   int // of the first rule
	}{
		"CountsAll": {
			reason: "what is in use counts, so that more of the unused may go",
			rules:  []v1alpha1.Rule{leaves(2)},
			pods:   []observed.Object{used("a"), done("b"), done("c"), done("d")},
			want:   []string{"r delete b", "r delete c"}, kept: 1,
		},
		"EnoughInUse": {
			reason: "all of the unused, if the others are enough",
			rules:  []v1alpha1.Rule{leaves(2)},
			pods:   []observed.Object{used("a"), done("b"), used("c")},
			want:   []string{"r delete b"},
		},
		"TooFew": {
			reason: "nothing, if there are no more",
			rules:  []v1alpha1.Rule{leaves(3)},
			pods:   []observed.Object{used("a"), done("b")},
			kept:   1,
		},
		"EachGroup": {
			reason: "each group leaves its own",
			rules:  []v1alpha1.Rule{leaves(1)},
			pods:   []observed.Object{done("a"), done("b"), done("c", "app=y"), used("d", "app=y")},
			want:   []string{"r delete a", "r delete c"}, kept: 1,
		},
		"OneGroup": {
			reason: "without groupBy all items are one",
			rules:  []v1alpha1.Rule{leaves(3, func(r *v1alpha1.Rule) { r.GroupBy = "" })},
			pods:   []observed.Object{done("a"), done("b"), done("c", "app=y"), used("d", "app=y")},
			want:   []string{"r delete a"}, kept: 2,
		},
		"Terminating": {
			reason: "what is going is not left, and needs no room to be acted on",
			rules:  []v1alpha1.Rule{leaves(2, func(r *v1alpha1.Rule) { r.Actions = []v1alpha1.RuleAction{deletes(0)} })},
			pods:   []observed.Object{terminating(done("a"), 30), done("b"), done("c"), terminating(used("d"), 30)},
			want:   []string{"r delete a in 0"}, kept: 2,
		},
		"Unless": {
			reason: "what unless spares is left, and the next one goes",
			rules:  []v1alpha1.Rule{leaves(2, func(r *v1alpha1.Rule) { r.Unless = `item.metadata.name == "a"` })},
			pods:   []observed.Object{done("a"), done("b"), done("c")},
			want:   []string{"r delete b"}, kept: 1,
		},
		"Protected": {
			reason: "so is what is protected",
			rules:  []v1alpha1.Rule{leaves(2)},
			pods:   []observed.Object{done("a", v1alpha1.ProtectKey+"=true"), done("b"), done("c")},
			want:   []string{"r delete b"}, kept: 1,
		},
		"Keep": {
			reason: "keep has counted its own before",
			rules:  []v1alpha1.Rule{leaves(1, func(r *v1alpha1.Rule) { r.Keep = new(intstr.FromInt32(2)) })},
			pods:   []observed.Object{used("a"), done("b"), done("c"), done("d")},
			want:   []string{"r delete b"}, kept: 2,
		},
		"Deferred": {
			reason: "what could not be deleted and is tried again has its place: no other goes instead",
			rules:  []v1alpha1.Rule{leaves(2)},
			pods:   []observed.Object{done("a"), done("b"), done("c")},
			change: func(in *Input) {
				in.Backoff = backoff.Failures{}
				in.Backoff.RecordFailure("uid-a", v1alpha1.ReasonDeletionRefused, "forbidden", in.Now)
			},
			kept: 2,
		},
		"AnotherDeferred": {
			reason: "nor what another rule deletes later, because it was refused just now",
			rules:  []v1alpha1.Rule{leaves(2), rule(func(r *v1alpha1.Rule) { r.Name, r.When = "old", `item.metadata.name == "a"` })},
			pods:   []observed.Object{used("a"), done("b"), done("c")},
			change: func(in *Input) {
				in.Backoff = backoff.Failures{}
				in.Backoff.RecordFailure("uid-a", v1alpha1.ReasonDeletionRefused, "forbidden", in.Now)
			},
			kept: 2,
		},
		"EarlierRule": {
			reason: "what an earlier rule deletes is not left",
			rules:  []v1alpha1.Rule{leaves(2), rule(func(r *v1alpha1.Rule) { r.Name, r.When = "old", `item.metadata.name == "a"` })},
			pods:   []observed.Object{used("a"), done("b"), done("c"), done("d")},
			want:   []string{"old delete a", "r delete b"}, kept: 2,
		},
		"LaterRule": {
			reason: "nor what a later one does: rules with leave come last",
			rules:  []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Name, r.When = "old", `item.metadata.name == "d"` }), leaves(2)},
			pods:   []observed.Object{done("b"), done("c"), used("d"), done("e")},
			want:   []string{"old delete d", "r delete b"},
		},
		"AnotherPatches": {
			reason: "what another rule patches is left, and not for this one",
			rules: []v1alpha1.Rule{leaves(1), rule(func(r *v1alpha1.Rule) {
				r.Name, r.When, r.Actions = "mark", `item.metadata.name == "a"`, []v1alpha1.RuleAction{patches(`{"a": "b"}`)}
			})},
			pods: []observed.Object{done("a"), done("b")},
			want: []string{`mark patch a {"a":"b"}`, "r delete b"},
		},
		"AnotherLeaves": {
			reason: "what one rule with leave deletes is not left for another, which leaves as many too",
			rules: []v1alpha1.Rule{leaves(2, func(r *v1alpha1.Rule) { r.When = `item.metadata.name == "a"` }), leaves(2, named("s"), func(r *v1alpha1.Rule) {
				r.When = `item.metadata.name != "a"`
			})},
			pods: []observed.Object{done("a"), done("b"), done("c"), done("d")},
			want: []string{"r delete a", "s delete b"},
		},
		"AnotherLeavesFewer": {
			reason: "another rule takes no more than the first one leaves, although it would itself leave fewer",
			rules:  []v1alpha1.Rule{leaves(3), leaves(0, named("s"))},
			pods:   []observed.Object{done("a"), done("b"), done("c"), done("d")},
			want:   []string{"r delete a"}, kept: 3,
		},
		"Target": {
			reason: "what a target deletes goes in any case, and needs no room",
			rules:  []v1alpha1.Rule{leaves(1)},
			pods:   []observed.Object{done("a"), done("b"), used("c")},
			change: func(in *Input) { in.Spec.Targets[0].Delete = true },
			want:   []string{"r delete a", "r delete b", "targets.pods delete c"},
		},
		"Patches": {
			reason: "it is about whatever the rule does with its items",
			rules:  []v1alpha1.Rule{leaves(1, func(r *v1alpha1.Rule) { r.Actions = []v1alpha1.RuleAction{patches(`{"a": "b"}`)} })},
			pods:   []observed.Object{done("a"), done("b")},
			want:   []string{`r patch a {"a":"b"}`}, kept: 1,
		},
		"NoObjects": {
			reason: "items that are no objects count as often as they are there",
			rules: []v1alpha1.Rule{leaves(1, func(r *v1alpha1.Rule) {
				r.ForEach, r.When, r.Key, r.GroupBy, r.OrderBy = `["1", "2", "3"]`, `item != "3"`, "item", "", nil
				r.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
			})},
			want: []string{"r report  <1>", "r report  <2>"},
		},
		"Expression": {
			reason: "an expression reads all items that count",
			rules:  []v1alpha1.Rule{leaves(0, expression("size(items) - 1"))},
			pods:   []observed.Object{used("a"), done("b"), terminating(used("c"), 30), done("d")},
			want:   []string{"r delete b"}, kept: 1,
		},
		"ExpressionFails": {
			reason: "an error leaves its group alone",
			rules:  []v1alpha1.Rule{leaves(0, expression(`items[0].metadata.labels["app"] == "x" ? -1 : 1`))},
			pods:   []observed.Object{done("a"), done("b"), done("c", "app=y"), done("d", "app=y")},
			want:   []string{"r delete c"}, errors: 1, kept: 3,
		},
		"GroupFails": {
			reason: "an item without a group counts in none, and is said once",
			rules:  []v1alpha1.Rule{leaves(1)},
			pods:   []observed.Object{done("a"), p("b"), p("c", "done:yes", "age:c"), done("d")},
			want:   []string{"r delete a"}, errors: 2, kept: 1,
		},
		"Twice": {
			reason: "an object that is listed twice is one",
			rules:  []v1alpha1.Rule{leaves(1, func(r *v1alpha1.Rule) { r.ForEach = "pods.items + pods.items" })},
			pods:   []observed.Object{done("a"), done("b")},
			want:   []string{"r delete a"}, kept: 1,
		},
		"Only": {
			reason: "if only some are decided on, the others still have their places",
			rules:  []v1alpha1.Rule{leaves(1)},
			pods:   []observed.Object{done("a"), done("b"), done("c"), done("d")},
			change: func(in *Input) {
				in.Only = map[ItemKey]bool{{Rule: "r", Key: "uid-b"}: true, {Rule: "r", Key: "uid-d"}: true}
			},
			want: []string{"r delete b"}, kept: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := over(t, cluster(tc.rules...), tc.pods...)
			if tc.change != nil {
				tc.change(&in)
			}
			got := ComputePlan(t.Context(), in)
			var errors int64
			for _, e := range got.Errors {
				errors += e.Count
			}
			if diff := cmp.Diff(tc.want, shorts(got.Steps)); diff != "" || errors != int64(tc.errors) {
				t.Errorf("%s: %v (-want +got)\n%s", tc.reason, got.Errors, diff)
			}
			if got.Counts[0].Kept != tc.kept || got.Counts[0].Rule != tc.rules[0].Name {
				t.Errorf("%s: counted are %+v", tc.reason, got.Counts)
			}
		})
	}
}

// It is said which item `leave` leaves.
func TestTraceOfLeave(t *testing.T) {
	in := over(t, cluster(leaves(1)), p("a", "done:yes", "app=x", "age:1"))
	in.Trace = itemtrace.NewTrace("uid-a")
	ComputePlan(t.Context(), in)
	if got := in.Trace.ListEntries(); len(got) != 1 || got[0].Outcome != itemtrace.Left {
		t.Errorf("%+v", got)
	}
}

// Whatever the rules and targets of a plan delete, in each group of a rule with `leave` as many remain as it asks for, or as the others leave.
func TestLeaveHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawn(rt, t)
		leave := rapid.IntRange(0, 4).Draw(rt, "leave")
		drawnLeave := drawnRule(rt, "r3")
		drawnLeave.ForEach, drawnLeave.GroupBy, drawnLeave.Leave = "pods.items", `item.spec.?node.orValue("none")`, new(intstr.FromInt32(int32(leave)))
		in.Spec.Limits = nil
		at := rapid.IntRange(0, 2).Draw(rt, "place")
		in.Spec.Rules = slices.Insert(slices.Clone(in.Spec.Rules), at, drawnLeave)
		in.Programs = over(t, in.Spec).Programs
		remain := func(by func(rule string) bool) map[string]int {
			gone, out := map[string]bool{}, map[string]int{}
			for _, s := range ComputePlan(t.Context(), in).Steps {
				if by(s.Rule) && (s.Verb == VerbDelete || s.Verb == VerbEvict) {
					gone[string(s.Object.UID)] = true
				}
			}
			for _, o := range in.Snapshot[0].Objects { // those of the target go, whether a rule deletes them too or not
				gone[string(o.UID)] = gone[string(o.UID)] || in.Spec.Targets[0].Delete && in.Protection.ForSpec(in.Spec).ForbidsDelete(&o) == ""
			}
			for _, o := range in.Snapshot[0].Objects {
				node := observed.NestedString(o.Value, "spec", "node")
				if !gone[string(o.UID)] && !o.Terminating {
					out[fmt.Sprint("node ", node)]++
				}
			}
			return out
		}
		others := remain(func(rule string) bool { return rule != "r3" })
		all := remain(func(string) bool { return true })
		for node, n := range others {
			if want := min(n, leave); all[node] < want {
				rt.Fatalf("%d of %q remain, want %d", all[node], node, want)
			}
		}
	})
}

// limits.perGroup counts by the groups of rules, in the plan and before it.
func TestLimitPerGroup(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) { r.GroupBy = `item.metadata.labels["app"]` }))
	work.Limits = &v1alpha1.Limits{PerGroup: 2}
	one, two, other, more := p("a", "app=x"), p("b", "app=x"), p("c", "app=y"), p("d", "app=x")
	in := over(t, work, one, two, other)
	first := ComputePlan(t.Context(), in)
	if first.Verdict != v1alpha1.VerdictAct || len(first.Steps) != 3 {
		t.Fatalf("two of a group: %s %s", first.Verdict, first.Message)
	}
	for i := range first.Steps {
		in.Done = in.Done.AddAction(in.MakeAction(&first.Steps[i], in.Now))
	}
	next := over(t, work, more)
	next.Done, next.Now = in.Done, in.Now.Add(59*time.Minute)
	if p := ComputePlan(t.Context(), next); p.TrippedBy != "perGroup" || !strings.Contains(p.Message, `with 3 of group "x" of rule "r", 2 by earlier actions.`) {
		t.Errorf("a third one within the hour: %q %s", p.TrippedBy, p.Message)
	}
	next.Now = in.Now.Add(time.Hour)
	if p := ComputePlan(t.Context(), next); p.Verdict != v1alpha1.VerdictAct {
		t.Errorf("an hour later: %s", p.Message)
	}
}
