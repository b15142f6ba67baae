// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package monotime

import (
	"testing"
	"time"
	"unsafe"
)

// asleep is a moment after the machine has slept: the time of day went on, and the clock that time.Time subtracts by stood
// still. No function of package time makes one.
func asleep(t time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(d/time.Second) << 30 //nolint:gosec // the seconds of the time of day
	return t
}

func TestElapsedTime(t *testing.T) {
	now := time.Now()
	slept := asleep(now, time.Hour)
	if slept.Sub(now) != 0 || slept.Round(0).Sub(now.Round(0)) != time.Hour {
		t.Fatalf("package time holds moments in another way now: %s, %s", slept.Sub(now), slept.Round(0).Sub(now.Round(0)))
	}
	for name, tc := range map[string]struct {
		reason string
		to     time.Time
		want   time.Duration
	}{
		"Awake":   {"both clocks say the same", now.Add(time.Minute), time.Minute},
		"Asleep":  {"the time of day has gone on", slept.Add(time.Second), time.Hour + time.Second},
		"SetBack": {"the time of day says less than what has passed", asleep(now.Add(2*time.Minute), -time.Minute), 2 * time.Minute},
	} {
		if got := ElapsedTime(now, tc.to); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}

// A zero moment is none, and never the earlier one.
func TestChooseEarlier(t *testing.T) {
	none, soon := time.Time{}, time.Now()
	late := soon.Add(time.Second)
	for name, tc := range map[string]struct{ a, b, want time.Time }{
		"None":   {none, none, none},
		"First":  {soon, late, soon},
		"Second": {late, soon, soon},
		"OnlyA":  {late, none, late},
		"OnlyB":  {none, late, late},
	} {
		if got := ChooseEarlier(tc.a, tc.b); !got.Equal(tc.want) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
