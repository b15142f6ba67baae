// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// agreed is what the watches and live reads both want.
func agreed(t testing.TB, watched, live Input) (first, last, both Plan) {
	t.Helper()
	first, last = ComputePlan(t.Context(), watched), ComputePlan(t.Context(), live)
	return first, last, AgreePlans(first, last, func(only map[ItemKey]bool) Plan {
		some := live
		some.Only = only
		return ComputePlan(t.Context(), some)
	})
}

func TestAgree(t *testing.T) {
	patch := func(r *v1alpha1.Rule) {
		r.Actions = []v1alpha1.RuleAction{patches(`{"n": size(items)}`), deletes()}
		r.Actions[0].Object = "nodes.items[0]"
	}
	anew := func(o observed.Object) observed.Object { o.UID = "another"; return o }
	newer := func(o observed.Object) observed.Object { o.ResourceVersion = "8"; return o }
	onlyTarget := func(w *v1alpha1.Work) { w.Rules, w.Targets[0].Delete = nil, true }
	cases := map[string]struct {
		reason        string
		rule          func(*v1alpha1.Rule)
		work          func(*v1alpha1.Work)
		watched, live []observed.Object
		want          []string
		verdict       v1alpha1.Verdict
	}{
		"Same":      {reason: "the same objects", watched: []observed.Object{p("a"), p("b")}, live: []observed.Object{p("a"), p("b")}, want: []string{"r delete a", "r delete b"}},
		"Newer":     {reason: "a version may be newer: the conditions were asked on it", watched: []observed.Object{p("a")}, live: []observed.Object{newer(p("a"))}, want: []string{"r delete a"}},
		"Recreated": {reason: "another object of the same name is another object", watched: []observed.Object{p("a"), p("b")}, live: []observed.Object{anew(p("a")), p("b")}, want: []string{"r delete b"}},
		"One more":  {reason: "the watch has yet to see one", watched: []observed.Object{p("a")}, live: []observed.Object{p("a"), p("b")}, want: []string{"r delete a"}},
		"One less":  {reason: "one is gone", watched: []observed.Object{p("a"), p("b")}, live: []observed.Object{p("b")}, want: []string{"r delete b"}},
		"Targets":   {reason: "as with rules", work: onlyTarget, watched: []observed.Object{p("a"), p("b")}, live: []observed.Object{p("b"), p("c")}, want: []string{"targets.pods delete b"}},
		"Nothing":   {reason: "both want nothing but to end"},
		"Disjoint":  {reason: "they have nothing in common", watched: []observed.Object{p("a")}, live: []observed.Object{p("b")}},
		"Wait": {
			reason: "live reads say wait", work: func(w *v1alpha1.Work) { w.Conditions = []string{"size(pods.items) == 1"} },
			watched: []observed.Object{p("a")}, live: []observed.Object{p("a"), p("b")}, verdict: v1alpha1.VerdictWait,
		},
		"Watches wait": {
			reason: "the watches say wait", work: func(w *v1alpha1.Work) { w.Conditions = []string{"size(pods.items) == 1"} },
			watched: []observed.Object{p("a"), p("b")}, live: []observed.Object{p("a")}, verdict: v1alpha1.VerdictWait,
		},
		"Shared": {
			reason: "a step that stands for items that come and go is made for those that stay", rule: patch, watched: []observed.Object{p("a"), p("x")}, live: []observed.Object{p("a"), p("y")},
			want: []string{"r patch n1 {\"n\":1}", "r delete a after [0]"},
		},
		"Shared partly": {
			reason: "an item for which only live reads want a shared step holds up no other", watched: []observed.Object{p("a"), p("x", "too:no")}, live: []observed.Object{p("a"), p("x", "too:yes")},
			rule: func(r *v1alpha1.Rule) { patch(r); r.Actions[0].When = `item.spec.?too.orValue("yes") == "yes"` },
			want: []string{"r patch n1 {\"n\":1}", "r delete a after [0]"},
		},
		"Before": {
			reason: "nothing is done without what comes before it", watched: []observed.Object{p("a"), p("x")}, live: []observed.Object{p("a"), p("y")},
			rule: func(r *v1alpha1.Rule) {
				r.When = `item.metadata.name == "a"`
				r.Actions = []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}, Object: "pods.items[1]"}, deletes()}
			},
		},
		"Another rule": {
			reason: "what a rule takes by live reads no target deletes", watched: []observed.Object{p("a"), p("b", "keep:no")}, live: []observed.Object{p("a"), p("b", "keep:yes")},
			work: func(w *v1alpha1.Work) { w.Targets[0].Delete = true },
			rule: func(r *v1alpha1.Rule) {
				r.When = `item.spec.?keep.orValue("no") == "yes"`
				r.Actions = []v1alpha1.RuleAction{patches(`{"is": "kept"}`)}
			},
			want: []string{"targets.pods delete a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			work := cluster(rule(func(r *v1alpha1.Rule) {
				r.When, r.Confirm, r.Actions = "true", nil, []v1alpha1.RuleAction{deletes()}
				if tc.rule != nil {
					tc.rule(r)
				}
			}))
			work.Lifecycle = v1alpha1.LifecycleOnce
			if tc.work != nil {
				tc.work(work)
			}
			watched, live := over(t, work, tc.watched...), over(t, work, tc.live...)
			_, _, both := agreed(t, watched, live)
			var got []string
			for i := range both.Steps {
				s := &both.Steps[i]
				text := fmt.Sprintf("%s %s %s", s.Rule, s.Verb, s.Object.Name)
				if s.Patch != nil {
					text += " " + string(s.Patch.Body)
				}
				if len(s.After) > 0 {
					text += fmt.Sprint(" after ", s.After)
				}
				got = append(got, text)
			}
			if tc.verdict == "" {
				tc.verdict = v1alpha1.VerdictAct
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || both.Verdict != tc.verdict {
				t.Errorf("%s: it is %s (%s)\n-want +got\n%s", tc.reason, both.Verdict, both.Message, diff)
			}
		})
	}
}

// Whatever the rules say, what is agreed on is what both plans want, in the same order, and all of it that others do not stand in the
// way of: what does not depend on what differs.
func TestAnyAgreement(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		watched := drawn(rt, t)
		watched.Spec.Lifecycle, watched.OpenRun, watched.Batch, watched.Confirmed = v1alpha1.LifecycleOnce, false, 0, nil
		live := watched
		live.Snapshot = slices.Clone(watched.Snapshot)
		live.Snapshot[0] = seen(drawnPods(rt)...)
		first, last, both := agreed(t, watched, live)
		if both.Verdict != v1alpha1.VerdictAct {
			return
		}
		firstWants, lastWants := first.listWants(), last.listWants()
		for i := range both.Steps {
			s := &both.Steps[i]
			for _, key := range s.Keys {
				if w := (want{s.stepKey(), key}); !firstWants[w] || !lastWants[w] {
					rt.Fatalf("%s is not wanted by both", short(s))
				}
			}
			for _, b := range s.After {
				if b >= i {
					rt.Fatalf("%s comes before what it is after", short(s))
				}
			}
		}
		for n := range last.Steps { // what comes before a step still does
			s := &last.Steps[n]
			at := slices.IndexFunc(both.Steps, func(o Step) bool { return o.stepKey() == s.stepKey() })
			for _, b := range s.After {
				before := &last.Steps[b]
				if at < 0 || !slices.ContainsFunc(before.Keys, func(k string) bool { return slices.Contains(both.Steps[at].Keys, k) }) {
					continue
				}
				if !slices.ContainsFunc(both.Steps[at].After, func(m int) bool { return both.Steps[m].stepKey() == before.stepKey() }) {
					rt.Fatalf("%s is without %s, which comes before", short(&both.Steps[at]), short(before))
				}
			}
		}
		if len(both.Withheld) != len(last.Withheld) || both.Data != last.Data {
			rt.Fatal("what was decided on all objects is another")
		}
	})
}

// What changes in other namespaces takes nothing away from what stays as it is and what both want: neither from targets nor from rules of
// which each item is about itself.
func TestWhatStaysIsAgreedOn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		work := cluster(rule(func(r *v1alpha1.Rule) {
			r.When, r.Confirm = rapid.SampledFrom([]string{"true", `has(item.spec.done)`, `item.spec.?node.orValue("n1") == "n1"`}).Draw(rt, "when"), nil
			r.GroupBy = rapid.SampledFrom([]string{"", "item.metadata.namespace"}).Draw(rt, "groupBy")
			r.Actions = []v1alpha1.RuleAction{patches(`{"n": size(items)}`), deletes()}
			if rapid.Bool().Draw(rt, "shared") {
				r.Actions[0].Object = "nodes.items[0]"
			}
			r.Actions[0].When = rapid.SampledFrom([]string{"", `has(item.spec.done)`}).Draw(rt, "action when")
		}))
		work.Lifecycle, work.Targets[0].Delete = v1alpha1.LifecycleOnce, rapid.Bool().Draw(rt, "delete")
		calm, churn := drawnPods(rt), func(of string) (out []observed.Object) {
			for i := range rapid.IntRange(0, 5).Draw(rt, of) {
				o := object(pods, "Pod", "tenant", fmt.Sprint("x", i), rapid.SliceOfN(rapid.SampledFrom([]string{"done:yes", "node:n1", "node:n2", "age:1"}), 0, 2).Draw(rt, fmt.Sprint(of, i))...)
				if rapid.Bool().Draw(rt, fmt.Sprint(of, i, " anew")) {
					o.UID += "-anew"
				}
				out = append(out, o)
			}
			return out
		}
		calm = slices.DeleteFunc(calm, func(o observed.Object) bool { return o.Namespace != "shop" })
		watched, live := over(t, work, append(slices.Clone(calm), churn("watched")...)...), over(t, work, append(slices.Clone(calm), churn("live")...)...)
		first, last, both := agreed(t, watched, live)
		if first.Verdict != v1alpha1.VerdictAct || last.Verdict != v1alpha1.VerdictAct {
			return
		}
		has := both.listWants()
		firstWants := first.listWants()
		for w := range last.listWants() {
			if firstWants[w] && strings.HasPrefix(w.item, "uid-p") && !has[w] {
				rt.Fatalf("%+v is not agreed on; watched %v, live %v, both %v", w, shorts(first.Steps), shorts(last.Steps), shorts(both.Steps))
			}
		}
	})
}
