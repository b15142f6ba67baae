// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// waitingItem names what waits for the end of its `for`, as a status and a plan do.
type waitingItem struct{ rule, key string }

// ContinueHolds returns the `for` timers of a plan that was made without any: those that a status lists end when it says, and all others
// began at since.
func ContinueHolds(in *plan.Input, first *plan.Plan, since time.Time, waiting []v1alpha1.Pending) fortimers.Holds {
	holds := first.Holds.BeganAt(since)
	if len(waiting) == 0 {
		return holds
	}
	lengths := map[waitingItem]time.Duration{}
	for _, p := range first.Pending { // without earlier timers, all began now
		lengths[waitingItem{p.Rule, p.Key}] = p.Until.Sub(in.Now)
	}
	objects := map[string]types.UID{}
	for t := range in.Snapshot {
		for i := range in.Snapshot[t].Objects {
			o := &in.Snapshot[t].Objects[i]
			name := o.String()
			if uid, known := objects[name]; known && uid != o.UID {
				objects[name] = "" // kinds of the same name in two groups: it says neither
				continue
			}
			objects[name] = o.UID
		}
	}
	for _, w := range waiting {
		hold, known := holds[w.Rule]
		length, waits := lengths[waitingItem{w.Rule, w.Key}]
		if !known || !waits {
			continue
		}
		key := w.Key
		if isKeyedByObject(in.Spec, w.Rule) {
			key = string(objects[w.Key])
		}
		began := w.Until.Add(-length)
		if _, counts := hold.Since[stringhash.SumOf(key)]; counts && !began.After(in.Now) {
			hold.Since[stringhash.SumOf(key)] = fortimers.Hold{Since: began}
		}
	}
	return holds
}

// isKeyedByObject reports whether the timers of a rule are those of objects, and not of keys that the rule gives.
func isKeyedByObject(work *v1alpha1.Work, name string) bool {
	for i := range work.Rules {
		if r := &work.Rules[i]; r.Name == name {
			return r.Key == "" && r.ForKey == ""
		}
	}
	return false
}
