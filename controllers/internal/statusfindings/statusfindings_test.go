// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package statusfindings

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func rulesNamed(names ...string) []v1alpha1.Rule {
	rules := make([]v1alpha1.Rule, len(names))
	for i, name := range names {
		rules[i].Name = name
	}
	return rules
}

// The findings stand in the order of the rules, each with the first of its items by name.
func TestUpdateFindings(t *testing.T) {
	before := []v1alpha1.Finding{{Rule: "broken", Count: 2, Items: []string{"b"}}, {Rule: "both", Count: 9}, {Rule: "mended", Count: 1}, {Rule: "renamed", Count: 1}}
	now := Reported{}
	for _, n := range []int{3, 1, 7, 5, 2, 6, 4} {
		now.AddItem("many", fmt.Sprint("i", n), fmt.Sprint("why ", n))
	}
	now.AddItem("both", "x\ny", "new\x1b")
	now.AddItem("not-a-rule", "x", "")
	got := UpdateFindings(before, rulesNamed("both", "broken", "never-known", "many", "mended"), now, map[string]bool{"broken": true, "both": true, "never-known": true})
	want := []v1alpha1.Finding{
		{Rule: "both", Count: 1, Items: []string{"x y"}, Message: "new "},
		{Rule: "broken", Count: 2, Items: []string{"b"}},
		{Rule: "many", Count: 7, Items: []string{"i1", "i2", "i3", "i4", "i5"}, Message: "why 1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := UpdateFindings(before, nil, now, nil); len(got) > 0 {
		t.Errorf("without rules there is %v", got)
	}
}

// Whatever rules report, and how many do: each finding has a message and names one item, and all together have a bound.
func TestFindingsShareABound(t *testing.T) {
	for rules, most := range map[int]int{1: MaxItems, 8: 3, 64: 1} {
		now, names := Reported{}, []string{}
		for i := range rules {
			names = append(names, fmt.Sprintf("r%02d%s", i, strings.Repeat("x", 60)))
			for n := range 7 {
				now.AddItem(names[i], fmt.Sprint(n, strings.Repeat("ü", 1000)), strings.Repeat("ü", 1000))
			}
		}
		bytes, all := 0, UpdateFindings(nil, rulesNamed(names...), now, nil)
		for _, f := range all {
			if f.Count != 7 || f.Message == "" || len(f.Items) == 0 || len(f.Items) > most || !strings.HasPrefix(f.Items[0], "0ü") {
				t.Errorf("of %d rules %s has %d, names %d, and says %d bytes", rules, f.Rule, f.Count, len(f.Items), len(f.Message))
			}
			for _, text := range append(f.Items, f.Rule, f.Message) {
				bytes += len(text)
			}
		}
		if len(all) != rules || bytes > MaxBytes {
			t.Errorf("%d findings of %d rules have %d bytes", len(all), rules, bytes)
		}
	}
}

// In whatever order rules report their items, and however often the same: a finding counts all, and names the first by name, with the
// reason of the very first.
func TestFindingsDoNotDependOnTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-d]{1,2}`)
		type found struct{ name, reason string }
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) found { return found{text.Draw(t, "name"), text.Draw(t, "reason")} }), 1, 20).Draw(t, "items")
		now := Reported{}
		for _, f := range all {
			now.AddItem("r", f.name, f.reason)
			now.AddItem("other", "zz", "")
		}
		slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.name+" "+a.reason, b.name+" "+b.reason) })
		want := v1alpha1.Finding{Rule: "r", Count: int64(len(all)), Message: all[0].reason}
		for _, f := range all[:min(len(all), MaxItems)] {
			want.Items = append(want.Items, f.name)
		}
		if diff := cmp.Diff([]v1alpha1.Finding{want}, UpdateFindings(nil, rulesNamed("r"), now, nil)); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	})
}

// What is not known stays as it was, within the share that it has now, and what was found before is not changed.
func TestFindingsThatStay(t *testing.T) {
	long := strings.Repeat("x", 1000)
	var before []v1alpha1.Finding
	names, unknown := []string{}, map[string]bool{}
	for i := range 64 {
		names = append(names, fmt.Sprint("r", i))
		unknown[names[i]] = i > 0
		before = append(before, v1alpha1.Finding{Rule: names[i], Count: int64(i), Message: long, Items: []string{long, "a"}})
	}
	got := UpdateFindings(before, rulesNamed(names...), Reported{}, unknown)
	if len(got) != 63 || got[0].Rule != "r1" || got[0].Count != 1 || len(got[0].Items) != 1 || len(got[0].Message) > MaxBytes/63/2 {
		t.Errorf("%d are left, and the first is %+v", len(got), got[0])
	}
	if before[1].Items[0] != long || before[1].Message != long {
		t.Errorf("what was found before is cut to %d bytes where it is kept", len(before[1].Items[0]))
	}
	short := UpdateFindings(before[:2], rulesNamed(names...), Reported{}, unknown)
	if diff := cmp.Diff(before[1:2], short); diff != "" {
		t.Errorf("what has room is changed (-want +got):\n%s", diff)
	}
}

// Only reports that were made are found, an item of several reports once.
func TestFindReported(t *testing.T) {
	object := func(name string) observed.Object {
		return observed.Object{Ref: observed.Ref{Kind: "Pod", Namespace: "shop", Name: name}}
	}
	steps := []plan.Step{
		{Rule: "r", Keys: []string{"a"}, Object: object("a"), Verb: plan.VerbReport, Reason: "old"},
		{Rule: "r", Keys: []string{"a"}, Object: object("a"), Verb: plan.VerbReport, Reason: "again"},
		{Rule: "r", Keys: []string{"b"}, Object: object("b"), Verb: plan.VerbReport, Reason: "not made"},
		{Rule: "q", Keys: []string{"a"}, Object: object("a"), Verb: plan.VerbDelete},
	}
	found := FindReported(steps, func(item plan.ItemKey) bool { return item.Key == "a" })
	all := UpdateFindings(nil, rulesNamed("r", "q"), found, nil)
	if diff := cmp.Diff([]v1alpha1.Finding{{Rule: "r", Count: 1, Items: []string{"Pod shop/a"}, Message: "old"}}, all); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"r": 1}, CountItems(all)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A rule that gives errors keeps its earlier finding, and another one that reports nothing loses it.
func TestFindWanted(t *testing.T) {
	before := []v1alpha1.Finding{{Rule: "r", Count: 1, Items: []string{"Pod shop/a"}, Message: "old"}, {Rule: "q", Count: 1, Items: []string{"Pod shop/b"}, Message: "old"}}
	p := plan.Plan{
		Steps:  []plan.Step{{Rule: "s", Keys: []string{"c"}, Object: observed.Object{Ref: observed.Ref{Kind: "Pod", Namespace: "shop", Name: "c"}}, Verb: plan.VerbReport, Reason: "new"}},
		Errors: []v1alpha1.ItemError{{Rule: "q", Message: "no such key"}},
	}
	got := FindWanted(before, rulesNamed("r", "q", "s"), &p, func(plan.ItemKey) bool { return true })
	if diff := cmp.Diff([]v1alpha1.Finding{before[1], {Rule: "s", Count: 1, Items: []string{"Pod shop/c"}, Message: "new"}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
