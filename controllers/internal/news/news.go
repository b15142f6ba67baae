// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package news remembers since when Cleaners have not looked at what has changed for them. It never wakes them.
package news

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/plan/monotime"
)

// News has, for each owner, the time of the first change that it has not taken yet. It is safe for concurrent use.
type News struct {
	clock clock.PassiveClock
	// pendingSince returns the time of the first change that may have to wake an owner, and that is not matched yet; zero: none.
	pendingSince func(o types.NamespacedName) time.Time

	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// New returns News without any. pendingSince returns the time of the first change that may concern an owner, and that it does not know yet; zero:
// none.
func New(c clock.PassiveClock, pendingSince func(o types.NamespacedName) time.Time) *News {
	return &News{clock: c, pendingSince: pendingSince, since: map[types.NamespacedName]time.Time{}}
}

// NoteChange notes a change for an owner.
func (n *News) NoteChange(o types.NamespacedName) { n.NoteChangeSince(o, time.Time{}) }

// NoteChangeSince notes a change for an owner that happened between since and now. If since is zero, it happened now.
func (n *News) NoteChangeSince(o types.NamespacedName, since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if since.IsZero() {
		since = n.clock.Now()
	}
	n.since[o] = monotime.ChooseEarlier(n.since[o], since)
}

// TakeChange returns the time of the first change for an owner since the last call; zero: none. Call it before reading: whatever changes
// later is news again.
func (n *News) TakeChange(o types.NamespacedName) time.Time {
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
