// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"time"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/listdiff"
)

// listing is a whole list of an informer, and how it differs from what was known.
type listing struct {
	*listdiff.Diff
	// missedSince is since when the changes may have been, where another informer has missed them; zero: since the last list, or the watch after it.
	missedSince time.Time
	// version is the version of the list. missed counts the changes that the watch has shown after it and that are among the changes.
	version string
	missed  int
}

// noteMissed adds a change that the watch has shown after the list, and that owners hear of later. If there are too many it only counts.
func (l *listing) noteMissed(before, now *cachedobjects.Object) {
	if l.missed++; l.missed <= maxMissed {
		l.AddChange(before, now)
	}
}
