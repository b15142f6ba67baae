// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fair shares out what there is little of among namespaces: places of workers, of evaluations and of requests. A namespace that
// wants little is served at once, however much others want; one that wants much gets what is left. All that has no namespace, such
// as ClusterCleaners, counts as one. Work of one batch can wait together. It decides who comes next, and does no work itself.
package fair

import (
	"container/heap"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/internal/placedheap"
)

const (
	// forgetAfter is how long what a namespace has used counts after its last work, and forgetUsualAfter how long its work usually took.
	forgetAfter, forgetUsualAfter = time.Minute, time.Hour
	// shortWork is the longest usual work of a namespace for which places are kept.
	shortWork = time.Second
)

// maxNames is of how many Cleaners of one namespace it is remembered what they have used.
const maxNames = 4096

// order is the queue for slots. A namespace gets another slot while more slots are free than it holds: so the first namespace can take half
// of them, the next half of the rest, and one that holds none finds a free one. Of those who may, the namespace comes
// first that has used the least time, of those that have used the same the one that waits longest, and of its Cleaners the one that has
// used least. Some places are kept for namespaces whose work was short: else they would wait where many namespaces have long work at the
// same time, one in each place. What a namespace without any work will have is not known: it gets none of those.
// It is not safe for concurrent use.
type order[T comparable] struct {
	// free is how many places are free, and freeForLong how many more places namespaces with long work may have: all that are not kept, less
	// those that they have. It is below 0 where work became long.
	free, freeForLong int
	shares            map[string]*share[T]
	// short and long are the namespaces that wait, those with short work apart.
	short, long placedheap.Heap[*share[T]]
	// floor is what the last namespace that was served had used. A namespace that comes back begins there: time at rest is no credit.
	floor time.Duration
	swept time.Time
	// added counts those that have come.
	added int64
}

// share is what one namespace wants, has and has used.
type share[T comparable] struct {
	waiting placedheap.Heap[*waiter[T]]
	taken   int
	used    time.Duration
	// usual is how long its work usually takes: rises at once, and falls slowly. hasWorked says that it is known.
	usual     time.Duration
	hasWorked bool
	// number tells those apart that have used the same: who has got a place comes after those that wait.
	number int64
	// place is where it is in its line; -1 if nothing waits.
	place int
	// rests is since when nothing waits and nothing is taken.
	rests time.Time
	// names is the use of each Cleaner that has used more than floor. A Cleaner that comes back begins at floor. floor rises by what each
	// Cleaner with a place would have used if all that wait had used alike. So a Cleaner that has used more comes first in the end, even
	// if new Cleaners without any use keep coming, under new names each time.
	names map[string]time.Duration
	floor time.Duration
}

// waiter is one that waits.
type waiter[T comparable] struct {
	of     *share[T]
	item   T
	urgent bool
	since  time.Time
	// used is what its Cleaner has used, and number tells those apart that have used the same. All of a group have those of its first: joined tells
	// them apart.
	used           time.Duration
	number, joined int64
	// place is where it is among those that wait.
	place int
}

// newOrder makes an order with so many places. Some of them are kept for namespaces with short work.
func newOrder[T comparable](places, kept int) *order[T] {
	return &order[T]{free: places, freeForLong: places - kept, shares: map[string]*share[T]{}}
}

// isShort reports whether the work of a namespace is short. What one without any work will have is not known.
func (s *share[T]) isShort() bool { return s.hasWorked && s.usual <= shortWork }

// lineOf returns where a namespace waits.
func (o *order[T]) lineOf(s *share[T]) *placedheap.Heap[*share[T]] {
	if s.isShort() {
		return &o.short
	}
	return &o.long
}

// addWaiter has an item of a Cleaner wait.
func (o *order[T]) addWaiter(key types.NamespacedName, item T, urgent bool, now time.Time) *waiter[T] {
	s := o.shares[key.Namespace]
	if s == nil {
		o.forgetResting(now)
		s = &share[T]{place: -1, names: map[string]time.Duration{}}
		o.shares[key.Namespace] = s
	}
	o.added++
	w := &waiter[T]{of: s, item: item, urgent: urgent, since: now, used: max(s.floor, s.names[key.Name]), number: o.added, joined: o.added}
	heap.Push(&s.waiting, w)
	if s.place < 0 {
		s.used, s.number = max(s.used, o.floor), o.added
		heap.Push(o.lineOf(s), s)
	}
	return w
}

// hasten makes a waiter urgent. It comes after those that are.
func (o *order[T]) hasten(w *waiter[T]) {
	if w.urgent {
		return
	}
	o.added++
	w.urgent, w.number = true, o.added
	heap.Fix(&w.of.waiting, w.place)
}

// dropWaiter removes a waiter that no longer waits.
func (o *order[T]) dropWaiter(w *waiter[T], now time.Time) {
	heap.Remove(&w.of.waiting, w.place)
	if w.of.waiting.Len() == 0 {
		heap.Remove(o.lineOf(w.of), w.of.place)
		w.of.rests = now
	}
}

// takeNext gives a place to the next waiter; nil if none may have one now.
func (o *order[T]) takeNext() *waiter[T] {
	next := chooseFirst(&o.short, o.free)
	if other := chooseFirst(&o.long, min(o.free, o.freeForLong)); next == nil || other != nil && other.IsBefore(next) {
		next = other
	}
	if next == nil {
		return nil
	}
	heap.Remove(o.lineOf(next), next.place)
	w := heap.Pop(&next.waiting).(*waiter[T])
	if next.waiting.Len() > 0 {
		o.added++
		next.number = o.added
		heap.Push(o.lineOf(next), next)
	}
	o.free--
	next.taken++
	if !next.isShort() {
		o.freeForLong--
	}
	o.floor, next.floor = max(o.floor, next.used), max(next.floor, w.used)
	return w
}

// chooseFirst returns the first namespace in a line that holds fewer places than are free for it; nil if there is none.
func chooseFirst[T comparable](line *placedheap.Heap[*share[T]], free int) (first *share[T]) {
	var passed []*share[T]
	for line.Len() > 0 && first == nil && free > 0 {
		s := heap.Pop(line).(*share[T])
		passed = append(passed, s)
		if s.taken < free {
			first = s
		}
	}
	for _, s := range passed { // each of them but the last has a place, so there are not many
		heap.Push(line, s)
	}
	return first
}

// giveBack records that a place is free again, and for how long a Cleaner had it.
func (o *order[T]) giveBack(key types.NamespacedName, took time.Duration, now time.Time) {
	s := o.shares[key.Namespace]
	took = max(took, 0)
	o.learnUsual(s, took)
	s.names[key.Name] = max(s.floor, s.names[key.Name]) + took
	s.floor += took / time.Duration(s.taken+s.waiting.Len())
	o.free++
	s.taken--
	if !s.isShort() {
		o.freeForLong++
	}
	s.rests = now
	s.used += took
	if s.place >= 0 {
		heap.Fix(o.lineOf(s), s.place)
	}
	if len(s.names) > maxNames { // so many are treated alike
		s.floor = max(s.floor, slices.Max(slices.Collect(maps.Values(s.names))))
		clear(s.names)
	}
	o.forgetResting(now)
}

// learnUsual notes how long work of a namespace took, while it still has its place.
func (o *order[T]) learnUsual(s *share[T], took time.Duration) {
	waits := s.place >= 0
	if waits { // it may wait in the other line then
		heap.Remove(o.lineOf(s), s.place)
	}
	if !s.isShort() {
		o.freeForLong += s.taken
	}
	s.usual, s.hasWorked = max(took, s.usual-(s.usual-took)/8), true
	if !s.isShort() {
		o.freeForLong -= s.taken
	}
	if waits {
		heap.Push(o.lineOf(s), s)
	}
}

// forgetResting forgets, once in a while, what no longer makes a difference: namespaces that have rested for long, and Cleaners that have
// used no more than all.
func (o *order[T]) forgetResting(now time.Time) {
	if now.Sub(o.swept) < forgetAfter {
		return
	}
	o.swept = now
	for namespace, s := range o.shares {
		rested := time.Duration(0)
		if s.waiting.Len() == 0 && s.taken == 0 {
			rested = now.Sub(s.rests)
		}
		switch {
		case rested >= forgetUsualAfter:
			delete(o.shares, namespace)
		case rested >= forgetAfter:
			s.used, s.floor = 0, 0
			clear(s.names)
		default:
			maps.DeleteFunc(s.names, func(_ string, used time.Duration) bool { return used <= s.floor })
		}
	}
}

// IsBefore is for the heap of the namespaces that wait, as SetPlace.
func (s *share[T]) IsBefore(other *share[T]) bool {
	return s.used < other.used || s.used == other.used && s.number < other.number
}
func (s *share[T]) SetPlace(place int) { s.place = place }

// IsBefore and SetPlace are for the heap of those that wait.
func (w *waiter[T]) IsBefore(other *waiter[T]) bool {
	switch {
	case w.urgent != other.urgent:
		return w.urgent
	case w.used != other.used:
		return w.used < other.used
	case w.number != other.number:
		return w.number < other.number
	default:
		return w.joined < other.joined
	}
}
func (w *waiter[T]) SetPlace(place int) { w.place = place }
