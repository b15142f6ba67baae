// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Slots are places that work of namespaces takes for a while, such as an evaluation or a request. They are safe for concurrent use.
type Slots struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	order *order[*Slot]
}

// NewSlots makes so many slots.
func NewSlots(n int, c clock.PassiveClock) *Slots { return NewSlotsForShort(n, 0, c) }

// NewSlotsForShort makes so many slots, and some more for namespaces whose work was short: at most a second, usually.
func NewSlotsForShort(n, more int, c clock.PassiveClock) *Slots {
	return &Slots{clock: c, order: newOrder[*Slot](n+more, more)}
}

// Slot is a slot that a caller waits for, or holds.
type Slot struct {
	of   *Slots
	key  types.NamespacedName
	come func()
	// The lock of the Slots guards the fields below. waits is nil once the slot is held, or given back.
	waits *waiter[*Slot]
	held  bool
	since time.Time
}

// AskSlot stands in line for a slot for a Cleaner, and calls come when it is there. Each Slot must be given back.
func (s *Slots) AskSlot(key types.NamespacedName, come func()) *Slot {
	return s.askSlot(key, come, nil)
}

// askSlot is AskSlot, with what moves it in the line; nil: nothing.
func (s *Slots) askSlot(key types.NamespacedName, come func(), place func(w *waiter[*Slot])) *Slot {
	slot := &Slot{of: s, key: key, come: come}
	s.callAfter(func(now time.Time) {
		slot.waits = s.order.addWaiter(key, slot, true, now)
		if place != nil {
			place(slot.waits)
		}
	})
	return slot
}

// TakeSlot waits for a slot, which the caller must give back. It is an error if ctx is done before.
func (s *Slots) TakeSlot(ctx context.Context, key types.NamespacedName) (*Slot, error) {
	return s.takeSlot(ctx, key, nil)
}

// takeSlot is TakeSlot, with what moves it in the line; nil: nothing.
func (s *Slots) takeSlot(ctx context.Context, key types.NamespacedName, place func(w *waiter[*Slot])) (*Slot, error) {
	here := make(chan struct{})
	slot := s.askSlot(key, func() { close(here) }, place)
	select {
	case <-here:
		return slot, nil
	case <-ctx.Done():
		slot.GiveBack()
		return nil, context.Cause(ctx)
	}
}

// TurnOf gives what waits for a slot for a Cleaner, and then gives what gives it back.
func (s *Slots) TurnOf(key types.NamespacedName) func(ctx context.Context) (leave func(), err error) {
	return func(ctx context.Context) (func(), error) {
		slot, err := s.TakeSlot(ctx, key)
		if err != nil {
			return nil, err
		}
		return slot.GiveBack, nil
	}
}

// IsHeld says that the slot is there, and was not given back.
func (s *Slot) IsHeld() bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.held
}

// GiveBack gives the slot to the next one, or leaves the line. To repeat it changes nothing.
func (s *Slot) GiveBack() {
	s.of.callAfter(func(now time.Time) {
		switch {
		case s.held:
			s.of.order.giveBack(s.key, now.Sub(s.since), now)
		case s.waits != nil:
			s.of.order.dropWaiter(s.waits, now)
		}
		s.held, s.waits = false, nil
	})
}

// callAfter changes something, and calls all whose slot is there then.
func (s *Slots) callAfter(change func(now time.Time)) {
	s.mu.Lock()
	now := s.clock.Now()
	change(now)
	var here []*Slot
	for w := s.order.takeNext(); w != nil; w = s.order.takeNext() {
		w.item.held, w.item.waits, w.item.since = true, nil, now
		here = append(here, w.item)
	}
	s.mu.Unlock()
	for _, slot := range here {
		slot.come()
	}
}
