// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// maxLent is how many workers are lent at a time at most: what waits takes memory. Namespaces share this number as they share workers.
const maxLent = 240

// Workers are those of a controller. A worker whose Cleaner waits for a slot is lent to other Cleaners: else a few Cleaners that take long
// would keep all workers from those that do not. The methods are safe for concurrent use.
type Workers struct {
	n     int
	ready *ready
}

// NewWorkers makes so many workers. One of eight is kept for namespaces whose work was short.
func NewWorkers(n int, c clock.WithTicker, o Observer) *Workers {
	q := &ready{
		clock: c, observer: o, order: newOrder[reconcile.Request](n, n/8), waiting: map[reconcile.Request]*waiter[reconcile.Request]{},
		busy: map[reconcile.Request]*work{}, lentBy: map[string]int{},
	}
	q.changed, q.emptied = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return &Workers{n: n, ready: q}
}

// CountGoroutines returns how many goroutines the controller needs: one for each worker, and one for each worker that is lent.
func (w *Workers) CountGoroutines() int { return w.n + maxLent }

// TakeSlot waits for a slot for a Cleaner that a worker has, as Slots.TakeSlot does. The worker is lent meanwhile, and comes back with the
// slot: at once, so that more Cleaners than there are workers are worked on for a while, but only as many more as there are slots.
func (w *Workers) TakeSlot(ctx context.Context, s *Slots, key types.NamespacedName) (*Slot, error) {
	return s.takeSlot(ctx, key, func() (comeBack func()) { return w.ready.lendWorker(reconcile.Request{NamespacedName: key}) })
}

// lendWorker lets others have the worker of a request, and gives what takes it back. If too many are lent, it does nothing.
func (q *ready) lendWorker(r reconcile.Request) (takeBack func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.busy[r]
	if w == nil || q.lentBy[r.Namespace] >= maxLent-q.lent {
		return func() {}
	}
	now := q.clock.Now()
	q.order.giveBack(r.NamespacedName, now.Sub(w.began), now)
	q.lent++
	q.lentBy[r.Namespace]++
	q.changed.Signal()
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.lent--
		if q.lentBy[r.Namespace]--; q.lentBy[r.Namespace] == 0 {
			delete(q.lentBy, r.Namespace)
		}
		w.began = q.clock.Now()
		q.order.takeBack(r.NamespacedName)
	}
}
