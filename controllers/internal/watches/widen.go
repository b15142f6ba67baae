// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/listdiff"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
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
	i.asked, i.listing, i.listed, i.arrived, i.wider.Due = f.clock.Now(), parts, false, nil, time.Time{}
	i.loading.Store(0)
	s.reads = parts.Reads()
}

// widening lists all of a scope aside where more is read than its informer keeps, and has the new informer take over.
type widening struct{ *feeds }

// endList records that an informer serves what its list has. What was wanted meanwhile, and is not in it, waits for the next one.
func (f widening) endList(i *informer, now, since time.Time) {
	i.keeps = i.listing
	i.planRenewal()
	s := i.scope
	switch {
	case !i.full:
		return
	case s.reads.AreCoveredBy(i.keeps):
		s.asideExcess = ""
		if s.next != nil && !i.isOutdated() { // a list of this informer has come first
			f.stopInformer(s.next)
			s.next = nil
			s.pace.NoteEnd(0)
		}
		return
	}
	for w := range s.wants { // what was answered from a wider list before
		if w.full && w.reportedState == observed.Complete && !i.keeps.Covers(w.query.Reads) {
			w.reportedState, w.lost = observed.Unsynced, monotime.ChooseEarlier(w.lost, since)
		}
	}
	i.wider.SetDue(s.pace.FindTurn(now))
}

// widenFor has all listed aside if a new want reads more than an informer keeps. While a list is under way, its end sees to that.
func (i *informer) widenFor(w *want, now time.Time) {
	if i == nil || !w.full || i.keeps == nil || i.keeps != i.listing || !i.wider.Due.IsZero() || i.keeps.Covers(w.query.Reads) {
		return
	}
	i.wider.SetDue(i.scope.pace.FindTurn(now))
}

// runWidening begins to list aside whenever it is time.
func (f widening) runWidening(ctx context.Context, i *informer) {
	for i.wider.WaitDue(ctx, f.clock, f.mu.RLocker()) {
		f.beginWidening(i)
	}
}

// beginWidening begins to list all aside, with what is read now, because that is more than there is, or because the definition has changed. The informer
// continues, with its watch, until the other one takes over: who reads no more than it keeps does not notice. Nothing is listed if the Cleaner that asked for
// it is gone. Metadata is not listed aside: a new informer lists it, and the old one ends.
func (f widening) beginWidening(i *informer) {
	f.mu.Lock()
	defer f.unlockAndWake()
	s, now := i.scope, f.clock.Now()
	i.wider.Due, s.asideExcess = time.Time{}, ""
	settled := !now.Before(i.settles)
	switch {
	case i.stopped, s.next != nil, i.keeps != i.listing:
	case i == s.meta && i.isOutdated() && settled:
		f.answers.noteLosses(i)
		f.stopInformer(i)
		s.meta = f.newInformer(s, false)
		f.answers.reportStates(s.wants)
	case i == s.full && (i.isOutdated() && settled || !s.reads.AreCoveredBy(i.keeps)):
		s.pace.NoteBegin(now)
		s.next = f.newInformer(s, true)
	default:
		i.planRenewal()
	}
}

// mayTakeOver says that an informer whose list is there knows all that the one knows that it takes over from. That one continues meanwhile, and may have
// seen later changes than the list has.
func (f widening) mayTakeOver(i *informer) bool {
	if i.stopped || i.arrived == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(i.reached, i.scope.full.changed)
	return err != nil || order >= 0 // where versions have no order there is nothing to wait for
}

// replaceFull has an informer take over from another one that keeps less, and returns since when what it knows besides may have happened.
func (f widening) replaceFull(i *informer) (since time.Time) {
	s, old := i.scope, i.scope.full
	since = old.known
	if i.known.Before(since) {
		i.known = since
	}
	f.stopInformer(old)
	s.full, s.next = i, nil
	i.synced, i.keeps = true, i.listing
	if i.arrived.missed > maxMissed || old.isOutdated() {
		f.markSynced(i)
	}
	i.arrived = nil
	return since
}

// takeOver has an informer take over if its watch has caught up, and tells owners what they have not heard of.
func (f widening) takeOver(i *informer) {
	l, since := f.swap(i)
	if l == nil {
		return
	}
	defer f.matcher.backlog.endReport(l)
	f.notifyAll(i, l.Changes, since, false)
}

// swap has an informer take over if it may. It returns what owners have not heard of, and since when that may be; nil if it may not.
func (f widening) swap(i *informer) (l *listing, since time.Time) {
	f.mu.Lock()
	defer f.unlockAndWake()
	if !f.mayTakeOver(i) {
		return nil, since
	}
	l = i.arrived
	since = f.replaceFull(i)
	f.matcher.backlog.beginReport(l, since)
	f.endList(i, f.clock.Now(), since)
	f.answers.reportStates(i.scope.wants)
	return l, since
}

// listing is a whole list of an informer, and how it differs from what was known.
type listing struct {
	*listdiff.Diff
	// missedSince is since when the changes may have been, where another informer has missed them; zero: since the last list, or the watch after it.
	missedSince time.Time
	// version is the version of the list. missed counts the changes that the watch has shown after it and that are among the changes.
	version string
	missed  int
}

// noteMissed adds a change that the watch has shown after the list, and that owners hear of later. If there are too many it only counts.
func (l *listing) noteMissed(before, now *cachedobjects.Object) {
	if l.missed++; l.missed <= maxMissed {
		l.AddChange(before, now)
	}
}
