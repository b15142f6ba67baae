// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package moments compares moments of a process's clock.
//
// It never reads a clock.
package moments

import "time"

// ElapsedTime is how much time has passed between two moments that a clock of this process has given. What time.Time subtracts
// leaves out for how long the machine was suspended, and the time of day may have been set back: the longer of both counts.
func ElapsedTime(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// ChooseEarlier is the earlier of two moments. A zero one is no moment.
func ChooseEarlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
