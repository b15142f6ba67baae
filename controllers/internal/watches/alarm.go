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
	changed  chan struct{}
}

func newAlarm(due time.Time) alarm {
	return alarm{due: due, changed: make(chan struct{}, 1)}
}

// setDue changes when it rings, for whoever waits for it too.
func (a *alarm) setDue(due time.Time) {
	a.due = due
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// nextBackoff counts a failure, and returns how long to wait because of it.
func (a *alarm) nextBackoff(most time.Duration) time.Duration {
	d := most
	if a.failures < 16 {
		d = min(most, firstRetry<<a.failures)
	}
	a.failures++
	return d
}

// waitForAlarm waits until an alarm is due. It returns false when ctx is done.
func (e *Engine) waitForAlarm(ctx context.Context, a *alarm) bool {
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
		case <-a.changed:
		}
		stop()
	}
	return false
}
