// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package passreads bounds what one pass over a Cleaner reads: the memory that it takes, and until when. It decides nothing.
package passreads

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// SlowReads is the message when live reads took too long to act on.
const SlowReads = "evaluation and reads from the API server took too long: there are too many objects, or the expressions or the API server are slow"

// SeenBytes is about what an object takes among those that conditions see, for each target that selects it.
const SeenBytes = 256

// Reads are the reads of a pass: what they take counts for the pass until it is read again.
type Reads struct {
	share         *memoryquota.Share
	clock         clock.Clock
	watched, live charge
}

// New returns the reads of a pass, which has no clock if it reads nothing live.
func New(share *memoryquota.Share, c clock.Clock) *Reads {
	return &Reads{share: share, clock: c, watched: charge{share: share}, live: charge{share: share}}
}

// MeterWatched returns a Reader of what is watched. What was seen before is let go of.
func (r *Reads) MeterWatched(from snapshot.Reader) Reader {
	r.watched.giveBack()
	return Reader{from: from, memory: &r.watched}
}

// MeterLive returns a Reader of what the API server says, until a moment. What was read before is let go of.
func (r *Reads) MeterLive(from snapshot.Reader, until time.Time) Reader {
	r.live.giveBack()
	return r.MeterMoreLive(from, until)
}

// MeterMoreLive is MeterLive for what is read in addition.
func (r *Reads) MeterMoreLive(from snapshot.Reader, until time.Time) Reader {
	return Reader{from: from, memory: &r.live, clock: r.clock, until: until}
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

// Reader reads within the memory of a pass, and until a moment, if it has a clock.
type Reader struct {
	from   snapshot.Reader
	memory *charge
	clock  clock.Clock
	until  time.Time
}

// Read answers a query.
func (r Reader) Read(ctx context.Context, q snapshot.Query) observed.Target {
	if r.clock != nil {
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		left := r.until.Sub(r.clock.Now())
		if left <= 0 {
			return observed.Target{State: observed.Failed, Detail: SlowReads}
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

// ChargeSeen takes what decisions make of a snapshot when a target is deleted: they list all that conditions see, for each target.
func (r Reader) ChargeSeen(work *v1alpha1.Work, s observed.Snapshot) observed.Snapshot {
	if !slices.ContainsFunc(work.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Delete }) {
		return s
	}
	for i := range s {
		if !work.Targets[i].IsIncluded() {
			continue
		}
		if err := r.memory.TakeBytes(int64(len(s[i].Objects)) * SeenBytes); err != nil {
			s[i] = observed.Target{State: observed.Failed, Detail: err.Error(), Resource: s[i].Resource, Namespaced: s[i].Namespaced}
		}
	}
	return s
}
