// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package anykinds

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/anykind"
)

// forgetAfter is when the kinds of a Cleaner are forgotten that has not been evaluated. Each is, once an hour.
const forgetAfter = 2 * time.Hour

// selections know the kinds that the targets of each Cleaner stood for when they were found last.
type selections struct {
	clock clock.PassiveClock

	mu sync.Mutex
	of map[types.NamespacedName]*selected
}

// selected are the kinds of one Cleaner, by its queries.
type selected struct {
	found map[string][]anykind.Kind
	// before are those of the pass before this one.
	before map[string][]anykind.Kind
	pass   *Kinds
	at     time.Time
}

func newSelections(c clock.PassiveClock) *selections {
	return &selections{clock: c, of: map[types.NamespacedName]*selected{}}
}

// keep notes the kinds of a query in a pass.
func (s *selections) keep(pass *Kinds, query string, kinds []anykind.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(pass).found[query] = kinds
}

// findLast returns the kinds of a query as a pass before this one found them; nil if none has.
func (s *selections) findLast(pass *Kinds, query string) []anykind.Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.begin(pass)
	last := own.before[query]
	own.found[query] = last // for the next pass, which may fail too
	return last
}

// begin returns what is known of a Cleaner in a pass, which names all that it selects.
func (s *selections) begin(pass *Kinds) *selected {
	now := s.clock.Now()
	own := s.of[pass.subjects.Cleaner]
	if own == nil {
		maps.DeleteFunc(s.of, func(_ types.NamespacedName, old *selected) bool { return now.Sub(old.at) >= forgetAfter })
		own = &selected{}
		s.of[pass.subjects.Cleaner] = own
	}
	if own.pass != pass {
		own.found, own.before, own.pass, own.at = map[string][]anykind.Kind{}, own.found, pass, now
	}
	return own
}
