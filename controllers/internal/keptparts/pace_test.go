// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package keptparts

import (
	"fmt"
	"testing"
	"time"
)

// Whoever asks all the time has lists at the pace that they may have, whatever they take.
func TestPaceBoundsLists(t *testing.T) {
	const every, during = 30 * time.Second, 2 * time.Hour
	for _, took := range []time.Duration{0, time.Second, 3 * time.Second, 20 * time.Second, 5 * time.Minute} {
		t.Run(fmt.Sprint(took), func(t *testing.T) {
			begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			p, now, lists := Pace{Every: every}, begin, 0
			for now.Before(begin.Add(during)) {
				if at := p.FindTurn(now); at.After(now) {
					now = at
					continue
				}
				if lists++; lists > int(during/time.Second) {
					t.Fatal("there is no bound")
				}
				p.NoteBegin(now)
				now = now.Add(took)
				p.NoteEnd(took)
			}
			most := int(during/max(every, listingShare*took)) + listsAtOnce
			if lists > most || lists < most-listsAtOnce {
				t.Errorf("%d lists, and at most %d are allowed", lists, most)
			}
		})
	}
}

// The first lists begin at once, and so do those after a rest.
func TestPaceAfterARest(t *testing.T) {
	const every = 30 * time.Second
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := Pace{Every: every}
	for range 2 {
		for n := range listsAtOnce {
			if at := p.FindTurn(now); at.After(now) {
				t.Errorf("list %d begins at %s, and not at once", n, at)
			}
			p.NoteBegin(now)
			p.NoteEnd(0)
		}
		if at := p.FindTurn(now); !at.Equal(now.Add(every)) {
			t.Errorf("the next one begins after %s", at.Sub(now))
		}
		now = now.Add(listsAtOnce * every)
	}
	p.NoteBegin(now)
	p.NoteEnd(time.Hour)
	if at := p.FindTurn(now); at.Before(now.Add(9 * time.Hour)) {
		t.Errorf("after a list of an hour the next one begins after %s", at.Sub(now))
	}
}
