// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vtex/cleaner/controllers/plan/moments"
)

// wakeups puts Cleaners that must look again into the queue of a controller.
type wakeups struct {
	metrics Metrics
	news    *News // nil: not needed

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	woken []Owner
}

// setQueue says where Cleaners are put from now on. Before, they are dropped.
func (w *wakeups) setQueue(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
}

// addOwners adds Cleaners that must evaluate again.
func (w *wakeups) addOwners(owners ...Owner) { w.addOwnersSince(time.Time{}, owners...) }

// addOwnersSince is addOwners for a change that may have come at any time since then; zero: it came now.
func (w *wakeups) addOwnersSince(since time.Time, owners ...Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, owners...)
	if w.news != nil {
		for _, o := range owners {
			w.news.noteChangeSince(o, since)
		}
	}
}

// takeOwners removes and returns the recorded Cleaners, with the queue for them.
func (w *wakeups) takeOwners() ([]Owner, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	woken := w.woken
	w.woken = nil
	return woken, w.queue
}

// enqueueOwners puts those of whom a note was taken into the queue. It is called without any lock, because the queue has locks of its own.
func (w *wakeups) enqueueOwners() {
	woken, q := w.takeOwners()
	if len(woken) == 0 {
		return
	}
	w.metrics.CountWakeups(len(woken))
	if q == nil {
		return
	}
	for _, o := range woken {
		q.Add(reconcile.Request{NamespacedName: o})
	}
}

// News has, for each owner, the time of the first change that it has not taken yet. It is safe for concurrent use.
type News struct {
	clock clock.PassiveClock
	// pendingSince returns the time of the first change that may have to wake an owner, and that is not matched yet; zero: none.
	pendingSince func(o Owner) time.Time

	mu    sync.Mutex
	since map[Owner]time.Time
}

func newNews(c clock.PassiveClock, pendingSince func(o Owner) time.Time) *News {
	return &News{clock: c, pendingSince: pendingSince, since: map[Owner]time.Time{}}
}

// NoteChange notes a change for an owner.
func (n *News) NoteChange(o Owner) { n.noteChangeSince(o, time.Time{}) }

// noteChangeSince notes a change for an owner that may have come at any time since then; zero: it came now.
func (n *News) noteChangeSince(o Owner, since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if since.IsZero() {
		since = n.clock.Now()
	}
	n.since[o] = moments.ChooseEarlier(n.since[o], since)
}

// TakeChange returns the time of the first change for an owner since the last call; zero: none. Call it before reading: whatever changes
// later is news again.
func (n *News) TakeChange(o Owner) time.Time {
	pending := n.pendingSince(o) // first: a change is pending until it is noted
	n.mu.Lock()
	defer n.mu.Unlock()
	since, known := n.since[o]
	delete(n.since, o)
	if !known || !pending.IsZero() && pending.Before(since) {
		return pending
	}
	return since
}
