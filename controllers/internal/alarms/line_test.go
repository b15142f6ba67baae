// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// timed is something with an Alarm.
type timed struct {
	alarm Alarm
	place int
}

func (o *timed) IsBefore(other *timed) bool { return o.alarm.Due.Before(other.alarm.Due) }
func (o *timed) SetPlace(place int)         { o.place = place }

// Whatever is set and taken, a Line gives what is due first, and its first Alarm is the first of all.
func TestLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, all, now := NewLine(func(o *timed) (*Alarm, int) { return &o.alarm, o.place }), make([]*timed, 5), time.Unix(1000, 0)
		for i := range all {
			all[i] = &timed{alarm: New(time.Time{}), place: -1}
		}
		earliest := func() (first time.Time) {
			for _, o := range all {
				if !o.alarm.Due.IsZero() && (first.IsZero() || o.alarm.Due.Before(first)) {
					first = o.alarm.Due
				}
			}
			return first
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch o := rapid.SampledFrom(all).Draw(t, "one"); rapid.SampledFrom([]string{"set", "clear", "take", "wait"}).Draw(t, "what") {
			case "set":
				l.SetAlarm(o, now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "in"))*time.Second))
			case "clear":
				l.SetAlarm(o, time.Time{})
			case "wait":
				now = now.Add(time.Second)
			case "take":
				first := earliest()
				due := !first.IsZero() && !first.After(now)
				if got := l.TakeDue(now); (got != nil) != due || due && (!got.alarm.Due.IsZero() || got.place >= 0) {
					t.Fatalf("got %+v, and the first is due at %v of %v", got, first, now)
				}
			}
			if first := earliest(); !l.First.Due.Equal(first) {
				t.Fatalf("the first rings at %v, want %v", l.First.Due, first)
			}
		}
	})
}
