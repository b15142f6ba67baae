// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cronschedule parses schedules and time zones, for the API, the webhook, the operator and the command line.
//
// It never decides when a Cleaner is due: that is controllers/plan/schedule's. It reads no clock.
package cronschedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Times are the times of a schedule.
type Times struct{ schedule cron.Schedule }

// Next is the first time after a moment; zero if there is none within five years.
func (t Times) Next(after time.Time) time.Time { return t.schedule.Next(after) }

// ParseSchedule reads a schedule: the five fields of cron, or a name such as @daily. Its times are those of a zone.
func ParseSchedule(schedule string, zone *time.Location) (Times, error) {
	text := strings.TrimSpace(schedule)
	if strings.Contains(text, "TZ=") { // the parser would take it, and panics where nothing follows it
		named, _, _ := strings.Cut(text[strings.Index(text, "=")+1:], " ")
		return Times{}, fmt.Errorf("sets a time zone: remove it, and write timeZone: %s", named)
	}
	if every, ok := strings.CutPrefix(text, "@every"); ok { // counts from whenever it is asked, so it has no times
		return Times{}, fmt.Errorf("@every has no times of its own: write retry: {period: %s}, or times such as \"*/10 * * * *\"", strings.TrimSpace(every))
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return Times{}, fmt.Errorf("%q is not a schedule: %w; write the five fields minute, hour, day of month, month and day of week, such as \"*/10 * * * *\", or one of @hourly, @daily, @weekly, @monthly and @yearly", text, err)
	}
	if s, ok := parsed.(*cron.SpecSchedule); ok {
		s.Location = zone
	}
	return Times{parsed}, nil
}

// ParseZone reads the IANA name of a time zone, which is UTC if it is empty. The zone of wherever this runs is refused: it
// is not the author's.
func ParseZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("%q is not a time zone: write the IANA name of one, such as Europe/Berlin or UTC", name)
	}
	return zone, nil
}
