// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rehearsed remembers for which items a server-side dry run was made while mode is DryRun, until something else would be done for
// them. It makes no requests.
package rehearsed

import (
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// Items are items of rules, each with the mark of what is done for it.
type Items map[stringhash.Sum]uint64

// itemBytes is about how much memory one of them takes.
const itemBytes = 80

// MarkItems marks the items that a plan acts on: while an item has the same mark in a later plan, the same is done for it, to the same versions
// of objects. A patch that stands for several items counts without its body, which another item may change.
func MarkItems(p plan.Plan) Items {
	out := make(Items, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		text := fmt.Sprint(s.Action, " ", s.Verb, " ", s.Object.Identify(), " ", s.Object.ResourceVersion, " ", s.Finalizer)
		if s.IsAlone() { // another reason is another report
			text += " " + s.Reason
		}
		if s.Patch != nil && len(s.Keys) == 1 {
			text += " " + string(s.Patch.Body)
		}
		sum := stringhash.SumOf(text)
		for _, item := range s.ListItems() {
			key := item.Sum()
			out[key] = out[key]*31 + binary.LittleEndian.Uint64(sum[:])
		}
	}
	return out
}

// HasItem says that an item is among them.
func (r Items) HasItem(item plan.ItemKey) bool {
	_, is := r[item.Sum()]
	return is
}

// AddStep adds the items of a step that was rehearsed, with their marks.
func (r Items) AddStep(s *plan.Step, marks Items) {
	for _, item := range s.ListItems() {
		r[item.Sum()] = marks[item.Sum()]
	}
}

// ForgetOthers drops the items for which something else, or nothing, would be done now.
func (r Items) ForgetOthers(now Items) {
	maps.DeleteFunc(r, func(item stringhash.Sum, mark uint64) bool { return now[item] != mark })
}

// LeaveOut is what a plan does for other items.
func (r Items) LeaveOut(p plan.Plan) plan.Plan { return life.WithoutItems(p, r.HasItem) }

// CountBytes is about how much memory they take.
func (r Items) CountBytes() int64 { return itemBytes * int64(len(r)) }
