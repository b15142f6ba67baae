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

// NewQueue makes a queue for so many workers.
func NewQueue(name string, workers int, limiter workqueue.TypedRateLimiter[reconcile.Request], c clock.WithTicker, o Observer) *Queue {
	q := &ready{clock: c, observer: o, order: newOrder[reconcile.Request](workers, workers/8), waiting: map[reconcile.Request]*waiter[reconcile.Request]{}, busy: map[reconcile.Request]*work{}}
	q.changed = sync.NewCond(&q.mu)
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Clock: c, Queue: q})
	config := workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: c, DelayingQueue: delaying}
	return &Queue{TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config), ready: q, limiter: limiter}
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
	clock    clock.PassiveClock
	observer Observer

	mu      sync.Mutex
	changed *sync.Cond
	order   *order[reconcile.Request]
	waiting map[reconcile.Request]*waiter[reconcile.Request]
	busy    map[reconcile.Request]*work
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
		q.changed.Broadcast()
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
	q.changed.Broadcast()
}

// ShutDown ends the workers. What waits is not done.
func (q *ready) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = true
	q.changed.Broadcast()
}

// ShutDownWithDrain ends the workers when all that was added is done, and returns then.
func (q *ready) ShutDownWithDrain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending, q.draining = true, true
	q.changed.Broadcast()
	for len(q.busy)+len(q.waiting) > 0 {
		q.changed.Wait()
	}
}

// ShuttingDown reports whether the queue no longer accepts requests.
func (q *ready) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ending
}
