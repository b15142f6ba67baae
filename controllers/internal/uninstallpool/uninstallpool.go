// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uninstallpool runs long jobs of Cleaners, such as uninstalls, away from the workers that reconcile, in slots which namespaces share. It
// does not know what a job does.
package uninstallpool

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// Pool has the slots. A Cleaner asks for one, is woken when it is there, reads what the job depends on, and begins it: so nothing that was
// read waits in line. It is safe for concurrent use.
type Pool struct {
	slots *fair.Slots
	wake  func(types.NamespacedName)
	done  chan struct{}

	mu     sync.Mutex
	closed bool
	asked  map[types.NamespacedName]*fair.Slot // without those that jobs have
	jobs   sync.WaitGroup                      // none is added when it is closed
}

// NewPool makes a pool. Wake is called with a Cleaner whose slot is there.
func NewPool(slots *fair.Slots, wake func(types.NamespacedName)) *Pool {
	return &Pool{slots: slots, wake: wake, done: make(chan struct{}), asked: map[types.NamespacedName]*fair.Slot{}}
}

// Start waits until ctx is done, then for the jobs under way, which stop at their next request.
func (p *Pool) Start(ctx context.Context) error {
	<-ctx.Done()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.done)
	p.jobs.Wait()
	return nil
}

// AskSlot has a Cleaner stand in line for a slot. To repeat it changes nothing.
func (p *Pool) AskSlot(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked[key] == nil {
		p.asked[key] = p.slots.AskSlot(key, func() { p.wake(key) })
	}
}

// FindSlot says whether a Cleaner has asked for a slot, and whether it is there.
func (p *Pool) FindSlot(key types.NamespacedName) life.Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch slot := p.asked[key]; {
	case slot == nil:
		return life.NoSlot
	case slot.IsHeld():
		return life.SlotHeld
	default:
		return life.SlotAsked
	}
}

// LeaveSlot gives back the slot of a Cleaner in which no job has begun, or leaves the line.
func (p *Pool) LeaveSlot(key types.NamespacedName) {
	if slot := p.takeSlot(key); slot != nil {
		slot.GiveBack()
	}
}

// takeSlot is the slot that a Cleaner has asked for, which is its own no longer; nil if there is none.
func (p *Pool) takeSlot(key types.NamespacedName) *fair.Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := p.asked[key]
	delete(p.asked, key)
	return slot
}

// RunJob runs a job in the slot of a Cleaner, which is there. The job outlives the pass that asked for it, and ends with the pool, or
// early when stop is called.
func (p *Pool) RunJob(ctx context.Context, key types.NamespacedName, job func(context.Context)) (stop context.CancelFunc) {
	slot := p.takeSlot(key)
	if slot == nil || !slot.IsHeld() {
		panic("a job without a slot")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		slot.GiveBack()
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.jobs.Go(func() {
		defer slot.GiveBack()
		defer cancel()
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			select {
			case <-p.done:
				cancel()
			case <-ended:
			}
		}()
		job(ctx)
	})
	return cancel
}
