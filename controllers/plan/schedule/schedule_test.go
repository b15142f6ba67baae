// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/vtex/cleaner/api/v1alpha1"
)

var born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestDue(t *testing.T) {
	at := func(text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	cases := map[string]struct {
		reason     string
		spec       v1alpha1.CommonSpec
		last, now  string
		tick, next string // tick is empty if nothing is due
	}{
		"First": {
			reason: "the first time after the creation",
			spec:   v1alpha1.CommonSpec{Schedule: "*/10 * * * *"}, now: "2026-01-01T00:10:00Z",
			tick: "2026-01-01T00:10:00Z", next: "2026-01-01T00:20:00Z",
		},
		"NotYet": {
			reason: "the creation itself is no time of the schedule",
			spec:   v1alpha1.CommonSpec{Schedule: "*/10 * * * *"}, now: "2026-01-01T00:09:59Z",
			next: "2026-01-01T00:10:00Z",
		},
		"Once": {
			reason: "a time that was due is not due again",
			spec:   v1alpha1.CommonSpec{Schedule: "*/10 * * * *"}, last: "2026-01-01T00:10:00Z", now: "2026-01-01T00:10:05Z",
			next: "2026-01-01T00:20:00Z",
		},
		"Missed": {
			reason: "of several that were missed the last counts",
			spec:   v1alpha1.CommonSpec{Schedule: "*/10 * * * *"}, last: "2026-01-01T00:10:00Z", now: "2026-01-01T00:55:05Z",
			tick: "2026-01-01T00:50:00Z", next: "2026-01-01T01:00:00Z",
		},
		"AtTheDeadline": {
			reason: "it is made up until the deadline",
			spec:   v1alpha1.CommonSpec{Schedule: "@daily", StartingDeadline: "2h"}, last: "2026-01-01T00:00:00Z", now: "2026-01-02T02:00:00Z",
			tick: "2026-01-02T00:00:00Z", next: "2026-01-03T00:00:00Z",
		},
		"AfterTheDeadline": {
			reason: "and not after it",
			spec:   v1alpha1.CommonSpec{Schedule: "@daily", StartingDeadline: "2h"}, last: "2026-01-01T00:00:00Z", now: "2026-01-02T02:00:01Z",
			next: "2026-01-03T00:00:00Z",
		},
		"DefaultDeadline": {
			reason: "which is an hour",
			spec:   v1alpha1.CommonSpec{Schedule: "@daily"}, last: "2026-01-01T00:00:00Z", now: "2026-01-02T01:00:01Z",
			next: "2026-01-03T00:00:00Z",
		},
		"LongDeadline": {
			reason: "of very many times that were missed the last is found",
			spec:   v1alpha1.CommonSpec{Schedule: "* * * * *", StartingDeadline: "3650d"}, now: "2034-05-06T07:08:09Z",
			tick: "2034-05-06T07:08:00Z", next: "2034-05-06T07:09:00Z",
		},
		"RareTimes": {
			reason: "and of few ones that are far apart",
			spec:   v1alpha1.CommonSpec{Schedule: "0 0 29 2 *", StartingDeadline: "3650d"}, now: "2030-05-06T07:08:09Z",
			tick: "2028-02-29T00:00:00Z", next: "2032-02-29T00:00:00Z",
		},
		"Never": {
			reason: "a day that does not exist never comes",
			spec:   v1alpha1.CommonSpec{Schedule: "0 0 31 2 *"}, now: "2026-05-06T07:08:09Z",
		},
		"Zone": {
			reason: "times are those of the zone",
			spec:   v1alpha1.CommonSpec{Schedule: "0 9 * * *", TimeZone: "America/Sao_Paulo"}, now: "2026-01-01T12:00:00Z",
			tick: "2026-01-01T12:00:00Z", next: "2026-01-02T12:00:00Z",
		},
		"ZoneOfADescriptor": {
			reason: "also those that have names",
			spec:   v1alpha1.CommonSpec{Schedule: "@daily", TimeZone: "Europe/Berlin"}, now: "2026-01-01T22:00:00Z",
			next: "2026-01-01T23:00:00Z",
		},
		"SummerTime": {
			reason: "an hour that is left out in summer comes the next day",
			spec:   v1alpha1.CommonSpec{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin"}, last: "2026-03-28T01:30:00Z", now: "2026-03-29T12:00:00Z",
			next: "2026-03-30T00:30:00Z",
		},
		"WinterTime": {
			reason: "an hour that comes twice in winter is one time",
			spec:   v1alpha1.CommonSpec{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin"}, last: "2026-10-25T00:30:00Z", now: "2026-10-25T12:00:00Z",
			next: "2026-10-26T01:30:00Z",
		},
		"MidnightInWinter": {
			reason: "a day of 25 hours has one midnight",
			spec:   v1alpha1.CommonSpec{Schedule: "0 0 * * *", TimeZone: "America/New_York"}, last: "2026-11-01T04:00:00Z", now: "2026-11-02T05:00:00Z",
			tick: "2026-11-02T05:00:00Z", next: "2026-11-03T05:00:00Z",
		},
		"ClockSetBack": {
			reason: "a clock that was set back does not make a time due twice",
			spec:   v1alpha1.CommonSpec{Schedule: "*/10 * * * *"}, last: "2026-01-01T00:30:00Z", now: "2026-01-01T00:25:00Z",
			next: "2026-01-01T00:40:00Z",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			due, tick, next, err := IsDue(&v1alpha1.Work{CommonSpec: tc.spec}, at(tc.last), born, at(tc.now))
			if err != nil {
				t.Fatal(err)
			}
			if due != (tc.tick != "") || !tick.Equal(at(tc.tick)) || !next.Equal(at(tc.next)) {
				t.Errorf("%s: got %t, %s, then %s", tc.reason, due, tick, next)
			}
		})
	}
}

func TestWhatIsNoSchedule(t *testing.T) {
	cases := map[string]struct {
		spec v1alpha1.CommonSpec
		want string
	}{
		"Empty":        {v1alpha1.CommonSpec{}, "spec.schedule"},
		"Words":        {v1alpha1.CommonSpec{Schedule: "every day"}, "write the five fields"},
		"SixFields":    {v1alpha1.CommonSpec{Schedule: "0 0 0 * * *"}, "write the five fields"},
		"Range":        {v1alpha1.CommonSpec{Schedule: "99 * * * *"}, "write the five fields"},
		"Every":        {v1alpha1.CommonSpec{Schedule: "@every 5m"}, "retry: {period: 5m}"},
		"ZoneInside":   {v1alpha1.CommonSpec{Schedule: "TZ=UTC 0 0 * * *"}, "write timeZone: "},
		"ZoneAlone":    {v1alpha1.CommonSpec{Schedule: "TZ=UTC"}, "write timeZone: "},
		"CronZone":     {v1alpha1.CommonSpec{Schedule: " CRON_TZ=UTC"}, "write timeZone: "},
		"UnknownZone":  {v1alpha1.CommonSpec{Schedule: "@daily", TimeZone: "Mars/Base"}, "spec.timeZone"},
		"PlaceOfAFile": {v1alpha1.CommonSpec{Schedule: "@daily", TimeZone: "../../etc/passwd"}, "spec.timeZone"},
		"Local":        {v1alpha1.CommonSpec{Schedule: "@daily", TimeZone: "Local"}, "spec.timeZone"},
		"Deadline":     {v1alpha1.CommonSpec{Schedule: "@daily", StartingDeadline: "soon"}, "spec.startingDeadline"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := IsDue(&v1alpha1.Work{CommonSpec: tc.spec}, time.Time{}, born, born)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// FuzzDue holds what Due says to what it means, for whatever the schema lets through.
func FuzzDue(f *testing.F) {
	f.Add("*/10 * * * *", "", "1h", int64(0), int64(3600))
	f.Add("TZ=UTC", "", "", int64(0), int64(1))
	f.Add("CRON_TZ=", "UTC", "", int64(0), int64(1))
	f.Add("0 0 31 2 *", "Europe/Berlin", "52w", int64(100), int64(1<<32))
	f.Add("30 2 * * 0", "America/Sao_Paulo", "7d", int64(-5), int64(1<<27))
	f.Add("@weekly", "Australia/Lord_Howe", "9999999d", int64(1<<40), int64(1))
	f.Add("*/9223372036854775807 ? 1-2/3 jan,DEC sun", "Asia/Kathmandu", "1ns", int64(7), int64(86400))
	f.Fuzz(func(t *testing.T, schedule, zone, deadline string, last, seconds int64) {
		if len(schedule) > 256 || len(zone) > 64 || len(deadline) > 64 {
			t.Skip("the schema forbids it")
		}
		const span = 1 << 32 // 136 years
		now, before := born.Add(time.Duration(seconds%span)*time.Second), born.Add(time.Duration(last%span)*time.Second)
		work := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Schedule: schedule, TimeZone: zone, StartingDeadline: v1alpha1.Duration(deadline)}}
		due, tick, next, err := IsDue(work, before, born, now)
		if err != nil {
			return
		}
		if due != !tick.IsZero() || due && (tick.After(now) || !tick.After(before) || !tick.After(born)) {
			t.Errorf("at %s, after %s: %s is due", now, before, tick)
		}
		if !next.IsZero() && !next.After(now) {
			t.Errorf("at %s the next time is %s", now, next)
		}
		if again, _, _, err := IsDue(work, tick, born, now); due && (again || err != nil) {
			t.Errorf("at %s %s is due twice: %v", now, tick, err)
		}
	})
}
