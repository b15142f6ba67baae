// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// A hold lasts as long as `when` holds, and nothing that nobody knows begins or ends it.
func TestHolds(t *testing.T) {
	orphaned := func(r *v1alpha1.Rule) {
		r.When, r.For = `item.spec.node == "gone"`, "40s"
	}
	work := cluster(rule(orphaned))
	byNode := cluster(rule(orphaned, func(r *v1alpha1.Rule) { r.ForKey = "item.spec.host" }))
	byKey := cluster(rule(orphaned, func(r *v1alpha1.Rule) { r.Key = "item.spec.host" }))
	edited := cluster(rule(orphaned, func(r *v1alpha1.Rule) { r.Reason = `"x"` }))
	reading := func(change func(w *v1alpha1.Work)) *v1alpha1.Work {
		w := cluster(rule(orphaned, func(r *v1alpha1.Rule) { r.When = "item.spec.node == params.node || variables.never" }))
		w.Parameters = &runtime.RawExtension{Raw: []byte(`{"node":"gone"}`)}
		w.Variables = []v1alpha1.Variable{{Name: "never", Expression: "false"}}
		change(w)
		return w
	}
	read := reading(func(*v1alpha1.Work) {})
	parametrized := reading(func(w *v1alpha1.Work) { w.Parameters.Raw = []byte(`{"node":"gone","more":1}`) })
	varied := reading(func(w *v1alpha1.Work) { w.Variables[0].Expression = "false && true" })
	selecting := reading(func(w *v1alpha1.Work) { w.Targets[1].Reference.MatchLabels = map[string]string{"a": "b"} })
	gated := cluster(rule(orphaned))
	gated.Conditions = []string{"nodes.items.size() == 1"}
	gone, there, broken := p("a", "node:gone", "host:h"), p("a", "node:n1", "host:h"), p("a", "host:h")
	another := p("b", "node:gone", "host:h")
	replaced := p("a", "node:gone", "host:h")
	replaced.UID = "another"
	replaced.Value["metadata"].(map[string]any)["uid"] = "another"

	type look struct {
		at     time.Duration
		work   *v1alpha1.Work
		pods   []observed.Object
		change func(*Input)
	}
	at := func(seconds int, pods ...observed.Object) look {
		return look{at: time.Duration(seconds) * time.Second, pods: pods}
	}
	with := func(l look, change func(*Input)) look { l.change = change; return l }
	as := func(l look, w *v1alpha1.Work) look { l.work = w; return l }
	unsynced := func(in *Input) { in.Snapshot[1] = observed.Target{State: observed.Unsynced} }
	cases := map[string]struct {
		reason string
		looks  []look
		steps  []string // at the last look
		until  time.Duration
	}{
		"Begins":           {"it begins when it is seen first", []look{at(0, gone)}, nil, 40 * time.Second},
		"Early":            {"it is not over before", []look{at(0, gone), at(39, gone)}, nil, 40 * time.Second},
		"Due":              {"it is over at the very moment", []look{at(0, gone), at(40, gone)}, []string{"a"}, 0},
		"Broken":           {"a break ends it", []look{at(0, gone), at(20, there), at(30, gone), at(69, gone)}, nil, 70 * time.Second},
		"Left":             {"so does the end of the item", []look{at(0, gone), at(20), at(30, gone), at(69, gone)}, nil, 70 * time.Second},
		"Replaced":         {"another object of the name is another item", []look{at(0, gone), at(20, replaced), at(59, replaced)}, nil, 60 * time.Second},
		"ErrorKeeps":       {"an error does not end it", []look{at(0, gone), at(30, broken), at(35, broken), at(40, gone)}, []string{"a"}, 0},
		"ErrorLasts":       {"unless nobody can look for so long that a break would be overlooked", []look{at(0, gone), at(20, broken), at(25, broken), at(31, gone), at(70, gone)}, nil, 71 * time.Second},
		"ErrorsInTurn":     {"each time counts by itself", []look{at(0, gone), at(10, broken), at(20, gone), at(30, broken), at(40, gone)}, []string{"a"}, 0},
		"ErrorBegins":      {"nor begin it", []look{at(0, broken), at(20, gone), at(59, gone)}, nil, 60 * time.Second},
		"Incomplete":       {"what is not known does neither", []look{at(0, gone), with(at(30), unsynced), at(40, gone)}, []string{"a"}, 0},
		"IncompleteLong":   {"unless that lasts", []look{at(0, gone), with(at(20), unsynced), with(at(39), unsynced), at(40, gone)}, nil, 80 * time.Second},
		"IncompleteThen":   {"really", []look{with(at(0, gone), unsynced), at(20, gone)}, nil, 60 * time.Second},
		"ClockSuspect":     {"nor does a clock that is not trusted", []look{at(0, gone), with(at(30), func(in *Input) { in.Clock.Suspect = "off" }), at(40, gone)}, []string{"a"}, 0},
		"ClockSetBack":     {"a beginning that lies ahead is none", []look{at(100, gone), at(0, gone), at(39, gone)}, nil, 40 * time.Second},
		"Edited":           {"an edit of the rule begins anew", []look{at(0, gone), as(at(30, gone), edited), as(at(69, gone), edited)}, nil, 70 * time.Second},
		"ParametersEdited": {"so does one of what it reads", []look{as(at(0, gone), read), as(at(30, gone), parametrized)}, nil, 70 * time.Second},
		"VariablesEdited":  {"of variables", []look{as(at(0, gone), read), as(at(30, gone), varied)}, nil, 70 * time.Second},
		"TargetsEdited":    {"of targets", []look{as(at(0, gone), read), as(at(30, gone), selecting)}, nil, 70 * time.Second},
		"Suspended": {"nobody looks while it is suspended", []look{at(0, gone), with(at(20, gone), func(in *Input) {
			spec := *in.Spec
			spec.Suspend = true
			in.Spec = &spec
		}), at(40, gone)}, nil, 80 * time.Second},
		"Gate": {"nor while a condition is false", []look{
			as(at(0, gone), gated), as(with(at(20, gone), func(in *Input) { in.Snapshot[1] = nodesSeen() }), gated), as(at(40, gone), gated),
		}, nil, 80 * time.Second},
		"Shared":      {"one that is shared lasts while any item has its key", []look{as(at(0, gone), byNode), as(at(20, another), byNode), as(at(40, gone, another), byNode)}, []string{"a", "b"}, 0},
		"SharedEnds":  {"and ends when none has", []look{as(at(0, gone), byNode), as(at(20, there), byNode), as(at(40, another), byNode)}, nil, 80 * time.Second},
		"SharedError": {"an error of one of them keeps it", []look{as(at(0, gone), byNode), as(at(30, broken), byNode), as(at(40, another), byNode)}, []string{"b"}, 0},
		"SharedSeen":  {"and does nothing to it while another has it", []look{as(at(0, gone), byNode), as(at(20, broken, another), byNode), as(at(40, another), byNode)}, []string{"b"}, 0},
		"Twins":       {"nobody knows which of two items with one key holds", []look{as(at(0, gone), byKey), as(at(20, gone, another), byKey), as(at(40, another), byKey)}, nil, 80 * time.Second},
		"TwinIsQuiet": {"one of them that does not hold changes nothing", []look{as(at(0, gone), byKey), as(at(20, gone, object(pods, "Pod", "shop", "b", "node:n1", "host:h")), byKey), as(at(40, gone), byKey)}, []string{"a"}, 0},
		"Lost":        {"what was lost is late", []look{at(0, gone), with(at(40, gone), func(in *Input) { in.Holds = nil })}, nil, 80 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var holds fortimers.Holds
			var plan Plan
			for _, l := range tc.looks {
				if l.work == nil {
					l.work = work
				}
				in := over(t, l.work, l.pods...)
				in.Now, in.Holds = born.Add(l.at), holds
				if l.change != nil {
					l.change(&in)
				}
				before := clone(holds)
				plan = ComputePlan(t.Context(), in)
				if diff := cmp.Diff(before, holds); diff != "" {
					t.Errorf("holds that were handed out were changed:\n%s", diff)
				}
				holds = plan.Holds
			}
			var names []string
			for i := range plan.Steps {
				names = append(names, plan.Steps[i].Object.Name)
			}
			if !slices.Equal(names, tc.steps) {
				t.Errorf("%s: got %v, want %v", tc.reason, names, tc.steps)
			}
			switch {
			case tc.until == 0 && len(plan.Pending) > 0, tc.until > 0 && (len(plan.Pending) != 1 || !plan.Pending[0].Until.Equal(born.Add(tc.until))):
				t.Errorf("%s: got %v", tc.reason, plan.Pending)
			case tc.until > 0 && !plan.Next.Equal(born.Add(tc.until)):
				t.Errorf("it is asked again at %s", plan.Next.Sub(born))
			}
		})
	}
}

func clone(h fortimers.Holds) fortimers.Holds {
	if h == nil {
		return nil
	}
	out := fortimers.Holds{}
	for name, r := range h {
		out[name] = fortimers.RuleHolds{Text: r.Text, Since: maps.Clone(r.Since)}
	}
	return out
}

func TestDeed(t *testing.T) {
	in := over(t, cluster(rule()), p("a"))
	in.Spec.Limits = &v1alpha1.Limits{MaxActions: 1}
	s := Step{Rule: "r", Action: 1, Object: p("a"), Keys: []string{"1", "2"}}
	want := limits.Action{At: born, UID: "uid-a", Rule: "r", Action: 1, Items: limits.SumItems([]string{"1", "2"}), Targets: []string{"pods"}}
	if diff := cmp.Diff(want, in.MakeAction(&s, born)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	in.Spec.Limits = &v1alpha1.Limits{MaxPercent: 10}
	if got := in.MakeAction(&s, born); got.Items != nil {
		t.Errorf("items that no limit counts are remembered: %v", got.Items)
	}
}
