// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/wakeups"
)

// lock guards what the parts of an Engine know. Its holder never waits for anything.
type lock struct {
	mu      sync.RWMutex
	wakeups *wakeups.Wakeups
}

// unlockAndWake releases the lock, and wakes who was found to need it.
func (l *lock) unlockAndWake() {
	l.mu.Unlock()
	l.wakeups.EnqueueOwners()
}

// background runs the goroutines of an Engine.
type background struct {
	*lock
	clock clock.WithTicker
	// retryEvery is how often what cannot be read is tried again, at least.
	retryEvery time.Duration

	running sync.WaitGroup
	ctx     context.Context // from Start; nil before
	stopped bool
}

// runInBackground runs f until its context is done, unless the Engine does not run. After a panic it is run again a little later.
func (b *background) runInBackground(f func(ctx context.Context)) (cancel context.CancelFunc) {
	if b.ctx == nil || b.stopped {
		return func() {}
	}
	ctx, cancel := context.WithCancel(b.ctx)
	b.running.Go(func() {
		defer cancel()
		for contain.CatchPanic(func() { f(ctx) }) != nil && ctx.Err() == nil {
			t := b.clock.NewTimer(b.retryEvery)
			select {
			case <-ctx.Done():
			case <-t.C():
			}
			t.Stop()
		}
	})
	return cancel
}
