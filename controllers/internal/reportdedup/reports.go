// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reportdedup remembers which items were reported, within the memory that it is given. It reports nothing.
package reportdedup

import (
	"maps"
	"slices"
	"time"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// reportBytes is about how much memory it takes to remember that a report was made.
const reportBytes = 80

// Reports are the items that were reported, and what the reports said. Without room to remember more, the others are reported again once
// in a while. The zero value remembers none, and has room for all.
type Reports struct {
	made  map[string]map[stringhash.Sum]stringhash.Sum // by rule
	count int
	// room is how many there is room for, if that is bounded.
	room    int
	bounded bool
	// again is when items that are not remembered are reported again.
	again time.Time
}

// HasReport reports whether a report was made, or must wait because it is unknown whether it was made.
func (r *Reports) HasReport(item plan.ItemKey, what string, now time.Time) bool {
	made, known := r.made[item.Rule][stringhash.SumOf(item.Key)]
	if !known {
		return now.Before(r.again)
	}
	return made == stringhash.SumOf(what)
}

// HasItem reports whether any report of the item was made, or whether that is unknown.
func (r *Reports) HasItem(item plan.ItemKey, now time.Time) bool {
	_, known := r.made[item.Rule][stringhash.SumOf(item.Key)]
	return known || now.Before(r.again)
}

// NoteReport records a report. If there is no room to remember it, no report that is not remembered is made again for a while.
func (r *Reports) NoteReport(item plan.ItemKey, what string, now time.Time, wait time.Duration) {
	key := stringhash.SumOf(item.Key)
	if _, known := r.made[item.Rule][key]; !known {
		if r.bounded && r.count >= r.room {
			r.again = now.Add(wait)
			return
		}
		r.count++
	}
	if r.made == nil {
		r.made = map[string]map[stringhash.Sum]stringhash.Sum{}
	}
	if r.made[item.Rule] == nil {
		r.made[item.Rule] = map[stringhash.Sum]stringhash.Sum{}
	}
	r.made[item.Rule][key] = stringhash.SumOf(what)
}

// KeepWanted forgets all items but those that are wanted, and those of rules that something is wrong with.
func (r *Reports) KeepWanted(wanted map[plan.ItemKey]bool, wrong map[string]bool) {
	keep := map[string]map[stringhash.Sum]bool{}
	for item := range wanted {
		if keep[item.Rule] == nil {
			keep[item.Rule] = map[stringhash.Sum]bool{}
		}
		keep[item.Rule][stringhash.SumOf(item.Key)] = true
	}
	r.count = 0
	for rule, made := range r.made {
		if !wrong[rule] {
			maps.DeleteFunc(made, func(item, _ stringhash.Sum) bool { return !keep[rule][item] })
		}
		if r.count += len(made); len(made) == 0 {
			delete(r.made, rule)
		}
	}
}

// ForgetUntil drops what was remembered. It is not all reported again at once.
func (r *Reports) ForgetUntil(until time.Time) { *r = Reports{again: until} }

// CountBytes is about how much memory is taken.
func (r *Reports) CountBytes() int64 { return reportBytes * int64(r.count) }

// GrowBy bounds the memory that is taken to what is taken now and so many bytes more; fewer than none: no new item is remembered.
func (r *Reports) GrowBy(bytes int64) {
	r.bounded, r.room = true, int(max(0, r.CountBytes()+bytes)/reportBytes)
}

// IsEmpty says that no report is remembered.
func (r *Reports) IsEmpty() bool { return r.count == 0 }

// VersionOf is what tells one report of an item from another.
func VersionOf(s *plan.Step) string { return s.Object.ResourceVersion + " " + s.Reason }

// isMade says that a step is a report that was made already, for all its items.
func (r *Reports) isMade(s *plan.Step, now time.Time) bool {
	return !s.IsChange() && !slices.ContainsFunc(s.Keys, func(key string) bool {
		return !r.HasReport(plan.ItemKey{Rule: s.Rule, Key: key}, VersionOf(s), now)
	})
}

// LeaveOut leaves out the reports that were made already, of the same version of the same item. A report that was made holds nothing up.
func (r *Reports) LeaveOut(d plan.Plan, now time.Time) plan.Plan {
	if !slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return r.isMade(&s, now) }) { // it is not copied: there may be very many
		return d
	}
	d.Steps = plan.KeepSteps(d.Steps, func(n int) bool { return !r.isMade(&d.Steps[n], now) })
	return d
}
