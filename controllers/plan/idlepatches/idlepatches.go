// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package idlepatches says which patches are not sent, because they have changed nothing: not again while their object and the patch are the
// same, and then less and less often.
//
// It keeps no clock, and never says that something may be done: only that it need not be, or has to wait.
package idlepatches

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

const (
	// forgetAfter is for how long it is remembered what is not asked about.
	forgetAfter = 2 * backoff.LongestWait
	// patchBytes is about how much memory a patch takes.
	patchBytes = 240
)

// Patches are those that have changed nothing. Losing them costs requests.
type Patches map[ID]Idle

// ID is the patch of one object by one action of a rule.
type ID struct {
	UID    types.UID
	Rule   string
	Action int
}

// Idle is what is known of one.
type Idle struct {
	// version is the version of the object, and body stands for the patch, which leaves it as it is.
	version string
	body    stringhash.Sum
	// until is when another patch may be sent, or to another version, and wait how long that was after the last one.
	until time.Time
	wait  time.Duration
	used  time.Time
}

// NoteIdle records that a patch has left an object at the version that it had.
func (p Patches) NoteIdle(id ID, version string, body stringhash.Sum, now time.Time) {
	wait := backoff.DoubleWait(p[id].wait)
	p[id] = Idle{version: version, body: body, until: now.Add(wait), wait: wait, used: now}
}

// NoteChange records that a patch has changed an object.
func (p Patches) NoteChange(id ID) { delete(p, id) }

// IsIdle says that a patch would change nothing. If that is unknown, wait is when it may be sent to find out; zero: now.
func (p Patches) IsIdle(id ID, version string, body stringhash.Sum, now time.Time) (idle bool, wait time.Time) {
	switch e, known := p[id]; {
	case !known:
		return false, time.Time{}
	case e.version == version && e.body == body:
		return true, time.Time{}
	case now.Before(e.until):
		return false, e.until
	default:
		return false, time.Time{}
	}
}

// KeepUsed records that a plan has left out patches.
func (p Patches) KeepUsed(ids []ID, now time.Time) {
	for _, id := range ids {
		if e, known := p[id]; known {
			e.used = now
			p[id] = e
		}
	}
}

// DropExpired drops what was not of use for long.
func (p Patches) DropExpired(now time.Time) {
	maps.DeleteFunc(p, func(_ ID, e Idle) bool { return now.Sub(e.used) > forgetAfter })
}

// CountBytes is about how much memory is taken.
func (p Patches) CountBytes() int64 { return patchBytes * int64(len(p)) }
