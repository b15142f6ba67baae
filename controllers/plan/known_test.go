// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
)

// whens are conditions of rules over Pods that depend on their item, on other targets and on the time, alone and together, and that fail.
var whens = []string{
	`item.spec.node == "n1"`,
	`item.spec.?done.orValue("") == "yes" && item.spec.node == "n2"`,
	`!nodes.items.exists(n, n.metadata.name == item.spec.node)`,
	`!(item.spec.node in variables.nodesByName)`,
	`variables.spare && item.spec.?done.orValue("") != "yes"`,
	`pods.items.exists(p, p.metadata.name != item.metadata.name && p.spec.?node == item.spec.?node)`,
	`pods.items.countBy(p, p.spec.?node.orValue(""))[?item.spec.?node.orValue("")].orValue(0) > 2`,
	`pools.items.exists(p, p.spec.addresses.exists(a, a.pod == item.metadata.name))`,
	`age(item) > duration("20m")`,
	`age(item) > duration("10m") && age(item) < duration("25m")`,
	`item.spec.?node.orValue("") == "n1" && time > timestamp("2026-01-01T00:20:00Z")`,
	`time.getMinutes() % 3 == 0`,
	`variables.late && nodes.items.size() > 1`,
	`int(item.spec.age) > 2`,
	`has(item.metadata.deletionTimestamp)`,
	`variables.old`,
	`item.metadata.resourceVersion == "9"`,
	`json.marshal(item).contains("n2")`,
}

// lookupWhens are conditions that look up entries of what variables make of other targets.
var lookupWhens = []string{
	`!(item.spec.node in variables.nodesByName)`,
	`variables.nodesByName[?item.spec.?node.orValue("")].?metadata.?name.orValue("") == "n1"`,
	`variables.nodesByName[item.spec.node].metadata.name == "n1"`,
	`["n1", item.spec.?node.orValue("n2")].all(n, n in variables.nodesByName)`,
	`["n3", item.spec.?node.orValue("n2")].exists(n, variables.nodesByName[n].metadata.name == "n3")`,
	`item.metadata.name in variables.used || item.spec.?done.orValue("") == "yes" && item.spec.node in variables.nodesByName`,
	`variables.addresses[?item.metadata.name].orValue(0) > 0`,
	`variables.addressesOf[?item.metadata.name].orValue([]).exists(p, p.metadata.name == "q1")`,
	`variables.home.hasValue()`,
	`variables.home.hasValue() != variables.isUsed`,
	`variables.nodesByName.size() > 1 && !(item.spec.?node.orValue("") in variables.nodesByName)`,
	`"n1" in variables.nodesByName && item.metadata.name in variables.used`,
	`[variables.nodesByName, variables.used].exists(m, item.metadata.name in m || "n1" in m)`,
	`item.spec.?node.orValue("") in variables.nodesByName && age(item) > duration("20m")`,
	`age(item) > duration("20m") && item.spec.?node.orValue("") in variables.nodesByName`,
	`!(age(item) < duration("20m") || !(item.spec.?node.orValue("") in variables.nodesByName))`,
	`nodes.items.exists(n, n.metadata.name == "n2") && item.metadata.name in variables.used`,
	`item.spec.?age.orValue("") in variables.ages`,
	`int(item.spec.?age.orValue("1")) in variables.numbers`,
	`item.metadata.name in variables.named.pods`,
	`variables.first.?metadata.name.orValue("") == item.spec.?node.orValue("")`,
	`item.metadata.name in variables.either`,
	`item.spec.?node.orValue("") in variables.placed`,
	`variables.byAddress[?item.metadata.name][?1].orValue("") == "q2"`,
	`variables.onNodes[?item.metadata.name].orValue(0) == 1`,
	`variables.placed.size() > 1 && item.spec.?node.orValue("") in variables.placed`,
	`item.metadata.name in variables.used && variables.byAddress[item.metadata.name][1] == "q1"`,
	`nodes.items.exists(n, n.metadata.name == "n2") && !(item.spec.?node.orValue("") in variables.nodesByName)`,
	`variables.many && !(item.spec.?node.orValue("") in variables.nodesByName)`,
	`item.metadata.name in variables.exempt`,
	`variables.settings.?spec[?item.metadata.name].orValue("") == "yes"`,
	`settings.?spec[?item.metadata.name].orValue("") == "yes" || item.metadata.name in variables.used`,
	`["n1", "n3"].all(n, n in variables.nodesByName) && item.spec.?age.orValue("") == "3"`,
	`["n1", "n2"].exists(n, !(n in variables.nodesByName)) || variables.isUsed`,
}

// historyVariables are those that the conditions read.
func historyVariables() []v1alpha1.Variable {
	return []v1alpha1.Variable{
		{Name: "nodesByName", Expression: "nodes.items.indexBy(n, n.metadata.name)"},
		{Name: "late", Expression: `time > timestamp("2026-01-01T00:30:00Z")`},
		{Name: "spare", Expression: `variables.late || size(pools.items) > 0`},
		{Name: "used", Expression: `pools == null ? {} : pools.items.map(p, p.spec.addresses.map(a, a.pod)).flatten().toSet()`},
		{Name: "addresses", Expression: `pools.items.map(p, p.spec.addresses).flatten().countBy(a, a.pod)`},
		{Name: "addressesOf", Expression: `pools.items.groupBy(p, p.spec.addresses[0].pod)`},
		{Name: "ages", Expression: `nodes.items.size() > 2 ? ["1", "2"] : ["3"]`},
		{Name: "numbers", Expression: `nodes.items.map(n, n.metadata.name == "n1" ? 1 : 3).toSet()`},
		{Name: "named", Expression: `{"pods": variables.used, "nodes": variables.nodesByName}`},
		{Name: "first", Expression: `nodes.items[0]`},
		{Name: "many", Expression: `nodes.items.size() > 1`},
		{Name: "exempt", Expression: `settings == null ? {} : settings.spec`},
		{Name: "settings", Expression: `settings`},
		{Name: "listed", Expression: `nodes.items.filter(n, n.metadata.name != "n2")`},
		{Name: "placed", Expression: `(variables.listed + (pools == null ? [] : pools.items)).map(o, o.metadata.name).toSet()`},
		{Name: "byAddress", Expression: `pools == null ? {} : pools.items.map(p, p.spec.addresses.map(a, [a.pod, p.metadata.name])).flatten(1).indexBy(a, a[0])`},
		{Name: "onNodes", Expression: `pools.items.map(p, p.spec.addresses.map(a, "n" + a.ip in variables.nodesByName ? a.pod : "p2")).flatten().countBy(a, a)`},
		{Name: "either", Expression: `variables.late ? variables.used : variables.used.merge({"p3": true})`},
	}
}

// world is a cluster that changes, as the watches of a process show it.
type world struct {
	pods    map[string]observed.Object
	nodes   []string
	pools   []string
	numbers map[string]uint64 // of the contents of each object
	shown   map[string]string // its content, but for its version
	values  map[string]map[string]any
	version int
	last    uint64
	// unserved says that there is no kind of pools, and unnumbered how the names of objects begin that have no number.
	unserved   bool
	unnumbered string
	// faults are the targets that cannot be read, and why.
	faults map[int]observed.TargetState
	// settings are the names that an object has which a target names; there is none without names. Nil: there is no such target.
	settings []string
	// unselected are the Pods that a selector leaves out for now.
	unselected map[string]bool
}

func newWorld() *world {
	return &world{pods: map[string]observed.Object{}, numbers: map[string]uint64{}, shown: map[string]string{}, values: map[string]map[string]any{}, faults: map[int]observed.TargetState{}, unselected: map[string]bool{}}
}

// number gives objects the numbers that a store gives them: another one with each change of what expressions can read. An object that stays as it is
// has the same maps.
func (w *world) number(objects []observed.Object) []observed.Object {
	for i := range objects {
		o := &objects[i]
		meta := o.Value["metadata"].(map[string]any)
		version := meta["resourceVersion"]
		delete(meta, "resourceVersion")
		content, _ := json.Marshal(o.Value)
		meta["resourceVersion"] = version
		id := string(o.UID)
		if w.shown[id] != string(content) {
			w.last++
			w.shown[id], w.numbers[id] = string(content), w.last
		} else if known := w.values[id]; known["metadata"].(map[string]any)["resourceVersion"] == version {
			o.Value = known
		}
		w.values[id] = o.Value
		if o.Content = w.numbers[id]; w.unnumbered != "" && strings.HasPrefix(o.Name, w.unnumbered) {
			o.Content = 0
		}
	}
	return objects
}

// show is what the targets show now.
func (w *world) show() observed.Snapshot {
	var all, shownPools []observed.Object
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range w.pods {
			if !yield(n) {
				return
			}
		}
	}) {
		if !w.unselected[name] {
			all = append(all, w.pods[name])
		}
	}
	for _, addresses := range w.pools {
		shownPools = append(shownPools, pool("q"+addresses[:1], strings.Fields(addresses)[1:]...))
	}
	n := nodesSeen(slices.Sorted(slices.Values(w.nodes))...)
	n.Objects = w.number(n.Objects)
	shown := poolsSeen(w.number(shownPools)...)
	if w.unserved {
		shown.State = observed.NoSuchKind
	}
	s := observed.Snapshot{seen(w.number(all)...), n, shown}
	if w.settings != nil {
		settings := observed.Target{State: observed.Complete, Resource: pods.GroupVersion().WithResource("settings")}
		if len(w.settings) > 0 {
			settings.Objects = w.number([]observed.Object{object(settings.Resource, "Setting", "", "settings", setAll(w.settings)...)})
		}
		s = append(s, settings)
	}
	for t := range s {
		s[t].At = w.version
		if state, failed := w.faults[t]; failed {
			s[t] = observed.Target{State: state, Detail: "away", Resource: s[t].Resource, Namespaced: s[t].Namespaced, At: w.version}
		}
	}
	return s
}

// change changes something.
func (w *world) change(t *rapid.T) {
	name := fmt.Sprint("p", rapid.IntRange(0, 7).Draw(t, "which"))
	w.version++
	o, there := w.pods[name]
	switch kind := rapid.SampledFrom([]string{"words", "words", "version", "delete", "terminating", "words", "words", "nodes", "pools", "settings", "selection", "selection", "nothing", "fault", "recovery", "recovery"}).Draw(t, "change"); {
	case kind == "nodes":
		w.nodes = drawSome(t, "n1", "n2", "n3")
	case kind == "selection":
		w.unselected[name] = !w.unselected[name]
	case kind == "fault":
		states := []observed.TargetState{observed.Unsynced, observed.Failed, observed.Forbidden, observed.TooLarge, observed.NoSuchKind}
		w.faults[rapid.IntRange(0, 2).Draw(t, "target")] = rapid.SampledFrom(states).Draw(t, "state")
	case kind == "recovery":
		clear(w.faults)
	case kind == "settings":
		if w.settings != nil {
			w.settings = append([]string{}, drawSome(t, "p1", "p2", "p3")...)
		}
	case kind == "pools":
		w.pools = nil
		for _, name := range drawSome(t, "1", "2", "3") {
			w.pools = append(w.pools, name+" "+rapid.SampledFrom([]string{"1=p1", "2=p2", "1=p1 2=p2", "3=p2 4=p3"}).Draw(t, "addresses"))
		}
	case kind == "words" || !there:
		var words []string
		for _, word := range []string{"done:yes", "node:n1", "node:n2", "age:1", "age:3"} {
			if rapid.Bool().Draw(t, word) {
				words = append(words, word)
			}
		}
		o = p(name, words...)
		born := time.Date(2026, 1, 1, 0, rapid.IntRange(0, 10).Draw(t, "born"), 0, 0, time.UTC)
		o.Value["metadata"].(map[string]any)["creationTimestamp"] = born.Format(time.RFC3339)
	case kind == "version":
		o.Value = copyValue(o.Value)
	case kind == "terminating":
		o.Value = copyValue(o.Value)
		o = terminating(o, 30)
	case kind == "delete":
		delete(w.pods, name)
		return
	}
	if o.Value != nil {
		o.ResourceVersion = fmt.Sprint(w.version)
		o.Value["metadata"].(map[string]any)["resourceVersion"] = o.ResourceVersion
		w.pods[name] = o
	}
}

// setAll returns the words of an object that sets some names.
func setAll(names []string) (words []string) {
	for _, name := range names {
		words = append(words, name+":yes")
	}
	return words
}

func drawSome(t *rapid.T, from ...string) (some []string) {
	for _, s := range from {
		if rapid.Bool().Draw(t, s) {
			some = append(some, s)
		}
	}
	return some
}

func copyValue(value map[string]any) map[string]any {
	text, _ := json.Marshal(value)
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

// drawnHistoryRule is any rule, mostly over all Pods.
func drawnHistoryRule(t *rapid.T, name string) v1alpha1.Rule {
	r := drawnRule(t, name)
	r.When = rapid.SampledFrom(rapid.SampledFrom([][]string{whens, lookupWhens}).Draw(t, name+" kind")).Draw(t, name+" condition")
	if rapid.IntRange(0, 4).Draw(t, name+" all pods") > 0 {
		r.ForEach = "pods.items"
	}
	r.Variables = append(r.Variables, v1alpha1.Variable{Name: "home", Expression: `variables.nodesByName[?item.spec.?node.orValue("")]`},
		v1alpha1.Variable{Name: "isUsed", Expression: `item.metadata.name in variables.used`})
	return r
}

// follower makes plans of what has changed since the plan before.
type follower struct {
	base   *Base
	before observed.Snapshot
}

// computeChange makes a plan of what is different in a snapshot since the last one.
func (f *follower) computeChange(in Input) (p Plan, shown observed.Snapshot, ok bool) {
	before, whole := f.before, in.Snapshot
	f.before = whole
	if f.base == nil {
		return p, nil, false
	}
	in.Snapshot = nil
	for t := range whole {
		in.Snapshot = append(in.Snapshot, differ(before[t], whole[t]))
	}
	p, ok = ComputeChange(context.Background(), &in, f.base)
	f.base = p.Base
	return p, in.Snapshot, ok
}

// listNames names the first objects of the targets, and says how many there are.
func listNames(s observed.Snapshot) (names string) {
	for t := range s {
		for i := range s[t].Objects[:min(FirstObjects, len(s[t].Objects))] {
			names += s[t].Objects[i].Name + " "
		}
		names += fmt.Sprintln("of", len(s[t].Objects)+s[t].More, s[t].State)
	}
	return names
}

// differ says how a target differs from what it was.
func differ(before, now observed.Target) observed.Target {
	was := map[string]observed.Object{}
	for _, o := range before.Objects {
		was[o.Name] = o
	}
	for _, o := range now.Objects {
		old, there := was[o.Name]
		delete(was, o.Name)
		if !there || old.ResourceVersion != o.ResourceVersion || old.Content != o.Content || o.Content == 0 {
			now.Changes = append(now.Changes, observed.Change{Namespace: o.Namespace, Name: o.Name, Was: there, Before: old.Content, Now: &o})
		}
	}
	for _, o := range was {
		now.Changes = append(now.Changes, observed.Change{Namespace: o.Namespace, Name: o.Name, Was: true, Before: o.Content})
	}
	now.IsChange, now.Objects = true, nil
	return now
}

// untimely is a plan without the moments at which it is made again: those of items that are gone may be among them.
func untimely(p Plan) Plan {
	p.Next, p.NextCheck, p.FirstChange, p.Steady = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return p
}

// isLater says that a plan is made again later than another one.
func isLater(p, than Plan) bool {
	later := func(a, b time.Time) bool { return !b.IsZero() && (a.IsZero() || a.After(b)) }
	return later(p.NextEvaluation(), than.NextEvaluation()) || later(p.FirstChange, than.FirstChange) || later(p.Steady, than.Steady)
}

// After every event of any history, a plan that evaluates only what has changed is the plan that evaluates all.
func TestReusedResultsChangeNoPlan(t *testing.T) {
	evaluated, reused, looked := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		work := cluster(drawnHistoryRule(rt, "r1"), drawnHistoryRule(rt, "r2"))
		work.Variables = historyVariables()
		work.Targets = append(work.Targets, target("settings", "Setting", named("settings"), asNull))
		work.Retry = &v1alpha1.Retry{Period: "20m"}
		w, now := newWorld(), time.Date(2026, 1, 1, 0, 15, 0, 0, time.UTC)
		w.settings = []string{}
		for range rapid.IntRange(0, 12).Draw(rt, "at first") {
			w.change(rt)
		}
		in := over(t, work)
		holds, results, base := fortimers.Holds(nil), &reuse.Results{}, (*Base)(nil)
		joinedBefore := ""
		for range rapid.IntRange(1, 25).Draw(rt, "events") {
			for range rapid.IntRange(0, 3).Draw(rt, "changes") {
				w.change(rt)
			}
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 1, 30, 200, 900, -5}).Draw(rt, "seconds")) * time.Second)
			in.Snapshot, in.Now, in.Holds, in.Results, in.Earlier = w.show(), now, holds, nil, nil
			whole := ComputePlan(t.Context(), in)
			in.Results, in.Earlier = results, base
			plan := ComputePlan(t.Context(), in)
			if got, want := bytesOf(rt, plan), bytesOf(rt, whole); got != want {
				rt.Fatalf("with known results it is\n%s\nand without\n%s\nfor %q and %q", got, want, work.Rules[0].When, work.Rules[1].When)
			}
			evaluated, reused = evaluated+plan.Evaluated, reused+plan.Reused
			if whole.Reused != 0 || whole.Results != nil || whole.Evaluated != plan.Evaluated+plan.Reused {
				rt.Fatalf("without results %d items were evaluated and %d reused, with them %d and %d", whole.Evaluated, whole.Reused, plan.Evaluated, plan.Reused)
			}
			if joined := fmt.Sprint(w.nodes, w.pools, w.settings); joined != joinedBefore {
				looked, joinedBefore = looked+plan.Reused, joined
			}
			holds, results, base = plan.Holds, plan.Results, plan.Base
			if results == nil {
				results = &reuse.Results{}
			}
		}
	})
	if reused < evaluated/10 || looked < evaluated/100 && !testing.Short() {
		t.Errorf("%d items were evaluated, and only %d reused, %d of them after changes of other targets: the test shows too little", evaluated, reused, looked)
	}
}

// rareWhens are conditions that few Pods meet, for rules that mostly want nothing.
var rareWhens = []string{
	`item.spec.?done.orValue("") == "yes" && item.spec.?age.orValue("") == "3"`,
	`!(item.spec.?node.orValue("n1") in variables.nodesByName) && item.spec.?done.orValue("") == "yes"`,
	`item.metadata.name in variables.used && item.spec.?done.orValue("") == "yes"`,
	`variables.home.hasValue() && variables.isUsed && item.spec.?age.orValue("") == "3"`,
	`item.metadata.name in variables.exempt && item.spec.?done.orValue("") == "yes"`,
	`item.spec.?node.orValue("n3") in variables.placed && item.spec.?done.orValue("") == "yes"`,
	`variables.byAddress[?item.metadata.name][?1].orValue("") == "q2" && item.spec.?done.orValue("") == "yes"`,
	`variables.onNodes[?item.metadata.name].orValue(0) == 1 && item.spec.?done.orValue("") == "yes"`,
	`variables.addressesOf[?item.metadata.name].orValue([]).exists(p, p.metadata.name == "q1") && item.spec.?done.orValue("") == "yes"`,
	`variables.addresses[?item.metadata.name].orValue(0) == 2 && item.spec.?done.orValue("") == "yes"`,
	`2 > item.spec.?age.orValue("").size() && int(item.spec.?age.orValue("1")) in variables.numbers && item.spec.?done.orValue("") == "yes"`,
	`variables.placed.size() == 2 && item.metadata.name in variables.used`,
	`!nodes.items.exists(n, n.metadata.name == item.spec.?node.orValue("n1")) && item.spec.?done.orValue("") == "yes"`,
	`variables.nodesByName.size() > 2 && item.spec.?done.orValue("") == "yes"`,
	`variables.late && item.spec.?done.orValue("") == "yes"`,
	`age(item) > duration("25m") && item.spec.?done.orValue("") == "yes"`,
	`age(item) > duration("25m") && item.spec.?node.orValue("") == "n2" && variables.spare`,
	`int(item.spec.?age.orValue("0")) > 2 && variables.spare`,
	`has(item.metadata.deletionTimestamp) && item.spec.?node.orValue("") == "n1"`,
	`time.getMinutes() % 3 == 0 && item.spec.?done.orValue("") == "yes"`,
	`pools.items.exists(p, p.spec.addresses.exists(a, a.pod == item.metadata.name)) && item.spec.?age.orValue("") == "1"`,
	`pods.items.exists(p, p.metadata.name != item.metadata.name && p.spec.?age == item.spec.?age) && item.spec.?done.orValue("") == "yes"`,
}

// keptWhens are conditions that some Pods meet, for rules that keep some, and keeps are what these keep: as often as not all that meet them.
var (
	keptWhens = []string{
		`item.spec.?done.orValue("") == "yes"`,
		`item.spec.?age.orValue("") == "3"`,
		`item.spec.?done.orValue("") == "yes" && item.spec.?node.orValue("") in variables.nodesByName`,
		`age(item) > duration("10m") && item.spec.?done.orValue("") == "yes"`,
		`string(time).contains("2027") || item.spec.?done.orValue("") == "yes"`,
	}
	keeps = []intstr.IntOrString{intstr.FromInt32(2), intstr.FromInt32(4), intstr.FromInt32(9), intstr.FromString("8"), intstr.FromString("items.size() - 1"), intstr.FromString("items.size()"), intstr.FromString("variables.late ? 1 : 9")}
)

// After every event of any history, a plan that is made of what has changed is the plan that looks at everything.
func TestPlansOfChangesAreThoseOfAll(t *testing.T) {
	followed, evaluated, reused, kept, joins := 0, 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		rules := []v1alpha1.Rule{drawnHistoryRule(rt, "r1")}
		if rapid.Bool().Draw(rt, "two rules") {
			rules = append(rules, drawnHistoryRule(rt, "r2"))
		}
		for i := range rules {
			rules[i].When, rules[i].ForEach = rapid.SampledFrom(rareWhens).Draw(rt, rules[i].Name+" condition"), "pods.items"
			if rapid.Bool().Draw(rt, rules[i].Name+" keeps") {
				rules[i].When = rapid.SampledFrom(keptWhens).Draw(rt, rules[i].Name+" kept condition")
				rules[i].Keep = new(rapid.SampledFrom(keeps).Draw(rt, rules[i].Name+" keep"))
				rules[i].For, rules[i].Leave = "", nil
				if rapid.IntRange(0, 3).Draw(rt, rules[i].Name+" groups") > 0 {
					rules[i].Key, rules[i].GroupBy, rules[i].OrderBy = "", "", nil
				}
			}
		}
		work := cluster(rules...)
		work.Variables = historyVariables()
		work.Targets = append(work.Targets, target("settings", "Setting", named("settings"), asNull))
		work.Retry = &v1alpha1.Retry{Period: "40m"}
		w, now := newWorld(), time.Date(2026, 1, 1, 0, 15, 0, 0, time.UTC)
		w.settings = []string{}
		w.nodes = []string{"n1", "n2"}
		for i := range FirstObjects { // those that are named come and go by other rules
			name := fmt.Sprintf("a%03d", i)
			w.pods[name] = p(name, "node:n1", "age:0")
		}
		for range rapid.IntRange(0, 12).Draw(rt, "at first") {
			w.change(rt)
		}
		in, follow := over(t, work), &follower{}
		in.Clock.Ahead = time.Duration(rapid.IntRange(0, 1).Draw(rt, "ahead")) * time.Second
		results, joinedBefore := &reuse.Results{}, ""
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			for range rapid.IntRange(0, 2).Draw(rt, "changes") {
				w.change(rt)
			}
			if rapid.IntRange(0, 19).Draw(rt, "numbers") == 0 {
				w.unnumbered = rapid.SampledFrom([]string{"", "p1", "n"}).Draw(rt, "without")
			}
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 1, 30, 200, 900, -5}).Draw(rt, "seconds")) * time.Second)
			in.Snapshot, in.Now, in.Results, in.Earlier = w.show(), now, nil, nil
			whole := ComputePlan(t.Context(), in)
			in.Results, in.Earlier = results, follow.base
			change, shown, ok := follow.computeChange(in)
			if !ok {
				joinedBefore = fmt.Sprint(w.nodes, w.pools, w.settings, w.faults)
				known := ComputePlan(t.Context(), in)
				if got, want := bytesOf(rt, known), bytesOf(rt, whole); got != want {
					rt.Fatalf("with known results it is\n%s\nand not\n%s", got, want)
				}
				if results, follow.base = known.Results, known.Base; results == nil {
					results = &reuse.Results{}
				}
				continue
			}
			if got, want := fmt.Sprint(bytesOf(rt, untimely(change)), change.Counts), fmt.Sprint(bytesOf(rt, untimely(whole)), whole.Counts); got != want {
				rt.Fatalf("of a change it is\n%s\nand not\n%s", got, want)
			}
			if got, want := listNames(shown), listNames(in.Snapshot); got != want {
				rt.Fatalf("of a change the targets have\n%s\nand not\n%s", got, want)
			}
			if isLater(change, whole) {
				rt.Fatalf("of a change it is made again at %s and %s, and not at %s and %s", change.Next, change.NextCheck, whole.Next, whole.NextCheck)
			}
			if change.Evaluated+change.Reused != whole.Evaluated {
				rt.Fatalf("of a change %d items were evaluated and %d reused, of %d", change.Evaluated, change.Reused, whole.Evaluated)
			}
			results, followed, evaluated, reused = change.Results, followed+1, evaluated+change.Evaluated, reused+change.Reused
			matched := 0
			for _, c := range change.Counts {
				matched += c.Matched
			}
			if matched > 0 && change.Evaluated > 0 {
				kept++
			}
			if joined := fmt.Sprint(w.nodes, w.pools, w.settings, w.faults); joined != joinedBefore {
				joins, joinedBefore = joins+1, joined
			}
			in.Results, in.Earlier = results, follow.base
			if known := ComputePlan(t.Context(), in); bytesOf(rt, untimely(known)) != bytesOf(rt, untimely(whole)) || known.Evaluated > change.Evaluated+matched+countUnnumbered(in.Snapshot[0])*len(rules) {
				rt.Fatalf("with the results of changes it is\n%s\nand not\n%s, and %d items are evaluated again", bytesOf(rt, known), bytesOf(rt, whole), known.Evaluated)
			}
		}
	})
	if few := 3; followed < 2 || evaluated < 1 || reused < 20 || min(kept, joins) < few && !testing.Short() { // which is a fifth
		t.Errorf("%d plans were made of changes, for which %d items were evaluated and %d reused, %d while items were kept and %d of other targets: the test shows too little", followed, evaluated, reused, kept, joins)
	}
}

// countUnnumbered counts the objects whose contents have no number.
func countUnnumbered(t observed.Target) (n int) {
	for i := range t.Objects {
		if t.Objects[i].Content == 0 {
			n++
		}
	}
	return n
}

// What was evaluated is evaluated again only if it changed, if another target changed that `when` reads, or at the moment at which time changes
// the result; and at the latest after a period.
func TestWhatIsEvaluatedAgain(t *testing.T) {
	minute := func(n int) time.Time { return time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC) }
	for name, tc := range map[string]struct {
		when   string
		change func(w *world)
		after  time.Duration
		want   int
	}{
		"nothing": {`item.spec.node == "n9"`, func(*world) {}, 0, 0},
		"an item": {`item.spec.node == "n9"`, func(w *world) { w.pods["p1"] = p("p1", "node:n2", "age:1") }, 0, 1},
		"only the version of an item": {`item.spec.node == "n9"`, func(w *world) {
			o := p("p1", "node:n1")
			o.Value["metadata"].(map[string]any)["resourceVersion"] = "99"
			w.pods["p1"] = o
		}, 0, 0},
		"the version of an item, which is read":    {`item.metadata.resourceVersion == "99"`, func(*world) {}, 0, 3},
		"a new item":                               {`item.spec.node == "n9"`, func(w *world) { w.pods["p00"] = p("p00", "node:n2") }, 0, 1},
		"an item that goes":                        {`item.spec.node == "n9"`, func(w *world) { delete(w.pods, "p0") }, 0, 0},
		"items that are true, and one that is not": {`item.spec.node == "n1"`, func(*world) {}, 0, 3},
		"another target that is read as a whole":   {`variables.nodesByName.size() > 5`, func(w *world) { w.nodes = []string{"n7", "n8"} }, 0, 3},
		"another target, where no item looks":      {`item.spec.node in variables.nodesByName`, func(w *world) { w.nodes = []string{"n7", "n8"} }, 0, 0},
		"another target, where all items look":     {`item.spec.node in variables.nodesByName`, func(w *world) { w.nodes = []string{"n1", "n7"} }, 0, 3},
		"another target, where one item looks":     {`item.spec.node + item.metadata.name.substring(1) in variables.nodesByName`, func(w *world) { w.nodes = []string{"n11", "n7"} }, 0, 1},
		"another target that is read and stays":    {`item.spec.node in variables.nodesByName`, func(*world) {}, 0, 0},
		"another target that is not read":          {`item.spec.node == "n9"`, func(w *world) { w.nodes = []string{"n7", "n8"} }, 0, 0},
		"the own target, which is read as a whole": {`pods.items.size() > 9`, func(w *world) { delete(w.pods, "p0") }, 0, 2},
		"time, before it matters":                  {`item.metadata.name == "p0" && time > timestamp("2026-01-01T00:20:00Z")`, func(*world) {}, 2 * time.Minute, 0},
		"time, when it matters":                    {`item.metadata.name == "p0" && time > timestamp("2026-01-01T00:20:00Z")`, func(*world) {}, 7 * time.Minute, 1},
		"time, at the very moment":                 {`item.metadata.name == "p0" && time >= timestamp("2026-01-01T00:20:00Z")`, func(*world) {}, 5 * time.Minute, 1},
		"a target that is no longer served":        {`pools == null`, func(w *world) { w.unserved = true }, 0, 3},
		"a target that is read with its versions":  {`nodes.items.exists(n, n.metadata.resourceVersion == "9")`, func(*world) {}, 0, 3},
		"items without numbers":                    {`item.spec.node == "n9"`, func(w *world) { w.unnumbered = "p" }, 0, 3},
		"another target without numbers":           {`item.spec.node in variables.nodesByName`, func(w *world) { w.unnumbered = "n" }, 0, 3},
		"time in a way that nobody foresees":       {`string(time).contains("2027")`, func(*world) {}, time.Second, 3},
		"the clock, which goes back":               {`item.spec.node == "n9"`, func(*world) {}, -time.Minute, 3},
		"a period":                                 {`item.spec.node == "n9"`, func(*world) {}, 20 * time.Minute, 3},
	} {
		t.Run(name, func(t *testing.T) {
			work := cluster(rule(func(r *v1alpha1.Rule) { r.When = tc.when }))
			work.Targets[2].OnMissing = v1alpha1.OnMissingAsNull
			work.Variables = []v1alpha1.Variable{{Name: "nodesByName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}}
			work.Retry = &v1alpha1.Retry{Period: "20m"}
			w := newWorld()
			w.nodes = []string{"n7"}
			for i := range 3 {
				w.pods[fmt.Sprint("p", i)] = p(fmt.Sprint("p", i), "node:n1")
			}
			in := over(t, work)
			in.Snapshot, in.Now, in.Results = w.show(), minute(15), &reuse.Results{}
			first := ComputePlan(t.Context(), in)
			if first.Evaluated != 3 || first.Reused != 0 {
				t.Fatalf("at first %d items were evaluated and %d reused", first.Evaluated, first.Reused)
			}
			tc.change(w)
			in.Snapshot, in.Now, in.Results, in.Earlier = w.show(), minute(15).Add(tc.after), first.Results, first.Base
			again := ComputePlan(t.Context(), in)
			if w.unnumbered != "" { // what has no number is known by nothing
				in.Results, in.Earlier = again.Results, again.Base
				again = ComputePlan(t.Context(), in)
			}
			if again.Evaluated != tc.want || again.Evaluated+again.Reused != len(w.pods) {
				t.Errorf("then %d items were evaluated and %d reused, and not %d", again.Evaluated, again.Reused, tc.want)
			}
			in.Results = nil
			if whole := ComputePlan(t.Context(), in); !slices.Equal(shorts(again.Steps), shorts(whole.Steps)) {
				t.Errorf("it wants %v, and as a whole %v", shorts(again.Steps), shorts(whole.Steps))
			}
		})
	}
}

// What is remembered of results is bounded by the room that there is for it, and what has no room is evaluated again.
func TestResultsFitIntoTheirRoom(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) { r.When = `item.spec.node == "n9"` }))
	w := newWorld()
	for i := range 1000 {
		w.pods[fmt.Sprint("p", i)] = p(fmt.Sprint("p", i), "node:n1")
	}
	in := over(t, work)
	in.Snapshot, in.Results = w.show(), &reuse.Results{}
	for _, room := range []int64{0, 100, 4000, 1 << 20} {
		in.Room, in.Results = &Room{Holds: 100, ResultBytes: room}, &reuse.Results{}
		for range 3 {
			plan := ComputePlan(t.Context(), in)
			if plan.Results.CountBytes() > 2*room+1000 {
				t.Errorf("%d bytes are taken of %d", plan.Results.CountBytes(), room)
			}
			if plan.Evaluated+plan.Reused != 1000 {
				t.Errorf("%d items were evaluated, and %d reused", plan.Evaluated, plan.Reused)
			}
			in.Results = plan.Results
		}
		plan := ComputePlan(t.Context(), in)
		if all := plan.Reused == 1000; all != (room == 1<<20) {
			t.Errorf("in %d bytes %d items are reused", room, plan.Reused)
		}
	}
}

// A change that makes an item match, or that cannot be evaluated, has all items looked at, also if the item only waits.
func TestAChangeThatIsNotEnough(t *testing.T) {
	for name, tc := range map[string]struct {
		words []string
		ok    bool
	}{
		"Other":   {[]string{"node:n2", "age:1"}, true},
		"Matches": {[]string{"node:n9", "age:9"}, false},
		"Fails":   {[]string{"node:n2", "age:old"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			work := cluster(rule(func(r *v1alpha1.Rule) { r.When, r.For = `int(item.spec.age) > 5`, "10m" }))
			w := newWorld()
			for i := range 3 {
				w.pods[fmt.Sprint("p", i)] = p(fmt.Sprint("p", i), "node:n1", "age:1")
			}
			in, follow := over(t, work), &follower{}
			in.Snapshot, in.Results = w.show(), &reuse.Results{}
			_, _, _ = follow.computeChange(in)
			first := ComputePlan(t.Context(), in)
			if first.Base == nil {
				t.Fatalf("%s: there is no Base", first.Message)
			}
			follow.base = first.Base
			o := p("p1", tc.words...)
			o.ResourceVersion = "2"
			w.pods["p1"] = o
			in.Snapshot, in.Results = w.show(), first.Results
			if got, _, ok := follow.computeChange(in); ok != tc.ok {
				t.Errorf("that the change is enough is %t: %s", ok, got.Message)
			}
		})
	}
}

// There is no Base where a plan depends on more than its rules, where something is not known, and where there is no room.
func TestWhatHasNoBase(t *testing.T) {
	keeping := func(keep string, change func(r *v1alpha1.Rule)) func(*Input, *v1alpha1.Work) {
		return func(_ *Input, work *v1alpha1.Work) { // both Pods meet it
			work.Rules[0].When, work.Rules[0].Keep = `item.spec.node == "n1"`, new(intstr.Parse(keep))
			change(&work.Rules[0])
		}
	}
	asItIs := func(*v1alpha1.Rule) {}
	for name, tc := range map[string]struct {
		change func(in *Input, work *v1alpha1.Work)
		want   bool
	}{
		"Usual":        {func(*Input, *v1alpha1.Work) {}, true},
		"Condition":    {func(_ *Input, work *v1alpha1.Work) { work.Conditions = []string{"true"} }, false},
		"NoMoment":     {func(in *Input, _ *v1alpha1.Work) { in.Snapshot[1].At = nil }, false},
		"NoNumber":     {func(in *Input, _ *v1alpha1.Work) { in.Snapshot[0].Objects[0].Content = 0 }, false},
		"NoResults":    {func(in *Input, _ *v1alpha1.Work) { in.Results = nil }, false},
		"NoRoom":       {func(in *Input, _ *v1alpha1.Work) { in.Room = &Room{Holds: 10, ResultBytes: 1000} }, false},
		"Room":         {func(in *Input, _ *v1alpha1.Work) { in.Room = &Room{Holds: 10, ResultBytes: 1 << 20} }, true},
		"Deleted":      {func(_ *Input, work *v1alpha1.Work) { work.Targets[2].Delete = true }, false},
		"ForEach":      {func(_ *Input, work *v1alpha1.Work) { work.Rules[0].ForEach = "pods.items.filter(p, true)" }, false},
		"Leave":        {func(_ *Input, work *v1alpha1.Work) { three := intstr.FromInt32(3); work.Rules[0].Leave = &three }, false},
		"Kept":         {keeping("2", asItIs), true},
		"KeptMore":     {keeping("5", asItIs), true},
		"NotKept":      {keeping("1", asItIs), false},
		"KeptOfItems":  {keeping("items.size()", asItIs), false},
		"KeptByTime":   {keeping("time.getHours() > 100 ? 0 : 5", asItIs), false},
		"KeptInGroups": {keeping("2", func(r *v1alpha1.Rule) { r.GroupBy = "item.spec.node" }), false},
		"KeptByOrder": {keeping("2", func(r *v1alpha1.Rule) {
			r.OrderBy = []v1alpha1.OrderBy{{Expression: "string(item.metadata.name in nodes.items.map(n, n.metadata.name))"}}
		}), false},
		"KeptByKeys": {keeping("2", func(r *v1alpha1.Rule) { r.Key = "item.metadata.name" }), false},
		"Joined": {func(_ *Input, work *v1alpha1.Work) {
			work.Rules[0].When = `item.spec.node == "n8" && nodes.items.size() > 9`
		}, true},
		"JoinedOwn": {func(_ *Input, work *v1alpha1.Work) {
			work.Rules = append(work.Rules, rule(func(r *v1alpha1.Rule) {
				r.Name, r.ForEach, r.When = "other", "nodes.items", `pods.items.exists(p, p.spec.node == "n9" && p.metadata.name == item.metadata.name)`
			}))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			work := cluster(rule(func(r *v1alpha1.Rule) { r.When = `item.spec.node == "n9"` }))
			w := newWorld()
			w.nodes = []string{"n1"}
			w.pods["p0"], w.pods["p1"] = p("p0", "node:n1"), p("p1", "node:n1")
			in := Input{Snapshot: w.show(), Results: &reuse.Results{}}
			tc.change(&in, work)
			all := over(t, work)
			all.Snapshot, all.Results, all.Room = in.Snapshot, in.Results, in.Room
			if d := ComputePlan(t.Context(), all); (d.Base != nil) != tc.want {
				t.Errorf("that there is a Base is %t: %s", d.Base != nil, d.Message)
			} else if tc.want && (d.Base.CountBytes() <= 0 || len(d.Base.ListMoments()) != len(work.Targets)) {
				t.Errorf("it takes %d bytes, and has the moments %v", d.Base.CountBytes(), d.Base.ListMoments())
			}
		})
	}
	if b := (*Base)(nil); b.CountBytes() != 0 || b.ListMoments() != nil {
		t.Error("no Base is one")
	}
}

// What a plan hands on does not keep compiled expressions in memory: the cache of them has a bound.
func TestABaseHoldsNoPrograms(t *testing.T) {
	plans := func() *Base {
		work := cluster(rule(func(r *v1alpha1.Rule) {
			r.When = `item.spec.node == "n9" && variables.names.exists(n, n == item.spec.node)`
		}))
		work.Variables = []v1alpha1.Variable{{Name: "names", Expression: "nodes.items.map(n, n.metadata.name).filter(n, n != '')"}, {Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}}
		w := newWorld()
		w.nodes, w.pods["p0"] = []string{"n1"}, p("p0", "node:n9")
		in := over(t, work)
		in.Snapshot, in.Results = w.show(), &reuse.Results{}
		return ComputePlan(t.Context(), in).Base
	}
	b := plans()
	if b == nil {
		t.Fatal("there is no Base")
	}
	for range 20 {
		if runtime.GC(); b.programs.Value() == nil {
			break
		}
	}
	if b.programs.Value() != nil {
		t.Error("the compiled expressions are still in memory")
	}
	if len(b.targets) == 0 {
		t.Error("the Base is empty")
	}
}
