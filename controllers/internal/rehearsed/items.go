// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rehearsed remembers for which items a server-side dry run was made while mode is DryRun, until something else would be done for
// them. It makes no requests.
package rehearsed

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// Items are items of rules, and what is known of each.
type Items map[stringhash.Sum]Item

// Item is what was asked about one item.
type Item struct {
	// mark stands for what is done for it.
	mark uint64
	// refused says that a request for it would be refused. Then it is asked again at until, and wait is how long that was after the last time.
	refused bool
	until   time.Time
	wait    time.Duration
}

// Refusal is a request that would be refused.
type Refusal struct {
	// Reason is the reason of conditions, and Why names the object and says why.
	Reason, Why string
}

// DescribeIn returns what to report of a plan whose actions were rehearsed, and the last refusal.
func (r Items) DescribeIn(d plan.Plan, last Refusal) plan.Plan {
	objects, refused := map[types.UID]bool{}, map[types.UID]bool{}
	for i := range d.Steps {
		s := &d.Steps[i]
		if !s.IsChange() {
			continue
		}
		if slices.ContainsFunc(s.ListItems(), r.HasItem) {
			objects[s.Object.UID] = true
		}
		if slices.ContainsFunc(s.ListItems(), r.IsRefused) {
			refused[s.Object.UID] = true
		}
	}
	d.Reason, d.Refused, d.Next = v1alpha1.ReasonDryRun, len(refused), monotime.ChooseEarlier(d.Next, r.NextAttempt())
	acted := sanitize.CountOf(len(objects)-len(refused), "object") + " would be acted on"
	if d.Release != nil {
		acted += fmt.Sprintf(" and release %q uninstalled", d.Release.Name)
	}
	if len(refused) == 0 {
		d.Message = fmt.Sprintf("Mode is DryRun: %s; nothing was changed.", acted)
	} else {
		d.Message = fmt.Sprintf("Mode is DryRun: requests for %s would be refused, and %s; nothing was changed. %s", sanitize.CountOf(len(refused), "object"), acted, last.Why)
		d.RefusedReason = last.Reason
	}
	return d
}

// itemBytes is about how much memory one of them takes.
const itemBytes = 120

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
			out[key] = Item{mark: out[key].mark*31 + binary.LittleEndian.Uint64(sum[:])}
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
		key := item.Sum()
		r[key] = Item{mark: marks[key].mark, wait: r[key].wait}
	}
}

// NoteRefused records that a request for the items of a step would be refused. They are asked again, longer each time.
func (r Items) NoteRefused(s *plan.Step, now time.Time) {
	for _, item := range s.ListItems() {
		e := r[item.Sum()]
		if !e.refused { // one of its requests was
			e.wait = backoff.DoubleWait(e.wait)
			e.refused, e.until = true, now.Add(e.wait)
		}
		r[item.Sum()] = e
	}
}

// IsRefused says that a request for an item would be refused.
func (r Items) IsRefused(item plan.ItemKey) bool { return r[item.Sum()].refused }

// NextAttempt is when the next refused item is asked again; zero if there is none.
func (r Items) NextAttempt() (next time.Time) {
	for _, e := range r {
		if e.refused {
			next = monotime.ChooseEarlier(next, e.until)
		}
	}
	return next
}

// ForgetOthers drops the items for which something else, or nothing, would be done now.
func (r Items) ForgetOthers(now Items) {
	maps.DeleteFunc(r, func(item stringhash.Sum, e Item) bool { return now[item].mark != e.mark })
}

// LeaveOut is what a plan does for other items, and for those that are asked again.
func (r Items) LeaveOut(p plan.Plan, now time.Time) plan.Plan {
	return life.WithoutItems(p, func(item plan.ItemKey) bool {
		e, is := r[item.Sum()]
		return is && !(e.refused && !now.Before(e.until))
	})
}

// CountBytes is about how much memory they take.
func (r Items) CountBytes() int64 { return itemBytes * int64(len(r)) }
