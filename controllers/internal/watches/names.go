// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"container/heap"
	"time"

	"github.com/vtex/cleaner/controllers/internal/alarms"
	"github.com/vtex/cleaner/controllers/internal/placedheap"
)

// namesAtATime is for how many single objects it is asked at a time what the operator may do with them.
const namesAtATime = 8

// nameAlarms are the alarms of single objects. There may be as many as users name, so that no goroutine waits for each: a few wait for
// the first. The Engine's lock guards them.
type nameAlarms struct {
	line placedheap.Heap[*scope]
	// first rings when the first of them is due.
	first alarms.Alarm
}

func newNameAlarms() *nameAlarms { return &nameAlarms{first: alarms.New(time.Time{})} }

// setAlarm sets the alarm of a single object; zero: it has none.
func (a *nameAlarms) setAlarm(s *scope, due time.Time) {
	s.alarm.Due = due
	a.line.SetMember(s, s.place, !due.IsZero())
	a.setFirst()
}

// takeDue removes the first alarm from the line and returns its scope; nil if none is due.
func (a *nameAlarms) takeDue(now time.Time) *scope {
	if len(a.line) == 0 || a.line[0].alarm.Due.After(now) {
		return nil
	}
	s := heap.Pop(&a.line).(*scope)
	s.alarm.Due = time.Time{}
	a.first.SetDue(time.Time{}) // so that another goroutine waits for the next one
	a.setFirst()
	return s
}

func (a *nameAlarms) setFirst() {
	var due time.Time
	if len(a.line) > 0 {
		due = a.line[0].alarm.Due
	}
	if !due.Equal(a.first.Due) {
		a.first.SetDue(due)
	}
}

// IsBefore is for the heap of the alarms, as SetPlace.
func (s *scope) IsBefore(other *scope) bool { return s.alarm.Due.Before(other.alarm.Due) }
func (s *scope) SetPlace(place int)         { s.place = place }
