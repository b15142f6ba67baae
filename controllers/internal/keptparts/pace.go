// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package keptparts

import "time"

const (
	// listsAtOnce is how many lists may follow each other at once, if there were none for long.
	listsAtOnce = 3
	// listingShare is the part of the time that lists may take.
	listingShare = 10
)

// Pace bounds how often all objects of an informer are listed again because more is read of them: anyone who edits a Cleaner can ask for that.
type Pace struct {
	// Every is how often they may be listed, or less often if a list takes long.
	Every time.Duration
	// next is when the next list may begin, but for those that may begin at once.
	next time.Time
}

// FindTurn returns when the next list may begin: in the past, or at this moment, if it may begin now.
func (p *Pace) FindTurn(now time.Time) time.Time {
	if rested := now.Add(-(listsAtOnce - 1) * p.Every); p.next.Before(rested) {
		return rested
	}
	return p.next
}

// NoteBegin counts a list that begins.
func (p *Pace) NoteBegin(now time.Time) { p.next = p.FindTurn(now).Add(p.Every) }

// NoteEnd counts how long a list took that NoteBegin has counted.
func (p *Pace) NoteEnd(took time.Duration) {
	p.next = p.next.Add(max(0, listingShare*took-p.Every))
}
