// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// namesAtOnce is how many single objects of one namespace's Cleaners may be asked for at once, when none were for long, and
	// namesPerRetry how many each Options.RetryEvery from then on.
	namesAtOnce   = 32
	namesPerRetry = 30
	// maxPaces is how many namespaces there are until those are looked for that need not be remembered.
	maxPaces = 1024
)

// pace bounds how often it is asked what the operator may do with single objects: anybody may name as many as there is room for. Those
// that Cleaners of one namespace name stand in line, and the Cleaners take turns: one that names few does not wait for all of one that
// names many. One that several name has the first turn that any of them has. Who leaves a line takes nothing with them.
type pace struct {
	every time.Duration
	of    map[string]*paceOf
}

// paceOf is the pace of one namespace.
type paceOf struct {
	// next is when the next one may be asked for, but for what may be asked for at once.
	next time.Time
	// line is by round, with at most one place of each Cleaner in each round. places are the scopes in it, and cleaners the Cleaners with
	// a place in it.
	line     []*place
	places   map[*scope]*place
	cleaners map[string]*rounds
	// round is the last round that a scope was put into, and came counts the scopes that came.
	round, came int64
}

// place is where a scope stands: where the first of its Cleaners has it, of one round by when it came.
type place struct {
	scope  *scope
	rounds map[string]int64 // by Cleaner
	round  int64
	number int64
}

// rounds are those of a Cleaner: the last one that it has something in, and how much it has in the line.
type rounds struct {
	last  int64
	stand int
}

func newPace(retryEvery time.Duration) *pace {
	return &pace{every: retryEvery / namesPerRetry, of: map[string]*paceOf{}}
}

// takeTurn says whether a scope may be asked for now. If not it stands in line, and may be when those before it have been, at the earliest
// at the time that is returned.
func (p *pace) takeTurn(s *scope, now time.Time) (at time.Time, may bool) {
	p.dropRested(now)
	for owner := range s.payers {
		p.ofNamespace(owner.Namespace, now).enterLine(s, owner.Name)
	}
	first := ""
	for owner := range s.payers {
		turn := p.of[owner.Namespace].findTurn(s, p.every)
		if at.IsZero() || turn.Before(at) || turn.Equal(at) && owner.Namespace < first {
			at, first = turn, owner.Namespace
		}
	}
	if s.inLine = at.After(now); s.inLine {
		return at, false
	}
	of := p.of[first]
	of.round = max(of.round, of.places[s].round)
	for owner := range s.payers {
		p.leaveLine(s, owner)
	}
	// Those before it are due too, and ask at the same moment.
	of.next = of.next.Add(p.every)
	return now, true
}

// ofNamespace is the pace of a namespace.
func (p *pace) ofNamespace(namespace string, now time.Time) *paceOf {
	of := p.of[namespace]
	if of == nil {
		of = &paceOf{places: map[*scope]*place{}, cleaners: map[string]*rounds{}}
		p.of[namespace] = of
	}
	if rested := p.restedSince(now); of.next.Before(rested) {
		of.next = rested
	}
	return of
}

// enterLine has a scope stand in line for a Cleaner, unless it does already.
func (of *paceOf) enterLine(s *scope, cleaner string) {
	at := of.places[s]
	if at == nil {
		of.came++
		at = &place{scope: s, rounds: map[string]int64{}, number: of.came}
		of.places[s] = at
	} else if _, stands := at.rounds[cleaner]; stands {
		return
	} else {
		of.takeOut(at)
	}
	c := of.cleaners[cleaner]
	if c == nil {
		c = &rounds{}
		of.cleaners[cleaner] = c
	}
	c.last, c.stand = max(c.last, of.round)+1, c.stand+1
	at.rounds[cleaner] = c.last
	of.putIn(at)
}

// leaveLine removes the place of a scope for a Cleaner.
func (of *paceOf) leaveLine(s *scope, cleaner string) {
	at := of.places[s]
	if at == nil {
		return
	}
	if _, stands := at.rounds[cleaner]; !stands {
		return
	}
	of.takeOut(at)
	delete(at.rounds, cleaner)
	c := of.cleaners[cleaner]
	if c.stand--; c.stand == 0 {
		delete(of.cleaners, cleaner)
	}
	if len(at.rounds) == 0 {
		delete(of.places, s)
		return
	}
	of.putIn(at)
}

func (of *paceOf) putIn(at *place) {
	at.round = slices.Min(slices.Collect(maps.Values(at.rounds)))
	i, _ := of.findPlace(at)
	of.line = slices.Insert(of.line, i, at)
}

func (of *paceOf) takeOut(at *place) {
	i, _ := of.findPlace(at)
	of.line = slices.Delete(of.line, i, i+1)
}

// findPlace is how many stand before a place.
func (of *paceOf) findPlace(at *place) (before int, stands bool) {
	return slices.BinarySearchFunc(of.line, at, func(a, b *place) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.number, b.number))
	})
}

// findTurn is when a scope may be asked for that stands in line.
func (of *paceOf) findTurn(s *scope, every time.Duration) time.Time {
	before, _ := of.findPlace(of.places[s])
	return of.next.Add(time.Duration(before) * every)
}

// restedSince is the next of a namespace for which none were asked for long.
func (p *pace) restedSince(now time.Time) time.Time { return now.Add(-(namesAtOnce - 1) * p.every) }

// dropRested drops the namespaces that need not be remembered, when there are many.
func (p *pace) dropRested(now time.Time) {
	if len(p.of) < maxPaces {
		return
	}
	rested := p.restedSince(now)
	maps.DeleteFunc(p.of, func(_ string, of *paceOf) bool { return !of.next.After(rested) && len(of.line) == 0 })
}

// leaveLine removes the place of a scope for a Cleaner.
func (p *pace) leaveLine(s *scope, owner Owner) {
	if of := p.of[owner.Namespace]; of != nil {
		of.leaveLine(s, owner.Name)
	}
}
