// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"container/heap"
	"time"

	"github.com/vtex/cleaner/controllers/internal/placedheap"
)

// namesAtATime is for how many single objects it is asked at a time what the operator may do with them.
const namesAtATime = 8

// nameAlarms are the alarms of single objects. There may be as many as users name, so that no goroutine waits for each: a few wait for
// the first. The Engine's lock guards them.
type nameAlarms struct {
	line placedheap.Heap[*scope]
	// first rings when the first of them is due.
	first alarm
}

func newNameAlarms() *nameAlarms { return &nameAlarms{first: newAlarm(time.Time{})} }

// setAlarm sets the alarm of a single object; zero: it has none.
func (a *nameAlarms) setAlarm(s *scope, due time.Time) {
	s.alarm.due = due
	a.line.SetMember(s, s.place, !due.IsZero())
	a.setFirst()
}

// takeDue removes the first alarm from the line and returns its scope; nil if none is due.
func (a *nameAlarms) takeDue(now time.Time) *scope {
	if len(a.line) == 0 || a.line[0].alarm.due.After(now) {
		return nil
	}
	s := heap.Pop(&a.line).(*scope)
	s.alarm.due = time.Time{}
	a.first.setDue(time.Time{}) // so that another goroutine waits for the next one
	a.setFirst()
	return s
}

func (a *nameAlarms) setFirst() {
	var due time.Time
	if len(a.line) > 0 {
		due = a.line[0].alarm.due
	}
	if !due.Equal(a.first.due) {
		a.first.setDue(due)
	}
}

// IsBefore is for the heap of the alarms, as SetPlace.
func (s *scope) IsBefore(other *scope) bool { return s.alarm.due.Before(other.alarm.due) }
func (s *scope) SetPlace(place int)         { s.place = place }
