// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package liveconfirm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/celtest"
)

// world reads ConfigMaps of the namespace shop, and notes what it was asked.
type world struct {
	*snapshot.Objects
	mu    sync.Mutex
	asked []string
}

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{Objects: snapshot.NewObjects()}
	w.AddKind(schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", Namespaced: true})
	for _, name := range names {
		err := w.AddObject(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "shop", "name": name, "uid": "uid-" + name, "resourceVersion": "live"},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.SortObjects(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) Read(ctx context.Context, q snapshot.Query) observed.Target {
	w.mu.Lock()
	w.asked = append(w.asked, q.Kind+" "+q.Name)
	w.mu.Unlock()
	return w.Objects.Read(ctx, q)
}

// input knows the ConfigMap a only, at an old version; the kind of the target others is not served.
func input() plan.Input {
	hidden := false
	old := observed.Object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "shop", Name: "a", UID: "uid-a", ResourceVersion: "old"}}
	known := observed.Target{State: observed.Complete, Namespaced: true, Objects: []observed.Object{old}}
	return plan.Input{
		Owner: plan.Owner{Namespace: "shop"},
		Spec: &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{
			{Name: "maps", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "ConfigMap"}}},
			{Name: "others", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Other"}}},
			{Name: "hidden", Delete: true, IncludeWhenEvaluating: &hidden, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "ConfigMap"}}},
		}},
		Snapshot: observed.Snapshot{known, {State: observed.Complete}, known},
	}
}

// versions are the names and versions of the objects that a target shows.
func versions(t observed.Target) []string {
	var out []string
	for i := range t.Objects {
		out = append(out, t.Objects[i].Name+" "+t.Objects[i].ResourceVersion)
	}
	return out
}

func TestDecide(t *testing.T) {
	a, gone, all, other := observed.Read{Namespace: "shop", Name: "a"}, observed.Read{Namespace: "shop", Name: "gone"}, observed.Read{All: true}, observed.Read{Target: 1, Namespace: "shop", Name: "x"}
	others, ofTarget := observed.Read{Target: 1, All: true}, plan.Plan{Steps: []plan.Step{{Action: -1}}}
	asks := func(verdict v1alpha1.Verdict, rounds ...[]observed.Read) (Compute, *int) {
		n := 0
		return func(_ context.Context, _ plan.Input) plan.Plan {
			d := plan.Plan{Verdict: verdict}
			if n < len(rounds) {
				d.Confirm = rounds[n]
			}
			n++
			return d
		}, &n
	}
	for name, tc := range map[string]struct {
		reason   string
		verdict  v1alpha1.Verdict
		rounds   [][]observed.Read
		first    plan.Plan
		asked    []string
		computed int
		maps     []string
		wrong    []observed.Read
		change   func(*plan.Input)
		hidden   []string // what is known of the hidden targets; "a old" if nil
	}{
		"Nothing":    {reason: "what asks for nothing is decided", verdict: v1alpha1.VerdictAct, computed: 1, maps: []string{"a old"}},
		"Object":     {reason: "an object takes its place as it is read", verdict: v1alpha1.VerdictAct, rounds: [][]observed.Read{{a, gone}}, asked: []string{"ConfigMap a", "ConfigMap gone"}, computed: 2, maps: []string{"a live"}},
		"All":        {reason: "and so does a whole target", verdict: v1alpha1.VerdictAct, rounds: [][]observed.Read{{all}}, asked: []string{"ConfigMap "}, computed: 2, maps: []string{"a live", "b live"}},
		"Rounds":     {reason: "what asks for more is answered again", verdict: v1alpha1.VerdictAct, rounds: [][]observed.Read{{gone}, {a}}, asked: []string{"ConfigMap a", "ConfigMap gone"}, computed: 3, maps: []string{"a live"}},
		"Unreadable": {reason: "what cannot be read is said", verdict: v1alpha1.VerdictAct, rounds: [][]observed.Read{{other}}, asked: []string{"Other x"}, computed: 2, maps: []string{"a old"}, wrong: []observed.Read{other}},
		"Blocked":    {reason: "nothing is read for what is not done", verdict: v1alpha1.VerdictBlocked, rounds: [][]observed.Read{{a}}, computed: 1, maps: []string{"a old"}},
		"Unanswered": {reason: "nor is a whole target that cannot be read", verdict: v1alpha1.VerdictAct, rounds: [][]observed.Read{{others}}, asked: []string{"Other "}, computed: 2, maps: []string{"a old"}, wrong: []observed.Read{others}},
		"Hidden":     {reason: "what is deleted and not seen is read", verdict: v1alpha1.VerdictAct, first: ofTarget, asked: []string{"ConfigMap "}, computed: 1, maps: []string{"a old"}, hidden: []string{"a live", "b live"}},
		"HiddenTwice": {reason: "once for all who ask for the same", verdict: v1alpha1.VerdictAct, first: ofTarget, asked: []string{"ConfigMap "}, computed: 1, maps: []string{"a old"}, hidden: []string{"a live", "b live", "a live", "b live"},
			change: func(in *plan.Input) {
				in.Spec.Targets, in.Snapshot = append(in.Spec.Targets, in.Spec.Targets[2]), append(in.Snapshot, in.Snapshot[2])
			}},
		"HiddenAndKept": {reason: "but not what is not deleted", verdict: v1alpha1.VerdictAct, first: ofTarget, computed: 1, maps: []string{"a old"}, change: func(in *plan.Input) { in.Spec.Targets[2].Delete = false }},
		"SeenToo":       {reason: "nor what a decision asks for anyway", verdict: v1alpha1.VerdictAct, first: ofTarget, computed: 1, maps: []string{"a old"}, change: func(in *plan.Input) { in.Spec.Targets[0].Delete, in.Spec.Targets[2].Delete = true, false }},
		"OfRules":       {reason: "nor anything where rules alone act", verdict: v1alpha1.VerdictAct, first: plan.Plan{Steps: []plan.Step{{Action: 0}, {Action: 1}}}, computed: 1, maps: []string{"a old"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			compute, computed := asks(tc.verdict, tc.rounds...)
			in := input()
			if tc.change != nil {
				tc.change(&in)
			}
			_, in, inTime := Decide(t.Context(), Readers{Live: w}, in, tc.first, compute, Never)
			if !inTime {
				t.Errorf("%s: it is late", tc.reason)
			}
			slices.Sort(w.asked)
			if diff := cmp.Diff(tc.asked, w.asked); diff != "" || *computed != tc.computed {
				t.Errorf("%s: it was decided %d times, and read -want +got\n%s", tc.reason, *computed, diff)
			}
			if diff := cmp.Diff(tc.maps, versions(in.Snapshot[0])); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			for _, read := range tc.wrong {
				if in.Unreadable[read] == "" || in.Confirmed[read] {
					t.Errorf("%s: %+v is not said to be unreadable", tc.reason, read)
				}
			}
			for _, round := range tc.rounds {
				for _, read := range round {
					if wrong := slices.Contains(tc.wrong, read); tc.verdict == v1alpha1.VerdictAct && !wrong && !in.Confirmed[read] {
						t.Errorf("%s: %+v is not confirmed", tc.reason, read)
					}
				}
			}
			if tc.hidden == nil {
				tc.hidden = []string{"a old"}
			}
			var hidden []string
			for _, target := range in.Snapshot[2:] {
				hidden = append(hidden, versions(target)...)
			}
			if diff := cmp.Diff(tc.hidden, hidden); diff != "" {
				t.Errorf("%s: hidden targets: -want +got\n%s", tc.reason, diff)
			}
		})
	}
	compute, computed := asks(v1alpha1.VerdictBlocked, []observed.Read{a})
	if DecideToShow(t.Context(), newWorld(t, "a"), input(), plan.Plan{}, compute); *computed != 2 {
		t.Error("a plan that is blocked is shown as it was before anything was read")
	}
	endless := func(context.Context, plan.Input) plan.Plan {
		return plan.Plan{Verdict: v1alpha1.VerdictAct, Confirm: []observed.Read{a}}
	}
	if got, _, inTime := Decide(t.Context(), Readers{Live: newWorld(t, "a")}, input(), plan.Plan{}, endless, Never); got.Verdict != v1alpha1.VerdictWait || got.Reason != v1alpha1.ReasonUnconfirmed || !inTime {
		t.Errorf("what asks for ever comes to %s, %s; in time: %t", got.Verdict, got.Reason, inTime)
	}
}

// Neither rounds nor the reads of one round go on when no time is left, and nothing is decided on a part of them.
func TestDecideEndsInTime(t *testing.T) {
	var many []observed.Read
	for i := range 10 * inFlight {
		many = append(many, observed.Read{Namespace: "shop", Name: fmt.Sprint("n", i)})
	}
	for name, tc := range map[string]struct {
		// rounds and reads are after how many of them no time is left; 0: not by them.
		rounds, reads int
		atOnce        bool
		ask           []observed.Read
		computed      int
		asked         int
	}{
		"AtOnce":         {atOnce: true, ask: many[:1]},
		"Rounds":         {rounds: 2, ask: many[:1], computed: 2, asked: 1},
		"Reads":          {reads: 1, ask: many, computed: 1, asked: inFlight},
		"LastRound":      {reads: 1, ask: many[:1], computed: 1, asked: 1},
		"LastOfAllReads": {reads: maxRounds, ask: many[:1], computed: maxRounds, asked: maxRounds},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			computed := 0
			compute := func(context.Context, plan.Input) plan.Plan {
				computed++
				return plan.Plan{Verdict: v1alpha1.VerdictAct, Confirm: tc.ask, Steps: []plan.Step{{Confirmed: true}}, Holds: fortimers.Holds{}}
			}
			first := plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: []plan.Step{{}}, Holds: fortimers.Holds{}}
			got, in, inTime := Decide(t.Context(), Readers{Live: w}, input(), first, compute, func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return tc.atOnce || tc.rounds > 0 && computed >= tc.rounds || tc.reads > 0 && len(w.asked) >= tc.reads
			})
			if computed != tc.computed || len(w.asked) > tc.asked {
				t.Errorf("it was decided %d times, and read %d times; want %d, and at most %d", computed, len(w.asked), tc.computed, tc.asked)
			}
			if inTime || got.Verdict != v1alpha1.VerdictWait || got.Reason != v1alpha1.ReasonUnconfirmed || len(got.Steps) > 0 || got.Holds == nil {
				t.Errorf("in time: %t; it comes to %+v", inTime, got)
			}
			if name == "Reads" && len(in.Confirmed) > 0 {
				t.Errorf("of reads that were not made in time %d count", len(in.Confirmed))
			}
		})
	}
}

// Reads of which one was not made in time count as none, even if there seems to be time again after it.
func TestAReadThatIsLeftOutLeavesOutAll(t *testing.T) {
	reads := []observed.Read{{Namespace: "shop", Name: "a"}, {Namespace: "shop", Name: "gone"}, {All: true}}
	for late := range len(reads) {
		in := input()
		in.Confirmed, in.Unreadable = map[observed.Read]bool{}, map[observed.Read]string{}
		var asked atomic.Int64
		inTime := ReadLive(t.Context(), newWorld(t, "a", "b"), &in, reads, func() bool { return asked.Add(1) == int64(late+1) })
		if inTime || len(in.Confirmed)+len(in.Unreadable) > 0 {
			t.Errorf("read %d is left out; in time: %t; confirmed are %v", late+1, inTime, in.Confirmed)
		}
		if diff := cmp.Diff([]string{"a old"}, versions(in.Snapshot[0])); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

// mute answers nothing, and does not say why.
type mute struct{}

func (mute) Read(context.Context, snapshot.Query) observed.Target { return observed.Target{} }

// A read that fails without a word proves nothing: neither that an object is gone, nor what a target has.
func TestAReadThatFailsWithoutAWordIsNoAnswer(t *testing.T) {
	in := input()
	in.Confirmed, in.Unreadable = map[observed.Read]bool{}, map[observed.Read]string{}
	reads := []observed.Read{{Namespace: "shop", Name: "a"}, {All: true}}
	if !ReadLive(t.Context(), mute{}, &in, reads, Never) {
		t.Fatal("it is late")
	}
	for _, read := range reads {
		if _, failed := in.Unreadable[read]; !failed || in.Confirmed[read] {
			t.Errorf("%+v is answered", read)
		}
	}
	if diff := cmp.Diff([]string{"a old"}, versions(in.Snapshot[0])); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// What several targets ask for in the same words is read once, whole or as one object, and they share it.
func TestEqualReadsAreMadeOnce(t *testing.T) {
	in := input()
	in.Spec.Targets[1] = in.Spec.Targets[0]
	in.Spec.Targets[1].Name = "same"
	in.Confirmed, in.Unreadable = map[observed.Read]bool{}, map[observed.Read]string{}
	w := newWorld(t, "a", "b")
	reads := []observed.Read{{All: true}, {Target: 1, All: true}, {Namespace: "shop", Name: "a"}, {Target: 1, Namespace: "shop", Name: "a"}}
	if !ReadLive(t.Context(), w, &in, reads, Never) {
		t.Fatal("it is late")
	}
	slices.Sort(w.asked)
	if diff := cmp.Diff([]string{"ConfigMap ", "ConfigMap a"}, w.asked); diff != "" {
		t.Errorf("reads: -want +got\n%s", diff)
	}
	for n, seen := range in.Snapshot[:2] {
		if diff := cmp.Diff([]string{"a live", "b live"}, versions(seen)); diff != "" {
			t.Errorf("target %d: -want +got\n%s", n, diff)
		}
	}
	if len(in.Confirmed) != len(reads) {
		t.Errorf("%d of %d reads count", len(in.Confirmed), len(reads))
	}
}

// askedFor records queries.
type askedFor struct{ queries []snapshot.Query }

func (a *askedFor) Read(_ context.Context, q snapshot.Query) observed.Target {
	a.queries = append(a.queries, q)
	return observed.Target{State: observed.Complete, Namespaced: true}
}

// A target that is read as a whole is asked for what the expressions read of its objects, and not for whole objects.
func TestWholeTargetsAreAskedForWhatIsRead(t *testing.T) {
	work := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`pods.items.exists(p, p.status.phase == "Failed")`}}}
	work.Targets = []v1alpha1.ClusterTarget{{Name: "pods"}, {Name: "others", Delete: true, IncludeWhenEvaluating: new(false)}}
	for i := range work.Targets {
		work.Targets[i].Reference.Version, work.Targets[i].Reference.Kind = "v1", "Pod"
	}
	programs := celtest.CompileWork(t, work)
	in := plan.Input{Spec: work, Programs: programs, Snapshot: make(observed.Snapshot, 2), Confirmed: map[observed.Read]bool{}, Unreadable: map[observed.Read]string{}}
	batch, run, unseen := &askedFor{}, &askedFor{}, &askedFor{}
	ReadLive(t.Context(), batch, &in, []observed.Read{{Target: 0, All: true}}, Never)
	snapshot.ReadForConfirmation(t.Context(), run, "", work, programs.FindReadings())
	readUnseenTargets(t.Context(), unseen, &in, plan.Plan{Steps: []plan.Step{{Action: -1}}})
	for name, a := range map[string]*askedFor{"batch": batch, "run": run, "unseen": unseen} {
		if len(a.queries) == 0 {
			t.Errorf("%s: nothing is asked for", name)
		}
		for _, q := range a.queries {
			paths := fmt.Sprint(q.Reads.Projection().ListPaths())
			if !q.MetadataOnly && (q.Reads == nil || !strings.Contains(paths, "status.phase") || strings.Contains(paths, "spec")) {
				t.Errorf("%s: it is asked for %s", name, paths)
			}
		}
	}
}

// Targets that a rule depends on whatever its items are, are read before it is decided again. Others are read when a decision asks for them.
func TestWhatEachItemDependsOnIsReadFirst(t *testing.T) {
	remove := []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}
	counting := func(name string) v1alpha1.Rule {
		return v1alpha1.Rule{Name: name, ForEach: "maps.items", When: "size(nodes.items) > 0", Keep: new(intstr.FromInt32(1)), Actions: remove}
	}
	for name, tc := range map[string]struct {
		change     func(*v1alpha1.Rule)
		first      []plan.Step
		chosen     map[plan.ItemKey]bool
		conditions []string
		blocks     bool
		want       []string
	}{
		"OneRule":       {first: []plan.Step{{Rule: "one"}, {Rule: "one"}}, want: []string{"ConfigMap", "Node"}},
		"TwoRules":      {first: []plan.Step{{Rule: "one"}, {Rule: "other"}}, want: []string{"ConfigMap", "Node"}},
		"Nothing":       {first: nil},
		"OfATarget":     {first: []plan.Step{{Action: -1}}},
		"Blocked":       {first: []plan.Step{{Rule: "one"}}, blocks: true},
		"NoneChosen":    {first: []plan.Step{{Rule: "one", Keys: []string{"a"}}}, chosen: map[plan.ItemKey]bool{}},
		"OthersChosen":  {first: []plan.Step{{Rule: "one", Keys: []string{"a"}}}, chosen: map[plan.ItemKey]bool{{Rule: "one", Key: "b"}: true, {Rule: "other", Key: "a"}: true}},
		"OneChosen":     {first: []plan.Step{{Rule: "one", Keys: []string{"a", "b"}}}, chosen: map[plan.ItemKey]bool{{Rule: "one", Key: "b"}: true}, want: []string{"ConfigMap", "Node"}},
		"Conditions":    {first: []plan.Step{{Rule: "one"}}, conditions: []string{"size(nodes.items) > 0"}},
		"Alone":         {first: []plan.Step{{Rule: "one"}}, change: func(r *v1alpha1.Rule) { r.Keep, r.When = nil, "item.metadata.name != ''" }},
		"Confirm":       {first: []plan.Step{{Rule: "one"}}, change: func(r *v1alpha1.Rule) { r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "item.metadata.name"}} }},
		"AnotherObject": {first: []plan.Step{{Rule: "one"}}, change: func(r *v1alpha1.Rule) { r.Actions[0].Object = "maps.items[0]" }},
	} {
		t.Run(name, func(t *testing.T) {
			work := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring}}
			work.Targets = []v1alpha1.ClusterTarget{{Name: "maps"}, {Name: "nodes"}}
			for i, kind := range []string{"ConfigMap", "Node"} {
				work.Targets[i].Reference.Version, work.Targets[i].Reference.Kind = "v1", kind
			}
			work.Conditions, work.Rules = tc.conditions, []v1alpha1.Rule{counting("one"), counting("other")}
			work.Rules[0].Actions = slices.Clone(remove)
			if tc.change != nil {
				tc.change(&work.Rules[0])
			}
			in := plan.Input{Spec: work, Programs: celtest.CompileWork(t, work), Snapshot: make(observed.Snapshot, 2), Chosen: tc.chosen}
			asked, early := &askedFor{}, []string(nil)
			first := plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: tc.first}
			if tc.blocks {
				first.Verdict = v1alpha1.VerdictBlocked
			}
			_, _, inTime := Decide(t.Context(), Readers{Live: snapshot.ShareReads(asked)}, in, first, func(_ context.Context, in plan.Input) plan.Plan {
				for read := range in.Confirmed {
					early = append(early, work.Targets[read.Target].Reference.Kind)
				}
				return plan.Plan{Verdict: v1alpha1.VerdictAct}
			}, Never)
			slices.Sort(early)
			if diff := cmp.Diff(tc.want, early); diff != "" || len(asked.queries) != len(tc.want) || !inTime {
				t.Errorf("with %d reads, confirmed are -want +got\n%s", len(asked.queries), diff)
			}
			if len(tc.want) == 0 {
				return
			}
			if d, _, inTime := Decide(t.Context(), Readers{Live: asked}, in, first, func(context.Context, plan.Input) plan.Plan { return first }, func() bool { return true }); inTime || len(d.Steps) > 0 {
				t.Errorf("when it is late, it has %d steps", len(d.Steps))
			}
		})
	}
}

// Before a rule acts on items of Namespaces with some labels, it is read which have them now. Objects in others are left out, and all of them if it cannot be
// read.
func TestObjectsOutsideTheSelectedNamespacesAreLeftOut(t *testing.T) {
	object := func(namespace, name string) observed.Object {
		return observed.Object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: namespace, Name: name, UID: types.UID(name)}}
	}
	work := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{{Name: "selected"}, {Name: "everywhere"}, {Name: "selected too"}}}
	for i := range work.Targets {
		work.Targets[i].Reference.Version, work.Targets[i].Reference.Kind = "v1", "ConfigMap"
	}
	work.Targets[0].Reference.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"clean": "yes"}}
	work.Targets[1].Reference.NamespaceSelector = &metav1.LabelSelector{} // all of them
	work.Targets[2].Reference.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"clean": "yes"}}
	known := observed.Target{State: observed.Complete, Namespaced: true, Objects: []observed.Object{object("old", "a"), object("shop", "b")}}
	for name, tc := range map[string]struct {
		state observed.TargetState
		steps []plan.Step
		want  [3]string
		reads int
	}{
		"Read":    {observed.Complete, []plan.Step{{Object: object("shop", "b")}}, [3]string{"true b", "true a b", "true c"}, 1},
		"Failed":  {observed.Failed, []plan.Step{{Object: object("shop", "b")}}, [3]string{"false", "true a b", "true c"}, 1},
		"Others":  {observed.Complete, []plan.Step{{Object: object("shop", "b")}, {Object: object("old", "c")}}, [3]string{"true b", "true a b", "true"}, 1},
		"NoSteps": {observed.Complete, nil, [3]string{"true a b", "true a b", "true c"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked := &selecting{state: tc.state, namespaces: []string{"shop"}}
			in := plan.Input{Spec: work, Snapshot: observed.Snapshot{known, known, {State: observed.Complete, Namespaced: true, Objects: []observed.Object{object("old", "c")}}}}
			var got [3]string
			Decide(t.Context(), Readers{Live: asked}, in, plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: tc.steps}, func(_ context.Context, in plan.Input) plan.Plan {
				for i := range in.Snapshot {
					got[i] = fmt.Sprint(in.Snapshot[i].State == observed.Complete)
					for _, o := range in.Snapshot[i].Objects {
						got[i] += " " + o.Name
					}
				}
				return plan.Plan{}
			}, Never)
			if got != tc.want || asked.reads != tc.reads {
				t.Errorf("with %d reads, it is decided on %q; want %d, %q", asked.reads, got, tc.reads, tc.want)
			}
			if len(known.Objects) != 2 || known.Objects[0].Name != "a" {
				t.Errorf("what the watch knows has become %v", known.Objects)
			}
		})
	}
}

// selecting answers which Namespaces have the label clean=yes.
type selecting struct {
	state      observed.TargetState
	namespaces []string
	reads      int
}

func (s *selecting) Read(_ context.Context, q snapshot.Query) observed.Target {
	s.reads++
	t := observed.Target{State: s.state}
	for _, name := range s.namespaces {
		if q.Kind == "Namespace" {
			t.Objects = append(t.Objects, observed.Object{Ref: observed.Ref{Name: name}, Labels: map[string]string{"clean": "yes"}})
		}
	}
	return t
}

// A definition may have changed before its watch shows that: objects of another definition are outdated, whatever their versions.
func TestWhatWasReadByAnotherDefinitionIsOutdated(t *testing.T) {
	custom, builtIn := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	known := func(resource schema.GroupVersionResource, definition string) observed.Target {
		o := observed.Object{Ref: observed.Ref{Resource: resource, Namespace: "shop", Name: "a", UID: "uid-a"}}
		return observed.Target{State: observed.Complete, Resource: resource, Namespaced: true, Objects: []observed.Object{o}, Custom: resource == custom, Definition: definition}
	}
	const first = "uid, generation 1"
	outdated, unsynced := known(custom, first), known(custom, first)
	outdated.Outdated, unsynced.State = true, observed.Unsynced
	for name, tc := range map[string]struct {
		seen       observed.Target
		generation int64 // 0: there is no definition
		state      observed.TargetState
		idle       bool // there are no steps
		later      bool // they are of another batch
		want       bool
		reads      int
	}{
		"Same":       {seen: known(custom, first), generation: 1, state: observed.Complete, reads: 1},
		"Changed":    {seen: known(custom, first), generation: 2, state: observed.Complete, want: true, reads: 1},
		"Gone":       {seen: known(custom, first), state: observed.Complete, want: true, reads: 1},
		"New":        {seen: known(custom, ""), generation: 1, state: observed.Complete, want: true, reads: 1},
		"None":       {seen: known(custom, ""), state: observed.Complete, reads: 1},
		"Unreadable": {seen: known(custom, ""), state: observed.Failed, want: true, reads: 1},
		"BuiltIn":    {seen: known(builtIn, ""), generation: 2, state: observed.Complete},
		"NoSteps":    {seen: known(custom, first), generation: 2, state: observed.Complete, idle: true},
		"Later":      {seen: known(custom, first), generation: 2, state: observed.Complete, later: true, want: true, reads: 1},
		"Outdated":   {seen: outdated, generation: 1, state: observed.Complete, want: true},
		"Unsynced":   {seen: unsynced, generation: 2, state: observed.Complete},
	} {
		t.Run(name, func(t *testing.T) {
			asked := &defining{state: tc.state, generation: tc.generation}
			in := plan.Input{Spec: &v1alpha1.Work{Targets: make([]v1alpha1.ClusterTarget, 2)}, Snapshot: observed.Snapshot{tc.seen, tc.seen}}
			acts := plan.Plan{Verdict: v1alpha1.VerdictAct}
			if !tc.idle {
				acts.Steps = []plan.Step{{Rule: "r", Keys: []string{"a"}, Object: tc.seen.Objects[0]}}
			}
			if tc.later {
				in.Chosen = map[plan.ItemKey]bool{{Rule: "r", Key: "b"}: true}
			}
			for _, definitions := range []snapshot.Reader{asked, nil} {
				Decide(t.Context(), Readers{Live: &selecting{}, Definitions: definitions}, in, acts, func(_ context.Context, in plan.Input) plan.Plan {
					for i := range in.Snapshot {
						if want := definitions != nil && tc.want || tc.seen.Outdated; in.Snapshot[i].Outdated != want {
							t.Errorf("target %d is outdated: %t, want %t", i, !want, want)
						}
					}
					return plan.Plan{}
				}, Never)
			}
			if asked.reads != tc.reads {
				t.Errorf("definitions were read %d times, want %d", asked.reads, tc.reads)
			}
		})
	}
}

// defining answers with a definition of Widgets.
type defining struct {
	state      observed.TargetState
	generation int64
	reads      int
}

func (d *defining) Read(_ context.Context, q snapshot.Query) observed.Target {
	d.reads++
	t := observed.Target{State: d.state}
	if q.Kind == "CustomResourceDefinition" && q.Name == "widgets.example.com" && d.generation > 0 {
		t.Objects = []observed.Object{{Ref: observed.Ref{Name: q.Name, UID: "uid"}, Generation: d.generation}}
	}
	return t
}

// A definition that the API server does not return is taken for another one.
func TestADefinitionThatDoesNotComeInTime(t *testing.T) {
	o := observed.Object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Name: "a"}}
	seen := observed.Target{State: observed.Complete, Custom: true, Resource: o.Resource, Objects: []observed.Object{o}}
	in := plan.Input{Spec: &v1alpha1.Work{Targets: make([]v1alpha1.ClusterTarget, 1)}, Snapshot: observed.Snapshot{seen}}
	outdated := false
	Decide(t.Context(), Readers{Live: &selecting{}, Definitions: hanging{}}, in, plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: []plan.Step{{Object: o}}}, func(_ context.Context, in plan.Input) plan.Plan {
		outdated = in.Snapshot[0].Outdated
		return plan.Plan{}
	}, Never)
	if !outdated {
		t.Error("it is taken for the same")
	}
}

// hanging answers when the caller waits no longer.
type hanging struct{}

func (hanging) Read(ctx context.Context, _ snapshot.Query) observed.Target {
	<-ctx.Done()
	return observed.Target{State: observed.Failed}
}

// shown is an object of a kind of the namespace shop, as it is shown with a spec.
func shown(gvr schema.GroupVersionResource, kind, name string, spec map[string]any) observed.Object {
	uid := "uid-" + kind + "-" + name
	return observed.Object{
		Ref: observed.Ref{Resource: gvr, Kind: kind, Namespace: "shop", Name: name, UID: types.UID(uid), ResourceVersion: "1"}, Content: 1,
		Value: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": kind, "spec": spec, "metadata": map[string]any{"namespace": "shop", "name": name, "uid": uid, "resourceVersion": "1"},
		},
	}
}

// liveObjects answers with objects as the API server shows them.
func liveObjects(t *testing.T, objects ...observed.Object) *snapshot.Objects {
	t.Helper()
	out := snapshot.NewObjects()
	for i := range objects {
		o := &objects[i]
		out.AddKind(o.Resource.GroupVersion(), metav1.APIResource{Name: o.Resource.Resource, Kind: o.Kind, Namespaced: true})
		if err := out.AddObject(&unstructured.Unstructured{Object: o.Value}); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.SortObjects(); err != nil {
		t.Fatal(err)
	}
	return out
}

func deleting(name, forEach, when string) v1alpha1.Rule {
	return v1alpha1.Rule{Name: name, ForEach: forEach, When: when, Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}
}

func targetOf(name string, gvr schema.GroupVersionResource, kind string) v1alpha1.ClusterTarget {
	return v1alpha1.ClusterTarget{Name: name, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{APIGroup: gvr.Group, Version: gvr.Version, Kind: kind}}}
}

func recurring(targets []v1alpha1.ClusterTarget, rules ...v1alpha1.Rule) *v1alpha1.Work {
	return &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring, Rules: rules}, Cluster: true, Targets: targets}
}

// A step that asks for no reads is carried out with the batch, whether its item was chosen for it or not: its definition and its Namespace count all the same.
func TestStepsBesideTheBatchAreChecked(t *testing.T) {
	pods, widgets := schema.GroupVersionResource{Version: "v1", Resource: "pods"}, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	work := recurring([]v1alpha1.ClusterTarget{targetOf("pods", pods, "Pod"), targetOf("widgets", widgets, "Widget"), targetOf("maps", maps, "ConfigMap")},
		deleting("pods", "pods.items", "true"), deleting("widgets", "widgets.items", `item.spec.?keep.orValue("no") == "no"`), deleting("maps", "maps.items", "true"))
	work.Targets[2].Reference.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"clean": "yes"}}
	seen := func(gvr schema.GroupVersionResource, custom bool, objects ...observed.Object) observed.Target {
		t := observed.Target{State: observed.Complete, Resource: gvr, Namespaced: true, Custom: custom, Objects: objects}
		if custom {
			t.Definition = "uid, generation 1"
		}
		return t
	}
	in := plan.Input{Spec: work, Programs: celtest.CompileWork(t, work), Snapshot: observed.Snapshot{
		seen(pods, false, shown(pods, "Pod", "a", nil), shown(pods, "Pod", "b", nil)), seen(widgets, true, shown(widgets, "Widget", "w", map[string]any{})), seen(maps, false, shown(maps, "ConfigMap", "m", nil)),
	}}
	first := plan.ComputePlan(t.Context(), in)
	live := &selectedNone{liveObjects(t, shown(widgets, "Widget", "w", map[string]any{"keep": "yes"}))}
	for _, size := range []int{2, 100} {
		in := in
		in.Batch, in.Reads, in.Only, in.Chosen = size, plan.MaxReads, first.ListItems(), life.ChooseItems(first, size, "")
		last, _, _ := Decide(t.Context(), Readers{Live: live, Definitions: &defining{state: observed.Complete, generation: 2}}, in, first, plan.ComputePlan, Never)
		var names []string
		for _, s := range plan.IntersectPlans(first, last).Steps {
			names = append(names, s.Object.Name)
		}
		if !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("a batch of %d of %d acts on %q", size, len(first.Steps), names)
		}
	}
}

// selectedNone has no Namespace with a label.
type selectedNone struct{ snapshot.Reader }

func (s *selectedNone) Read(ctx context.Context, q snapshot.Query) observed.Target {
	if q.Kind == "Namespace" {
		return observed.Target{State: observed.Complete}
	}
	return s.Reader.Read(ctx, q)
}

// What an earlier rule claims of what the API server has now is not for a later rule over another target of the kind: whether the watch shows the object of
// the earlier one as it was by another definition, or does not show it there yet.
func TestClaimsRestOnWhatThereIsNow(t *testing.T) {
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	keeping := deleting("keep", "some.items", `item.spec.?keep.orValue("no") == "yes"`)
	keeping.Actions = []v1alpha1.RuleAction{{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"labels": {"kept": "yes"}}}`}}}
	work := recurring([]v1alpha1.ClusterTarget{targetOf("some", widgets, "Widget"), targetOf("all", widgets, "Widget")}, keeping, deleting("delete", "all.items", "true"))
	seen := observed.Target{State: observed.Complete, Resource: widgets, Namespaced: true, Custom: true, Definition: "uid, generation 1", Objects: []observed.Object{shown(widgets, "Widget", "w", map[string]any{})}}
	behind := seen
	behind.Objects = nil
	for name, earlier := range map[string]observed.Target{"Otherwise": seen, "NotYet": behind} {
		in := plan.Input{Spec: work, Programs: celtest.CompileWork(t, work), Snapshot: observed.Snapshot{earlier, seen}}
		first := plan.ComputePlan(t.Context(), in)
		in.Batch, in.Reads, in.Only = 100, plan.MaxReads, first.ListItems()
		readers := Readers{Live: liveObjects(t, shown(widgets, "Widget", "w", map[string]any{"keep": "yes"})), Definitions: &defining{state: observed.Complete, generation: 2}}
		last, _, _ := Decide(t.Context(), readers, in, first, plan.ComputePlan, Never)
		if both := plan.IntersectPlans(first, last); len(first.Steps) != 1 || len(both.Steps) > 0 {
			t.Errorf("%s: of %d steps it carries out %d", name, len(first.Steps), len(both.Steps))
		}
	}
}

// Large variables are kept from one evaluation to the next. Those of objects that are shown otherwise at the same versions are not.
func TestVariablesOfAnotherDefinitionAreComputedAgain(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	work := recurring([]v1alpha1.ClusterTarget{targetOf("widgets", gvr, "Widget")}, deleting("r", "widgets.items", `variables.kept.exists(k, k.name == item.metadata.name && k.keep == "no")`))
	work.Variables = []v1alpha1.Variable{{
		Name: "kept", Expression: `widgets.items.map(w, {"name": w.metadata.name, "keep": w.spec.?keep.orValue("no"), "large": lists.range(1000).map(x, w.metadata.name).join()})`,
	}}
	watched := observed.Target{State: observed.Complete, Resource: gvr, Namespaced: true, Custom: true, Definition: "uid, generation 1"}
	var now []observed.Object
	for n := range 40 {
		name := fmt.Sprintf("%0240d", n)
		watched.Objects = append(watched.Objects, shown(gvr, "Widget", name, map[string]any{}))
		now = append(now, shown(gvr, "Widget", name, map[string]any{"keep": "yes"}))
	}
	live := liveObjects(t, now...)
	in := plan.Input{Spec: work, Programs: celtest.CompileWork(t, work), Snapshot: observed.Snapshot{watched}, Values: plan.NewValues(plan.FewValueBytes)}
	first := plan.ComputePlan(t.Context(), in)
	in.Batch, in.Reads, in.Only = 100, plan.MaxReads, first.ListItems()
	if len(first.Steps) != 40 {
		t.Fatalf("at first there are %d steps, %v", len(first.Steps), first.Errors)
	}
	last, _, inTime := Decide(t.Context(), Readers{Live: live, Definitions: &defining{state: observed.Complete, generation: 2}}, in, first, plan.ComputePlan, Never)
	if len(last.Steps) > 0 || !inTime {
		t.Errorf("it acts on %d objects that the API server shows otherwise; in time: %t", len(last.Steps), inTime)
	}
}
