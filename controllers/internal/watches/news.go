// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/plan/monotime"
)

// News has, for each owner, the time of the first change that it has not taken yet. It is safe for concurrent use.
type News struct {
	clock clock.PassiveClock
	// pendingSince returns the time of the first change that may have to wake an owner, and that is not matched yet; zero: none.
	pendingSince func(o Owner) time.Time

	mu    sync.Mutex
	since map[Owner]time.Time
}

func newNews(c clock.PassiveClock, pendingSince func(o Owner) time.Time) *News {
	return &News{clock: c, pendingSince: pendingSince, since: map[Owner]time.Time{}}
}

// NoteChange notes a change for an owner.
func (n *News) NoteChange(o Owner) { n.noteChangeSince(o, time.Time{}) }

// noteChangeSince notes a change for an owner that happened between since and now. If since is zero, it happened now.
func (n *News) noteChangeSince(o Owner, since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if since.IsZero() {
		since = n.clock.Now()
	}
	n.since[o] = monotime.ChooseEarlier(n.since[o], since)
}

// TakeChange returns the time of the first change for an owner since the last call; zero: none. Call it before reading: whatever changes
// later is news again.
func (n *News) TakeChange(o Owner) time.Time {
	pending := n.pendingSince(o) // first: a change is pending until it is noted
	n.mu.Lock()
	defer n.mu.Unlock()
	since, known := n.since[o]
	delete(n.since, o)
	if !known || !pending.IsZero() && pending.Before(since) {
		return pending
	}
	return since
}
