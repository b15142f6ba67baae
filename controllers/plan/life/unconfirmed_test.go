// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"
	"time"

	"github.com/vtex/cleaner/controllers/plan"
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
