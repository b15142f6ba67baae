// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// describeRead is a read in words: "target namespace/name", or "target *".
func describeRead(r observed.Read, in *Input) string {
	name := in.Spec.Targets[r.Target].Name
	switch {
	case r.All:
		return name + " *"
	case r.Namespace != "":
		return name + " " + r.Namespace + "/" + r.Name
	}
	return name + " " + r.Name
}

// batch does what a caller does with a batch: it reads what the plan asks for from a cluster, until nothing more is asked.
// Reads of what refuses names fail. What shows up only then is left for the next batch. It gives the first and the last plan, and what was read in each round.
func batch(t *testing.T, in Input, cluster observed.Snapshot, refuses ...string) (first, last Plan, rounds []string) {
	t.Helper()
	in.Confirmed, in.Unreadable = map[observed.Read]bool{}, map[observed.Read]string{}
	first = ComputePlan(t.Context(), in)
	in.Only = first.ListItems()
	for last = first; len(last.Confirm) > 0; last = ComputePlan(t.Context(), in) {
		if len(rounds) > 20 {
			t.Fatalf("it asks for ever: %v", rounds)
		}
		var round []string
		found := map[observed.Read]*observed.Object{}
		for _, r := range last.Confirm {
			if in.Confirmed[r] || in.Unreadable[r] != "" {
				t.Errorf("%s was read already", describeRead(r, &in))
			}
			round = append(round, describeRead(r, &in))
			switch i, there := observed.SearchObject(cluster[r.Target].Objects, r.Namespace, r.Name); {
			case strings.Contains(strings.Join(refuses, " "), describeRead(r, &in)):
				in.Unreadable[r] = "forbidden"
				continue
			case r.All:
				in.Snapshot = in.Snapshot.WithTarget(r.Target, cluster[r.Target])
			case there:
				found[r] = &cluster[r.Target].Objects[i]
			default:
				found[r] = nil
			}
			in.Confirmed[r] = true
		}
		in.Snapshot = in.Snapshot.WithLive(found)
		rounds = append(rounds, strings.Join(round, ", "))
	}
	return first, last, rounds
}

func TestConfirm(t *testing.T) {
	orphaned := func(change ...func(*v1alpha1.Rule)) v1alpha1.Rule {
		r := rule(func(r *v1alpha1.Rule) {
			r.When = `!nodes.items.exists(n, n.metadata.name == item.spec.node)`
			r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "item.spec.node"}}
		})
		for _, c := range change {
			c(&r)
		}
		return r
	}
	freed := rule(func(r *v1alpha1.Rule) {
		r.ForEach = `pools.items.map(p, p.spec.addresses.map(a, {"pool": p, "ip": a.ip, "pod": a.pod})).flatten()`
		r.Key = `item.pool.metadata.name + " " + item.ip + " " + item.pod`
		r.When = `!pods.items.exists(p, p.metadata.name == item.pod)`
		r.Confirm = []v1alpha1.Confirm{{Target: "pods", Name: "item.pod", Namespace: `"shop"`}}
		release := patches(`{"spec": {"addresses": object.spec.addresses.filter(a, !items.exists(i, i.ip == a.ip))}}`)
		release.Object = "item.pool"
		r.Actions = []v1alpha1.RuleAction{release}
	})
	cases := map[string]struct {
		reason  string
		rule    v1alpha1.Rule
		change  func(*Input, *v1alpha1.Work)
		watched observed.Snapshot
		live    observed.Snapshot // the watched one if nil
		batch   int               // 10 if 0
		reads   int               // any number if 0
		refuses []string
		rounds  []string
		steps   []string // that may be taken
		left    []string // that may not be taken yet
		errors  []string
	}{
		"Absent": {
			reason:  "absence is proven by one read for each object",
			rule:    orphaned(),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n1"), p("c", "node:n2")), nodesSeen("n1"), poolsSeen()},
			rounds:  []string{"nodes n2"},
			steps:   []string{"r delete a", "r delete c"},
		},
		"TheItemByAnotherName": {
			reason: "what an action finds again as its item is not read by its name, but where it is found is read",
			rule: rule(func(r *v1alpha1.Rule) {
				again := patches(`{}`)
				again.Object = `pods.items.filter(p, p.metadata.name == item.metadata.name)[0]`
				r.Actions = []v1alpha1.RuleAction{again}
			}),
			watched: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()},
			rounds:  []string{"pods *"},
			steps:   []string{"r patch a {}"},
		},
		"Present": {
			reason:  "what is there after all leaves nothing to do",
			rule:    orphaned(),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1"), poolsSeen()},
			live:    observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1", "n3"), poolsSeen()},
			rounds:  []string{"nodes n2, nodes n3"},
			steps:   []string{"r delete a"},
		},
		"By default": {
			reason:  "what a rule joins and no entry names is read as a whole",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.Confirm = nil }),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1"), poolsSeen()},
			live:    observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1", "n3"), poolsSeen()},
			rounds:  []string{"nodes *"},
			steps:   []string{"r delete a"},
		},
		"By default unreadable": {
			reason:  "and proves nothing if it cannot be",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.Confirm = nil }),
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), poolsSeen()},
			refuses: []string{"nodes *"},
			rounds:  []string{"nodes *"},
			errors:  []string{"rules[0].when cannot be read live: forbidden x1"},
		},
		"Narrowed to nothing": {
			reason:  "an entry says how much is read of its target, even if that is nothing",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.Confirm[0].Name = "[]" }),
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), poolsSeen()},
			steps:   []string{"r delete a"},
		},
		"Unreadable": {
			reason:  "what cannot be read proves nothing",
			rule:    orphaned(),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1"), poolsSeen()},
			refuses: []string{"nodes n2"},
			rounds:  []string{"nodes n2, nodes n3"},
			steps:   []string{"r delete b"},
			errors:  []string{"rules[0].confirm[0] cannot be read live: forbidden x1"},
		},
		"Batch": {
			reason:  "only the first ones are asked about",
			rule:    orphaned(),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3"), p("c", "node:n4")), nodesSeen("n1"), poolsSeen()},
			batch:   2,
			rounds:  []string{"nodes n2, nodes n3"},
			steps:   []string{"r delete a", "r delete b"},
			left:    []string{"r delete c"},
		},
		"Reads": {
			reason:  "only the first ones are asked about, of which there may be as many reads: what several rest on is one",
			rule:    orphaned(),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3"), p("c", "node:n2"), p("d", "node:n4"), p("e", "node:n3")), nodesSeen("n1"), poolsSeen()},
			reads:   2,
			rounds:  []string{"nodes n2, nodes n3"},
			steps:   []string{"r delete a", "r delete b", "r delete c"},
			left:    []string{"r delete d", "r delete e"},
		},
		"Reads of later entries": {
			reason: "count before they are made, so that none is in vain",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.Confirm = append(r.Confirm, v1alpha1.Confirm{Target: "pools", Name: `["x-" + item.metadata.name, "y-" + item.metadata.name]`})
			}),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3"), p("c", "node:n4")), nodesSeen("n1"), poolsSeen()},
			reads:   3,
			rounds:  []string{"nodes n2", "pools x-a, pools y-a"},
			steps:   []string{"r delete a"},
			left:    []string{"r delete b", "r delete c"},
		},
		"Reads as a whole": {
			reason: "do not count",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.Confirm = []v1alpha1.Confirm{{Target: "nodes"}, {Target: "nodes", Name: `lists.range(1000).map(i, string(i))`}}
			}),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1"), poolsSeen()},
			reads:   1,
			rounds:  []string{"nodes *"},
			steps:   []string{"r delete a", "r delete b"},
		},
		"Nothing to read": {
			reason:  "an entry may say that there is nothing to read",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.Confirm[0].Name = `item.spec.node == "n2" ? [] : [item.spec.node]` }),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1"), poolsSeen()},
			rounds:  []string{"nodes n3"},
			steps:   []string{"r delete a", "r delete b"},
		},
		"Stages": {
			reason: "a later entry sees what earlier ones read",
			rule: rule(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key = `["n2", "n3"]`, "item"
				r.When = `!nodes.items.exists(n, n.metadata.name == item && n.spec.up == "yes")`
				r.Confirm = []v1alpha1.Confirm{
					{Target: "nodes", Name: "item"},
					{Target: "pods", Name: `pods.items.filter(p, p.spec.node == item).map(p, p.metadata.name)`, Namespace: `"shop"`},
					{Target: "pools"},
				}
				r.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
			}),
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen(), poolsSeen()},
			live:    observed.Snapshot{seen(p("a", "node:n2")), nodesSeen(), poolsSeen(pool("p1"))},
			rounds:  []string{"nodes n2, nodes n3", "pods shop/a", "pools *"},
			steps:   []string{"r report  <n2>", "r report  <n3>"},
		},
		"Objects first": {
			reason:  "what an action is about is read before everything else, and the rule is decided on it anew",
			rule:    freed,
			watched: observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen(pool("p1", "1=a", "2=b", "3=c"))},
			live:    observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen(pool("p1", "1=a", "2=b", "3=a", "4=d"))},
			rounds:  []string{"pools p1", "pods shop/b", "pools *"},
			steps:   []string{`r patch p1 <p1 2 b> {"spec":{"addresses":[{"ip":"1","pod":"a"},{"ip":"3","pod":"a"},{"ip":"4","pod":"d"}]}}`},
		},
		"A fold takes those that are confirmed": {
			reason:  "by the end of the batch, and leaves the others for the next",
			rule:    freed,
			watched: observed.Snapshot{seen(), nodesSeen(), poolsSeen(pool("p1", "1=a", "2=b", "3=c"))},
			batch:   2,
			rounds:  []string{"pools p1", "pods shop/a, pods shop/b", "pools *"},
			steps:   []string{`r patch p1 <p1 1 a,p1 2 b> {"spec":{"addresses":[{"ip":"3","pod":"c"}]}}`},
			left:    []string{`r patch p1 <p1 3 c> {"spec":{"addresses":[{"ip":"1","pod":"a"},{"ip":"2","pod":"b"}]}}`},
		},
		"No namespace": {
			reason: "the item has none, and neither does the entry say one",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key, r.When = `["a"]`, "item", "true"
				r.Confirm[0] = v1alpha1.Confirm{Target: "pods", Name: "item"}
			}),
			watched: observed.Snapshot{seen(), nodesSeen(), poolsSeen()},
			errors:  []string{"rules[0].actions[0] x1"},
		},
		"No namespace to report": {
			reason: "that is an error of the item",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key, r.When, r.Actions = `["a"]`, "item", "true", []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
				r.Confirm[0] = v1alpha1.Confirm{Target: "pods", Name: "item"}
			}),
			watched: observed.Snapshot{seen(), nodesSeen(), poolsSeen()},
			errors:  []string{"rules[0].confirm[0].namespace the item has no namespace; set namespace x1"},
		},
		"Namespace of the item": {
			reason:  "is where it is looked, if the entry does not say",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.Confirm[0] = v1alpha1.Confirm{Target: "pods", Name: `"x"`} }),
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen(), poolsSeen()},
			rounds:  []string{"pods shop/x", "nodes *"},
			steps:   []string{"r delete a"},
		},
		"Namespace ignored": {
			reason:  "cluster-scoped kinds are in none, whatever the entry says",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.Confirm[0].Namespace = `"x"` }),
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen(), poolsSeen()},
			rounds:  []string{"nodes n2"},
			steps:   []string{"r delete a"},
		},
		"Null": {
			reason: "of a kind that is not served nothing can be read",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.When, r.Confirm[0] = "pools == null", v1alpha1.Confirm{Target: "pools", Name: `"p1"`}
			}),
			change:  func(_ *Input, w *v1alpha1.Work) { asNull(&w.Targets[2]) },
			watched: observed.Snapshot{seen(p("a")), nodesSeen(), {State: observed.NoSuchKind}},
			errors:  []string{`rules[0].confirm[0] target "pools" is null and cannot be read; check in when that it is not null x1`},
		},
		"All": {
			reason:  "that the rule depends on is read as a whole, but not what its items are of",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.Confirm[0] = v1alpha1.Confirm{Target: "*"} }),
			watched: observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1"), poolsSeen()},
			live:    observed.Snapshot{seen(p("a", "node:n2"), p("b", "node:n3")), nodesSeen("n1", "n3"), poolsSeen()},
			rounds:  []string{"nodes *"},
			steps:   []string{"r delete a"},
		},
		"All, and some cannot be read": {
			reason:  "proves nothing",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.Confirm[0] = v1alpha1.Confirm{Target: "*"} }),
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), poolsSeen()},
			refuses: []string{"nodes *"},
			rounds:  []string{"nodes *"},
			errors:  []string{"rules[0].confirm[0] cannot be read live: forbidden x1"},
		},
		"Not served": {
			reason: "is an answer of a live read, where it is null for expressions",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.When, r.Confirm[0] = "pools == null && "+r.When, v1alpha1.Confirm{Target: "*"}
			}),
			change:  func(_ *Input, w *v1alpha1.Work) { asNull(&w.Targets[2]) },
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), {State: observed.NoSuchKind}},
			rounds:  []string{"nodes *, pools *"},
			steps:   []string{"r delete a"},
		},
		"Served by now": {
			reason: "what was null is there after all",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.When, r.Confirm[0] = "pools == null", v1alpha1.Confirm{Target: "pools"}
			}),
			change:  func(_ *Input, w *v1alpha1.Work) { asNull(&w.Targets[2]) },
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), {State: observed.NoSuchKind}},
			live:    observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), poolsSeen()},
			rounds:  []string{"pools *"},
		},
		"Expression fails": {
			reason:  "an entry that cannot be asked is an error of the item",
			rule:    orphaned(func(r *v1alpha1.Rule) { r.When = "true" }),
			watched: observed.Snapshot{seen(p("a"), p("b", "node:n2")), nodesSeen(), poolsSeen()},
			rounds:  []string{"nodes n2"},
			steps:   []string{"r delete b"},
			errors:  []string{"rules[0].confirm[0].name x1"},
		},
		"Conditions": {
			reason:  "what conditions read is read as a whole, before everything else",
			rule:    orphaned(),
			change:  func(_ *Input, w *v1alpha1.Work) { w.Conditions = []string{"pools.items.size() == 0"} },
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), poolsSeen()},
			rounds:  []string{"pools *", "nodes n2"},
			steps:   []string{"r delete a"},
		},
		"Conditions that do not hold": {
			reason:  "on live reads leave nothing to do",
			rule:    rule(),
			change:  func(_ *Input, w *v1alpha1.Work) { w.Conditions = []string{"pools.items.size() == 0"} },
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), poolsSeen()},
			live:    observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), poolsSeen(pool("p1"))},
			rounds:  []string{"pools *"},
		},
		"Conditions that cannot be read": {
			reason:  "stop everything",
			rule:    rule(),
			change:  func(_ *Input, w *v1alpha1.Work) { w.Conditions = []string{"pools.items.size() == 0"} },
			watched: observed.Snapshot{seen(p("a", "node:n2")), nodesSeen("n1"), poolsSeen()},
			refuses: []string{"pools *"},
			rounds:  []string{"pools *"},
		},
		"Deleted targets": {
			reason: "rest on everything that expressions see",
			rule:   rule(func(r *v1alpha1.Rule) { r.When = "false" }),
			change: func(_ *Input, w *v1alpha1.Work) {
				w.Targets[0].Delete = true
				quiet(&w.Targets[2])
			},
			watched: observed.Snapshot{seen(p("a"), p("b")), nodesSeen("n1"), poolsSeen()},
			live:    observed.Snapshot{seen(p("a"), p("c")), nodesSeen("n1"), poolsSeen()},
			rounds:  []string{"pods *, nodes *"},
			steps:   []string{"targets.pods delete a"},
		},
		"A Cleaner": {
			reason: "reads its own namespace only",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.Confirm[0] = v1alpha1.Confirm{Target: "pods", Name: `"x"`, Namespace: "item.spec.of"}
			}),
			change: func(in *Input, w *v1alpha1.Work) {
				w.Cluster, in.Owner.Namespace = false, "shop"
			},
			watched: observed.Snapshot{seen(p("a", "node:n2", "of:other"), p("b", "node:n2", "of:shop")), nodesSeen(), poolsSeen()},
			rounds:  []string{"pods shop/x", "nodes *"},
			steps:   []string{"r delete b"},
			errors:  []string{`rules[0].confirm[0].namespace a Cleaner reads only its own namespace, not "other"; leave it out x1`},
		},
		"A Cleaner's item in no namespace": {
			reason: "is confirmed in that of the Cleaner, for it can be in no other",
			rule: orphaned(func(r *v1alpha1.Rule) {
				r.ForEach, r.Key, r.When, r.Actions = `["x", "y"]`, "item", "true", []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
				r.Confirm[0] = v1alpha1.Confirm{Target: "pods", Name: "item"}
			}),
			change: func(in *Input, w *v1alpha1.Work) {
				w.Cluster, in.Owner.Namespace = false, "shop"
			},
			watched: observed.Snapshot{seen(), nodesSeen(), poolsSeen()},
			rounds:  []string{"pods shop/x, pods shop/y"},
			steps:   []string{"r report  <x>", "r report  <y>"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			work := cluster(tc.rule)
			owner := Input{Owner: Owner{Name: "c", UID: "cleaner", Created: born}}
			if tc.change != nil {
				tc.change(&owner, work)
			}
			in := over(t, work)
			in.Owner, in.Snapshot, in.Batch, in.Reads = owner.Owner, tc.watched, 10, tc.reads
			if tc.batch > 0 {
				in.Batch = tc.batch
			}
			if tc.live == nil {
				tc.live = tc.watched
			}
			first, last, rounds := batch(t, in, tc.live, tc.refuses...)
			if diff := cmp.Diff(tc.rounds, rounds); diff != "" {
				t.Errorf("%s: what was read:\n-want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.steps, shorts(IntersectPlans(first, last).Steps)); diff != "" {
				t.Errorf("%s: what is done:\n-want +got\n%s", tc.reason, diff)
			}
			var left, errors []string
			for i := range last.Steps {
				if !last.Steps[i].Confirmed {
					left = append(left, short(&last.Steps[i]))
				}
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("%s: what is left:\n-want +got\n%s", tc.reason, diff)
			}
			for _, e := range append(first.Errors, last.Errors...) {
				text := fmt.Sprintf("%s %s x%d", e.Field, e.Message, e.Count)
				if strings.Contains(e.Message, "at 1:") || strings.Contains(e.Message, "the item is no object") {
					text = fmt.Sprintf("%s x%d", e.Field, e.Count)
				}
				if !slices.Contains(errors, text) {
					errors = append(errors, text)
				}
			}
			if diff := cmp.Diff(tc.errors, errors); diff != "" {
				t.Errorf("%s: errors:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// An object is acted on by the first rule that wants it, also where live reads alone have that rule want it: what it does has its turn in the
// next batch, and until then no other rule and no target does anything to the object.
func TestWhatTurnsUpKeepsItsObjects(t *testing.T) {
	mend := rule(func(r *v1alpha1.Rule) {
		r.Name, r.When, r.Actions = "mend", `has(item.metadata.labels.broken)`, []v1alpha1.RuleAction{patches("{}")}
	})
	mendAnother := rule(func(r *v1alpha1.Rule) {
		r.Name, r.When = "mend", `item.metadata.name == "c" && nodes.items.exists(n, n.metadata.name == "n2")`
		r.Actions = []v1alpha1.RuleAction{patches("{}")}
		r.Actions[0].Object = `pods.items.filter(p, p.metadata.name == "a")[0]`
	})
	joined := func(r *v1alpha1.Rule) {
		r.Name, r.When = "late", `item.metadata.name != "c" && nodes.items.exists(n, n.metadata.name == "n1")`
	}
	onBoth := rule(func(r *v1alpha1.Rule) {
		r.Name, r.When = "both", `item.metadata.name == "c"`
		for _, name := range []string{"a", "b"} {
			touch := patches("{}")
			touch.Object = fmt.Sprintf(`pods.items.filter(p, p.metadata.name == %q)[0]`, name)
			r.Actions = append(r.Actions[:len(r.Actions):len(r.Actions)], touch)
		}
		r.Actions = r.Actions[1:]
	})
	deleteTarget := func(in *Input) { in.Spec.Targets[0].Delete = true }
	for name, tc := range map[string]struct {
		rules         []v1alpha1.Rule
		change        func(*Input)
		watched, live observed.Snapshot
		want          []string
	}{
		"Target": {
			rules: []v1alpha1.Rule{mend}, change: deleteTarget,
			watched: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a", "broken=yes"), p("b")), nodesSeen(), poolsSeen()},
			want: []string{"targets.pods delete b"},
		},
		"Rule": {
			rules:   []v1alpha1.Rule{mendAnother, rule(joined)},
			watched: observed.Snapshot{seen(p("a"), p("b"), p("c")), nodesSeen("n1"), poolsSeen()}, live: observed.Snapshot{seen(p("a"), p("b"), p("c")), nodesSeen("n1", "n2"), poolsSeen()},
			want: []string{"late delete b"},
		},
		"Report": { // it takes nothing from anybody
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.Name, r.When, r.Actions = "look", `has(item.metadata.labels.broken)`, []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
			})},
			change:  deleteTarget,
			watched: observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()}, live: observed.Snapshot{seen(p("a", "broken=yes"), p("b")), nodesSeen(), poolsSeen()},
			want: []string{"targets.pods delete a", "targets.pods delete b"},
		},
		"SameRule": { // its items share their object
			rules: []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
				r.When = `!has(item.metadata.labels.fine) && nodes.items.exists(n, n.metadata.name == "n1")`
				r.Actions = []v1alpha1.RuleAction{patches(`{"spec": {"items": items.map(i, i.metadata.name)}}`)}
				r.Actions[0].Object = "pods.items[0]"
			}), rule(joined)},
			change:  deleteTarget,
			watched: observed.Snapshot{seen(p("a", "fine=yes"), p("b")), nodesSeen("n1"), poolsSeen()}, live: observed.Snapshot{seen(p("a"), p("b")), nodesSeen("n1"), poolsSeen()},
			want: []string{`r patch a <uid-b> {"spec":{"items":["b"]}}`, "late delete b"},
		},
		"Overtaken": { // what wants an object of an earlier rule gets none of its others
			rules:   []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.When = `item.metadata.name == "a"` }), onBoth, rule(joined)},
			watched: observed.Snapshot{seen(p("a"), p("b"), p("c")), nodesSeen("n1"), poolsSeen()},
			want:    []string{"r delete a", "late delete b"},
		},
		"Waiting": { // nor does what waits after a failure
			rules: []v1alpha1.Rule{onBoth, rule(joined)},
			change: func(in *Input) {
				in.Backoff = backoff.Failures{}
				in.Backoff.RecordFailure("uid-a", v1alpha1.ReasonDeletionRefused, "forbidden", in.Now)
			},
			watched: observed.Snapshot{seen(p("a"), p("b"), p("c")), nodesSeen("n1"), poolsSeen()},
			want:    []string{"late delete b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := over(t, cluster(tc.rules...))
			in.Snapshot, in.Batch = tc.watched, 10
			if tc.live == nil {
				tc.live = tc.watched
			}
			if tc.change != nil {
				tc.change(&in)
			}
			first, last, _ := batch(t, in, tc.live)
			if diff := cmp.Diff(tc.want, shorts(IntersectPlans(first, last).Steps)); diff != "" {
				t.Errorf("what is done (-want +got):\n%s", diff)
			}
		})
	}
}

// However many entries there are, an item gives no more names than may be read at a time; others are confirmed all the same.
func TestAnItemRestsOnFewReads(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) {
		for i := range 3 {
			name := fmt.Sprintf(`item.metadata.name == "a" ? lists.range(%d).map(i, "%d-" + string(i)) : []`, MaxReads/2, i)
			r.Confirm = append(r.Confirm, v1alpha1.Confirm{Target: "nodes", Name: name})
		}
	}))
	in := over(t, work)
	in.Snapshot, in.Batch, in.Reads = observed.Snapshot{seen(p("a"), p("b")), nodesSeen(), poolsSeen()}, 10, MaxReads
	_, last, rounds := batch(t, in, in.Snapshot)
	if len(rounds) != 0 || len(last.Steps) != 1 || last.Steps[0].Object.Name != "b" {
		t.Errorf("after %d rounds it wants %v", len(rounds), shorts(last.Steps))
	}
	want := []v1alpha1.ItemError{{
		Rule: "r", Key: last.Errors[0].Key, Count: 1, Field: "rules[0].confirm",
		Message: "the entries of confirm return more than 2000 names for one item; give fewer names, or leave name out to read the target as a whole",
	}}
	if diff := cmp.Diff(want, last.Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

// Where the version of an item does not say what it is, its target is read as a whole, although the rule is about each item by itself.
func TestAnOutdatedTargetIsConfirmed(t *testing.T) {
	for name, tc := range map[string]struct {
		outdated bool
		cluster  observed.Target
		rounds   []string
		steps    int
	}{
		"AsItIs":           {false, seen(), nil, 2},
		"OutdatedAndSame":  {true, seen(p("a"), p("b")), []string{"pods *"}, 2},
		"OutdatedAndOther": {true, seen(p("b")), []string{"pods *"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			in := over(t, cluster(rule()))
			pods := seen(p("a"), p("b"))
			pods.Outdated = tc.outdated
			others := nodesSeen()
			others.Outdated = true // the rule does not read it
			in.Snapshot, in.Batch, in.Reads = observed.Snapshot{pods, others, poolsSeen()}, 10, MaxReads
			_, last, rounds := batch(t, in, observed.Snapshot{tc.cluster, nodesSeen(), poolsSeen()})
			if !slices.Equal(rounds, tc.rounds) || len(last.Steps) != tc.steps {
				t.Errorf("after %q it wants %v", rounds, shorts(last.Steps))
			}
		})
	}
}

// Of a batch are only items that were chosen for it: the others are neither asked about nor confirmed, and wait for the next one.
func TestABatchHasTheItemsThatWereChosen(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) {
		r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "item.metadata.name"}}
	}))
	in := over(t, work)
	in.Snapshot, in.Batch = observed.Snapshot{seen(p("a"), p("b"), p("c")), nodesSeen(), poolsSeen()}, 1
	first := ComputePlan(t.Context(), in)
	for _, key := range first.Steps[2].Keys {
		in.Chosen = map[ItemKey]bool{{Rule: "r", Key: key}: true}
	}
	_, last, rounds := batch(t, in, in.Snapshot)
	var confirmed []string
	for i := range last.Steps {
		if last.Steps[i].Confirmed {
			confirmed = append(confirmed, last.Steps[i].Object.Name)
		}
	}
	if len(last.Steps) != 3 || !slices.Equal(confirmed, []string{"c"}) || !slices.Equal(rounds, []string{"nodes c"}) {
		t.Errorf("of %v it confirms %q, and reads %q", shorts(last.Steps), confirmed, rounds)
	}
}

// As long as the conditions are not confirmed no step is, and what is folded onto one object is one step, even if one of
// its items, as the object itself, rests on nothing else.
func TestFoldsBeforeTheConditionsAreConfirmed(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) {
		r.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}, Object: "pods.items[0]"}}
	}))
	work.Conditions = []string{"size(pods.items) > 0"}
	got := ComputePlan(t.Context(), over(t, work, object(pods, "Pod", "shop", "a"), object(pods, "Pod", "shop", "b")))
	if diff := cmp.Diff([]string{"r report a <uid-a,uid-b>"}, shorts(got.Steps)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	for i := range got.Steps {
		if got.Steps[i].Confirmed {
			t.Errorf("%s is confirmed", short(&got.Steps[i]))
		}
	}
}

// A plan of a snapshot that was read live as a whole asks for nothing, and can be done.
func TestALiveSnapshotIsConfirmed(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) {
		r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: `"n2"`}, {Target: "pools"}}
	}))
	work.Conditions = []string{"nodes.items.size() > 0"}
	in := over(t, work, p("a"))
	in.Confirmed, in.Batch = in.Snapshot.LiveReads(), 1
	if got := ComputePlan(t.Context(), in); len(got.Confirm) > 0 || len(got.Steps) != 1 || !got.Steps[0].Confirmed {
		t.Errorf("got %+v", got)
	}
	in.Confirmed = nil
	in.Batch = 0
	if got := ComputePlan(t.Context(), in); len(got.Confirm) > 0 || len(got.Steps) != 1 || got.Steps[0].Confirmed {
		t.Errorf("without a batch nothing is asked, and nothing is confirmed: %+v", got)
	}
}

func TestIntersect(t *testing.T) {
	step := func(action int, uid string, keys string, after ...int) Step {
		return Step{Rule: "r", Action: action, Object: p(uid), Keys: strings.Split(keys, ","), Verb: VerbPatch, Confirmed: true, After: after}
	}
	unconfirmed := func(s Step) Step { s.Confirmed = false; return s }
	plan := func(steps ...Step) Plan { return Plan{Verdict: v1alpha1.VerdictAct, Steps: steps} }
	cases := map[string]struct {
		reason      string
		first, last Plan
		want        []string
	}{
		"Same":          {"the same", plan(step(0, "a", "1")), plan(step(0, "a", "1")), []string{"r patch a <1> "}},
		"Unconfirmed":   {"but confirmed", plan(step(0, "a", "1")), plan(unconfirmed(step(0, "a", "1"))), nil},
		"AnotherObject": {"on the same object", plan(step(0, "a", "1")), plan(step(0, "b", "1")), nil},
		"AnotherAction": {"by the same action", plan(step(0, "a", "1")), plan(step(1, "a", "1")), nil},
		"FewerKeys":     {"for some of its items", plan(step(0, "a", "1,2,3")), plan(step(0, "a", "1,3")), []string{"r patch a <1,3> "}},
		"MoreKeys":      {"and for no others", plan(step(0, "a", "1,2")), plan(step(0, "a", "1,2,3")), nil},
		"TwoParts":      {"in whatever parts it was before", plan(unconfirmed(step(0, "a", "1")), unconfirmed(step(0, "a", "2"))), plan(step(0, "a", "1,2")), []string{"r patch a <1,2> "}},
		"After":         {"with what comes before it", plan(step(0, "a", "1"), step(0, "b", "2"), step(1, "b", "2")), plan(step(0, "c", "3"), step(0, "b", "2"), step(1, "b", "2", 1)), []string{"r patch b <2> ", "r patch b <2>  after [0]"}},
		"WithoutBefore": {"or not at all", plan(step(1, "b", "2")), plan(step(0, "b", "2"), step(1, "b", "2", 0)), nil},
		"Waits":         {"if both act", plan(step(0, "a", "1")), Plan{Verdict: v1alpha1.VerdictBlocked, Steps: []Step{step(0, "a", "1")}}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, p := range []Plan{tc.first, tc.last} {
				for i := range p.Steps {
					p.Steps[i].Patch = &Patch{}
				}
			}
			if diff := cmp.Diff(tc.want, shorts(IntersectPlans(tc.first, tc.last).Steps)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// Steps that stay come after the same steps as before, wherever these stand now, and the plan that they are taken from is as it was.
func TestKeepSteps(t *testing.T) {
	step := func(uid string, after ...int) Step {
		return Step{Rule: "r", Object: p(uid), Keys: []string{uid}, Verb: VerbPatch, Patch: &Patch{}, After: after}
	}
	steps := []Step{step("a"), step("b", 0), step("c"), step("d", 0, 1, 2), step("e", 3)}
	var asked []int
	got := KeepSteps(steps, func(n int) bool {
		asked = append(asked, n)
		return n != 0 && n != 3
	})
	if diff := cmp.Diff([]string{"r patch b <b> ", "r patch c <c> ", "r patch e <e> "}, shorts(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	got = KeepSteps(steps, func(n int) bool { return n != 0 })
	if diff := cmp.Diff([]string{"r patch b <b> ", "r patch c <c> ", "r patch d <d>  after [0 1]", "r patch e <e>  after [2]"}, shorts(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if want := []int{0, 1, 2, 3, 4}; !slices.Equal(asked, want) || !slices.Equal(steps[3].After, []int{0, 1, 2}) {
		t.Errorf("it asked about %v, want %v, and the fourth comes after %v", asked, want, steps[3].After)
	}
	if got := KeepSteps(steps, func(int) bool { return false }); got != nil {
		t.Errorf("%v stays of nothing", shorts(got))
	}
}
