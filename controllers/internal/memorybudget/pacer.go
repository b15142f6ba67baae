// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memorybudget

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

const (
	// smallHeap is up to where the heap may grow before garbage is collected, however little of it is live: a small operator that deletes much
	// would collect all the time otherwise.
	smallHeap = 64 << 20
	// leastPercent and mostPercent bound by how many per cent the heap may grow. Near the limit, Go itself collects before that.
	leastPercent, mostPercent = 50, 400
	// stepPercent is the least difference that is worth stopping the world for.
	stepPercent = 10
)

// Pacer has Go collect garbage in time: after each collection it chooses by how much the heap may grow until the next one. What is live sets
// that, and not a fixed percentage: four times as much is little for an operator that holds 10 MiB, and not for one that holds 100.
type Pacer struct {
	live func() int64
	set  func(percent int) (before int)

	mu   sync.Mutex
	done bool
}

// NewPacer makes a Pacer of this process; nil if GOGC is set, which says it then.
func NewPacer() *Pacer {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return &Pacer{live: measureLive, set: debug.SetGCPercent}
}

// NeedLeaderElection has it started before the caches.
func (p *Pacer) NeedLeaderElection() bool { return false }

// Start paces the collections until ctx is done.
func (p *Pacer) Start(ctx context.Context) error {
	if p == nil {
		return nil
	}
	percent := choosePercent(p.live())
	before := p.set(percent)
	p.followCollections(percent)
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	p.set(before)
	return nil
}

// mark is garbage as soon as it is made: when it goes, garbage was collected. It is not so small that others would share its memory.
type mark struct{ _ [4]*byte }

// followCollections chooses again after each collection. Last is what was chosen before: to choose stops the world.
func (p *Pacer) followCollections(last int) {
	runtime.AddCleanup(&mark{}, func(last int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.done {
			return
		}
		percent := choosePercent(p.live())
		if percent != last {
			p.set(percent)
		}
		p.followCollections(percent)
	}, last)
}

// choosePercent returns by how many per cent a heap with so many live bytes may grow.
func choosePercent(live int64) int {
	percent := min(max((smallHeap-live)*100/max(live, 1), leastPercent), mostPercent)
	return int(percent - percent%stepPercent)
}
