// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// waitingItem names what waits for the end of its `for`, as a status and a plan do.
type waitingItem struct{ rule, key string }

// beginHolds returns the `for` timers at the beginning: those that the status lists end when it says, and all others began at Times.Since.
func (s *simulation) beginHolds(ctx context.Context, in plan.Input) fortimers.Holds {
	first := plan.ComputePlan(ctx, in)
	holds := first.Holds.BeganAt(s.Decision.Times.Since)
	if len(s.Waiting) == 0 {
		return holds
	}
	lengths := map[waitingItem]time.Duration{}
	for _, p := range first.Pending { // without earlier timers, all began now
		lengths[waitingItem{p.Rule, p.Key}] = p.Until.Sub(s.now)
	}
	objects := map[string]types.UID{}
	for o := range s.world.EachObject() {
		objects[o.NameFor(in.Owner.Namespace)] = o.UID
	}
	for _, w := range s.Waiting {
		hold, known := holds[w.Rule]
		length, waits := lengths[waitingItem{w.Rule, w.Key}]
		if !known || !waits {
			continue
		}
		key := w.Key
		if s.isKeyedByObject(w.Rule) {
			key = string(objects[w.Key])
		}
		since := w.Until.Add(-length)
		if _, counts := hold.Since[stringhash.SumOf(key)]; counts && !since.After(s.now) {
			hold.Since[stringhash.SumOf(key)] = fortimers.Hold{Since: since}
		}
	}
	return holds
}

// isKeyedByObject reports whether the timers of a rule are those of objects, and not of keys that the rule gives.
func (s *simulation) isKeyedByObject(name string) bool {
	for i := range s.work.Rules {
		if r := &s.work.Rules[i]; r.Name == name {
			return r.Key == "" && r.ForKey == ""
		}
	}
	return false
}
