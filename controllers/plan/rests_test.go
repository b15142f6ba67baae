// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func onObject(a v1alpha1.RuleAction, object string) v1alpha1.RuleAction {
	a.Object = object
	return a
}

// What may be done after confirmation is what live reads of everything want, too (an item's own version aside).
func TestWhatIsConfirmedIsWantedLive(t *testing.T) {
	for name, tc := range map[string]struct {
		rules         []v1alpha1.Rule
		change        func(*Input)
		work          func(*v1alpha1.Work)
		watched, live observed.Snapshot
	}{
		"EarlierRuleClaims": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Name, r.When = "first", `nodes.items.exists(n, n.metadata.name == "n1")`
				r.Actions = []v1alpha1.RuleAction{patches(`{"spec": {"x": 1}}`)}
			}), rule()},
			watched: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen("n1"), poolsSeen()},
		},
		"ItemIsNoObject": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key = `pods.items.map(p, p.spec.node)`, "item"
				r.Actions = []v1alpha1.RuleAction{onObject(deletes(), `pools.items.filter(n, n.metadata.name == item)[0]`)}
			})},
			watched: observed.Snapshot{seen(p("a", "node:n1")), nodesSeen(), poolsSeen(pool("n1"))}, live: observed.Snapshot{seen(), nodesSeen(), poolsSeen(pool("n1"))},
		},
		"ActsOnAnother": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Actions = []v1alpha1.RuleAction{onObject(deletes(), `pools.items.filter(n, n.metadata.name == item.spec.node)[0]`)}
			})},
			watched: observed.Snapshot{seen(p("a", "node:n1")), nodesSeen(), poolsSeen(pool("n1"))}, live: observed.Snapshot{seen(), nodesSeen(), poolsSeen(pool("n1"))},
		},
		"BindSlice": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach = `cel.bind(l, pods.items, l.slice(0, l.size() - 1))`
			})},
			watched: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()},
		},
		"Slice": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach = `pods.items.sortBy(p, p.metadata.name).slice(0, 1)`
			})},
			watched: observed.Snapshot{seen(p("b")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()},
		},
		"MapSize": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key = `[pods].map(x, {"n": x.items.size(), "p": x.items[0]})`, "'k'"
				r.When = "item.n > 1"
				r.Actions = []v1alpha1.RuleAction{onObject(deletes(), `item.p`)}
			})},
			watched: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()},
		},
		"BindMap": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key = `cel.bind(l, pods.items, l.map(p, {"p": p, "n": l.size()}))`, "item.p.metadata.name"
				r.When = "item.n > 1"
				r.Actions = []v1alpha1.RuleAction{onObject(deletes(), `item.p`)}
			})},
			watched: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()},
		},
		"ForKey": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.For, r.ForKey = "1h", `"k" + string(nodes.items.size())`
			})},
			change:  func(in *Input) { holdAnHourAgo(t, in) },
			watched: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen("n1"), poolsSeen()},
		},
		"Key": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.For, r.Key = "1h", `item.metadata.name + string(nodes.items.size())`
			})},
			change:  func(in *Input) { holdAnHourAgo(t, in) },
			watched: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen("n1"), poolsSeen()},
		},
		"Twins": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Key = `item.spec.node`
			})},
			watched: observed.Snapshot{seen(p("a", "node:n1")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a", "node:n1"), p("b", "node:n1")), nodesSeen(), poolsSeen()},
		},
		"Percent": {
			rules:   []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name == "a"` })},
			work:    func(w *v1alpha1.Work) { w.Limits = &v1alpha1.Limits{MaxPercent: 50, Per: "1h"} },
			watched: observed.Snapshot{seen(p("a"), p("b"), p("c")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()},
		},
		"PercentOfOther": {
			rules:   []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name == "a"` })},
			work:    func(w *v1alpha1.Work) { w.Limits = &v1alpha1.Limits{MaxActions: 1, Per: "1h"} },
			watched: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()},
		},
		"ReasonFails": {
			rules:   []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Reason = `nodes.items[0].metadata.name` })},
			watched: observed.Snapshot{seen(p("a")), nodesSeen("n1"), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()},
		},
		"ItemOfTwoTargets": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.ForEach = `pods.items.size() > 1 ? pods.items : []`
			})},
			watched: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()},
		},
		"ConfirmOwnByNameWithKeep": {
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Keep = new(intstr.FromInt32(1))
				r.OrderBy = []v1alpha1.OrderBy{{Expression: "item.metadata.name"}}
				r.Confirm = []v1alpha1.Confirm{{Target: "pods", Name: "item.metadata.name"}}
			})},
			watched: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			work := cluster(tc.rules...)
			if tc.work != nil {
				tc.work(work)
			}
			in := over(t, work)
			in.Snapshot, in.Batch = tc.watched, 10
			if tc.change != nil {
				tc.change(&in)
			}
			live := in
			live.Snapshot, live.Confirmed = tc.live, tc.live.LiveReads()
			truth := ComputePlan(t.Context(), live)
			want := shorts(truth.Steps)
			if truth.Verdict != v1alpha1.VerdictAct {
				want = nil
			}
			first, last, rounds := batch(t, in, tc.live)
			both := IntersectPlans(first, last)
			for _, s := range shorts(both.Steps) {
				if !slices.Contains(want, s) {
					t.Errorf("%q is done; live wants [%s] (%s %s %v); read: %v", s, strings.Join(want, "; "), truth.Verdict, truth.Reason, truth.Errors, rounds)
				}
			}
		})
	}
}

// holdAnHourAgo has the `for` timers run for two hours.
func holdAnHourAgo(t *testing.T, in *Input) {
	in.Now = in.Now.Add(-2 * time.Hour)
	p := ComputePlan(t.Context(), *in)
	in.Now = in.Now.Add(2 * time.Hour)
	in.Holds = p.Holds
}
