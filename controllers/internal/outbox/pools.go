// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"slices"
	"sync"
)

// pools are the slots for attempts, by what shares them.
type pools struct {
	mu sync.Mutex
	m  map[string]*pool
}

// pool has slots for the attempts of one kind that may be under way, and a line of those that wait for one. First come the attempts of
// Cleaners whose last attempt was answered with 2xx, then those of Cleaners without an attempt that has ended, then those of Cleaners
// with few failures since. Among equals, the one that has waited longest comes first, and every second time the newest: so a new one soon
// has a slot, however many came before it. Every fourth time, the attempt that has waited longest of all comes first.
type pool struct {
	of          *pools
	name        string
	users, free int
	line        []*ticket // by when they came
	calls       int
}

// ticket is one that waits for a slot.
type ticket struct {
	standing int
	here     chan struct{} // closed when it has the slot
}

// enterPool gives a pool, which has so many slots and is kept until everybody who has entered has left.
func (ps *pools) enterPool(name string, slots int) *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.m[name]
	if p == nil {
		p = &pool{of: ps, name: name, free: slots}
		ps.m[name] = p
	}
	p.users++
	return p
}

// leavePool counts one user less, who must hold no slot.
func (p *pool) leavePool() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(p.of.m, p.name)
	}
}

// takeSlot waits for a slot. It takes none when the sink changes before, or ctx is done.
func (p *pool) takeSlot(ctx context.Context, standing int, changed <-chan struct{}) (ok bool) {
	t := &ticket{standing: standing, here: make(chan struct{})}
	p.of.mu.Lock()
	p.line = append(p.line, t)
	p.callNext()
	p.of.mu.Unlock()
	select {
	case <-t.here:
		if ctx.Err() == nil {
			return true
		}
	case <-changed:
	case <-ctx.Done():
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if at := slices.Index(p.line, t); at >= 0 {
		p.line = slices.Delete(p.line, at, at+1)
	} else { // it has come meanwhile
		p.free++
		p.callNext()
	}
	return false
}

// giveBack gives a slot back.
func (p *pool) giveBack() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.free++
	p.callNext()
}

// callNext gives a free slot to the next attempt in line.
func (p *pool) callNext() {
	if p.free == 0 || len(p.line) == 0 {
		return
	}
	at := 0
	if len(p.line) > 1 {
		at = findNext(p.line, p.calls)
		p.calls++
	}
	close(p.line[at].here)
	p.line = slices.Delete(p.line, at, at+1)
	p.free--
}

// findNext is who comes next of those who wait, where so many have come before.
func findNext(line []*ticket, calls int) int {
	at := 0
	for i, t := range line {
		last := calls%2 == 1 && t.standing == line[at].standing
		if calls%4 != 0 && (t.standing < line[at].standing || last) {
			at = i
		}
	}
	return at
}
