// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monotime compares moments of a process's clock.
//
// It never reads a clock.
package monotime

import "time"

// ElapsedTime returns the time between two readings of this process's clock: the longer of the monotonic and the wall-clock difference,
// because the monotonic clock stops while the machine is suspended, and the wall clock can be set back.
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
