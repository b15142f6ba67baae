// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package staleness

import (
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestBlindSince(t *testing.T) {
	at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
	now := at(10)
	for name, tc := range map[string]struct {
		looks Looks
		want  time.Time
	}{
		"Never looked":            {Looks{}, now},
		"Never looked, and news":  {Looks{Changed: at(5)}, now},
		"Nothing happened":        {Looks{Steady: at(20)}, time.Time{}},
		"Time went on":            {Looks{Steady: at(7)}, at(7)},
		"At that moment":          {Looks{Steady: now}, now},
		"Something changed":       {Looks{Steady: at(20), Changed: at(5)}, at(5)},
		"Then time went on":       {Looks{Steady: at(7), Changed: at(5)}, at(5)},
		"Something changed later": {Looks{Steady: at(5), Changed: at(7)}, at(5)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.looks.BlindSince(now); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestUnseenSince(t *testing.T) {
	at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
	now, usual := at(10), 2*time.Second
	for name, tc := range map[string]struct {
		looks Looks
		want  time.Time
	}{
		"Never looked":               {Looks{}, time.Time{}},
		"Never looked, and news":     {Looks{Changed: at(9)}, time.Time{}},
		"Never looked, and old news": {Looks{Changed: at(7)}, at(7)},
		"Nothing happened":           {Looks{Steady: at(20)}, time.Time{}},
		"Time went on just now":      {Looks{Steady: at(8)}, time.Time{}},
		"Time went on":               {Looks{Steady: at(7)}, at(7)},
		"Something changed just now": {Looks{Steady: at(20), Changed: at(8)}, time.Time{}},
		"Something changed":          {Looks{Steady: at(20), Changed: at(7)}, at(7)},
		"Both, time first":           {Looks{Steady: at(6), Changed: at(7)}, at(6)},
		"Both, change first":         {Looks{Steady: at(8), Changed: at(7)}, at(7)},
		"Skipped, and nothing":       {Looks{Steady: at(20), Skipped: true}, time.Time{}},
		"Skipped, just now":          {Looks{Steady: at(9), Skipped: true}, at(9)},
		"Skipped, never looked":      {Looks{Skipped: true}, now},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.looks.UnseenSince(now, usual); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
