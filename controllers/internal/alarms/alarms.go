// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alarms says when something is tried again, and waits for that. It tries nothing itself.
package alarms

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// firstRetry is the wait after a first failure. It doubles with each further one.
const firstRetry = 500 * time.Millisecond

// Alarm is the time of the next attempt at something. A lock of its owner guards it.
type Alarm struct {
	Due time.Time // zero: none
	// Failures counts those in a row.
	Failures int
	changed  chan struct{}
}

// New makes an Alarm.
func New(due time.Time) Alarm {
	return Alarm{Due: due, changed: make(chan struct{}, 1)}
}

// SetDue sets the time, and tells the goroutine that waits for it.
func (a *Alarm) SetDue(due time.Time) {
	a.Due = due
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// NextBackoff counts a failure, and returns how long to wait: as long as most, at most.
func (a *Alarm) NextBackoff(most time.Duration) time.Duration {
	d := most
	if a.Failures < 16 {
		d = min(most, firstRetry<<a.Failures)
	}
	a.Failures++
	return d
}

// WaitDue waits until an Alarm is due. It is false when ctx is done. The lock, which guards the Alarm, is free meanwhile.
func (a *Alarm) WaitDue(ctx context.Context, c clock.WithTicker, lock sync.Locker) bool {
	for ctx.Err() == nil {
		lock.Lock()
		due := a.Due
		lock.Unlock()
		left := due.Sub(c.Now())
		if !due.IsZero() && left <= 0 {
			return true
		}
		var ring <-chan time.Time
		stop := func() bool { return true }
		if !due.IsZero() {
			t := c.NewTimer(left)
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
