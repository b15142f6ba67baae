// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// MaxBatch is how many objects one batch of a Cleaner with a sink acts on: their rows are written before. Batches of other Cleaners begin with
	// it, if it is not known yet how long items take.
	MaxBatch = 500
	// largestBatch is how many items one batch of a Cleaner without a sink confirms at most: no more than a batch may read by name, so that namespaces
	// share it.
	largestBatch = plan.MaxReads
	// largestQuickBatch is the same where an item takes a DELETE, and rarely more.
	largestQuickBatch = 5000
	// batchTime is how long the next batch should take: between two batches everything is decided again, while no request is sent. It leaves a batch
	// that takes twice as long enough time until its confirmation is too old.
	batchTime = ConfirmationServes * 2 / 5
	// MaxBatchBytes bounds what these rows take in JSON, so that the status can be stored with the rest of what it says.
	MaxBatchBytes = 400 << 10
	// maxRun is how many objects a run of a Recurring Cleaner counts before it is finished.
	maxRun = 500
)

// BatchSize is how many items a batch of a pass confirms at most: the next one, and any one.
type BatchSize struct {
	Next, Most int
	// IsQuick says that each item takes a DELETE, and at most one more request, which most items do not take: so the size says how quickly the API
	// server answers.
	IsQuick bool
}

// SizeFirstBatch returns the size of the first batch of a pass. Quick is the size that the last quick batch of any Cleaner led to; 0: there was none.
func SizeFirstBatch(w *v1alpha1.Work, hasSink, isDryRun bool, quick int) BatchSize {
	isPaced := w.Limits != nil && w.Limits.ActionsPerSecond > 0
	deletes := slices.ContainsFunc(w.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Delete })
	switch {
	case hasSink:
		return BatchSize{Next: MaxBatch, Most: MaxBatch}
	case isDryRun || isPaced || deletes || len(w.Conditions) > 0 || slices.ContainsFunc(w.Rules, isSlow):
		return BatchSize{Next: MaxBatch, Most: largestBatch}
	default:
		return BatchSize{Next: min(max(quick, MaxBatch), largestQuickBatch), Most: largestQuickBatch, IsQuick: true}
	}
}

// isSlow reports whether an item of a rule takes more than its deletion and, under a condition, one request that is no deletion and about the same object.
func isSlow(r v1alpha1.Rule) bool {
	deletions, others := 0, 0
	for i := range r.Actions {
		switch a := &r.Actions[i]; {
		case a.Object != "", a.When != "" && a.Delete != nil, a.When == "" && a.Delete == nil:
			return true
		case a.Delete != nil:
			deletions++
		default:
			others++
		}
	}
	return deletions != 1 || others > 1 || slices.ContainsFunc(r.Confirm, func(c v1alpha1.Confirm) bool { return c.Name != "" })
}

// Resize returns the size after a batch of that size in which these steps were done, in so long a time. It is the same after a quick batch that has deleted
// nothing.
func (b BatchSize) Resize(did []plan.Step, took time.Duration) BatchSize {
	items := min(len(did), b.Next) // an item may have several steps
	if b.IsQuick {                 // each has one DELETE, and there may be more items than were asked for
		if items = countDeletions(did); items == 0 {
			return b
		}
	}
	b.Next = int(min(max(time.Duration(items)*batchTime/max(took, 1), MaxBatch), time.Duration(b.Most)))
	return b
}

func countDeletions(steps []plan.Step) (n int) {
	for i := range steps {
		if steps[i].Verb == plan.VerbDelete {
			n++
		}
	}
	return n
}

// KeepEarlierObjects returns what may be done at once by a new plan, made because objects of an earlier plan have changed: the actions on
// objects of the earlier plan, at their current versions. An object that has the name of one of them, but another UID, was not recorded:
// it is for the next batch.
func KeepEarlierObjects(earlier, anew plan.Plan) plan.Plan {
	objects := map[types.UID]bool{}
	for i := range earlier.Steps {
		if s := &earlier.Steps[i]; s.IsChange() {
			objects[s.Object.UID] = true
		}
	}
	wanted := anew
	wanted.Steps = slices.DeleteFunc(slices.Clone(anew.Steps), func(s plan.Step) bool { return s.IsChange() && !objects[s.Object.UID] })
	return plan.IntersectPlans(wanted, anew)
}

// FirstObjects is the plan with the steps on its first objects, at most so many, whose rows take at most so many bytes; one in any case.
// It has all that one of them comes after.
func FirstObjects(p plan.Plan, objects, bytes int) plan.Plan {
	seen := map[types.UID]bool{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if !s.IsChange() {
			continue
		}
		if seen[s.Object.UID] {
			continue
		}
		if bytes -= s.RowBytes(); len(seen) == objects || bytes < 0 && len(seen) > 0 {
			p.Steps = p.Steps[:i]
			break
		}
		seen[s.Object.UID] = true
	}
	return p
}

// ChooseItems chooses at most so many items of a plan for a batch, with equal parts for namespaces: otherwise objects of one namespace
// whose requests fail could fill each batch. It begins with the namespace that follows after. An item belongs to the namespace of its
// first object. It returns nil if all items have room.
func ChooseItems(p plan.Plan, items int, after string) map[plan.ItemKey]bool {
	type place struct {
		item      plan.ItemKey
		nth       int // of its namespace
		namespace string
	}
	var all []place
	known, of := map[plan.ItemKey]bool{}, map[string]int{}
	for i := range p.Steps {
		namespace := p.Steps[i].Object.Namespace
		for _, item := range p.Steps[i].ListItems() {
			if !known[item] {
				known[item] = true
				all = append(all, place{item, of[namespace], namespace})
				of[namespace]++
			}
		}
	}
	if len(all) <= items {
		return nil
	}
	isBehind := func(namespace string) int { // those that come after come first
		if namespace > after {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.nth, b.nth), cmp.Compare(isBehind(a.namespace), isBehind(b.namespace)), cmp.Compare(a.namespace, b.namespace))
	})
	chosen := make(map[plan.ItemKey]bool, items)
	for _, a := range all[:items] {
		chosen[a.item] = true
	}
	return chosen
}

// WithoutItems is the plan without some items. A step that stands for others too is there, for those.
func WithoutItems(p plan.Plan, waits func(plan.ItemKey) bool) plan.Plan {
	p.Steps = slices.Clone(p.Steps)
	out := make([]bool, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		keys := slices.DeleteFunc(slices.Clone(s.Keys), func(key string) bool { return waits(plan.ItemKey{Rule: s.Rule, Key: key}) })
		out[i] = len(keys) == 0 && len(s.Keys) > 0
		s.Keys = keys
	}
	p.Steps = plan.KeepSteps(p.Steps, func(n int) bool { return !out[n] })
	return p
}
