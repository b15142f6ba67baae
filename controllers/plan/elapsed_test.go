// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

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

func TestElapsed(t *testing.T) {
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
