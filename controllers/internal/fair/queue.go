// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Observer receives the state of the queue.
type Observer interface {
	// SetQueueDepth takes how many requests wait for a worker.
	SetQueueDepth(n int)
	// ObserveQueueWait takes how long a request has waited for a worker.
	ObserveQueueWait(waited time.Duration)
}

// Queue is the queue of a controller. Each request is of a namespace, and the workers are shared out among these. Of the requests of
// one namespace those of low priority come last, which controller-runtime gives to what was there at the start.
// Delays and back-off are those of client-go.
type Queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	ready   *ready
	limiter workqueue.TypedRateLimiter[reconcile.Request]
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = (*Queue)(nil)

// NewQueue makes the queue of a controller for workers.
func NewQueue(name string, w *Workers, limiter workqueue.TypedRateLimiter[reconcile.Request]) *Queue {
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Clock: w.ready.clock, Queue: w.ready})
	config := workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: w.ready.clock, DelayingQueue: delaying}
	return &Queue{TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config), ready: w.ready, limiter: limiter}
}

// AddWithOpts adds requests. One that is due later is urgent then.
func (q *Queue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	for _, r := range requests {
		after := o.After
		if o.RateLimited {
			if backoff := q.limiter.When(r); after == 0 || backoff < after {
				after = backoff
			}
		}
		switch {
		case after > 0:
			q.AddAfter(r, after)
		default:
			q.ready.addRequest(r, o.Priority == nil || *o.Priority >= 0)
		}
	}
}

// GetWithPriority waits for a request that a worker may take. Its priority is an event's: what was there at the start has a lower one,
// and what follows from it need not.
func (q *Queue) GetWithPriority() (r reconcile.Request, priority int, shutdown bool) {
	r, shutdown = q.Get()
	return r, 0, shutdown
}

// ready are the requests that are due.
type ready struct {
	clock    clock.WithTicker
	observer Observer

	mu sync.Mutex
	// changed wakes one that waits for a request, which wakes the next one if it gets one. emptied wakes who waits for the end of all.
	changed, emptied *sync.Cond
	order            *order[reconcile.Request]
	waiting          map[reconcile.Request]*waiter[reconcile.Request]
	busy             map[reconcile.Request]*work
	// lent is how many workers are lent, and lentBy how many of them each namespace lends.
	lent   int
	lentBy map[string]int
	// ending means that nothing is added, and draining that what was added before is still done.
	ending, draining bool
}

// work is a request that a worker has.
type work struct {
	began time.Time
	// again means that the request was added again while a worker had it, and urgent that this must not wait behind low priority.
	again, urgent bool
}

// Add adds a request, which is urgent.
func (q *ready) Add(r reconcile.Request) { q.addRequest(r, true) }

func (q *ready) addRequest(r reconcile.Request, urgent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ending {
		return
	}
	if w := q.busy[r]; w != nil {
		w.again, w.urgent = true, w.urgent || urgent
		return
	}
	q.queueRequest(r, urgent)
}

func (q *ready) queueRequest(r reconcile.Request, urgent bool) {
	w := q.waiting[r]
	switch {
	case w == nil:
		q.waiting[r] = q.order.addWaiter(r.NamespacedName, r, urgent, q.clock.Now())
		q.observer.SetQueueDepth(len(q.waiting))
		q.changed.Signal()
	case urgent:
		q.order.hasten(w)
	}
}

// Len is how many requests wait.
func (q *ready) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Get waits for a request that a worker may take. Done must be called with it.
func (q *ready) Get() (r reconcile.Request, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.ending && (!q.draining || len(q.waiting)+len(q.busy) == 0) {
			return reconcile.Request{}, true
		}
		if w := q.order.takeNext(); w != nil {
			now := q.clock.Now()
			delete(q.waiting, w.item)
			q.busy[w.item] = &work{began: now}
			q.observer.SetQueueDepth(len(q.waiting))
			q.observer.ObserveQueueWait(now.Sub(w.since))
			q.changed.Signal()
			return w.item, false
		}
		q.changed.Wait()
	}
}

// Done records that a worker has finished a request.
func (q *ready) Done(r reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.busy[r]
	if w == nil {
		return
	}
	delete(q.busy, r)
	now := q.clock.Now()
	q.order.giveBack(r.NamespacedName, now.Sub(w.began), now)
	if w.again {
		q.queueRequest(r, w.urgent)
	}
	q.changed.Signal()
	if q.ending {
		q.wakeAll()
	}
}

func (q *ready) wakeAll() {
	q.changed.Broadcast()
	q.emptied.Broadcast()
}

// ShutDown ends the workers. What waits is not done.
func (q *ready) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = true
	q.wakeAll()
}

// ShutDownWithDrain ends the workers when all that was added is done, and returns then.
func (q *ready) ShutDownWithDrain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending, q.draining = true, true
	q.wakeAll()
	for len(q.busy)+len(q.waiting) > 0 {
		q.emptied.Wait()
	}
}

// ShuttingDown reports whether the queue no longer accepts requests.
func (q *ready) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ending
}
