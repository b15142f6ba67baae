// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"container/heap"
	"time"
)

// namesAtATime is for how many single objects it is asked at a time what the operator may do with them.
const namesAtATime = 8

// nameAlarms are the alarms of single objects. There may be as many as users name, so that no goroutine waits for each: a few wait for
// the first. The Engine's lock guards them.
type nameAlarms struct {
	line nameLine
	// first rings when the first of them is due.
	first alarm
}

func newNameAlarms() *nameAlarms { return &nameAlarms{first: newAlarm(time.Time{})} }

// setAlarm sets the alarm of a single object; zero: it has none.
func (a *nameAlarms) setAlarm(s *scope, due time.Time) {
	s.alarm.due = due
	switch stands := s.place >= 0; {
	case stands && due.IsZero():
		heap.Remove(&a.line, s.place)
	case stands:
		heap.Fix(&a.line, s.place)
	case !due.IsZero():
		heap.Push(&a.line, s)
	}
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

// nameLine is a heap of single objects, by when they are due.
type nameLine []*scope

func (l nameLine) Len() int           { return len(l) }
func (l nameLine) Less(i, j int) bool { return l[i].alarm.due.Before(l[j].alarm.due) }
func (l nameLine) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

// Push is for the heap.
func (l *nameLine) Push(s any) {
	s.(*scope).place = len(*l)
	*l = append(*l, s.(*scope))
}

// Pop is for the heap.
func (l *nameLine) Pop() any {
	last := (*l)[len(*l)-1]
	last.place = -1
	(*l)[len(*l)-1] = nil
	*l = (*l)[:len(*l)-1]
	return last
}
