// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"slices"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

const (
	// promptComparisons is at how many comparisons the watches may be late to agree to what they have agreed to before.
	promptComparisons = 10
	// shortPause and longPause lie between two comparisons: the first promptComparisons times, and after that.
	shortPause, longPause = time.Second, 30 * time.Second
)

// Awaited is what a Once Cleaner must not leave behind when live reads want more than the watches: what live reads have wanted at each
// comparison since the first one, so that it existed when the decision was made. Objects that came later are no part of the run, and those that
// are gone are done. The zero value is a decision without a comparison, or on which both agreed.
type Awaited struct {
	// wants says of each whether the watches have ever wanted it, too.
	wants               map[stringhash.Sum]bool
	comparisons, pauses int
}

// CompareReads records what live reads want, and what of it the watches want too. It reports whether the run must wait: because the watches
// have yet to show something, or because the two have nothing in common.
func (a *Awaited) CompareReads(live, agreed plan.Plan) (waits bool) {
	if a.wants == nil && len(agreed.Steps) == len(live.Steps) {
		return false
	}
	wanted, both := sumChanges(&live), sumChanges(&agreed)
	if a.wants == nil {
		a.wants = make(map[stringhash.Sum]bool, len(wanted))
		for change := range wanted {
			a.wants[change] = false
		}
	}
	a.comparisons++
	for change, shown := range a.wants {
		switch {
		case !wanted[change]:
			delete(a.wants, change)
		case both[change]:
			a.wants[change] = true
		case !shown || a.comparisons <= promptComparisons:
			waits = true
		}
	}
	return waits || hasChanges(&live) && !hasChanges(&agreed)
}

// NextPause is how long to wait before the next comparison. It does not grow with each of them: what differs may be the objects of others.
func (a *Awaited) NextPause() time.Duration {
	if a.pauses++; a.pauses <= promptComparisons {
		return shortPause
	}
	return longPause
}

// ForgetComparisons records that there was no decision: the next comparison is the first one. The count of pauses continues.
func (a *Awaited) ForgetComparisons() { a.wants, a.comparisons = nil, 0 }

// awaitedBytes is about how much memory one of them takes.
const awaitedBytes = 48

// CountBytes is about how much memory is taken.
func (a *Awaited) CountBytes() int64 { return awaitedBytes * int64(len(a.wants)) }

// sumChanges are sums of what a plan changes: one for each item that a step on an object stands for.
func sumChanges(p *plan.Plan) map[stringhash.Sum]bool {
	out := make(map[stringhash.Sum]bool, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		if !s.IsChange() {
			continue
		}
		for _, key := range s.Keys {
			out[stringhash.SumOf(fmt.Sprintf("%s\x00%d\x00%s\x00%s", s.Rule, s.Action, s.Object.Identify(), key))] = true
		}
	}
	return out
}

// hasChanges says that a plan changes something.
func hasChanges(p *plan.Plan) bool {
	return p.Release != nil || slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return s.IsChange() })
}

// WaitsForObjects reports whether a decision waits because of the state of the objects, rather than of the spec or of permissions.
func WaitsForObjects(d *plan.Plan) bool {
	switch d.Reason {
	case v1alpha1.ReasonConditionsNotMet, v1alpha1.ReasonEvaluationFailed, v1alpha1.ReasonHolding, v1alpha1.ReasonTargetMissing, v1alpha1.ReasonLimitExceeded,
		v1alpha1.ReasonTooManyObjects:
		return true
	}
	return false
}
