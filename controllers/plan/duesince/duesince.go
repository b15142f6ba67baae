// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package duesince says since when the work of a Cleaner has been due: since something changed that made it so, or since the moment at
// which time alone did. It serves the metrics, and is never the reason for an action.
//
// It keeps no clock. A moment may be earlier than the true one, if something else changed before, and never later.
package duesince

import (
	"time"

	"github.com/vtex/cleaner/controllers/plan/monotime"
)

// Record is what is known of one Cleaner.
type Record struct {
	// expected is when the last pass expected that something may be due.
	expected time.Time
	// since is the first moment after the last complete evaluation at which something may have become due.
	since time.Time
}

// NoteWake begins a pass: an expected moment that has come may be why.
func (r *Record) NoteWake(now time.Time) {
	if r.expected.IsZero() || r.expected.After(now) {
		return
	}
	r.NoteChange(r.expected)
	r.expected = time.Time{}
}

// NoteChange notes when something changed; zero: nothing did.
func (r *Record) NoteChange(at time.Time) { r.since = monotime.ChooseEarlier(r.since, at) }

// ExpectAt says when the next pass is expected.
func (r *Record) ExpectAt(at time.Time) { r.expected = at }

// NoteDone notes that a complete evaluation has left nothing to do.
func (r *Record) NoteDone() { r.since = time.Time{} }

// SinceOr is since when work is due, and other if that is unknown.
func (r *Record) SinceOr(other time.Time) time.Time { return monotime.ChooseEarlier(r.since, other) }
