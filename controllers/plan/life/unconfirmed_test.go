// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"
	"time"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/idlepatches"
)

func TestUnconfirmed(t *testing.T) {
	a, b := plan.ItemKey{Rule: "r", Key: "a"}, plan.ItemKey{Rule: "r", Key: "b"}
	both, now := map[plan.ItemKey]bool{a: true, b: true}, born
	u := Unconfirmed{}
	if u.IsWaiting(a, now) || !u.NextAttempt().IsZero() {
		t.Error("something waits from the start")
	}
	for _, want := range []time.Duration{1, 2, 4, 5, 5} {
		u.PostponeItems(map[plan.ItemKey]bool{a: true}, 5*time.Second, now)
		if at := now.Add(want * time.Second); !u.IsWaiting(a, at.Add(-1)) || u.IsWaiting(a, at) || !u.NextAttempt().Equal(at) {
			t.Errorf("it waits until %s, want %s", u.NextAttempt(), at)
		}
		if u.IsWaiting(b, now) {
			t.Error("another item waits too")
		}
		now = now.Add(want * time.Second)
	}
	if u.KeepWanted(both); len(u) != 1 {
		t.Errorf("what is wanted still is forgotten: %v", u)
	}
	if u.KeepWanted(map[plan.ItemKey]bool{b: true}); len(u) != 0 {
		t.Errorf("what is not wanted any more is kept: %v", u)
	}
}

// Items wait that live reads were asked about, and that they did not confirm: not those that both plans want, that wait for something else, or that
// were not asked about.
func TestPostponeLeft(t *testing.T) {
	step := func(key string, confirmed bool) plan.Step {
		return plan.Step{Rule: "r", Keys: []string{key}, Confirmed: confirmed}
	}
	first := plan.Plan{Steps: []plan.Step{step("agreed", false), step("left", false), step("beyond", false), step("deferred", false), step("idle", false)}}
	last := plan.Plan{
		Steps: []plan.Step{step("agreed", true), step("beyond", false)}, Deferred: []plan.ItemKey{{Rule: "r", Key: "deferred"}},
		Idle: []plan.IdleStep{{ID: idlepatches.ID{Rule: "r"}, Keys: []string{"idle"}}},
	}
	agreed := plan.Plan{Steps: []plan.Step{step("agreed", true)}}
	u := Unconfirmed{}
	u.PostponeItems(map[plan.ItemKey]bool{{Rule: "r", Key: "agreed"}: true}, time.Minute, born)
	if !u.PostponeLeft(first, last, agreed, time.Minute, born) {
		t.Error("none waits")
	}
	for _, key := range []string{"agreed", "left", "beyond", "deferred", "idle"} {
		if waits := u.IsWaiting(plan.ItemKey{Rule: "r", Key: key}, born); waits != (key == "left") {
			t.Errorf("%s waits: %t", key, waits)
		}
	}
	if u.PostponeLeft(agreed, last, agreed, time.Minute, born) {
		t.Error("what was confirmed waits")
	}
}
