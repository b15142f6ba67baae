// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timergaps records when a Cleaner's waiting conditions were last checked, and since when a change may have gone unnoticed. It reads
// no objects.
package timergaps

import "time"

// Checks is what is known since the last check of the conditions that rules wait for.
//
// Steady is until when time alone changes no result: the moment of the check itself if that cannot be predicted, and zero without a
// check. Again is when the next check is due. Changed is when the first change happened that was not checked. Skipped means that a pass
// ended without a check since then.
type Checks struct {
	Steady, Again, Changed time.Time
	Skipped                bool
}

// NoteChange records the time of the first change that was not checked yet; zero: there is none.
func (c *Checks) NoteChange(since time.Time) {
	if c.Changed.IsZero() {
		c.Changed = since
	}
}

// BlindSince returns since when it is unknown whether the conditions still hold; zero if nothing can have changed.
func (c *Checks) BlindSince(now time.Time) time.Time {
	since := c.Steady
	if !c.Changed.IsZero() && c.Changed.Before(since) {
		since = c.Changed
	}
	switch {
	case c.Steady.IsZero():
		return now
	case since.After(now):
		return time.Time{}
	default:
		return since
	}
}

// UnseenSince returns since when the conditions went unchecked: because a pass skipped them, or because the check is later than usual,
// after a change or after the moment at which time alone may have changed a result. It returns zero if the check is not overdue.
func (c *Checks) UnseenSince(now time.Time, usual time.Duration) time.Time {
	since := c.BlindSince(now)
	if !c.Skipped && c.Steady.IsZero() {
		since = c.Changed
	}
	if !c.Skipped && now.Sub(since) <= usual {
		return time.Time{}
	}
	return since
}
