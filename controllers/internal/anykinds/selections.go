// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package anykinds

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// maxWatches is how many watches targets of all kinds may take together: one for each kind of each selection. Cleaners with the same labels
	// and annotation share theirs.
	maxWatches = 4096
	// forgetAfter is when the selections of a Cleaner are forgotten that has not been evaluated. Each is, once an hour.
	forgetAfter = 2 * time.Hour
)

// selections counts the watches that targets of all kinds take. If there are too many, the namespaces that take more than their share are refused
// more.
type selections struct {
	clock clock.PassiveClock

	mu sync.Mutex
	of map[types.NamespacedName]*selected
}

// selected is what one Cleaner selects: for each selection how many kinds.
type selected struct {
	kinds map[string]int
	pass  *Kinds
	at    time.Time
}

func newSelections(c clock.PassiveClock) *selections {
	return &selections{clock: c, of: map[types.NamespacedName]*selected{}}
}

// add notes that a Cleaner selects, in a pass, objects of so many kinds. It is an error if that takes too many watches.
func (s *selections) add(pass *Kinds, selection string, kinds int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, cleaner := s.clock.Now(), pass.subjects.Cleaner
	own := s.of[cleaner]
	if own == nil || own.pass != pass { // a later pass, which names all that it selects
		own = &selected{kinds: map[string]int{}, pass: pass, at: now}
		s.of[cleaner] = own
	}
	own.kinds[selection] = kinds
	total, taken, namespaces := s.count(cleaner.Namespace, now)
	if total <= maxWatches || taken <= maxWatches/namespaces {
		return nil
	}
	delete(own.kinds, selection)
	return fmt.Errorf("the targets of kind \"*\" of all Cleaners would take %d watches, and at most %d are allowed, in equal shares for namespaces: select by a label or annotation that other Cleaners select by too, or leave out kinds with excludeKinds", total, maxWatches)
}

// count returns how many watches there are, how many of them those of a namespace take, and how many namespaces have some. It forgets Cleaners
// that are not evaluated any longer.
func (s *selections) count(namespace string, now time.Time) (total, taken, namespaces int) {
	all, own, names := map[string]int{}, map[string]int{}, map[string]bool{}
	for cleaner, of := range s.of {
		if now.Sub(of.at) >= forgetAfter {
			delete(s.of, cleaner)
			continue
		}
		for selection, kinds := range of.kinds {
			all[selection] = max(all[selection], kinds)
			if cleaner.Namespace == namespace {
				own[selection] = max(own[selection], kinds)
			}
			names[cleaner.Namespace] = true
		}
	}
	for _, kinds := range all {
		total += kinds
	}
	for _, kinds := range own {
		taken += kinds
	}
	return total, taken, max(len(names), 1)
}
