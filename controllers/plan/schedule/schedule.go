// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedule says when the schedule of a Cleaner is due, and until when. It has no clock.
package schedule

import (
	"fmt"
	"sort"
	"time"

	"github.com/vtex/cleaner/api/cronschedule"
	"github.com/vtex/cleaner/api/v1alpha1"
)

// defaultStartingDeadline is startingDeadline where a spec gives none.
const defaultStartingDeadline = time.Hour

// IsDue says whether the schedule of a spec is due now, by which of its times, and which time is the next one. last is the
// time that was due last; zero if none was: then times count from the creation on. Of times that were missed the latest
// counts, if it is no longer ago than startingDeadline. A schedule whose times never come has no next one.
func IsDue(work *v1alpha1.Work, last, created, now time.Time) (due bool, tick, next time.Time, err error) {
	times, err := ParseSchedule(work)
	if err != nil {
		return false, time.Time{}, time.Time{}, err
	}
	deadline, err := work.StartingDeadline.Parse(defaultStartingDeadline)
	if err != nil {
		return false, time.Time{}, time.Time{}, fmt.Errorf("spec.startingDeadline: %w", err)
	}
	from := created
	if last.After(from) {
		from = last
	}
	if from.After(now) { // the clock was set back: a time that was due is not due again
		return false, time.Time{}, times.Next(from), nil
	}
	// A tick that is older than the deadline is of no interest; one at the deadline is.
	if oldest := now.Add(-deadline - time.Nanosecond); oldest.After(from) {
		from = oldest
	}
	// How many seconds after from is the last moment whose next time has come? All before it have one too.
	n := sort.Search(int(now.Sub(from)/time.Second)+1, func(i int) bool {
		t := times.Next(from.Add(time.Duration(i) * time.Second))
		return t.IsZero() || t.After(now)
	})
	if n > 0 {
		due, tick = true, times.Next(from.Add(time.Duration(n-1)*time.Second))
	}
	return due, tick, times.Next(now), nil
}

// IsMissed reports whether it is too late for the work of a time: startingDeadline has passed.
func IsMissed(work *v1alpha1.Work, tick, now time.Time) bool {
	end := EndOf(work, tick)
	return !end.IsZero() && now.After(end)
}

// EndOf returns until when the work of a time may be done; zero if startingDeadline cannot be read.
func EndOf(work *v1alpha1.Work, tick time.Time) time.Time {
	deadline, err := work.StartingDeadline.Parse(defaultStartingDeadline)
	if err != nil {
		return time.Time{}
	}
	return tick.Add(deadline)
}

// ParseSchedule reads the schedule of a spec in its time zone.
func ParseSchedule(work *v1alpha1.Work) (cronschedule.Times, error) {
	zone, err := cronschedule.ParseZone(work.TimeZone)
	if err != nil {
		return cronschedule.Times{}, fmt.Errorf("spec.timeZone: %w", err)
	}
	times, err := cronschedule.ParseSchedule(work.Schedule, zone)
	if err != nil {
		return cronschedule.Times{}, fmt.Errorf("spec.schedule: %w", err)
	}
	return times, nil
}
