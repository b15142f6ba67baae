// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package anykinds

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/anykind"
)

const (
	// maxWatches is how many watches targets of all kinds may take together: one for each kind of each selection. ClusterCleaners with the same
	// labels and annotations share theirs.
	maxWatches = 4096
	// forgetAfter is when the selections of a Cleaner are forgotten that has not been evaluated. Each is, once an hour.
	forgetAfter = 2 * time.Hour
)

// selections know the kinds that targets of all kinds stood for when they were found last, and count the watches that it takes.
type selections struct {
	clock clock.PassiveClock

	mu sync.Mutex
	of map[types.NamespacedName]*selected
}

// selected is what one Cleaner selects, by its queries.
type selected struct {
	found map[string]selection
	// before is what it selected in the pass before this one.
	before map[string]selection
	pass   *Kinds
	at     time.Time
}

// selection are the kinds of one query.
type selection struct {
	// watch is what the watches of the query select by.
	watch string
	kinds []anykind.Kind
}

func newSelections(c clock.PassiveClock) *selections {
	return &selections{clock: c, of: map[types.NamespacedName]*selected{}}
}

// add notes what a query of a Cleaner selects in a pass. It is an error if all together take too many watches.
func (s *selections) add(pass *Kinds, query string, found selection) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	own := s.begin(pass, now)
	own.found[query] = found
	total := s.countWatches(now)
	if total <= maxWatches {
		return nil
	}
	delete(own.found, query)
	return fmt.Errorf("the targets of kind \"*\" of all ClusterCleaners would take %d watches, and at most %d are allowed: select by labels or annotations that other ClusterCleaners select by too, or leave out kinds with excludeKinds", total, maxWatches)
}

// begin returns what a Cleaner selects in a pass, which names all that it selects.
func (s *selections) begin(pass *Kinds, now time.Time) *selected {
	own := s.of[pass.subjects.Cleaner]
	if own == nil {
		own = &selected{}
		s.of[pass.subjects.Cleaner] = own
	}
	if own.pass != pass {
		own.found, own.before, own.pass, own.at = map[string]selection{}, own.found, pass, now
	}
	return own
}

// findLast returns the kinds of a query as a pass before this one found them; nil if none has.
func (s *selections) findLast(pass *Kinds, query string) []anykind.Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.begin(pass, s.clock.Now())
	last := own.before[query]
	own.found[query] = last // for the next pass, which may fail too
	return last.kinds
}

// countWatches returns how many watches there are. It forgets Cleaners that are not evaluated any longer.
func (s *selections) countWatches(now time.Time) (total int) {
	all := map[string]int{}
	for cleaner, of := range s.of {
		if now.Sub(of.at) >= forgetAfter {
			delete(s.of, cleaner)
			continue
		}
		for _, one := range of.found {
			all[one.watch] = max(all[one.watch], len(one.kinds))
		}
	}
	for _, kinds := range all {
		total += kinds
	}
	return total
}
