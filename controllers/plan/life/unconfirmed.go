// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"maps"
	"time"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// Unconfirmed is which items wait because live reads did not say the same of them as the watches, and until when. The
// others are acted on meanwhile.
type Unconfirmed map[stringhash.Sum]backoff.Failure

// PostponeItems records items that were not confirmed: each waits twice as long as the last time, up to a limit.
func (u Unconfirmed) PostponeItems(items map[plan.ItemKey]bool, limit time.Duration, now time.Time) {
	for item := range items {
		sum := item.Sum()
		wait := min(backoff.DoubleWait(u[sum].Wait), limit)
		u[sum] = backoff.Failure{Until: now.Add(wait), Wait: wait}
	}
}

// ForgetItem forgets an item: it was confirmed.
func (u Unconfirmed) ForgetItem(item plan.ItemKey) {
	if len(u) > 0 {
		delete(u, item.Sum())
	}
}

// KeepWanted forgets all items that are no longer wanted: when they are wanted again, their waits start again.
func (u Unconfirmed) KeepWanted(wanted map[plan.ItemKey]bool) {
	if len(u) == 0 {
		return
	}
	keep := make(map[stringhash.Sum]bool, len(wanted))
	for item := range wanted {
		keep[item.Sum()] = true
	}
	maps.DeleteFunc(u, func(item stringhash.Sum, _ backoff.Failure) bool { return !keep[item] })
}

// IsWaiting says that an item waits now.
func (u Unconfirmed) IsWaiting(item plan.ItemKey, now time.Time) bool {
	return len(u) > 0 && now.Before(u[item.Sum()].Until)
}

// NextAttempt is when the first of the items may be tried again; zero if there are none.
func (u Unconfirmed) NextAttempt() time.Time {
	var next time.Time
	for _, e := range u {
		next = monotime.ChooseEarlier(next, e.Until)
	}
	return next
}

// PostponeLeft has the items wait that a first plan wanted, and that live reads were asked about and did not confirm, and says whether there are
// any: neither is in what both plans want, nor waits for something else in the last one. What is beyond the batch was not asked about.
func (u Unconfirmed) PostponeLeft(first, last, agreed plan.Plan, limit time.Duration, now time.Time) bool {
	left := first.ListItems()
	for item := range agreed.ListItems() {
		delete(left, item)
		u.ForgetItem(item)
	}
	for i := range last.Steps {
		if s := &last.Steps[i]; !s.Confirmed {
			for _, item := range s.ListItems() {
				delete(left, item)
			}
		}
	}
	for _, item := range last.Deferred {
		delete(left, item)
	}
	for i := range last.Idle {
		for _, key := range last.Idle[i].Keys {
			delete(left, plan.ItemKey{Rule: last.Idle[i].ID.Rule, Key: key})
		}
	}
	if len(left) > 0 {
		u.PostponeItems(left, limit, now)
	}
	return len(left) > 0
}
