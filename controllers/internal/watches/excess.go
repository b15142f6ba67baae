// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"time"

	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/memorybudget"
	"github.com/vtex/cleaner/controllers/internal/served"
)

// excess is how many bytes the objects of a scope took that was too large, which parts of them were kept, and when the operator tries to watch it
// again also if there seems to be no room. partial says that it was being opened, and would have taken more.
type excess struct {
	bytes   int64
	kept    *keptparts.Parts
	until   time.Time
	partial bool
}

// watchBytes is about how much memory a watch takes besides its objects.
const watchBytes = 64 << 10

// countBytes is about how much memory a scope takes: its objects, and what it takes to watch them.
func (s *scope) countBytes() (bytes int64) {
	for _, i := range s.listInformers() {
		bytes += int64(i.bytes) + i.loading.Load() + watchBytes
	}
	return bytes
}

// pressure ends watches when memory is full, and says when they may begin again.
type pressure struct{ *placement }

// closeLargest stops watching the scope that takes most memory, or the largest ones that take at least so much together, because memory is full. Their
// wants are served by narrower scopes where there are such. First comes what is being opened: narrow scopes serve. Then, if less is read of a scope than
// it keeps, it is listed again instead. Then comes what is watched for one namespace alone, if that is more than its share, and then any scope.
func (p pressure) closeLargest(atLeast int64) bool {
	p.mu.Lock()
	defer p.unlockAndWake()
	chosen, isOverShare := p.findLargest(atLeast, func(s *scope) bool { return s.access == opening }), false
	if chosen == nil && (widening{p.feeds}).listLess(atLeast) {
		return true
	}
	if chosen == nil {
		chosen, isOverShare = p.findOverShare(atLeast), true
	}
	if chosen == nil {
		chosen, isOverShare = p.findLargest(atLeast, func(*scope) bool { return true }), false
	}
	for _, s := range chosen {
		bytes, owner := s.countBytes(), ""
		if isOverShare {
			owner = findSolePayer(s.payers)
		}
		p.feeds.metrics.CountTooLarge()
		p.closeExcess(s, bytes, served.DescribeExcess(s.resource.Resource, s.namespace, s.name, owner, bytes, p.feeds.budget.Limit()))
	}
	return len(chosen) > 0
}

// closeExcess stops watching a scope whose objects take so many bytes, which is too much, or ends what it lists aside: those who read no more than it
// keeps continue.
func (p pressure) closeExcess(s *scope, bytes int64, detail string) {
	now := p.clock.Now()
	until := now.Add(p.retryEvery * maxDenialWait)
	if s.next != nil && s.access != opening {
		s.asideExcess = detail
		p.feeds.stopInformer(s.next)
		s.next = nil
		s.full.wider.SetDue(until)
		p.answers.reportStates(s.wants)
		return
	}
	s.excess = excess{bytes: bytes, until: until, partial: s.access == opening}
	if s.full != nil {
		s.excess.kept = s.full.listing
	}
	p.setAccess(s, tooLarge, detail)
	p.feeds.stopInformers(s)
	p.setAlarm(s, now.Add(p.retryEvery))
	p.repositionWants(s)
}

// findOverShare finds the largest scopes that are watched for one namespace alone, of those namespaces for which more than their share is watched; nil if
// they do not take so many bytes.
func (p pressure) findOverShare(atLeast int64) []*scope {
	taken, share := map[string]int64{}, p.feeds.budget.NamespaceShare()
	for _, r := range p.feeds.catalog.resources {
		for _, s := range r.scopes {
			if of := findSolePayer(s.payers); of != "" {
				taken[of] += s.countBytes()
			}
		}
	}
	return p.findLargest(atLeast, func(s *scope) bool { return taken[findSolePayer(s.payers)] > share })
}

// findSolePayer returns the namespace of all Cleaners that need a scope; "" if they are of several, or one is a ClusterCleaner.
func findSolePayer(payers map[Owner]int) (namespace string) {
	for owner := range payers {
		switch {
		case namespace == "":
			namespace = owner.Namespace
		case namespace != owner.Namespace:
			return ""
		}
		if namespace == "" {
			return ""
		}
	}
	return namespace
}

// findLargest finds the scopes that take most memory of those that are chosen: one that takes so many bytes, or some that do together; nil if there are
// none.
func (p pressure) findLargest(atLeast int64, isChosen func(*scope) bool) []*scope {
	sizes := map[*scope]int64{}
	for _, r := range p.feeds.catalog.resources {
		for _, s := range r.scopes {
			if n := s.countBytes(); n > 0 && isChosen(s) {
				sizes[s] = n
			}
		}
	}
	return memorybudget.ChooseLargest(sizes, atLeast)
}

// mayReopen says that a scope that was too large may be watched again: there is room, or less is read of its objects, or it was long ago.
func (p pressure) mayReopen(s *scope) bool {
	return !p.clock.Now().Before(s.excess.until) || !s.excess.partial && p.feeds.budget.HasRoom(s.excess.bytes) || s.excess.kept != nil && s.reads.AreLessThan(s.excess.kept)
}

// listLess lists a scope again that keeps more than is read, and whose objects take at least so many bytes: the one that takes most. It reports
// whether there is one. Until the list is there, the wants of the scope wait.
func (f widening) listLess(atLeast int64) bool {
	now := f.clock.Now()
	chosen := pressure{f.placement}.findLargest(atLeast, func(s *scope) bool { return s.keepsTooMuch() && !s.pace.FindTurn(now).After(now) })
	if len(chosen) != 1 { // lists of many small ones take more than they give back
		return false
	}
	largest := chosen[0]
	for w := range largest.wants {
		if f.answers.isServedBy(w, largest) {
			f.answers.noteLoss(w)
		}
	}
	largest.pace.NoteBegin(now)
	f.stopInformers(largest)
	ensureInformers(f.feeds, largest)
	f.answers.reportStates(largest.wants)
	return true
}

// keepsTooMuch reports whether less is read of a scope than it keeps. While it is being listed, it is not known what it will keep.
func (s *scope) keepsTooMuch() bool {
	return s.next == nil && s.full != nil && s.full.keeps != nil && s.full.keeps == s.full.listing && s.reads.AreLessThan(s.full.keeps)
}
