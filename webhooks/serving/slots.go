// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// slotState says who else a slot may be taken away for.
type slotState int

const (
	// inUse is a slot that is not taken away.
	inUse slotState = iota
	// waiting is a slot that is taken away for a caller that holds fewer.
	waiting
	// dormant is a slot that is taken away before those that wait, and, after some time, also for another one of its own caller.
	dormant
)

// slotPool has slots for callers: so many in all, and so many for each. When none is left, a caller that holds fewer than another
// one gets one of that: so whoever comes from many addresses takes from those that hold most, which are its own.
type slotPool struct {
	maxTotal, maxPerCaller int
	// dormantFor is how long a slot is dormant before it is taken away for another one of its own caller.
	dormantFor time.Duration
	clock      clock.PassiveClock

	mu           sync.Mutex
	held         map[*slot]struct{}
	heldByCaller map[string]int
}

// slot is what a caller holds of a slotPool.
type slot struct {
	pool   *slotPool
	caller string
	state  slotState
	since  time.Time
	// known says that the caller is: its slot is not taken away.
	known bool
	// cutOff ends what the caller does with the slot. It is called once at most, and not after the slot is released.
	cutOff func(slotState)
}

func newSlotPool(all, each int, dormantFor time.Duration) *slotPool {
	return &slotPool{maxTotal: all, maxPerCaller: each, dormantFor: dormantFor, clock: clock.RealClock{}, held: map[*slot]struct{}{}, heldByCaller: map[string]int{}}
}

// acquireSlot takes a slot that is left for the caller, or that is taken away for it; nil if there is none.
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

// findVictim returns the slot that is taken away for a caller: one of its own if it holds as many as it may, else one of those
// that hold most, and more than the caller; nil if there is none.
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

// comesBefore says whether a slot is taken away before another one: that of who holds more, that which is dormant, the older one.
func (p *slotPool) comesBefore(a, b *slot) bool {
	if m, n := p.heldByCaller[a.caller], p.heldByCaller[b.caller]; m != n {
		return m > n
	}
	if a.state != b.state {
		return a.state == dormant
	}
	return a.since.Before(b.since)
}

// removeSlot forgets a slot.
func (p *slotPool) removeSlot(s *slot) {
	delete(p.held, s)
	if p.heldByCaller[s.caller]--; p.heldByCaller[s.caller] == 0 {
		delete(p.heldByCaller, s.caller)
	}
}

// setState says what the slot is used for from now on. It is false if the slot was taken away.
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

// setKnown says that the caller is known.
func (s *slot) setKnown() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.known = true
}

// releaseSlot gives the slot back, unless it was taken away or given back before.
func (s *slot) releaseSlot() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if _, ok := s.pool.held[s]; ok {
		s.pool.removeSlot(s)
	}
}
