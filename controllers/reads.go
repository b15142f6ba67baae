// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// keptReads is how many bytes a pass may have read, at most, for the next one to begin with what it has read.
const keptReads = 1 << 20

// seenBytes is about what an object takes among those that conditions see, for each target that selects it.
const seenBytes = 256

// passReads are the reads of a pass: what they take counts for the pass until it is read again.
type passReads struct {
	share         *memoryquota.Share
	clock         clock.Clock
	watched, live charge
}

func newPassReads(share *memoryquota.Share, c clock.Clock) *passReads {
	return &passReads{share: share, clock: c, watched: charge{share: share}, live: charge{share: share}}
}

// meterWatched returns a Reader of what is watched. What was seen before is let go of.
func (r *passReads) meterWatched(from snapshot.Reader) boundReader {
	r.watched.giveBack()
	return boundReader{from: from, memory: &r.watched}
}

// meterLive returns a Reader of what the API server says, until a moment. What was read before is let go of.
func (r *passReads) meterLive(from snapshot.Reader, until time.Time) boundReader {
	r.live.giveBack()
	return r.meterMoreLive(from, until)
}

// meterMoreLive is meterLive for what is read in addition.
func (r *passReads) meterMoreLive(from snapshot.Reader, until time.Time) boundReader {
	return boundReader{from: from, memory: &r.live, clock: r.clock, until: until}
}

// charge is what reads take of the memory of a pass.
type charge struct {
	share *memoryquota.Share
	taken atomic.Int64
}

// TakeBytes takes so many bytes more.
func (c *charge) TakeBytes(bytes int64) error {
	c.taken.Add(bytes)
	return c.share.TakeBytes(bytes)
}

func (c *charge) giveBack() { _ = c.share.TakeBytes(-c.taken.Swap(0)) } // which is never refused

// boundReader reads within the memory of a pass, and until a moment, if it has a clock.
type boundReader struct {
	from   snapshot.Reader
	memory *charge
	clock  clock.Clock
	until  time.Time
}

// Read answers a query.
func (r boundReader) Read(ctx context.Context, q snapshot.Query) plan.Target {
	if r.clock != nil {
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		left := r.until.Sub(r.clock.Now())
		if left <= 0 {
			return plan.Target{State: plan.Failed, Detail: slowReads}
		}
		timer := r.clock.NewTimer(left)
		defer timer.Stop()
		go func() {
			select {
			case <-timer.C():
				cancel(context.DeadlineExceeded)
			case <-limited.Done():
			}
		}()
		ctx = limited
	}
	return r.from.Read(snapshot.WithMemory(ctx, r.memory), q)
}

// chargeSeen takes what decisions make of a snapshot when a target is deleted: they list all that conditions see, for each target.
func (r boundReader) chargeSeen(work *v1alpha1.Work, s plan.Snapshot) plan.Snapshot {
	if !slices.ContainsFunc(work.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Delete }) {
		return s
	}
	for i := range s {
		if !work.Targets[i].IsIncluded() {
			continue
		}
		if err := r.memory.TakeBytes(int64(len(s[i].Objects)) * seenBytes); err != nil {
			s[i] = plan.Target{State: plan.Failed, Detail: err.Error(), Resource: s[i].Resource, Namespaced: s[i].Namespaced}
		}
	}
	return s
}
