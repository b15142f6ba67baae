// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// firstRetry and lastRetry bound the wait after a failure: doubled each time.
	firstRetry = time.Second
	LastRetry  = 5 * time.Minute
	// unstableAfter is how many conflicts in a row make an object unstable.
	unstableAfter = 10
)

// Backoff is which objects wait after failures, and until when.
type Backoff map[types.UID]BackedOff

// BackedOff is how one object waits.
type BackedOff struct {
	// Until is when it may be acted on again.
	Until time.Time
	// Wait is how long it waits; doubled with each failure.
	Wait time.Duration
	// Conflicts is how often in a row it had changed when it was to be acted on.
	Conflicts int
	// Why says why the last attempt failed, for people.
	Why string
}

// IsUnstable says that the object changes faster than it can be acted on.
func (b BackedOff) IsUnstable() bool { return b.Conflicts >= unstableAfter }

// RecordFailure takes a failure of a deed on an object, for any reason but a conflict.
func (b Backoff) RecordFailure(uid types.UID, why string, now time.Time) {
	e := b[uid]
	e.Conflicts = 0
	b[uid] = e.doubleWait(why, now)
}

// RecordConflict takes that an object had changed so many times in a row when it was to be acted on, and that deciding anew did
// not help.
func (b Backoff) RecordConflict(uid types.UID, times int, now time.Time) {
	e := b[uid]
	e.Conflicts += times
	b[uid] = e.doubleWait("the object changed before the operator could act on it", now)
}

func (b BackedOff) doubleWait(why string, now time.Time) BackedOff {
	b.Wait = DoubleWait(b.Wait)
	b.Until, b.Why = now.Add(b.Wait), why
	return b
}

// Postpone has an object wait at least for as long as the API server asks, but for longer than any back-off never.
func (b Backoff) Postpone(uid types.UID, by time.Duration, now time.Time) {
	e := b[uid]
	if at := now.Add(min(by, LastRetry)); at.After(e.Until) {
		e.Until = at
		b[uid] = e
	}
}

// ForgetObject takes that a deed on an object succeeded, or that the object is gone.
func (b Backoff) ForgetObject(uid types.UID) { delete(b, uid) }

// FindWait says whether an object has to wait now, and how.
func (b Backoff) FindWait(uid types.UID, now time.Time) (BackedOff, bool) {
	e, ok := b[uid]
	return e, ok && now.Before(e.Until)
}

// DropExpired drops what has not failed again for so long that it starts anew.
func (b Backoff) DropExpired(now time.Time) {
	maps.DeleteFunc(b, func(_ types.UID, e BackedOff) bool { return now.Sub(e.Until) > 2*LastRetry })
}

// DoubleWait is how long to wait after another failure.
func DoubleWait(d time.Duration) time.Duration {
	return min(max(2*d, firstRetry), LastRetry)
}
