// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Settling knows which CustomResourceDefinitions have just changed, and when all API servers serve objects by them. Its caller needs a lock.
type Settling struct {
	after time.Duration
	until map[schema.GroupResource]time.Time
}

// NewSettling returns Settling where a definition holds everywhere so long after a change, and at most twice as long: many that change at once do not all
// settle at the same time.
func NewSettling(after time.Duration) *Settling {
	return &Settling{after: after, until: map[schema.GroupResource]time.Time{}}
}

// NoteChange records how a definition was before and is now, if it has changed, and is neither new nor gone.
func (s *Settling) NoteChange(before, now *observed.Object, at time.Time) {
	if before != nil && now != nil && DefinitionState(before) != DefinitionState(now) {
		of := schema.ParseGroupResource(now.Name)
		delete(s.until, of)
		s.Settle(of, at)
	}
}

// FindEnd returns when a definition holds everywhere that has just changed; zero: it has not.
func (s *Settling) FindEnd(of schema.GroupResource, now time.Time) time.Time {
	maps.DeleteFunc(s.until, func(_ schema.GroupResource, at time.Time) bool { return !now.Before(at) })
	return s.until[of]
}

// Settle is FindEnd for a definition that is known to have changed, which begins to settle now if it has not before.
func (s *Settling) Settle(of schema.GroupResource, now time.Time) time.Time {
	if s.FindEnd(of, now).IsZero() {
		s.until[of] = now.Add(wait.Jitter(s.after, 1))
	}
	return s.until[of]
}
