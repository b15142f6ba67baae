// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// defaultPer is limits.per where a spec gives none.
const defaultPer = time.Hour

// Done are deeds of this process, oldest first.
type Done []Deed

// Deed is something that was done to an object.
type Deed struct {
	At  time.Time
	UID types.UID
	// Items is how many items it stood for; at least 1.
	Items int
	// Targets are the names of the targets that the object was in.
	Targets []string
}

// Since is what is left of the deeds when those are dropped that lie as long ago as a limit counts, or longer.
func (d Done) Since(now time.Time, per time.Duration) Done {
	for len(d) > 0 && !d[0].At.After(now.Add(-per)) {
		d = d[1:]
	}
	return d
}
