// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patched remembers which patches need not be made again while their objects stand as they were left. It patches nothing.
package patched

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

const (
	// forgetPatches is for how long it is remembered that an object was patched: longer than anything waits after a failure.
	forgetPatches = 10 * time.Minute
	// patchedBytes is about how much memory an object takes, and madeBytes a patch, besides its items.
	patchedBytes, madeBytes = 320, 120
)

// Patches are those that were made to objects, by UID, which are as the last of them has left them as long as their
// version is the same. When a later action on an item is refused, the next try goes on with that one, instead of patching
// the same object once more. Losing them costs patches.
type Patches map[types.UID]patched

// patched is what was made of one object.
type patched struct {
	version string                       // as the last request was answered
	made    map[patchID][]stringhash.Sum // the items that it was for
	at      time.Time
}

// patchID is an action of a rule.
type patchID struct {
	rule   string
	action int
}

// NotePatch records that a request on an object named a version, and was answered with another one; empty if nobody knows.
func (p Patches) NotePatch(s *plan.Step, named, answered string, now time.Time) {
	uid := s.Object.UID
	e, known := p[uid]
	if !known || e.version != named {
		e = patched{}
	}
	if answered == "" || s.Verb != plan.VerbPatch && e.made == nil {
		delete(p, uid)
		return
	}
	e.version, e.at, e.made = answered, now, maps.Clone(e.made)
	if s.Verb == plan.VerbPatch {
		if e.made == nil {
			e.made = map[patchID][]stringhash.Sum{}
		}
		items := make([]stringhash.Sum, len(s.Keys))
		for i, key := range s.Keys {
			items[i] = stringhash.SumOf(key)
		}
		e.made[patchID{s.Rule, s.Action}] = items
	}
	p[uid] = e
}

// HasStood says that a patch was made, for all items that it is for, and that its object is as it was left.
func (p Patches) HasStood(s *plan.Step, version string, now time.Time) bool {
	e, known := p[s.Object.UID]
	made, was := e.made[patchID{s.Rule, s.Action}]
	if !known || e.version != version || !was {
		return false
	}
	of := make(map[stringhash.Sum]bool, len(made))
	for _, key := range made {
		of[key] = true
	}
	if slices.ContainsFunc(s.Keys, func(key string) bool { return !of[stringhash.SumOf(key)] }) {
		return false
	}
	e.at = now
	p[s.Object.UID] = e
	return true
}

// DropExpired drops what was not of use for long.
func (p Patches) DropExpired(now time.Time) {
	maps.DeleteFunc(p, func(_ types.UID, e patched) bool { return now.Sub(e.at) > forgetPatches })
}

// CountBytes is about how much memory is taken.
func (p Patches) CountBytes() (n int64) {
	for _, e := range p {
		n += patchedBytes
		for _, items := range e.made {
			n += madeBytes + int64(len(items))*int64(len(stringhash.Sum{}))
		}
	}
	return n
}
