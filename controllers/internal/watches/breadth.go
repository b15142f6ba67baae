// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// fewNamespaces is in how many namespaces a kind is watched each for itself. If Cleaners ask for more namespaces, one watch of all of them costs the API
// server less.
const fewNamespaces = 8

// breadth decides whether a kind is watched in all namespaces, or in those alone that Cleaners ask for. While all namespaces are listed for the first
// time, the narrow watches continue to serve.
type breadth struct{ *placement }

// isWide reports whether a scope has all namespaces of a kind that has any.
func (s *scope) isWide() bool { return s.resource.Namespaced && s.namespace == "" }

// isOpen reports whether a scope is watched, or being listed for the first time.
func (s *scope) isOpen() bool { return s.access == allowed || s.access == opening }

// needsAll reports whether a wide scope is needed: Cleaners ask for all namespaces, or for many. One that is watched already stays for half as
// many, so that it does not come and go.
func (b breadth) needsAll(s *scope) bool {
	few := b.few
	if s.isOpen() {
		few /= 2
	}
	return s.asked[""] > 0 || len(s.asked) > few
}

// noteWant has a wide scope opened if a new want needs it. A new scope waits until one does.
func (b breadth) noteWant(s *scope) {
	switch {
	case !s.isWide():
	case s.access == unchecked && len(s.wants) == 1 && !b.needsAll(s): // others may hang on it alone
		s.access = unneeded
		b.setAlarm(s, time.Time{})
	case s.access == unneeded && b.needsAll(s) && s.alarm.due.IsZero():
		b.setAlarm(s, b.clock.Now())
	}
}

// noteLeave has a wide scope closed after some time if the wants that are left do not need it.
func (b breadth) noteLeave(s *scope) {
	if s.isWide() && s.isOpen() && s.alarm.due.IsZero() && !b.needsAll(s) {
		b.setAlarm(s, b.clock.Now().Add(b.retryEvery*maxDenialWait))
	}
}

// mayOpen reports whether a wide scope whose alarm is due is needed, and not open yet. What is not needed is closed.
func (b breadth) mayOpen(s *scope) bool {
	switch needed := b.needsAll(s); {
	case needed && !s.isOpen():
		return true
	case needed:
		b.setAlarm(s, time.Time{})
		return false
	case s.access == tooLarge && b.clock.Now().Before(s.excess.until): // should it be needed again
		b.setAlarm(s, b.clock.Now().Add(b.retryEvery))
		return false
	}
	b.closeWide(s)
	return false
}

// closeWide has narrow scopes serve all wants of a wide one.
func (b breadth) closeWide(s *scope) {
	b.setAlarm(s, time.Time{})
	b.setAccess(s, unneeded, "")
	b.feeds.stopInformers(s)
	b.repositionWants(s)
}

// open begins to list a wide scope that may be watched, if it is still needed. Narrow ones serve meanwhile.
func (b breadth) open(s *scope) {
	b.setAlarm(s, time.Time{})
	budget, bytes := b.feeds.budget, s.excess.bytes
	fits := s.access != tooLarge || s.excess.partial || budget.HasRoom(bytes)
	switch {
	case !b.needsAll(s):
		b.closeWide(s)
	case !fits && s.asked[""] > 0 && budget.HasRoom(bytes-s.countNarrowBytes()): // without the narrow ones
		b.setAccess(s, allowed, "")
		b.repositionWants(s)
	default: // if it is too large, it ends first
		s.access, s.detail = opening, ""
		ensureInformers(b.feeds, s)
		b.repositionWants(s)
	}
}

// countNarrowBytes is about how much memory the objects take in all scopes that are narrower than a wide one.
func (s *scope) countNarrowBytes() (bytes int64) {
	for _, other := range s.resource.scopes {
		if other != s && other.filter == s.filter {
			bytes += other.countBytes()
		}
	}
	return bytes
}

// mustWait reports whether a want waits for a wide scope, and is not served by a narrow one meanwhile. While the wide one is opened no further narrow
// watch begins: it would end soon. But if the wide one cannot be opened for some time, it begins.
func (b breadth) mustWait(s *scope, namespace string) bool {
	waits := s.isWide() && (s.access == opening || s.access == unneeded && s.detail == "" && b.needsAll(s))
	long := b.clock.Now().Add(-b.retryEvery / refusalShare)
	fails := slices.ContainsFunc(s.listInformers(), func(i *informer) bool { return i.hasFailedSince(long) })
	return waits && !fails && s.resource.scopes[scopeKey{namespace: namespace, filter: s.filter}] == nil
}

// endOpening has a wide scope serve all its wants, if it knows all that the narrow ones know.
func (b breadth) endOpening(s *scope) {
	b.mu.Lock()
	defer b.unlockAndWake()
	if s.access != opening || !s.isCaughtUp() {
		return
	}
	b.setAccess(s, allowed, "")
	b.repositionWants(s)
	b.noteLeave(s)
}

// isCaughtUp reports whether the informers of a scope know all changes that those of narrower scopes know.
func (s *scope) isCaughtUp() bool {
	for _, i := range s.listInformers() {
		if !i.synced || i.failure != "" || i == s.full && !s.reads.AreCoveredBy(i.keeps) {
			return false
		}
		for _, other := range s.resource.scopes {
			if other.filter != s.filter {
				continue
			}
			for _, known := range other.listInformers() {
				order, err := resourceversion.CompareResourceVersion(i.reached, known.changed)
				if known.synced && err == nil && order < 0 {
					return false
				}
			}
		}
	}
	return true
}
