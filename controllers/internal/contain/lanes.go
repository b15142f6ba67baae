// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package contain

import (
	"maps"
	"slices"
	"sync"
)

// lanes distribute work fairly: the next slot goes to the lane that has the fewest, and among equals to the one after the lane that got the
// last slot.
type lanes struct {
	mu    sync.Mutex
	order []*lane
	// first is the place of the lane that is the first among equals.
	first int
}

// lane is what is left of one lane, in its order, and how many places it has.
type lane struct {
	name string
	left []int
	has  int
}

// RunInLanes calls do for 0 to n-1 as RunParallel does, where each has a lane: those of a lane begin in their order, and the lanes share
// the places. It begins with the lane whose name comes after one, and returns the name after which to begin the next time: another lane
// is the first then, and one that has not found a place at once finds one.
func RunInLanes(atATime int, of []string, after string, do func(i int)) (next string) {
	l := newLanes(of, after)
	next = l.nextAfter(atATime)
	RunParallel(atATime, len(of), func(int) {
		c, i := l.takePlace()
		defer l.giveBack(c)
		do(i)
	})
	return next
}

func newLanes(of []string, after string) *lanes {
	byName := map[string]*lane{}
	for i, name := range of {
		if byName[name] == nil {
			byName[name] = &lane{name: name}
		}
		byName[name].left = append(byName[name].left, i)
	}
	l := &lanes{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if l.order = append(l.order, byName[name]); name <= after {
			l.first = len(l.order)
		}
	}
	return l
}

// nextAfter is the last of the lanes that have a place at once, if there are others, and else the first.
func (l *lanes) nextAfter(atATime int) string {
	n := len(l.order)
	switch {
	case n == 0:
		return ""
	case n <= atATime:
		return l.order[l.first%n].name
	default:
		return l.order[(l.first+atATime-1)%n].name
	}
}

// takePlace gives what is next, and its lane. There must be something left.
func (l *lanes) takePlace() (*lane, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next *lane
	first := 0
	for n := range l.order {
		at := (l.first + n) % len(l.order)
		if c := l.order[at]; len(c.left) > 0 && (next == nil || c.has < next.has) {
			next, first = c, at+1
		}
	}
	i := next.left[0]
	next.left, next.has, l.first = next.left[1:], next.has+1, first
	return next, i
}

func (l *lanes) giveBack(c *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.has--
}
