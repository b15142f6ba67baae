// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package duesince

import (
	"testing"
	"time"
)

// What is due is due since the first of what may be why, and no longer once nothing is left to do.
func TestRecord(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC) }
	for name, tc := range map[string]struct {
		happens func(r *Record)
		want    time.Time
	}{
		"Nothing is known":                 {func(*Record) {}, at(100)},
		"No change":                        {func(r *Record) { r.NoteChange(time.Time{}) }, at(100)},
		"A change":                         {func(r *Record) { r.NoteChange(at(9)) }, at(9)},
		"A change after what is asked for": {func(r *Record) { r.NoteChange(at(101)) }, at(100)},
		"The first of two changes":         {func(r *Record) { r.NoteChange(at(9)); r.NoteChange(at(8)); r.NoteChange(at(10)) }, at(8)},
		"An expected moment has come":      {func(r *Record) { r.ExpectAt(at(50)); r.NoteWake(at(50)) }, at(50)},
		"An expected moment is to come":    {func(r *Record) { r.ExpectAt(at(50)); r.NoteWake(at(49)) }, at(100)},
		"It comes later":                   {func(r *Record) { r.ExpectAt(at(50)); r.NoteWake(at(49)); r.NoteWake(at(70)) }, at(50)},
		"It counts once":                   {func(r *Record) { r.ExpectAt(at(50)); r.NoteWake(at(60)); r.NoteDone(); r.NoteWake(at(70)) }, at(100)},
		"A pass that did not come so far":  {func(r *Record) { r.ExpectAt(at(50)); r.NoteWake(at(60)); r.ExpectAt(at(61)); r.NoteWake(at(70)) }, at(50)},
		"A change before the moment":       {func(r *Record) { r.ExpectAt(at(50)); r.NoteChange(at(40)); r.NoteWake(at(60)) }, at(40)},
		"Nothing is left":                  {func(r *Record) { r.NoteChange(at(9)); r.NoteDone() }, at(100)},
		"Nothing is left, and a change":    {func(r *Record) { r.NoteChange(at(9)); r.NoteDone(); r.NoteChange(at(30)) }, at(30)},
	} {
		t.Run(name, func(t *testing.T) {
			var r Record
			tc.happens(&r)
			if got := r.SinceOr(at(100)); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
