// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"time"

	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/monotime"
)

// beginList begins to list, and from then on to watch, with what is read now: what a store has that nothing reads now goes with this list.
func (s *store) beginList() {
	f, i := s.feeds, s.informer
	parts := keptparts.KeepAll()
	if i.full {
		f.mu.RLock()
		reads := i.scope.reads.ListReads()
		f.mu.RUnlock()
		parts = keptparts.MergeReads(reads) // without the lock: there may be many
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.keeps != nil && i.keeps.IsSameAs(parts) {
		parts = i.keeps
	}
	i.asked, i.listing, i.wider.due = f.clock.Now(), parts, time.Time{}
	i.loading.Store(0)
	s.reads = parts.Reads()
}

// endList records that a list is stored. What was wanted meanwhile, and is not in it, waits for the next one.
func (i *informer) endList(now, since time.Time) {
	i.keeps = i.listing
	if i.widening {
		i.widening = false
		i.pace.NoteEnd(now.Sub(i.asked))
	}
	if i.full && !i.scope.reads.AreCoveredBy(i.keeps) {
		for w := range i.scope.wants { // what was answered from a wider list before
			if w.full && w.reportedState == plan.Complete && !i.keeps.Covers(w.query.Reads) {
				w.reportedState, w.lost = plan.Unsynced, monotime.ChooseEarlier(w.lost, since)
			}
		}
		i.wider.setDue(i.pace.FindTurn(now))
	}
}

// widenFor has all listed again if a new want reads more than an informer keeps. While a list is under way, its end sees to that.
func (i *informer) widenFor(w *want, now time.Time) {
	if i == nil || !w.full || i.keeps == nil || i.keeps != i.listing || !i.wider.due.IsZero() || i.keeps.Covers(w.query.Reads) {
		return
	}
	i.wider.setDue(i.pace.FindTurn(now))
}

// awaitWidening waits until it is time to list all again because more is read. It returns false when ctx is done.
func (s *store) awaitWidening(ctx context.Context) bool {
	for s.feeds.waitForAlarm(ctx, &s.informer.wider) {
		if s.beginWidening() {
			return true
		}
	}
	return false
}

// beginWidening says that it is time to list all again. It is not if the Cleaner that asked for it is gone.
func (s *store) beginWidening() bool {
	f, i := s.feeds, s.informer
	f.mu.Lock()
	defer f.mu.Unlock()
	i.wider.due = time.Time{}
	if i.stopped || i.keeps != i.listing || i.scope.reads.AreCoveredBy(i.keeps) {
		return false
	}
	i.widening = true
	i.pace.NoteBegin(f.clock.Now())
	return true
}

// wideningDetail says that more is being read of a resource, for people.
func (r *resource) wideningDetail() string {
	return fmt.Sprintf("waiting for a list of %s with all fields that the expressions read", r.GVR.GroupResource())
}
