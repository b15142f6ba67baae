// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// fewNamespaces is in how many namespaces a kind is watched each for itself. If Cleaners ask for more namespaces, one watch of all of them costs
	// the API server less.
	fewNamespaces = 8
	// fewNames is how many objects of a namespace, or of a kind that has none, are watched each for itself: so there are no more watches than
	// there would be of namespaces.
	fewNames = 1
)

// breadth decides how wide a watch is: of all namespaces, of one that Cleaners ask for, or of one object that they name. While a wide scope is listed
// for the first time, the narrow ones in it continue to serve.
type breadth struct{ *placement }

// isWide reports whether a scope has all namespaces of a kind that has any.
func (s *scope) isWide() bool { return s.resource.Namespaced && s.namespace == "" }

// isOpen reports whether a scope is watched, or being listed for the first time.
func (s *scope) isOpen() bool { return s.access == allowed || s.access == opening }

// needsAll reports whether a scope is needed that has narrower ones: Cleaners ask for all of it, or for many parts, or its parts are not to be watched.
// One that is watched already stays for half as many, so that it does not come and go.
func (b breadth) needsAll(s *scope) bool {
	few := b.fewNames
	if s.isWide() {
		few = b.few
	}
	if s.isOpen() {
		few = (few + 1) / 2
	}
	return s.asked[""] > 0 || len(s.asked) > few || !s.isWide() && !b.answers.selectsNames(s.resource)
}

// noteWant has a scope opened if a new want needs all of it. A new one waits until one does.
func (b breadth) noteWant(s *scope) {
	switch {
	case s.name != "":
	case s.access == unchecked && len(s.wants) == 1 && !b.needsAll(s): // others may hang on it alone
		s.access = unneeded
		b.setAlarm(s, time.Time{})
	case s.access == unneeded && b.needsAll(s) && s.alarm.Due.IsZero():
		b.setAlarm(s, b.clock.Now())
	}
}

// reviewScopes has scopes of a resource opened or closed because more is known of how its objects can be selected.
func (b breadth) reviewScopes(r *resource) {
	for _, s := range r.scopes {
		b.noteWant(s)
		b.noteLeave(s)
	}
}

// noteLeave has a scope closed after some time if the wants that are left do not need all of it.
func (b breadth) noteLeave(s *scope) {
	if s.name == "" && s.isOpen() && s.alarm.Due.IsZero() && !b.needsAll(s) {
		b.setAlarm(s, b.clock.Now().Add(b.retryEvery*maxDenialWait))
	}
}

// mayOpen reports whether a scope whose alarm is due is needed, and not open yet. What is not needed is closed.
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
	b.close(s)
	return false
}

// close has narrower scopes serve all wants of a scope.
func (b breadth) close(s *scope) {
	b.setAlarm(s, time.Time{})
	b.setAccess(s, unneeded, "")
	b.feeds.stopInformers(s)
	b.repositionWants(s)
}

// open begins to list a scope that may be watched, if it is still needed. Narrower ones serve meanwhile.
func (b breadth) open(s *scope) {
	b.setAlarm(s, time.Time{})
	budget, bytes := b.feeds.budget, s.excess.bytes
	fits := s.access != tooLarge || s.excess.partial || budget.HasRoom(bytes)
	switch {
	case !b.needsAll(s):
		b.close(s)
	case !fits && s.asked[""] > 0 && budget.HasRoom(bytes-s.countNarrowBytes()): // without the narrow ones
		b.setAccess(s, allowed, "")
		b.repositionWants(s)
	default: // if it is too large, it ends first
		s.access, s.detail = opening, ""
		ensureInformers(b.feeds, s)
		b.repositionWants(s)
	}
}

// countNarrowBytes is about how much memory the objects take in all scopes that are parts of a scope.
func (s *scope) countNarrowBytes() (bytes int64) {
	for _, part := range s.listParts() {
		bytes += part.countBytes()
	}
	return bytes
}

// listParts lists the scopes that are parts of a scope, and their parts.
func (s *scope) listParts() (all []*scope) {
	for part := range s.parts {
		all = append(append(all, part), part.listParts()...)
	}
	return all
}

// listAsked lists the parts of a scope that a query asks for: namespaces, or a name; "": all of it.
func (s *scope) listAsked(q *snapshot.Query) []string {
	switch {
	case s.name != "":
		return nil
	case s.isWide():
		return s.resource.namespacesFor(q)
	default:
		return []string{q.Name}
	}
}

// mayWait reports whether wants wait for a scope that is being opened, so that no narrower watch begins, which would end soon. If that takes too long,
// narrower ones begin.
func (b breadth) mayWait(s *scope) bool {
	waits := s.name == "" && (s.access == opening || s.access == unneeded && s.detail == "" && b.needsAll(s))
	long := b.clock.Now().Add(-b.retryEvery / refusalShare)
	return waits && !slices.ContainsFunc(s.listInformers(), func(i *informer) bool { return i.hasFailedSince(long) })
}

// endOpening has a scope serve all its wants, if it knows all that the narrow ones in it know.
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

// isCaughtUp reports whether the informers of a scope know all changes that those of its parts know.
func (s *scope) isCaughtUp() bool {
	parts := s.listParts()
	for _, i := range s.listInformers() {
		if !i.synced || i.failure != "" || i == s.full && !s.reads.AreCoveredBy(i.keeps) {
			return false
		}
		for _, part := range parts {
			for _, known := range part.listInformers() {
				order, err := resourceversion.CompareResourceVersion(i.reached, known.changed)
				if known.synced && err == nil && order < 0 {
					return false
				}
			}
		}
	}
	return true
}
