// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// slotState says for whom a slot may be taken away.
type slotState int

const (
	// inUse means that the slot is never taken away.
	inUse slotState = iota
	// waiting means that a caller that holds fewer slots can take it.
	waiting
	// dormant means that the slot is taken before waiting ones and, after some time, also for its own caller.
	dormant
)

// slotPool has slots for callers: maxTotal in total, and maxPerCaller for each. When none is left, a caller takes a slot from one
// that holds more. So a flood from many addresses takes slots mostly from itself.
type slotPool struct {
	maxTotal, maxPerCaller int
	// dormantFor is how long a slot is dormant before its own caller can take it for something else.
	dormantFor time.Duration
	clock      clock.PassiveClock

	mu           sync.Mutex
	held         map[*slot]struct{}
	heldByCaller map[string]int
}

// slot is one slot of a slotPool, held by a caller.
type slot struct {
	pool   *slotPool
	caller string
	state  slotState
	since  time.Time
	// known means that the caller has proved who it is: its slot is never taken away.
	known bool
	// cutOff ends what the caller does with the slot. It is called at most once, and never after the slot is released.
	cutOff func(slotState)
}

func newSlotPool(all, each int, dormantFor time.Duration) *slotPool {
	return &slotPool{maxTotal: all, maxPerCaller: each, dormantFor: dormantFor, clock: clock.RealClock{}, held: map[*slot]struct{}{}, heldByCaller: map[string]int{}}
}

// acquireSlot returns a free slot, or one that it takes from a caller; nil if there is none.
func (p *slotPool) acquireSlot(caller string, state slotState, cutOff func(slotState)) *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.heldByCaller[caller] >= p.maxPerCaller; own || len(p.held) >= p.maxTotal {
		victim := p.findVictim(caller, own)
		if victim == nil {
			return nil
		}
		p.removeSlot(victim)
		victim.cutOff(victim.state)
	}
	s := &slot{pool: p, caller: caller, state: state, since: p.clock.Now(), cutOff: cutOff}
	p.held[s] = struct{}{}
	p.heldByCaller[caller]++
	return s
}

// findVictim returns the slot to take away for a caller: one of its own if it holds as many as it may, otherwise one of the callers
// that hold most, and more than this caller; nil if there is none.
func (p *slotPool) findVictim(caller string, own bool) *slot {
	var victim *slot
	for s := range p.held {
		switch {
		case s.known, s.state == inUse:
		case own && (s.caller != caller || s.state != dormant || p.clock.Since(s.since) < p.dormantFor):
		case !own && p.heldByCaller[s.caller] <= p.heldByCaller[caller]:
		case victim == nil, p.comesBefore(s, victim):
			victim = s
		}
	}
	return victim
}

// comesBefore reports whether a is taken away before b: first by how many slots its caller holds, then if it is dormant, then by age.
func (p *slotPool) comesBefore(a, b *slot) bool {
	if m, n := p.heldByCaller[a.caller], p.heldByCaller[b.caller]; m != n {
		return m > n
	}
	if a.state != b.state {
		return a.state == dormant
	}
	return a.since.Before(b.since)
}

// removeSlot removes a slot from those that are held.
func (p *slotPool) removeSlot(s *slot) {
	delete(p.held, s)
	if p.heldByCaller[s.caller]--; p.heldByCaller[s.caller] == 0 {
		delete(p.heldByCaller, s.caller)
	}
}

// setState sets the state of the slot. It returns false if the slot was taken away.
func (s *slot) setState(state slotState) bool {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if _, ok := s.pool.held[s]; !ok {
		return false
	}
	if s.state != state {
		s.state, s.since = state, s.pool.clock.Now()
	}
	return true
}

// setKnown marks the caller as known.
func (s *slot) setKnown() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.known = true
}

// releaseSlot releases the slot, unless it was taken away or released before.
func (s *slot) releaseSlot() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if _, ok := s.pool.held[s]; ok {
		s.pool.removeSlot(s)
	}
}
