// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/contain"
)

// lock guards what the parts of an Engine know. Its holder never waits for anything.
type lock struct {
	mu      sync.RWMutex
	wakeups *wakeups
}

// unlockAndWake releases the lock, and wakes who was found to need it.
func (l *lock) unlockAndWake() {
	l.mu.Unlock()
	l.wakeups.enqueueOwners()
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

// waitForAlarm waits until an alarm is due. It returns false when ctx is done.
func (b *background) waitForAlarm(ctx context.Context, a *alarm) bool {
	for ctx.Err() == nil {
		b.mu.RLock()
		due := a.due
		b.mu.RUnlock()
		left := due.Sub(b.clock.Now())
		if !due.IsZero() && left <= 0 {
			return true
		}
		var ring <-chan time.Time
		stop := func() bool { return true }
		if !due.IsZero() {
			t := b.clock.NewTimer(left)
			ring, stop = t.C(), t.Stop
		}
		select {
		case <-ctx.Done():
		case <-ring:
		case <-a.changed:
		}
		stop()
	}
	return false
}

// firstRetry is the wait after a first failure. It doubles up to Options.RetryEvery.
const firstRetry = 500 * time.Millisecond

// alarm is the time of the next attempt at something. The Engine's lock guards it.
type alarm struct {
	due      time.Time // zero: none
	failures int
	changed  chan struct{}
}

func newAlarm(due time.Time) alarm {
	return alarm{due: due, changed: make(chan struct{}, 1)}
}

// setDue sets the time, and tells the goroutine that waits for it.
func (a *alarm) setDue(due time.Time) {
	a.due = due
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// nextBackoff counts a failure and returns how long to wait.
func (a *alarm) nextBackoff(most time.Duration) time.Duration {
	d := most
	if a.failures < 16 {
		d = min(most, firstRetry<<a.failures)
	}
	a.failures++
	return d
}
