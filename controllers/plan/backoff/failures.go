// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backoff says which objects are left alone for a while, and until when: those on which an action failed, and those that
// are recreated after each deletion.
//
// It keeps no clock, and never says that something may be done: only that it has to wait.
package backoff

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// shortestWait and LongestWait bound the wait after a failure: doubled each time.
	shortestWait = time.Second
	LongestWait  = 5 * time.Minute
	// unstableAfter is how many conflicts in a row make an object unstable.
	unstableAfter = 10
)

// Failures are the objects that wait after failures.
type Failures map[types.UID]Failure

// Failure is how one object waits.
type Failure struct {
	// First is when the first attempt in a row failed.
	First time.Time
	// Until is when it may be acted on again.
	Until time.Time
	// Wait is how long it waits; doubled with each failure.
	Wait time.Duration
	// Conflicts is how often in a row it had changed before an action.
	Conflicts int
	// Reason is the reason of conditions for the last attempt: which request was refused.
	Reason string
	// Why says why the last attempt failed, for people.
	Why string
}

// IsUnstable says that the object changes faster than it can be acted on.
func (f Failure) IsUnstable() bool { return f.Conflicts >= unstableAfter }

// RecordFailure records that an action on an object failed, for any reason but a conflict.
func (f Failures) RecordFailure(uid types.UID, reason, why string, now time.Time) {
	e := f[uid]
	e.Conflicts = 0
	f[uid] = e.doubleWait(reason, why, now)
}

// RecordConflict records that an object had changed so many times in a row before an action, and that another decision did not help.
func (f Failures) RecordConflict(uid types.UID, reason string, times int, now time.Time) {
	e := f[uid]
	e.Conflicts += times
	f[uid] = e.doubleWait(reason, "the object changed before the operator could act on it", now)
}

func (f Failure) doubleWait(reason, why string, now time.Time) Failure {
	if f.First.IsZero() {
		f.First = now
	}
	f.Wait = DoubleWait(f.Wait)
	f.Until, f.Reason, f.Why = now.Add(f.Wait), reason, why
	return f
}

// Postpone has an object wait at least for as long as the API server asks, but for longer than any back-off never.
func (f Failures) Postpone(uid types.UID, by time.Duration, now time.Time) {
	e := f[uid]
	if at := now.Add(min(by, LongestWait)); at.After(e.Until) {
		e.Until = at
		f[uid] = e
	}
}

// ForgetObject records that an action on an object succeeded, or that the object is gone.
func (f Failures) ForgetObject(uid types.UID) { delete(f, uid) }

// FindWait says whether an object has to wait now, and how.
func (f Failures) FindWait(uid types.UID, now time.Time) (Failure, bool) {
	e, ok := f[uid]
	return e, ok && now.Before(e.Until)
}

// DropExpired drops what has not failed again for so long that it starts again.
func (f Failures) DropExpired(now time.Time) {
	maps.DeleteFunc(f, func(_ types.UID, e Failure) bool { return now.Sub(e.Until) > 2*LongestWait })
}

// DoubleWait is how long to wait after another failure.
func DoubleWait(d time.Duration) time.Duration {
	return min(max(2*d, shortestWait), LongestWait)
}
