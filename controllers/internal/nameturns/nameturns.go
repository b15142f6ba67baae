// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nameturns has those who want to ask for something that anybody can name take turns, so that it is asked for at a bounded pace. It does
// not ask.
package nameturns

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// AtOnce is how many things that the Cleaners of one namespace name may be asked for at once, when none were for long, and
	// perRetry how many each retryEvery from then on.
	AtOnce   = 32
	perRetry = 30
	// maxNamespaces is how many namespaces there are until those are looked for that need not be remembered.
	maxNamespaces = 1024
)

// Turns are those of things of type K. Cleaners may name as many things as there is room for. Those of one namespace stand in line, and its Cleaners
// take turns: a Cleaner that names few does not wait for all of a Cleaner that names many. A thing that several name has the first turn that
// any of them has. A Cleaner that leaves a line takes nothing with it. The caller guards them.
type Turns[K comparable] struct {
	every time.Duration
	of    map[string]*queue[K]
}

// queue is the one of a namespace.
type queue[K comparable] struct {
	// next is when the next one may be asked for, but for what may be asked for at once.
	next time.Time
	// line is by round, with at most one place of each Cleaner in each round. places are the things in it, and cleaners the Cleaners with
	// a place in it.
	line     []*place[K]
	places   map[K]*place[K]
	cleaners map[string]*rounds
	// round is the last round that something was put into, and came counts what came.
	round, came int64
}

// place is where something stands: where the first of its Cleaners has it, of one round by when it came.
type place[K comparable] struct {
	thing  K
	rounds map[string]int64 // by Cleaner
	round  int64
	number int64
}

// rounds are those of a Cleaner: the last one that it has something in, and how much it has in the line.
type rounds struct {
	last  int64
	stand int
}

// New makes Turns with an empty line, where what cannot be read is tried again every retryEvery.
func New[K comparable](retryEvery time.Duration) *Turns[K] {
	return &Turns[K]{every: retryEvery / perRetry, of: map[string]*queue[K]{}}
}

// TakeTurn says whether something that these Cleaners name may be asked for now. If not it stands in line, and may be when what stands before it
// has been, at the earliest at the time that is returned.
func (p *Turns[K]) TakeTurn(thing K, cleaners iter.Seq[types.NamespacedName], now time.Time) (at time.Time, may bool) {
	p.dropRested(now)
	for owner := range cleaners {
		p.ofNamespace(owner.Namespace, now).enterLine(thing, owner.Name)
	}
	first := ""
	for owner := range cleaners {
		turn := p.of[owner.Namespace].findTurn(thing, p.every)
		if at.IsZero() || turn.Before(at) || turn.Equal(at) && owner.Namespace < first {
			at, first = turn, owner.Namespace
		}
	}
	if at.After(now) {
		return at, false
	}
	of := p.of[first]
	of.round = max(of.round, of.places[thing].round)
	p.LeaveLines(thing, cleaners)
	// Those before it are due too, and ask at the same moment.
	of.next = of.next.Add(p.every)
	return now, true
}

// ofNamespace is the queue of a namespace.
func (p *Turns[K]) ofNamespace(namespace string, now time.Time) *queue[K] {
	of := p.of[namespace]
	if of == nil {
		of = &queue[K]{places: map[K]*place[K]{}, cleaners: map[string]*rounds{}}
		p.of[namespace] = of
	}
	if rested := p.restedSince(now); of.next.Before(rested) {
		of.next = rested
	}
	return of
}

// enterLine has something stand in line for a Cleaner, unless it does already.
func (of *queue[K]) enterLine(thing K, cleaner string) {
	at := of.places[thing]
	if at == nil {
		of.came++
		at = &place[K]{thing: thing, rounds: map[string]int64{}, number: of.came}
		of.places[thing] = at
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

// leaveLine removes the place of something for a Cleaner.
func (of *queue[K]) leaveLine(thing K, cleaner string) {
	at := of.places[thing]
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
		delete(of.places, thing)
		return
	}
	of.putIn(at)
}

func (of *queue[K]) putIn(at *place[K]) {
	at.round = slices.Min(slices.Collect(maps.Values(at.rounds)))
	i, _ := of.findPlace(at)
	of.line = slices.Insert(of.line, i, at)
}

func (of *queue[K]) takeOut(at *place[K]) {
	i, _ := of.findPlace(at)
	of.line = slices.Delete(of.line, i, i+1)
}

// findPlace is how many stand before a place.
func (of *queue[K]) findPlace(at *place[K]) (before int, stands bool) {
	return slices.BinarySearchFunc(of.line, at, func(a, b *place[K]) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.number, b.number))
	})
}

// findTurn is when something may be asked for that stands in line.
func (of *queue[K]) findTurn(thing K, every time.Duration) time.Time {
	before, _ := of.findPlace(of.places[thing])
	return of.next.Add(time.Duration(before) * every)
}

// restedSince is the next of a namespace for which none were asked for long.
func (p *Turns[K]) restedSince(now time.Time) time.Time { return now.Add(-(AtOnce - 1) * p.every) }

// dropRested drops the namespaces that need not be remembered, when there are many.
func (p *Turns[K]) dropRested(now time.Time) {
	if len(p.of) < maxNamespaces {
		return
	}
	rested := p.restedSince(now)
	maps.DeleteFunc(p.of, func(_ string, of *queue[K]) bool { return !of.next.After(rested) && len(of.line) == 0 })
}

// LeaveLine removes the place of something for a Cleaner.
func (p *Turns[K]) LeaveLine(thing K, cleaner types.NamespacedName) {
	if of := p.of[cleaner.Namespace]; of != nil {
		of.leaveLine(thing, cleaner.Name)
	}
}

// LeaveLines removes the places of something for several Cleaners.
func (p *Turns[K]) LeaveLines(thing K, cleaners iter.Seq[types.NamespacedName]) {
	for cleaner := range cleaners {
		p.LeaveLine(thing, cleaner)
	}
}
