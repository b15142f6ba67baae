// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"time"
)

// firstRetry is the wait after a first failure. It doubles up to Options.RetryEvery.
const firstRetry = 500 * time.Millisecond

// alarm says when something has to be tried again. It is guarded by the Engine's lock.
type alarm struct {
	due      time.Time // zero: not at all
	failures int
	rang     chan struct{}
}

func newAlarm(due time.Time) alarm {
	return alarm{due: due, rang: make(chan struct{}, 1)}
}

// set changes when it rings, for whoever waits for it too.
func (a *alarm) set(due time.Time) {
	a.due = due
	select {
	case a.rang <- struct{}{}:
	default:
	}
}

// backOff counts a failure, and returns how long to wait because of it.
func (a *alarm) backOff(most time.Duration) time.Duration {
	d := most
	if a.failures < 16 {
		d = min(most, firstRetry<<a.failures)
	}
	a.failures++
	return d
}

// await waits until an alarm is due. It returns false when ctx is done.
func (e *Engine) await(ctx context.Context, a *alarm) bool {
	for ctx.Err() == nil {
		e.mu.RLock()
		due := a.due
		e.mu.RUnlock()
		left := due.Sub(e.clock.Now())
		if !due.IsZero() && left <= 0 {
			return true
		}
		var ring <-chan time.Time
		stop := func() bool { return true }
		if !due.IsZero() {
			t := e.clock.NewTimer(left)
			ring, stop = t.C(), t.Stop
		}
		select {
		case <-ctx.Done():
		case <-ring:
		case <-a.rang:
		}
		stop()
	}
	return false
}
