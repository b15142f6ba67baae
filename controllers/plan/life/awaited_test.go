// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// deleting is a plan that deletes objects, given by their UIDs.
func deleting(uids ...string) plan.Plan {
	p := plan.Plan{Verdict: v1alpha1.VerdictAct}
	for _, uid := range uids {
		p.Steps = append(p.Steps, plan.Step{
			Rule: "targets.pods", Keys: []string{uid}, Verb: plan.VerbDelete, Object: observed.Object{Ref: observed.Ref{Name: uid, UID: types.UID(uid)}},
		})
	}
	return p
}

// agreeing is what two plans want, of which no step stands for several items.
func agreeing(watched, live plan.Plan) plan.Plan {
	return plan.AgreePlans(watched, live, func(map[plan.ItemKey]bool) plan.Plan { return live })
}

func TestAwaited(t *testing.T) {
	type look struct {
		watched, live string
		waits         bool
	}
	for name, tc := range map[string]struct {
		reason string
		looks  []look
	}{
		"Same":        {"both want the same", []look{{"a b", "a b", false}}},
		"Gone":        {"what is gone by live reads is done", []look{{"a b", "a", false}}},
		"Nothing":     {"there is nothing left", []look{{"a", "", false}, {"", "", false}}},
		"Churn":       {"others come and go", []look{{"a x1", "a x2", true}, {"a x3", "a x4", false}}},
		"Seen":        {"the watches have caught up", []look{{"a", "a b", true}, {"a b", "a b", false}}},
		"SeenInChurn": {"with what is old", []look{{"a x1", "a b x2", true}, {"a b x3", "a b x4", false}}},
		"Late":        {"they have not", []look{{"a x1", "a b x2", true}, {"a x3", "a b x4", true}, {"a x5", "a b x6", true}, {"a b x7", "a b x8", false}}},
		"Later":       {"what came after the first look is not waited for", []look{{"a", "a b", true}, {"a b", "a b c", false}}},
		"Back":        {"the watches have gone back in time", []look{{"a b", "a b c", true}, {"a c", "a b c", true}, {"a b c", "a b c", false}}},
		"Disjoint":    {"nothing is ended for which nothing would be done", []look{{"x1", "x2", true}, {"x3", "x4", true}, {"x5 a", "x6 a", false}}},
	} {
		t.Run(name, func(t *testing.T) {
			var a Awaited
			for i, l := range tc.looks {
				live := deleting(strings.Fields(l.live)...)
				if got := a.CompareReads(live, agreeing(deleting(strings.Fields(l.watched)...), live)); got != l.waits {
					t.Errorf("%s: look %d waits: %t", tc.reason, i+1, got)
				}
			}
		})
	}
}

// A release is cleaned although nothing else is agreed on, and reports are not waited for.
func TestAwaitedIsWhatChanges(t *testing.T) {
	var a Awaited
	first, second := deleting("x1"), deleting("x2")
	first.Release, second.Release = &observed.Release{}, &observed.Release{}
	if !a.CompareReads(first, agreeing(deleting("x0"), first)) {
		t.Error("the first look does not wait")
	}
	if a.CompareReads(second, agreeing(deleting("x0"), second)) {
		t.Error("the release waits for what comes and goes")
	}
	a = Awaited{}
	reports := deleting("a", "b")
	reports.Steps[1].Verb = plan.VerbReport
	if a.CompareReads(reports, agreeing(deleting("a"), reports)) {
		t.Error("a report is waited for")
	}
}

// The watches may be late with what they have shown before for some looks only: it may change back and forth. What they have never shown
// is waited for as long as it takes.
func TestAwaitedDoesNotWaitForWhatFlaps(t *testing.T) {
	for name, looks := range map[string]int{"Flaps": promptComparisons, "Never": 10 * promptComparisons} {
		t.Run(name, func(t *testing.T) {
			var a Awaited
			for i := range looks {
				flap := fmt.Sprint("f", i%3) // each is missing in every third look
				watched := slices.DeleteFunc([]string{"a", "f0", "f1", "f2"}, func(uid string) bool { return uid == flap })
				live := deleting("a", "f0", "f1", "f2")
				if name == "Never" {
					live = deleting("a", "f0", "f1", "f2", "never")
				}
				if !a.CompareReads(live, agreeing(deleting(watched...), live)) {
					t.Fatalf("look %d does not wait", i+1)
				}
			}
			live := deleting("a", "f0", "f1", "f2")
			if a.CompareReads(live, agreeing(deleting("a", "f1", "f2"), live)) {
				t.Error("it waits on")
			}
		})
	}
}

func TestPausesOfAwaitedDoNotGrowWithEachLook(t *testing.T) {
	var a Awaited
	for i := range 3 * promptComparisons {
		want := time.Second
		if i >= promptComparisons {
			want = 30 * time.Second
		}
		if got := a.NextPause(); got != want {
			t.Errorf("pause %d takes %s, want %s", i+1, got, want)
		}
		a.ForgetComparisons()
	}
}

// Whatever others create and delete, and however much the watches lag: what was there at the first look, and still is, is in the run; nothing is
// in it that one of both does not want; and where the watches lag by less than a pause, the second look commits.
func TestAnyChurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lag := rapid.IntRange(0, 6).Draw(t, "lag") // in halves of a look
		calm := map[string]bool{}
		for i := range rapid.IntRange(1, 4).Draw(t, "calm") {
			calm[fmt.Sprint("calm-", i)] = true
		}
		var past []map[string]bool // what there was, a moment after the other: the newest last
		now, others := maps.Clone(calm), 0
		turn := func() {
			for uid := range now {
				if !calm[uid] && rapid.IntRange(0, 2).Draw(t, uid+" goes") > 0 {
					delete(now, uid)
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "come") {
				now[fmt.Sprint("x-", others)] = true
				others++
			}
			past = append(past, maps.Clone(now))
		}
		list := func(of map[string]bool) plan.Plan { return deleting(slices.Sorted(maps.Keys(of))...) }
		born := rapid.IntRange(0, lag+1).Draw(t, "born") // so many moments before the first look the last of what is calm came
		for i := range lag + 2 {
			turn()
			if i < lag+1-born {
				delete(past[i], "calm-0")
			}
		}
		var a Awaited
		var since map[string]bool // what there was at each look
		for look := 1; ; look++ {
			watched := list(past[len(past)-1-lag])
			turn()
			live := list(now)
			both := agreeing(watched, live)
			if since == nil {
				since = maps.Clone(now)
			}
			maps.DeleteFunc(since, func(uid string, _ bool) bool { return !now[uid] })
			if !a.CompareReads(live, both) {
				in := map[string]bool{}
				for i := range both.Steps {
					uid := string(both.Steps[i].Object.UID)
					if in[uid] = true; !now[uid] || !past[len(past)-2-lag][uid] {
						t.Fatalf("%s is in the run", uid)
					}
				}
				for uid := range since {
					if !in[uid] {
						t.Fatalf("%s is left behind at look %d, with a lag of %d", uid, look, lag)
					}
				}
				return
			}
			if lag < 2 && look >= 2 || look > lag+2 {
				t.Fatalf("it waits after look %d, with a lag of %d", look, lag)
			}
			turn()
		}
	})
}
