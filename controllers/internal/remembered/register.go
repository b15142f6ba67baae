// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remembered bounds what one process remembers of Cleaners from one pass to the next, where users choose how much that is. It decides
// nothing: what is forgotten costs requests, repeated reports and time, and never deletes more.
package remembered

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/internal/memoryquota"
)

// Memory is what is remembered of one Cleaner. Only the pass over the Cleaner touches it, and the Register between passes.
type Memory interface {
	comparable
	// CountBytes is about how much memory is taken by what is remembered of items.
	CountBytes() int64
	// FitInto forgets as much of that as does not fit into so many bytes.
	FitInto(room int64)
	// ForgetResults forgets what costs only time to find out again, and says whether there was any.
	ForgetResults() bool
	// ForgetItems forgets all of it.
	ForgetItems()
}

// Register holds what is remembered of each Cleaner, within bounds for one Cleaner, one namespace and all. It is safe for concurrent use.
type Register[M Memory] struct {
	// Bounds are those from the first pass on; the default ones if zero.
	Bounds memoryquota.Bounds

	mu       sync.Mutex
	memories map[types.NamespacedName]M
	book     *memoryquota.Book
	// passing are the Cleaners with a pass in progress. doomed are those of them whose items are all forgotten after the pass.
	passing, doomed map[types.NamespacedName]bool
}

// BeginPass returns the memory of a Cleaner for a pass, and creates it if there is none. No other goroutine touches it until EndPass.
func (r *Register[M]) BeginPass(key types.NamespacedName, create func() M) M {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.book == nil {
		if r.Bounds == (memoryquota.Bounds{}) {
			r.Bounds = memoryquota.DefaultBounds()
		}
		r.book = memoryquota.NewBook(r.Bounds)
		r.memories, r.passing, r.doomed = map[types.NamespacedName]M{}, map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	}
	m, known := r.memories[key]
	if !known {
		m = create()
		r.memories[key] = m
	}
	r.passing[key] = true
	return m
}

// ForgetCleaner forgets a Cleaner that is gone.
func (r *Register[M]) ForgetCleaner(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
	if r.book != nil {
		r.book.ChargeBytes(key, 0)
	}
}

// EndPass ends a pass: what it remembers is counted, and where that is too much together with what is remembered of others, the results
// of those are forgotten that have most, and then all their items.
func (r *Register[M]) EndPass(key types.NamespacedName, mem M) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.passing, key)
	doomed := r.doomed[key]
	delete(r.doomed, key)
	if now, known := r.memories[key]; !known || now != mem { // it is gone
		return
	}
	if room := r.book.FindRoom(key); doomed && !mem.ForgetResults() {
		mem.ForgetItems()
	} else {
		mem.FitInto(room)
	}
	forgot := map[types.NamespacedName]bool{}
	for forget := r.book.ChargeBytes(key, mem.CountBytes()); len(forget) > 0; forget = forget[1:] {
		victim := forget[0]
		m, known := r.memories[victim]
		switch {
		case r.passing[victim]:
			r.doomed[victim] = true
		case known && m.ForgetResults():
			forget = append(forget, r.book.ChargeBytes(victim, m.CountBytes())...)
		case known && !forgot[victim]:
			forgot[victim] = true
			m.ForgetItems()
			forget = append(forget, r.book.ChargeBytes(victim, m.CountBytes())...)
		}
	}
}

// FindRoom says how many more bytes a pass over a Cleaner may remember. It is not known where no pass has begun.
func (r *Register[M]) FindRoom(key types.NamespacedName, mem M) (bytes int64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.book == nil {
		return 0, false
	}
	return r.book.FindRoom(key) - mem.CountBytes(), true
}
