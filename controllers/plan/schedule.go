// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// defaultStartingDeadline is startingDeadline where a spec gives none.
const defaultStartingDeadline = time.Hour

// Due says whether the schedule of a spec is due now, by which of its times, and which time is the next one. last is the
// time that was due last; zero if none was: then times count from the creation on. Of times that were missed the latest
// counts, if it is no longer ago than startingDeadline. A schedule whose times never come has no next one.
func Due(work *v1alpha1.Work, last, created, now time.Time) (due bool, tick, next time.Time, err error) {
	times, err := Schedule(work.Schedule, work.TimeZone)
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
	if from.After(now) { // the clock was set back: what was due is not due again
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

// Missed says that what was to be done at a time is not done any more: startingDeadline has passed.
func Missed(work *v1alpha1.Work, tick, now time.Time) bool {
	deadline, err := work.StartingDeadline.Parse(defaultStartingDeadline)
	return err == nil && now.Sub(tick) > deadline
}

// Times are the times of a schedule.
type Times struct{ schedule cron.Schedule }

// Next is the first time after a moment; zero if there is none within five years.
func (s Times) Next(after time.Time) time.Time { return s.schedule.Next(after) }

// Schedule reads a schedule in the five fields of cron, or a name such as @daily, and the IANA name of a time zone, which
// is UTC if it is empty.
func Schedule(schedule, zone string) (Times, error) {
	if zone == "Local" { // would be the time zone of wherever this runs
		return Times{}, fmt.Errorf("spec.timeZone: %q is no time zone: write an IANA name such as \"Europe/Berlin\"", zone)
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return Times{}, fmt.Errorf("spec.timeZone: %q is no time zone: write an IANA name such as \"Europe/Berlin\"", zone)
	}
	// The parser would take a time zone out of the schedule, and panics where nothing follows it.
	text := strings.TrimSpace(schedule)
	if strings.Contains(text, "TZ=") {
		return Times{}, fmt.Errorf("spec.schedule: %q sets a time zone: write it to spec.timeZone", schedule)
	}
	if every, ok := strings.CutPrefix(text, "@every"); ok { // counts from whenever it is asked, so it has no times
		return Times{}, fmt.Errorf("spec.schedule: @every is not supported: write retry.period:%s, or fields such as \"*/10 * * * *\"", every)
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return Times{}, fmt.Errorf("spec.schedule: %q is no schedule: %w: write five fields such as \"*/10 * * * *\"", schedule, err)
	}
	if s, ok := parsed.(*cron.SpecSchedule); ok {
		s.Location = location
	}
	return Times{parsed}, nil
}
