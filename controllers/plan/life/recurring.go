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
	// MaxBatch is how many objects one batch of a Cleaner with a sink acts on: their rows are written before.
	MaxBatch = 500
	// maxNamedBatch is how many items a batch confirms at most if they depend on objects that are read by name: no more than a batch may read, so
	// that namespaces share it.
	maxNamedBatch = plan.MaxReads
	// firstProvenBatch and maxProvenBatch are how many items the first batch and any batch confirm at most if nothing is read for each of them.
	firstProvenBatch = 2000
	maxProvenBatch   = 5000
	// batchTime is how long the next batch should take: between two batches everything is decided again, while no request is sent. It leaves a batch
	// that takes twice as long enough time until its confirmation is too old.
	batchTime = ConfirmationServes * 2 / 5
	// MaxBatchBytes bounds what these rows take in JSON, so that the status can be stored with the rest of what it says.
	MaxBatchBytes = 400 << 10
	// maxRun is how many objects a run of a Recurring Cleaner counts before it is finished.
	maxRun = 500
)

// BatchSize is how many items a batch of a pass confirms at most: the next one, and any one.
type BatchSize struct{ Next, Most int }

// SizeFirstBatch returns the size of the first batch of a Cleaner with or without a sink. If each item takes reads, the first batch is small: it is
// not known yet how long they take, and nothing is done meanwhile.
func SizeFirstBatch(rules []v1alpha1.Rule, hasSink bool) BatchSize {
	switch {
	case hasSink:
		return BatchSize{MaxBatch, MaxBatch}
	case slices.ContainsFunc(rules, readsByName):
		return BatchSize{MaxBatch, maxNamedBatch}
	default:
		return BatchSize{firstProvenBatch, maxProvenBatch}
	}
}

// readsByName reports whether items of a rule may depend on objects that are read by name.
func readsByName(r v1alpha1.Rule) bool {
	return len(r.Confirm) > 0 || slices.ContainsFunc(r.Actions, func(a v1alpha1.RuleAction) bool { return a.Object != "" })
}

// Resize returns the size after a batch that took so long.
func (b BatchSize) Resize(took time.Duration) BatchSize {
	b.Next = int(min(max(time.Duration(b.Next)*batchTime/max(took, 1), MaxBatch), time.Duration(b.Most)))
	return b
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
