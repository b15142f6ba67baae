// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package passreads

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// taking is a Reader that takes so many bytes for each read.
type taking int64

// Read answers a query.
func (r taking) Read(ctx context.Context, _ snapshot.Query) observed.Target {
	if err := snapshot.TakeBytes(ctx, int64(r)); err != nil {
		return observed.Target{State: observed.Failed, Detail: err.Error()}
	}
	return observed.Target{State: observed.Complete}
}

// hanging is a Reader whose reads end with their context.
type hanging chan struct{}

// Read answers no query.
func (r hanging) Read(ctx context.Context, _ snapshot.Query) observed.Target {
	r <- struct{}{}
	<-ctx.Done()
	return observed.Target{State: observed.Failed, Detail: context.Cause(ctx).Error()}
}

func begin(clock *clocktesting.FakeClock) *memoryquota.Share {
	return memoryquota.NewTurns(clock, func(types.NamespacedName) {}).BeginPass(types.NamespacedName{Namespace: "shop", Name: "c"})
}

// What is seen is let go of when it is looked at anew, and what is read in addition is not.
func TestReadsGiveBackTheirMemory(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	share := begin(clock)
	p, q, until := New(share, clock), snapshot.NewObjectQuery("Pod", "shop", ""), clock.Now().Add(time.Minute)
	for range 10 {
		for _, r := range []Reader{p.MeterWatched(taking(memoryquota.Small / 2)), p.MeterLive(taking(memoryquota.Small/4), until)} {
			if got := r.Read(t.Context(), q); got.State != observed.Complete {
				t.Fatalf("%s %s", got.State, got.Detail)
			}
		}
	}
	if share.CountRead() != memoryquota.Small*3/4 {
		t.Errorf("%d bytes are taken", share.CountRead())
	}
	p.MeterMoreLive(taking(memoryquota.Small/4), until).Read(t.Context(), q)
	if share.CountRead() != memoryquota.Small {
		t.Errorf("with what is read in addition %d bytes are taken", share.CountRead())
	}
	if got := p.MeterMoreLive(taking(1), clock.Now()).Read(t.Context(), q); got.State != observed.Failed || got.Detail != SlowReads {
		t.Errorf("without time it comes to %s %q", got.State, got.Detail)
	}
}

// A live read ends at its moment, whatever the API server does.
func TestLiveReadsEnd(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	began, ended := make(hanging), make(chan observed.Target)
	r := New(begin(clock), clock).MeterLive(began, clock.Now().Add(time.Minute))
	go func() { ended <- r.Read(t.Context(), snapshot.NewObjectQuery("Pod", "shop", "")) }()
	<-began
	clock.Step(time.Minute)
	if got := <-ended; got.Detail != context.DeadlineExceeded.Error() {
		t.Errorf("it ends with %q", got.Detail)
	}
}

// Targets are listed once more among what conditions see, where one is deleted: that takes memory too.
func TestSeenObjectsTakeMemory(t *testing.T) {
	work := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{{Name: "a"}, {Name: "b"}, {Name: "c", IncludeWhenEvaluating: new(false)}}}
	for deletes, want := range map[bool]int64{false: 0, true: 30 * SeenBytes} {
		clock := clocktesting.NewFakeClock(time.Now())
		share := begin(clock)
		work.Targets[2].Delete = deletes
		seen := observed.Snapshot{{Objects: make([]observed.Object, 10)}, {Objects: make([]observed.Object, 20)}, {Objects: make([]observed.Object, 40)}}
		New(share, clock).MeterWatched(taking(0)).ChargeSeen(work, seen)
		if share.CountRead() != want {
			t.Errorf("deletes: %t: %d bytes are taken, want %d", deletes, share.CountRead(), want)
		}
	}
	work.Targets[2].Delete = true
	share := begin(clocktesting.NewFakeClock(time.Now()))
	seen := New(share, nil).MeterWatched(nil).ChargeSeen(work, observed.Snapshot{{State: observed.Complete, Objects: make([]observed.Object, memoryquota.Most/SeenBytes+1)}, {}, {}})
	if seen[0].State != observed.Failed {
		t.Errorf("of more than the most it comes to %s", seen[0].State)
	}
}

// Without a moment, reads of what is watched do not end by themselves.
func TestWatchedReadsHaveNoEnd(t *testing.T) {
	r := New(begin(clocktesting.NewFakeClock(time.Now())), nil).MeterWatched(taking(1))
	if got := r.Read(t.Context(), snapshot.NewObjectQuery("Pod", "shop", "")); got.State != observed.Complete {
		t.Errorf("it comes to %s %s", got.State, got.Detail)
	}
}
