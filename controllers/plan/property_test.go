// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// drawnRule is any rule over Pods, Nodes and a pool.
func drawnRule(t *rapid.T, name string) v1alpha1.Rule {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name+" "+label) }
	r := v1alpha1.Rule{
		Name:    name,
		ForEach: pick("forEach", "pods.items", "pods.items", "nodes.items", `pods.items.filter(p, p.spec.node == "n1")`, "pods.items + pods.items", `["x", "y"]`, "pods.items[9]"),
		When:    pick("when", "true", `has(item.spec.done)`, `item.spec.done == "yes"`, `!nodes.items.exists(n, n.metadata.name == item.spec.node)`, `variables.old`),
		For:     pick("for", "", "", "30s", "item.spec.wait"),
		ForKey:  pick("forKey", "", "item.spec.node"),
		GroupBy: pick("groupBy", "", "item.spec.node"),
		Unless:  pick("unless", "", `item.metadata.name == "p3"`, "item.spec.used"),
		Key:     pick("key", "", "", `type(item) == string ? item : item.metadata.name`),
		Reason:  pick("reason", "", `"for " + item.spec.node`),
		Variables: []v1alpha1.Variable{
			{Name: "old", Expression: `int(item.spec.age) > 2`},
		},
	}
	switch pick("keep", "", "", "1", "expression") {
	case "1":
		r.Keep = new(intstr.FromInt32(1))
	case "expression":
		r.Keep = new(intstr.FromString("size(items) - 1"))
	}
	if by := pick("orderBy", "", "item.spec.age", "size(item.spec)"); by != "" {
		r.OrderBy = []v1alpha1.OrderBy{{Expression: by, Descending: rapid.Bool().Draw(t, name+" descending")}}
	}
	if rapid.Bool().Draw(t, name+" confirms") {
		r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "item.spec.node"}}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, name+" actions") {
		var a v1alpha1.RuleAction
		switch pick(fmt.Sprint("verb ", i), "report", "delete", "delete", "evict", "patch", "removeFinalizer") {
		case "report":
			a.Report = &v1alpha1.ReportAction{}
		case "delete":
			a = deletes(rapid.Int64Range(0, 60).Draw(t, fmt.Sprint(name, " grace ", i)))
		case "evict":
			a.Evict = &v1alpha1.EvictAction{}
		case "patch":
			a = patches(pick(fmt.Sprint("patch ", i), `{"n": size(items)}`, `{"is": item.spec.node}`, `{"of": object.metadata.name, "all": items}`))
		case "removeFinalizer":
			a.RemoveFinalizer = &v1alpha1.RemoveFinalizerAction{Name: "example.com/x"}
		}
		a.When = pick(fmt.Sprint("action when ", i), "", "", `item.spec.node == "n1"`)
		a.Object = pick(fmt.Sprint("object ", i), "", "", "pools.items[0]", "nodes.items[0]", "pods.items[0]",
			`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "made-up", "namespace": "shop"}}`)
		r.Actions = append(r.Actions, a)
	}
	return r
}

// drawnPods are any Pods, in their order.
func drawnPods(t *rapid.T) []observed.Object {
	var out []observed.Object
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		name := fmt.Sprintf("p%d", i)
		var words []string
		for _, w := range []string{"done:yes", "done:no", "node:n1", "node:n2", "age:1", "age:3", "wait:0s", "wait:20s", "wait:1h", v1alpha1.ProtectKey + "=true"} {
			if rapid.IntRange(0, 9).Draw(t, name+" "+w) < 4 {
				words = append(words, w)
			}
		}
		namespace := rapid.SampledFrom([]string{"shop", "shop", "shop", "kube-system"}).Draw(t, name+" namespace")
		o := object(pods, "Pod", namespace, name, words...)
		o.ResourceVersion = fmt.Sprint(rapid.IntRange(1, 9).Draw(t, name+" version"))
		if rapid.IntRange(0, 4).Draw(t, name+" terminating") == 0 {
			o = terminating(o, 30)
		}
		if rapid.Bool().Draw(t, name+" held") {
			o = held(o, "example.com/x")
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) })
	return out
}

// drawn is any input.
func drawn(t *rapid.T, tb testing.TB) Input {
	work := cluster(drawnRule(t, "r1"), drawnRule(t, "r2"))
	if rapid.Bool().Draw(t, "once") {
		work.Lifecycle = v1alpha1.LifecycleOnce
	}
	if rapid.IntRange(0, 3).Draw(t, "namespaced") == 0 {
		work.Cluster = false
	}
	work.Targets[0].Delete = rapid.IntRange(0, 3).Draw(t, "delete") == 0
	if rapid.Bool().Draw(t, "limited") {
		work.Limits = &v1alpha1.Limits{MaxActions: rapid.Int64Range(1, 9).Draw(t, "maxActions"), MaxPercent: rapid.Int64Range(1, 100).Draw(t, "maxPercent")}
	}
	if rapid.IntRange(0, 3).Draw(t, "gated") == 0 {
		work.Conditions = []string{"size(pods.items) > 2"}
	}
	in := over(tb, work, drawnPods(t)...)
	if !work.Cluster {
		in.Owner.Namespace = "shop"
	}
	in.Snapshot[2] = poolsSeen(pool("p1", "1=a"))
	in.Protection = Protection{Namespaces: []string{"kube-system"}}
	in.OpenRun = rapid.Bool().Draw(t, "acting")
	in.Batch = rapid.IntRange(0, 4).Draw(t, "batch")
	if rapid.Bool().Draw(t, "live") {
		in.Confirmed = in.Snapshot.LiveReads()
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "done") {
		in.Done = append(in.Done, limits.Action{At: in.Now, UID: "uid-p1", Items: limits.SumItems(slices.Repeat([]string{"k"}, i)), Targets: []string{"pods"}})
	}
	return in
}

// bytesOf is all that a plan says.
func bytesOf(t *rapid.T, p Plan) string {
	text, err := json.Marshal([]any{
		p.Verdict, p.Reason, p.Message, p.Conditions, p.Steps, p.Withheld, p.Pending, p.Errors, p.Confirm, p.Deferred, p.TrippedBy, p.Next, p.NextCheck, p.Steady,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + fmt.Sprint(p.Holds)
}

// Whatever the rules say, a plan is a function of its input, and stays within what it was asked about.
func TestAnyPlan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawn(rt, t)
		plan := ComputePlan(t.Context(), in)
		if again := ComputePlan(t.Context(), in); bytesOf(rt, plan) != bytesOf(rt, again) {
			rt.Fatalf("equal inputs gave\n%s\nand\n%s", bytesOf(rt, plan), bytesOf(rt, again))
		}
		if (plan.Verdict == v1alpha1.VerdictWait || plan.Verdict == v1alpha1.VerdictInvalid) && len(plan.Steps) > 0 {
			rt.Fatalf("%s has steps", plan.Verdict)
		}
		if plan.Message == "" || plan.Next.IsZero() {
			rt.Fatalf("it says neither why nor when: %+v", plan)
		}
		type part struct {
			id        stepID
			confirmed bool
		}
		rules, acted := map[string]string{}, map[part]bool{}
		for i := range plan.Steps {
			s := &plan.Steps[i]
			holdStep(rt, &in, s)
			for _, b := range s.After {
				if b >= i || plan.Steps[b].Rule != s.Rule || plan.Steps[b].Action >= s.Action {
					rt.Fatalf("%s comes after %d", short(s), b)
				}
			}
			if acted[part{s.stepKey(), s.Confirmed}] {
				rt.Fatalf("%s is there twice", short(s))
			}
			acted[part{s.stepKey(), s.Confirmed}] = true
			if !s.IsChange() {
				continue
			}
			if by, taken := rules[s.Object.Name]; taken && by != s.Rule {
				rt.Fatalf("%s is acted on by %s and %s", s.Object.Name, by, s.Rule)
			}
			rules[s.Object.Name] = s.Rule
		}
		holdLimits(rt, &in, &plan)
	})
}

// holdStep holds one step to what it may be about.
func holdStep(t *rapid.T, in *Input, s *Step) {
	o, at := &s.Object, -1
	for i := range in.Snapshot {
		if j, ok := observed.SearchObject(in.Snapshot[i].Objects, o.Namespace, o.Name); ok && in.Snapshot[i].Objects[j].Ref == o.Ref {
			at = i
		}
	}
	switch {
	case o.Name == "" && s.IsChange():
		t.Fatalf("%s is about nothing", short(s))
	case o.Name != "" && at < 0:
		t.Fatalf("%s is about what nobody evaluated: %+v", short(s), o.Ref)
	case o.Name != "" && !in.Spec.Cluster && o.Namespace != in.Owner.Namespace:
		t.Fatalf("%s is outside the Cleaner's namespace", short(s))
	case in.Protection.ForbidsVerb(s.Verb, o) != "":
		t.Fatalf("%s is protected", short(s))
	case len(s.Keys) == 0:
		t.Fatalf("%s stands for nothing", short(s))
	case s.Verb == VerbPatch && !json.Valid(s.Patch.Body):
		t.Fatalf("%s is no JSON", short(s))
	case s.Verb == VerbRemoveFinalizer && !slices.Contains(o.Finalizers, s.Finalizer):
		t.Fatalf("%s takes off what is not there", short(s))
	case s.Verb == VerbEvict && o.Terminating:
		t.Fatalf("%s is on its way", short(s))
	}
}

// holdLimits counts anew what a plan would do.
func holdLimits(t *rapid.T, in *Input, p *Plan) {
	l := in.Spec.Limits
	if l == nil || p.Verdict != v1alpha1.VerdictAct || in.OpenRun {
		return
	}
	objects, counted := map[string]bool{}, map[types.UID]bool{}
	for i := range p.Steps {
		if p.Steps[i].IsChange() {
			objects[p.Steps[i].Object.Name] = true
			counted[p.Steps[i].Object.UID] = true
		}
	}
	for i := range in.Done {
		counted[in.Done[i].UID] = true
	}
	if n := int64(len(counted)); len(objects) > 0 && n > l.MaxActions {
		t.Fatalf("%d objects are acted on, of %d", n, l.MaxActions)
	}
	for i := range in.Snapshot {
		n := int64(0)
		for j := range in.Snapshot[i].Objects {
			if objects[in.Snapshot[i].Objects[j].Name] {
				n++
			}
		}
		if n*100 > l.MaxPercent*int64(len(in.Snapshot[i].Objects)+1) { // one more may be done and gone
			t.Fatalf("%d of %d objects are acted on", n, len(in.Snapshot[i].Objects))
		}
	}
}

// What is not known never leads to a deed, and neither begins nor ends a hold.
func TestAnyUnknownTargetNeverActs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawn(rt, t)
		in.Holds = ComputePlan(t.Context(), in).Holds
		unknown := rapid.SampledFrom([]observed.TargetState{observed.Unknown, observed.Unsynced, observed.Forbidden, observed.NoSuchKind, observed.Failed}).Draw(rt, "state")
		at := rapid.IntRange(0, 2).Draw(rt, "target")
		in.Snapshot[at].State = unknown
		if unknown != observed.NoSuchKind && rapid.Bool().Draw(rt, "null") {
			asNull(&in.Spec.Targets[at])
		}
		plan := ComputePlan(t.Context(), in)
		if plan.Verdict == v1alpha1.VerdictAct || len(plan.Steps) > 0 || plan.Release != nil {
			rt.Fatalf("target %d is %s, and yet: %v", at, unknown, shorts(plan.Steps))
		}
		if fmt.Sprint(plan.Holds) != fmt.Sprint(in.Holds.BlindAll(in.Now)) {
			rt.Fatalf("holds were %v and are %v", in.Holds, plan.Holds)
		}
	})
}

// Whatever happens, nothing is acted on before it was seen to hold for as long as `for` says, without a break and without a time in
// which nobody could say.
func TestWhatHoldsWasSeen(t *testing.T) {
	const length = 40 * time.Second
	rapid.Check(t, func(rt *rapid.T) {
		work := cluster(rule(func(r *v1alpha1.Rule) { r.When, r.For = `item.spec.node == "gone"`, length.String() }))
		var holds fortimers.Holds
		var since, blind time.Time // of the hold, as far as it was seen
		now := born.Add(time.Hour)
		for range 12 {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(rt, "seconds")) * time.Second)
			saw := rapid.SampledFrom([]string{"holds", "holds", "holds", "ends", "error", "unsynced", "interrupted"}).Draw(rt, "saw")
			in := over(t, work, map[string]observed.Object{"holds": p("a", "node:gone"), "ends": p("a", "node:n1")}[saw])
			ctx := t.Context()
			switch saw {
			case "error":
				in = over(t, work, p("a"))
			case "unsynced":
				in = over(t, work)
				in.Snapshot[1] = observed.Target{State: observed.Unsynced}
			case "interrupted":
				in = over(t, work, p("a", "node:gone"))
				ended, cancel := context.WithCancel(ctx)
				cancel()
				ctx = ended
			}
			in.Now, in.Holds = now, holds
			plan := ComputePlan(ctx, in)
			holds = plan.Holds
			switch {
			case saw == "holds" && (since.IsZero() || !blind.IsZero() && now.Sub(blind) > 10*time.Second):
				since, blind = now, time.Time{}
			case saw == "holds":
				blind = time.Time{}
			case saw == "ends":
				since, blind = time.Time{}, time.Time{}
			case blind.IsZero():
				blind = now
			}
			if acts, may := len(plan.Steps) > 0, saw == "holds" && now.Sub(since) >= length; acts != may {
				rt.Fatalf("%s after %s: acts %v, want %v", saw, now.Sub(since), acts, may)
			}
		}
	})
}

// Whatever happens meanwhile, who waits longer never acts earlier, and who began anew neither. (Below 40 s, who waits longer
// may also be blind for longer.)
func TestALongerForNeverActsEarlier(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		condition := `has(item.spec.done) && item.spec.done == "yes"`
		of := func(d string) *v1alpha1.Work {
			return cluster(rule(func(r *v1alpha1.Rule) { r.When, r.For = condition, d }))
		}
		key := rapid.SampledFrom([]string{"", "item.spec.node"}).Draw(rt, "forKey")
		short, long, fresh := of("40s"), of("70s"), of("40s")
		short.Rules[0].ForKey, long.Rules[0].ForKey, fresh.Rules[0].ForKey = key, key, key
		holds := map[*v1alpha1.Work]fortimers.Holds{}
		now := born.Add(time.Hour)
		forgets := rapid.IntRange(0, 9).Draw(rt, "forgets")
		for i := range 10 {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "passes")) * time.Second)
			pods := drawnPods(rt)
			unsynced := rapid.IntRange(0, 5).Draw(rt, "unsynced") == 0
			acts := func(w *v1alpha1.Work) map[string]bool {
				in := over(t, w, pods...)
				in.Now, in.Holds = now, holds[w]
				if unsynced {
					in.Snapshot[1] = observed.Target{State: observed.Unsynced}
				}
				plan := ComputePlan(t.Context(), in)
				holds[w] = plan.Holds
				out := map[string]bool{}
				for i := range plan.Steps {
					out[plan.Steps[i].Object.Name] = true
				}
				return out
			}
			if i == forgets {
				holds[fresh] = nil
			}
			early := acts(short)
			for _, w := range []*v1alpha1.Work{long, fresh} {
				for name := range acts(w) {
					if !early[name] {
						rt.Fatalf("%s is acted on early", name)
					}
				}
			}
		}
	})
}

// The first of several rules does with an object what it would do without the others.
func TestLaterRulesChangeNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawn(rt, t)
		in.Spec.Limits, in.Spec.Lifecycle = nil, v1alpha1.LifecycleRecurring
		first := func(p Plan) (out []string) {
			for i := range p.Steps {
				if p.Steps[i].Rule == "r1" {
					out = append(out, short(&p.Steps[i]))
				}
			}
			return out
		}
		with := first(ComputePlan(t.Context(), in))
		alone := *in.Spec
		alone.Rules = alone.Rules[:1]
		other := over(t, &alone)
		in.Spec, in.Programs = &alone, other.Programs
		if without := first(ComputePlan(t.Context(), in)); !slices.Equal(with, without) {
			rt.Fatalf("with r2: %v\nwithout: %v", with, without)
		}
	})
}

// However many of a group match, the last ones stay.
func TestKeepLeavesTheLast(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keep := rapid.IntRange(0, 5).Draw(rt, "keep")
		pods := drawnPods(rt)
		work := cluster(rule(func(r *v1alpha1.Rule) {
			r.GroupBy, r.OrderBy, r.Keep = "item.spec.node", []v1alpha1.OrderBy{{Expression: "item.spec.age"}}, new(intstr.FromInt32(int32(keep)))
			r.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
		}))
		plan := ComputePlan(t.Context(), over(t, work, pods...))
		gone, matching := map[string][]string{}, map[string][]string{}
		for i := range plan.Steps {
			o := &plan.Steps[i].Object
			gone[observed.NestedString(o.Value, "spec", "node")] = append(gone[observed.NestedString(o.Value, "spec", "node")], observed.NestedString(o.Value, "spec", "age"))
		}
		for i := range pods {
			node := observed.NestedString(pods[i].Value, "spec", "node")
			matching[node] = append(matching[node], observed.NestedString(pods[i].Value, "spec", "age"))
		}
		for node, ages := range matching {
			slices.Sort(ages)
			want := ages[:max(0, len(ages)-keep)]
			if node == "" || slices.Contains(ages, "") { // no group, or one that cannot be ordered
				want = nil
			}
			if !slices.Equal(gone[node], want) {
				rt.Fatalf("of %v on %q %v go, want %v", ages, node, gone[node], want)
			}
		}
	})
}
