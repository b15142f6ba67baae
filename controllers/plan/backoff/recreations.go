// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// loopAfter is how often in a row an object must have been recreated, and deleted again, to be called a loop.
	loopAfter = 3
	// loopWithin is how soon after one deletion the next one has to be of use for that: what comes back more slowly is
	// a way to work.
	loopWithin = time.Minute
)

// Recreations is what this process has deleted, by its place, and how often it was recreated since. Losing it costs
// deletions.
type Recreations map[Place]Recreation

// Place is where an object is, whichever it is.
type Place struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// Recreation is what became of one place.
type Recreation struct {
	// UID identifies the object that was deleted last.
	UID types.UID
	// Times is how often in a row it was another one.
	Times int
	// Until is when the next one may be deleted, and Wait how long that is after the last one; zero: at once.
	Until time.Time
	Wait  time.Duration

	at time.Time
}

// RecordDeletion records that an object was deleted. It says whether it was recreated so often by now that there is a loop;
// from then on each next one waits longer.
func (r Recreations) RecordDeletion(at Place, uid types.UID, now time.Time) (loop bool) {
	e := r[at]
	if e.isOver(now) {
		e = Recreation{}
	}
	if e.UID != "" && e.UID != uid {
		e.Times++
		loop = e.Times == loopAfter
		if e.Times >= loopAfter {
			e.Wait = DoubleWait(e.Wait)
			e.Until = now.Add(e.Wait)
		}
	}
	e.UID, e.at = uid, now
	r[at] = e
	return loop
}

// FindWait says whether the object at a place has to wait now because others of its name were deleted before it, and how.
func (r Recreations) FindWait(at Place, uid types.UID, now time.Time) (Recreation, bool) {
	e, ok := r[at]
	return e, ok && e.UID != uid && now.Before(e.Until)
}

// DescribeWait says so for people.
func (e Recreation) DescribeWait() string {
	return fmt.Sprintf("it was recreated after each of the last %d deletions", e.Times)
}

// isOver says that the last deletion is so long ago that there is no longer a loop.
func (e Recreation) isOver(now time.Time) bool { return now.Sub(e.at) > max(2*e.Wait, loopWithin) }

// DropExpired drops what was not recreated for so long that it starts again.
func (r Recreations) DropExpired(now time.Time) {
	maps.DeleteFunc(r, func(_ Place, e Recreation) bool { return e.isOver(now) })
}
