// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// born is when tests begin.
var born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return born.Add(time.Duration(minutes) * time.Minute) }

// on is an action of one rule on an object, for some items of one action.
func on(uid types.UID, action int, keys ...string) Action {
	return Action{UID: uid, Rule: "r", Action: action, Items: SumItems(keys)}
}

// done is an action of some minutes ago that an object of a target was the object of.
func done(minutes int, d Action, targets ...string) Action {
	d.At, d.Targets = at(-minutes), targets
	return d
}

func target(name string, objects ...types.UID) Target {
	return Target{Name: name, Objects: slices.Values(objects)}
}

func TestFindExcess(t *testing.T) {
	actions := func(n int64) *v1alpha1.Limits { return &v1alpha1.Limits{MaxActions: n} }
	percent := func(n int64) *v1alpha1.Limits { return &v1alpha1.Limits{MaxPercent: n} }
	perGroup := func(n int64) *v1alpha1.Limits { return &v1alpha1.Limits{PerGroup: n} }
	grouped := func(uid types.UID, groups ...string) Action {
		return Action{UID: uid, Rule: "r", Groups: SumItems(groups)}
	}
	ofRule := func(rule string, a Action) Action { a.Rule = rule; return a }
	names := map[ItemSum]string{}
	for _, group := range []string{"x", "y"} {
		names[SumItems([]string{group})[0]] = group
	}
	some := []Action{on("a", 0, "a"), on("b", 0, "b")}
	four := target("pods", "a", "b", "c", "d")
	for name, tc := range map[string]struct {
		reason  string
		limits  *v1alpha1.Limits
		done    Done
		wanted  []Action
		targets []Target
		want    string // empty: no limit is exceeded
		freed   time.Time
	}{
		"NoLimits":         {reason: "nothing limits it", wanted: some},
		"NoLimitSet":       {reason: "per alone limits nothing", limits: &v1alpha1.Limits{Per: "x"}, wanted: some},
		"Actions":          {reason: "as many as allowed", limits: actions(2), wanted: some},
		"TooManyActions":   {reason: "one more", limits: actions(1), wanted: some, want: "limits.maxActions (1 objects in 1h0m0s) with 2."},
		"Nothing":          {reason: "nothing is to be done", limits: actions(1), done: Done{done(1, some[0]), done(1, some[1])}},
		"Before":           {reason: "what was done counts", limits: actions(2), done: Done{done(20, on("c", 0, "c"))}, wanted: some, want: "(2 objects in 1h0m0s) with 3, 1 by earlier actions.", freed: at(40)},
		"LongBefore":       {reason: "until it is older than per", limits: &v1alpha1.Limits{MaxActions: 2, Per: "20m"}, done: Done{done(20, on("c", 0, "c"))}, wanted: some},
		"SameObject":       {reason: "an object counts once", limits: actions(2), done: Done{done(20, on("a", 1, "a"))}, wanted: some},
		"Items":            {reason: "a action counts as its items", limits: actions(2), wanted: []Action{on("p", 0, "a", "b", "c")}, want: "(2 objects in 1h0m0s) with 3."},
		"Percent":          {reason: "half is half", limits: percent(50), wanted: some, targets: []Target{four}},
		"TooManyPercent":   {reason: "and no less", limits: percent(49), wanted: some, targets: []Target{target("nodes", "n"), four}, want: `limits.maxPercent (49% of target "pods" in 1h0m0s) with 2 of 4.`},
		"OtherTarget":      {reason: "what is in no target is a share of none", limits: percent(1), wanted: some, targets: []Target{target("nodes", "n")}},
		"PercentBefore":    {reason: "what was done counts", limits: percent(50), done: Done{done(20, on("c", 0), "pods")}, wanted: some, targets: []Target{four}, want: `(50% of target "pods" in 1h0m0s) with 3 of 4, 1 by earlier actions.`, freed: at(40)},
		"PercentGone":      {reason: "what is gone was there", limits: percent(60), done: Done{done(20, on("x", 0), "pods")}, wanted: some, targets: []Target{four}},
		"TooManyGone":      {reason: "and was acted on", limits: percent(59), done: Done{done(20, on("x", 0), "pods")}, wanted: some, targets: []Target{four}, want: `(59% of target "pods" in 1h0m0s) with 3 of 5, 1 by earlier actions.`, freed: at(40)},
		"GoneElsewhere":    {reason: "in its own targets", limits: percent(50), done: Done{done(20, on("x", 0), "nodes")}, wanted: some, targets: []Target{four}},
		"Group":            {reason: "as many as allowed of each", limits: perGroup(1), wanted: []Action{grouped("a", "x"), grouped("b", "y")}},
		"LargeGroup":       {reason: "one more of one", limits: perGroup(1), wanted: []Action{grouped("a", "x"), grouped("b", "y"), grouped("c", "y"), grouped("d", "y")}, want: `limits.perGroup (1 objects of a group in 1h0m0s) with 3 of group y of rule "r".`},
		"OneGroup":         {reason: "without groupBy all are one", limits: perGroup(1), wanted: []Action{grouped("a", ""), grouped("b", "")}, want: `with 2 of rule "r".`},
		"GroupTwice":       {reason: "an object counts once", limits: perGroup(1), wanted: []Action{grouped("a", "x"), grouped("a", "x")}},
		"GroupsOfRules":    {reason: "each rule has its own", limits: perGroup(1), wanted: []Action{grouped("a", "x"), ofRule("s", grouped("b", "x"))}},
		"SeveralGroups":    {reason: "what is done for items of several groups counts in each", limits: perGroup(1), wanted: []Action{grouped("a", "x", "y"), grouped("b", "y")}, want: "with 2 of group y"},
		"NoGroup":          {reason: "what no rule wants is of no group", limits: perGroup(1), wanted: []Action{grouped("a"), grouped("b")}},
		"GroupBefore":      {reason: "what was done counts", limits: perGroup(2), done: Done{done(20, grouped("c", "x")), done(10, grouped("d", "y"))}, wanted: []Action{grouped("a", "x"), grouped("b", "x")}, want: `with 3 of group x of rule "r", 1 by earlier actions.`, freed: at(40)},
		"GroupForgotten":   {reason: "what was forgotten is too much", limits: perGroup(9), done: Done{{At: at(-20), Forgotten: true}}, wanted: some, want: "actions for limits.perGroup", freed: at(40)},
		"Forgotten":        {reason: "what was forgotten is too much", limits: actions(9), done: Done{{At: at(-20), Forgotten: true}}, wanted: some, want: "limits.maxActions over 1h0m0s takes too much memory", freed: at(40)},
		"ForgottenPercent": {reason: "of either limit", limits: percent(99), done: Done{{At: at(-20), Forgotten: true}}, wanted: some, want: "actions for limits.maxPercent", freed: at(40)},
		"ForgottenNothing": {reason: "unless nothing is to be done", limits: actions(9), done: Done{{At: at(-20), Forgotten: true}}},
		"ForgottenOld":     {reason: "or it is long ago", limits: actions(9), done: Done{{At: at(-60), Forgotten: true}}, wanted: some},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Check{Limits: tc.limits, Now: born, Done: tc.done, DoneBytes: MaxDoneBytes, GroupNames: names, Targets: tc.targets}.FindExcess(tc.wanted)
			if err != nil || (got.Limit != "") != (tc.want != "") || !strings.Contains(got.Message, tc.want) || !strings.Contains(got.Message, got.Limit) {
				t.Errorf("%s: got %+v (%v), want %q", tc.reason, got, err, tc.want)
			}
			if !got.Freed.Equal(tc.freed) {
				t.Errorf("%s: it is free at %s, want %s", tc.reason, got.Freed, tc.freed)
			}
		})
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// deedsOf are as many actions as somebody can have done, each on another object, of a Cleaner with many targets.
func deedsOf(n int, targets []Target) Done {
	var names []string
	for _, t := range targets {
		names = append(names, t.Name)
	}
	var out Done
	for i := range n {
		d := on(types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)), 0)
		d.At, d.Targets = born.Add(time.Duration(i)*time.Millisecond), slices.Clone(names)
		out = out.AddAction(d)
	}
	return out
}

// When as many actions are remembered as there is memory for, limits count as reached, until the first of them counts no longer. What
// was forgotten counts as well.
func TestDoneIsBounded(t *testing.T) {
	targets := []Target{target("pods", "a")}
	for i := range 61 {
		targets = append(targets, target(fmt.Sprint("more", i), "a"))
	}
	before := heap()
	full := deedsOf(MaxDoneBytes/248+1, targets)
	if took := heap() - before; full.CountBytes() < MaxDoneBytes || took > full.CountBytes()*3/2 {
		t.Errorf("%d actions take %d KiB, and are counted with %d KiB", len(full), took>>10, full.CountBytes()>>10)
	}
	const says = "The Cleaner takes no action: counting actions for limits.maxPercent over 16800h0m0s takes too much memory. It resumes when enough actions no longer count. Set a shorter limits.per, or use fewer Cleaners with limits in the namespace."
	per := 100 * 7 * 24 * time.Hour
	long := born.Add(per + time.Hour)
	for name, tc := range map[string]struct {
		done  Done
		now   time.Time
		bytes int64
		says  string
		freed time.Time
	}{
		"Full":             {full, born, MaxDoneBytes, says, born.Add(per)},
		"NotFull":          {full[:1000], born, MaxDoneBytes, "", time.Time{}},
		"LittleRoom":       {full[:1000], born, 1000, says, born.Add(per)},
		"Freed":            {full, long, MaxDoneBytes, "", time.Time{}},
		"Forgotten":        {full[:1000].ForgetActions(), born, MaxDoneBytes, says, full[999].At.Add(per)},
		"ForgottenForLong": {full[:1000].ForgetActions(), long, MaxDoneBytes, "", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			check := Check{Limits: &v1alpha1.Limits{MaxPercent: 100, Per: "100w"}, Now: tc.now, Done: tc.done, DoneBytes: tc.bytes, Targets: targets}
			got, err := check.FindExcess([]Action{on("a", 0)})
			if err != nil || got.Message != tc.says || (got.Limit == "maxPercent") != (tc.says != "") || !got.Freed.Equal(tc.freed) {
				t.Errorf("got %+v (%v), want %q, freed at %s", got, err, tc.says, tc.freed)
			}
			if got, err := check.FindExcess(nil); err != nil || got != (Excess{}) {
				t.Errorf("when nothing is to be done: %+v (%v)", got, err)
			}
		})
	}
}

// Where there is no memory for what was done, limits count as reached.
func TestFindExcessWithoutMemory(t *testing.T) {
	before, wanted := Done{done(20, on("x", 0, "x"))}, []Action{on("a", 0, "a")}
	for bytes, full := range map[int64]bool{0: true, before.CountBytes(): true, before.CountBytes() + 1: false} {
		got, err := Check{Limits: &v1alpha1.Limits{MaxActions: 100}, Now: born, Done: before, DoneBytes: bytes}.FindExcess(wanted)
		if err != nil || (got.Limit != "") != full {
			t.Errorf("%d bytes for %d: got %+v (%v)", bytes, before.CountBytes(), got, err)
		}
	}
}

// A limit over a time that nobody can read is never kept to by a guess.
func TestParsePer(t *testing.T) {
	for name, tc := range map[string]struct {
		limits *v1alpha1.Limits
		want   time.Duration
		err    string
	}{
		"None":    {nil, time.Hour, ""},
		"Default": {&v1alpha1.Limits{MaxActions: 1}, time.Hour, ""},
		"Given":   {&v1alpha1.Limits{MaxActions: 1, Per: "2d"}, 48 * time.Hour, ""},
		"Wrong":   {&v1alpha1.Limits{MaxActions: 1, Per: "soon"}, 0, "spec.limits.per: "},
	} {
		got, err := ParsePer(tc.limits)
		if got != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
		if tc.err == "" {
			continue
		}
		if excess, err := (Check{Limits: tc.limits, Now: born}).FindExcess(nil); err == nil || excess.Limit != "" {
			t.Errorf("%s: got %+v, %v", name, excess, err)
		}
	}
}

// An object whose fold came in parts counts for the items of all of them.
func TestAnObjectCountsForAllItsItems(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted []Action
		done   Done
		want   int64
	}{
		"OneDeed":       {[]Action{on("a", 0, "x", "y")}, nil, 2},
		"TwoParts":      {[]Action{on("a", 0, "x", "y"), on("a", 0, "z")}, nil, 3},
		"OneItemTwice":  {[]Action{on("a", 0, "x"), on("a", 0, "x")}, nil, 1},
		"LargestAction": {[]Action{on("a", 0, "x"), on("a", 1, "x", "y"), on("a", 1, "z")}, nil, 3},
		"Before":        {[]Action{on("a", 0, "x")}, Done{on("a", 0, "y"), on("b", 0, "x")}, 3},
		"NoItems":       {[]Action{on("a", 0)}, Done{on("b", 0)}, 2},
	} {
		if got := countActions(tc.wanted, tc.done); got != tc.want {
			t.Errorf("%s: %d actions, want %d", name, got, tc.want)
		}
	}
}

func TestAddDeed(t *testing.T) {
	first, other := done(0, on("a", 1, "1", "2"), "pods"), done(0, on("b", 1, "1"), "pods")
	got := Done{}.AddAction(first).AddAction(other)
	if diff := cmp.Diff(Done{first, other}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if &got[0].Targets[0] != &got[1].Targets[0] {
		t.Error("equal names of targets are remembered twice")
	}
	again := done(-1, on("a", 1, "2", "3"), "pods")
	if got := got.AddAction(again); len(got) != 2 || !got[1].At.Equal(again.At) || len(got[1].Items) != 3 {
		t.Errorf("what is done again is remembered as %+v", got)
	}
	for name, d := range map[string]Action{"Action": on("a", 2, "2", "3"), "Object": on("c", 1, "2", "3"), "OneItem": on("a", 1, "2")} {
		if got := got.AddAction(d); len(got) != 3 {
			t.Errorf("%s: another action is remembered as %+v", name, got)
		}
	}
}

// What is done to an object again, for items of another group, counts in all its groups.
func TestAddActionOfGroups(t *testing.T) {
	with := func(a Action, groups ...string) Action { a.Groups = SumItems(groups); return a }
	got := Done{}.AddAction(with(done(0, on("a", 1, "1", "2")), "x")).AddAction(with(done(-1, on("a", 1, "3", "4")), "x", "y"))
	want := SumItems([]string{"x", "y"})
	slices.Sort(want)
	if len(got) != 1 || !slices.Equal(got[0].Groups, want) {
		t.Errorf("remembered is %+v", got)
	}
	if plain := (Done{}).AddAction(done(0, on("a", 1, "1", "2", "3", "4"))); got.CountBytes() != plain.CountBytes()+16 {
		t.Errorf("the groups take %d bytes", got.CountBytes()-plain.CountBytes())
	}
	check := Check{Limits: &v1alpha1.Limits{PerGroup: 1}, Now: born, Done: got, DoneBytes: MaxDoneBytes}
	for group, trips := range map[string]bool{"x": true, "y": true, "z": false} {
		if excess, err := check.FindExcess([]Action{with(on("b", 0, "b"), group)}); err != nil || (excess.Limit == "perGroup") != trips {
			t.Errorf("one more of %s: %+v (%v)", group, excess, err)
		}
	}
	if !CountsGroups(check.Limits) || CountsGroups(nil) || CountsGroups(&v1alpha1.Limits{MaxActions: 1}) {
		t.Error("it is said of the wrong limits that they count groups")
	}
}

// The first group of the plan that is too large is the one that is said.
func TestFindLargeGroup(t *testing.T) {
	with := func(uid types.UID, rule string, groups ...string) Action {
		return Action{UID: uid, Rule: rule, Groups: SumItems(groups)}
	}
	wanted := []Action{with("a", "r", "x"), with("b", "s", "y"), with("c", "s", "y"), with("d", "r", "x"), with("e", "r", "x")}
	for name, tc := range map[string]struct {
		done    Done
		most    int64
		rule    string
		all, by int64
	}{
		"None":       {nil, 3, "", 0, 0},
		"First":      {nil, 1, "s", 2, 0},
		"Larger":     {nil, 2, "r", 3, 0},
		"Before":     {Done{with("z", "s", "y"), with("a", "r", "x")}, 2, "s", 3, 1},
		"SameBefore": {Done{with("e", "r", "x")}, 2, "r", 3, 1},
	} {
		if of, all, by := findLargeGroup(wanted, tc.done, tc.most); of.rule != tc.rule || all != tc.all || by != tc.by {
			t.Errorf("%s: %d of %q, %d of them before", name, all, of.rule, by)
		}
	}
}

func TestDropOlder(t *testing.T) {
	all := Done{{At: at(0)}, {At: at(1)}, {At: at(2)}, {At: at(3)}}
	for minutes, want := range map[int]int{59: 4, 60: 3, 61: 2, 62: 1, 63: 0} {
		if got := all.DropOlder(at(minutes), time.Hour); len(got) != want {
			t.Errorf("after %d minutes %d actions still count, want %d", minutes, len(got), want)
		}
	}
	if got := all.DropOlder(at(62), time.Hour); &got[0] == &all[3] {
		t.Error("the memory of those that count no longer is not free")
	}
}

// To forget what was done would be to allow more.
func TestForgetDeeds(t *testing.T) {
	if got := (Done{done(2, on("a", 0)), done(1, on("b", 0))}).ForgetActions(); len(got) != 1 || !got[0].Forgotten || !got[0].At.Equal(at(-1)) {
		t.Errorf("got %+v", got)
	}
	if n := len(Done(nil).ForgetActions()); n > 0 {
		t.Error("what was not done was forgotten")
	}
}

// Names of targets that several actions share take memory once.
func TestCountBytes(t *testing.T) {
	one := Done{}.AddAction(done(0, on("a", 0, "x"), "pods", "nodes"))
	shared := one.AddAction(done(0, on("b", 0, "x"), "pods", "nodes"))
	own := one.AddAction(done(0, on("b", 0, "x"), "pods", "jobs"))
	if a, b, c := one.CountBytes(), shared.CountBytes(), own.CountBytes(); a <= 0 || b >= 2*a || c != 2*a {
		t.Errorf("one takes %d, with another of its targets %d, with one of others %d", a, b, c)
	}
	for name, actions := range map[string]Done{"Shared": shared, "Own": own} {
		if got := actions.objectsOf("pods"); len(got) != 2 {
			t.Errorf("%s: the target had %v", name, got)
		}
	}
	if got := own.objectsOf("jobs"); len(got) != 1 || !got["b"] {
		t.Errorf("the target had %v", got)
	}
}

func TestIsAny(t *testing.T) {
	for name, tc := range map[string]struct {
		limits *v1alpha1.Limits
		want   bool
	}{
		"None":    {nil, false},
		"Pace":    {&v1alpha1.Limits{ActionsPerSecond: 1, Per: "1h"}, false},
		"Actions": {&v1alpha1.Limits{MaxActions: 1}, true},
		"Percent": {&v1alpha1.Limits{MaxPercent: 1}, true},
	} {
		if got := IsAny(tc.limits); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestATargetCountsSomeActions shows that a target may count some actions only, wanted ones and earlier ones.
func TestATargetCountsSomeActions(t *testing.T) {
	objects := func(yield func(types.UID) bool) { _ = yield("a") && yield("b") && yield("c") && yield("d") }
	counted := Target{Name: "t", Objects: objects, Counts: func(a *Action) bool { return a.Rule == "counted" }}
	done := Done{{At: born, UID: "a", Rule: "counted", Targets: []string{"t"}}, {At: born, UID: "b", Rule: "other", Targets: []string{"t"}}}
	for name, tc := range map[string]struct {
		wanted []Action
		want   string
	}{
		"Counted": {[]Action{{UID: "c", Rule: "counted"}, {UID: "d", Rule: "counted"}}, "3 of 4, 1 by earlier actions"},
		"Fits":    {[]Action{{UID: "c", Rule: "counted"}}, ""},
		"Other":   {[]Action{{UID: "c", Rule: "other"}, {UID: "d", Rule: "other"}}, ""},
	} {
		got, err := Check{Limits: &v1alpha1.Limits{MaxPercent: 50}, Now: born.Add(time.Minute), Done: done, DoneBytes: MaxDoneBytes, Targets: []Target{counted}}.FindExcess(tc.wanted)
		if err != nil || (got.Limit != "") != (tc.want != "") || !strings.Contains(got.Message, tc.want) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}
