// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timergaps

import (
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestBlindSince(t *testing.T) {
	at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
	now := at(10)
	for name, tc := range map[string]struct {
		checks Checks
		want   time.Time
	}{
		"Never checked":           {Checks{}, now},
		"Never checked, and news": {Checks{Changed: at(5)}, now},
		"Nothing happened":        {Checks{Steady: at(20)}, time.Time{}},
		"Time went on":            {Checks{Steady: at(7)}, at(7)},
		"At that moment":          {Checks{Steady: now}, now},
		"Something changed":       {Checks{Steady: at(20), Changed: at(5)}, at(5)},
		"Then time went on":       {Checks{Steady: at(7), Changed: at(5)}, at(5)},
		"Something changed later": {Checks{Steady: at(5), Changed: at(7)}, at(5)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.checks.BlindSince(now); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestUnseenSince(t *testing.T) {
	at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
	now, usual := at(10), 2*time.Second
	for name, tc := range map[string]struct {
		checks Checks
		want   time.Time
	}{
		"Never checked":               {Checks{}, time.Time{}},
		"Never checked, and news":     {Checks{Changed: at(9)}, time.Time{}},
		"Never checked, and old news": {Checks{Changed: at(7)}, at(7)},
		"Nothing happened":            {Checks{Steady: at(20)}, time.Time{}},
		"Time went on just now":       {Checks{Steady: at(8)}, time.Time{}},
		"Time went on":                {Checks{Steady: at(7)}, at(7)},
		"Something changed just now":  {Checks{Steady: at(20), Changed: at(8)}, time.Time{}},
		"Something changed":           {Checks{Steady: at(20), Changed: at(7)}, at(7)},
		"Both, time first":            {Checks{Steady: at(6), Changed: at(7)}, at(6)},
		"Both, change first":          {Checks{Steady: at(8), Changed: at(7)}, at(7)},
		"Skipped, and nothing":        {Checks{Steady: at(20), Skipped: true}, time.Time{}},
		"Skipped, just now":           {Checks{Steady: at(9), Skipped: true}, at(9)},
		"Skipped, never checked":      {Checks{Skipped: true}, now},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.checks.UnseenSince(now, usual); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
