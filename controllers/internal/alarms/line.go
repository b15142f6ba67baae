// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"container/heap"
	"time"

	"github.com/vtex/cleaner/controllers/internal/placedheap"
)

// Timed is something that has an Alarm, and knows its place in a Line; -1: none. It is before another one whose Alarm is due later.
type Timed[T any] interface {
	comparable
	IsBefore(other T) bool
	SetPlace(place int)
}

// Line has many Alarms for which a few goroutines wait, and not one for each: they wait for the first. A lock of its owner guards it.
type Line[T Timed[T]] struct {
	// First rings when the first of them is due.
	First Alarm
	line  placedheap.Heap[T]
	find  func(T) (a *Alarm, place int)
}

// NewLine returns a Line of no Alarms, where find gives the Alarm of something, and its place.
func NewLine[T Timed[T]](find func(T) (a *Alarm, place int)) *Line[T] {
	return &Line[T]{First: New(time.Time{}), find: find}
}

// SetAlarm sets the Alarm of something; zero: it has none.
func (l *Line[T]) SetAlarm(of T, due time.Time) {
	a, place := l.find(of)
	a.Due = due
	l.line.SetMember(of, place, !due.IsZero())
	l.setFirst()
}

// TakeDue takes the first Alarm out of the line, and returns whose it is; nil if none is due.
func (l *Line[T]) TakeDue(now time.Time) (of T) {
	if len(l.line) == 0 {
		return of
	}
	a, _ := l.find(l.line[0])
	if a.Due.After(now) {
		return of
	}
	of = heap.Pop(&l.line).(T)
	a.Due = time.Time{}
	l.First.SetDue(time.Time{}) // so that another goroutine waits for the next one
	l.setFirst()
	return of
}

func (l *Line[T]) setFirst() {
	var due time.Time
	if len(l.line) > 0 {
		a, _ := l.find(l.line[0])
		due = a.Due
	}
	if !due.Equal(l.First.Due) {
		l.First.SetDue(due)
	}
}
