// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cronschedule

import (
	"strings"
	"testing"
	"time"
)

func TestParseSchedule(t *testing.T) {
	berlin, err := ParseZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	after := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		schedule string
		zone     *time.Location
		want     string // the next time; or what the error says
	}{
		"Fields":     {"30 4 * * *", time.UTC, "2026-07-02T04:30:00Z"},
		"Of a zone":  {"30 4 * * *", berlin, "2026-07-02T02:30:00Z"},
		"Name":       {"@weekly", time.UTC, "2026-07-05T00:00:00Z"},
		"Blanks":     {"  0 13 * * * ", time.UTC, "2026-07-01T13:00:00Z"},
		"Never":      {"0 0 31 2 *", time.UTC, "0001-01-01T00:00:00Z"},
		"Words":      {"every day", time.UTC, "write the five fields"},
		"Six fields": {"0 0 0 * * *", time.UTC, "write the five fields"},
		"Every":      {"@every 5m", time.UTC, "write retry: {period: 5m}"},
		"Zone":       {"TZ=Asia/Tokyo 0 4 * * *", time.UTC, "write timeZone: Asia/Tokyo"},
		"Zone alone": {"CRON_TZ=", time.UTC, "sets a time zone"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			times, err := ParseSchedule(tc.schedule, tc.zone)
			switch {
			case err != nil && !strings.Contains(err.Error(), tc.want):
				t.Errorf("got %v, want %q", err, tc.want)
			case err == nil:
				if got := times.Next(after).UTC().Format(time.RFC3339); got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			}
		})
	}
}

func TestParseZone(t *testing.T) {
	for _, name := range []string{"Local", "Mars/Base", "../../etc/passwd", "local time"} {
		if zone, err := ParseZone(name); err == nil || !strings.Contains(err.Error(), "IANA") {
			t.Errorf("%q is taken for %v, %v", name, zone, err)
		}
	}
	if zone, err := ParseZone(""); err != nil || zone != time.UTC {
		t.Errorf("no zone is %v, %v", zone, err)
	}
}
