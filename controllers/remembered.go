// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/patched"
	"github.com/vtex/cleaner/controllers/internal/ration"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/trimmed"
)

// About how much memory it takes to remember one thing of each kind, without its texts.
const (
	rehearsedBytes   = 80
	unconfirmedBytes = 180
	backoffBytes     = 280
	remadeBytes      = 420
	actionBytes      = 128
	// usualActions is what the deeds that a status shows take of most Cleaners, and is not counted.
	usualActions = 12 << 10
)

// remembered is how much memory is taken for what is remembered of items, whose number and names users choose: in all, of one
// namespace, and of one Cleaner. Its methods are called with the lock of memories.
type remembered struct {
	book *ration.Book
	// passing are the Cleaners that a pass is about, and doomed those of them of which all items have to be forgotten after it.
	passing, doomed map[types.NamespacedName]bool
}

// holdMemory takes that a pass over a Cleaner begins: nobody else touches its memory until it is settled.
func (r *remembered) holdMemory(key types.NamespacedName) {
	if r.book == nil {
		r.book = ration.NewBook(ration.DefaultBounds())
		r.passing, r.doomed = map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	}
	r.passing[key] = true
}

// dropMemory takes that a Cleaner is gone.
func (r *remembered) dropMemory(key types.NamespacedName) {
	if r.book != nil {
		r.book.ChargeBytes(key, 0)
	}
}

// settleMemory ends a pass: what it remembers is counted, and where that is too much together with what is remembered of others, all
// items of those are forgotten that have most.
func (s *memories) settleMemory(key types.NamespacedName, mem *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.passing, key)
	doomed := s.doomed[key]
	delete(s.doomed, key)
	if s.m[key] != mem { // it is gone
		return
	}
	mem.held = keepSaid(mem.held)
	if room := s.book.FindRoom(key); doomed {
		mem.forgetItems()
	} else {
		mem.fitInto(room)
	}
	for _, victim := range s.book.ChargeBytes(key, mem.countBytes()) {
		switch {
		case s.passing[victim]:
			s.doomed[victim] = true
		case s.m[victim] != nil:
			s.m[victim].forgetItems()
			s.book.ChargeBytes(victim, s.m[victim].countBytes())
		}
	}
}

// roomForItems is how much the next decision may remember of items.
func (p *sight) roomForItems() *plan.Room {
	s := &p.r.memories
	s.mu.Lock()
	if s.book == nil {
		s.mu.Unlock()
		return nil
	}
	free := s.book.FindRoom(p.key) - p.mem.countBytes()
	s.mu.Unlock()
	m, part := p.mem, free/8 // they may all grow in one pass
	m.told.GrowBy(part)
	return &plan.Room{Holds: int(max(0, free-2*part+m.holds.Bytes()) / plan.HoldBytes), DoneBytes: max(0, part+m.done.CountBytes())}
}

// countBytes is about how much memory is taken by what is remembered of items.
func (m *memory) countBytes() int64 {
	n := m.holds.Bytes() + m.done.CountBytes() + m.told.CountBytes() + rehearsedBytes*int64(len(m.rehearsed)) + unconfirmedBytes*int64(len(m.unconfirmed))
	for _, e := range m.backoff {
		n += backoffBytes + int64(len(e.Why))
	}
	n += max(0, weighActions(m.actions)-usualActions)
	for place := range m.remade {
		n += remadeBytes + int64(len(place.Namespace)+len(place.Name))
	}
	return n + m.patches.CountBytes()
}

// weighActions is about how much memory deeds take that a status shows.
func weighActions(all []v1alpha1.Action) (bytes int64) {
	for i := range all {
		a := &all[i]
		bytes += actionBytes + int64(len(a.Object)+len(a.UID)+len(a.Rule)+len(a.Action)+len(a.Result))
	}
	return bytes
}

// fitInto forgets, if there is not enough room, first what costs requests and repeated reports, and then all.
func (m *memory) fitInto(room int64) {
	for _, forget := range []func(){
		func() { clear(m.patches) }, func() { clear(m.rehearsed) }, func() { clear(m.unconfirmed) }, func() { m.told.ForgetUntil(m.evaluated.Add(plan.DefaultPeriod)) }, m.forgetItems,
	} {
		if m.countBytes() <= room {
			return
		}
		forget()
	}
}

// forgetItems drops what is remembered of items. That costs requests and repeated reports, what holds begins anew, and what was used
// up of limits stays used up: nothing is done earlier for it.
func (m *memory) forgetItems() {
	m.holds, m.done = nil, m.done.ForgetDeeds()
	m.patches, m.rehearsed, m.unconfirmed, m.backoff, m.remade = patched.Patches{}, rehearsed{}, plan.Unconfirmed{}, plan.Backoff{}, plan.Remade{}
	m.told.ForgetUntil(m.evaluated.Add(plan.DefaultPeriod))
	if weighActions(m.actions) > usualActions {
		m.actions, m.own = nil, 0 // the status has them
	}
}

// keepSaid is as much of a decision as is said of it later: no steps, and not all that waits.
func keepSaid(d plan.Plan) plan.Plan {
	d.Steps, d.Confirm, d.Holds, d.Data = nil, nil, nil, ""
	d.Message, d.Refused = shortenText(d.Message), shortenText(d.Refused)
	pending := make([]plan.Pending, min(len(d.Pending), trimmed.MaxListed))
	for i := range pending {
		pending[i] = d.Pending[i]
		pending[i].Key = shortenText(pending[i].Key)
	}
	errs := make([]v1alpha1.ItemError, min(len(d.Errors), trimmed.MaxListed))
	for i := range errs {
		errs[i] = d.Errors[i]
		errs[i].Key, errs[i].Message = shortenText(errs[i].Key), shortenText(errs[i].Message)
	}
	withheld := make([]plan.Withheld, min(len(d.Withheld), trimmed.MaxListed))
	for i := range withheld {
		withheld[i] = plan.Withheld{Object: d.Withheld[i].Object, Because: shortenText(d.Withheld[i].Because)}
	}
	d.Deferred = append([]plan.ItemKey(nil), d.Deferred[:min(len(d.Deferred), 1)]...)
	d.Pending, d.Errors, d.Withheld = nilIfEmpty(pending), nilIfEmpty(errs), nilIfEmpty(withheld)
	return d
}

func nilIfEmpty[T any](all []T) []T {
	if len(all) == 0 {
		return nil
	}
	return all
}

// shortenText is as much of a text as is shown; the rest is not kept in memory.
func shortenText(text string) string {
	const most = 4 * shown.MaxText // bytes
	if len(text) <= most {
		return text
	}
	return strings.Clone(text[:most])
}
