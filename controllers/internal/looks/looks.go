// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package looks knows since when nobody has looked whether what rules wait for goes on. It looks at nothing.
package looks

import "time"

// Looks is what is known of the time after the last look at what rules wait for: until when time alone changes none of its answers, which
// is the moment of the look if nobody knows, and zero if there was none; when it is to be looked at again; since when something has changed
// that was not looked at, and that a pass has not looked since.
type Looks struct {
	Steady, Again, Changed time.Time
	Skipped                bool
}

// TakeNews takes since when something has changed that was not looked at before; zero: nothing has.
func (l *Looks) TakeNews(since time.Time) {
	if l.Changed.IsZero() {
		l.Changed = since
	}
}

// BlindSince is since when nobody knows whether what rules wait for goes on; zero: nothing can have changed.
func (l *Looks) BlindSince(now time.Time) time.Time {
	since := l.Steady
	if !l.Changed.IsZero() && l.Changed.Before(since) {
		since = l.Changed
	}
	switch {
	case l.Steady.IsZero():
		return now
	case since.After(now):
		return time.Time{}
	default:
		return since
	}
}

// UnseenSince is since when nobody has looked, because a pass has not, or comes later than is usual after a change, or after the moment at
// which time alone may have changed an answer; zero if it is not so.
func (l *Looks) UnseenSince(now time.Time, usual time.Duration) time.Time {
	since := l.BlindSince(now)
	if !l.Skipped && l.Steady.IsZero() {
		since = l.Changed
	}
	if !l.Skipped && now.Sub(since) <= usual {
		return time.Time{}
	}
	return since
}
