// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memorybudget

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/utils/clock"
)

const (
	// releaseLooks is the time between two looks of a Releaser, and quietBytes how much may be allocated between them if little is done.
	releaseLooks = 5 * time.Second
	quietBytes   = 4 << 20
	// leastSpare is how many bytes must be spare, and leastShare which part of those that are live, or giving them back is not worth the time.
	leastSpare = 16 << 20
	leastShare = 4
	// releaseRest is the least time between two releases.
	releaseRest = 2 * time.Minute
)

// heapUse is what a heap holds, in bytes: what was live when garbage was last collected, what is in use, which is that and garbage, and what is free
// but not given back. allocated counts all that ever was.
type heapUse struct{ live, used, free, allocated uint64 }

// hasSpare reports whether much memory is garbage or free.
func (u heapUse) hasSpare() bool {
	return u.free+u.used >= u.live+max(leastSpare, u.live/leastShare)
}

// Releaser gives memory back to the system that a process has needed for a while only, such as for its first lists. Go keeps that for a long time in a
// process that does little.
type Releaser struct {
	clock   clock.WithTicker
	measure func() heapUse
	release func()
}

// NewReleaser makes a Releaser of this process.
func NewReleaser(c clock.WithTicker) *Releaser {
	return &Releaser{clock: c, measure: measureHeap, release: debug.FreeOSMemory}
}

func measureHeap() heapUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	return heapUse{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()}
}

// NeedLeaderElection has it started in each replica.
func (r *Releaser) NeedLeaderElection() bool { return false }

// Start gives back what is spare, each time that little is done, until ctx is done.
func (r *Releaser) Start(ctx context.Context) error {
	ticker := r.clock.NewTicker(releaseLooks)
	defer ticker.Stop()
	before := r.measure()
	var released time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		now := r.measure()
		isQuiet := now.allocated-before.allocated < quietBytes
		before = now
		if isQuiet && now.hasSpare() && r.clock.Since(released) >= releaseRest {
			r.release()
			released = r.clock.Now()
		}
	}
}
