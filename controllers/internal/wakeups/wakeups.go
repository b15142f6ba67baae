// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wakeups puts Cleaners that must evaluate again into the queue of the controller. It does not decide which.
package wakeups

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vtex/cleaner/controllers/internal/news"
)

// Wakeups puts Cleaners that must look again into the queue of a controller.
type Wakeups struct {
	// Count counts Cleaners that are woken, and News remembers since when; nil: neither is needed.
	Count func(n int)
	News  *news.News

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	woken []types.NamespacedName
}

// SetQueue says where Cleaners are put from now on. Before, they are dropped.
func (w *Wakeups) SetQueue(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
}

// AddOwners adds Cleaners that must evaluate again.
func (w *Wakeups) AddOwners(owners ...types.NamespacedName) { w.AddOwnersSince(time.Time{}, owners...) }

// AddOwnersSince is AddOwners for a change that happened between since and now. If since is zero, it happened now.
func (w *Wakeups) AddOwnersSince(since time.Time, owners ...types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, owners...)
	if w.News != nil {
		for _, o := range owners {
			w.News.NoteChangeSince(o, since)
		}
	}
}

// TakeOwners removes and returns the recorded Cleaners, with the queue for them.
func (w *Wakeups) TakeOwners() ([]types.NamespacedName, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	woken := w.woken
	w.woken = nil
	return woken, w.queue
}

// EnqueueOwners puts the recorded Cleaners into the queue. It is called without any lock, because the queue has locks of its own.
func (w *Wakeups) EnqueueOwners() {
	woken, q := w.TakeOwners()
	if len(woken) == 0 {
		return
	}
	w.Count(len(woken))
	if q == nil {
		return
	}
	for _, o := range woken {
		q.Add(reconcile.Request{NamespacedName: o})
	}
}
