// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Whoever asks and gives back, in whatever order: no more have a slot than there are, nobody waits who may have one, each comes once and
// in the order of its namespace, and all slots are free in the end.
func TestSlotsAreSharedOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 6).Draw(t, "places")
		kept := rapid.IntRange(0, places-1).Draw(t, "kept")
		h := newHall(places)
		h.order.freeForLong -= kept
		held, last := map[string]int{}, map[string]int{} // by namespace: how many, and the number of the last that came
		var all []*Slot
		var owners []string
		for n := range rapid.IntRange(1, 40).Draw(t, "events") {
			if len(all) == 0 || rapid.Bool().Draw(t, "asks") {
				namespace := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "namespace")
				all, owners = append(all, h.AskSlot(types.NamespacedName{Namespace: namespace}, func() {
					if held[namespace]++; n < last[namespace] {
						t.Fatalf("number %d of %q comes after %d", n, namespace, last[namespace])
					}
					last[namespace] = n
				})), append(owners, namespace)
			} else {
				at := rapid.IntRange(0, len(all)-1).Draw(t, "gives back")
				if all[at].IsHeld() {
					held[owners[at]]--
				}
				h.clock.SetTime(h.clock.Now().Add(time.Duration(rapid.IntRange(-1, 3).Draw(t, "seconds")) * time.Second))
				all[at].GiveBack()
			}
			sum := 0
			for _, n := range held {
				sum += n
			}
			if sum > places || h.order.free != places-sum {
				t.Fatalf("%d have a slot of %d, and %d are free", sum, places, h.order.free)
			}
			long := 0
			for namespace, s := range h.order.shares {
				if !s.isShort() {
					long += held[namespace]
				}
			}
			if long != places-kept-h.order.freeForLong {
				t.Fatalf("%d places have long work, and %d are counted", long, places-kept-h.order.freeForLong)
			}
			for i, slot := range all {
				free := h.order.free
				if !h.order.shares[owners[i]].isShort() {
					free = min(free, places-kept-long)
				}
				if slot.waits != nil && held[owners[i]] < free {
					t.Fatalf("%q waits with %d, and %d are free for it", owners[i], held[owners[i]], free)
				}
			}
			for namespace, s := range h.order.shares {
				line := h.order.long
				if s.isShort() {
					line = h.order.short
				}
				if s.place >= 0 && (s.place >= line.Len() || line[s.place] != s) {
					t.Fatalf("%q is not in the line where it belongs", namespace)
				}
			}
		}
		for i := len(all) - 1; i >= 0; i-- { // from the end, so that nobody comes anew
			if all[i].IsHeld() {
				held[owners[i]]--
			}
			all[i].GiveBack()
		}
		if h.order.free != places || h.order.countWaiting() != 0 {
			t.Fatalf("%d are free of %d, and %d namespaces wait", h.order.free, places, h.order.countWaiting())
		}
	})
}

// Many take slots at a time, and some give up: no more work than there are slots, and each slot comes back.
func TestSlotsAreSafeForConcurrentUse(t *testing.T) {
	const places = 3
	s := NewSlots(places, clocktesting.NewFakePassiveClock(begin))
	var busy atomic.Int64
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if n%3 == 0 {
				cancel() // it may still come, and must be given back then
			}
			defer cancel()
			slot, err := s.TakeSlot(ctx, types.NamespacedName{Namespace: fmt.Sprint(n % 5)})
			if err != nil {
				return
			}
			if now := busy.Add(1); now > places || !slot.IsHeld() {
				t.Errorf("%d have a slot", now)
			}
			busy.Add(-1)
			slot.GiveBack()
			slot.GiveBack() // to repeat it changes nothing
		})
	}
	all.Wait()
	if s.order.free != places || s.order.countWaiting() != 0 {
		t.Errorf("%d are free, and %d namespaces wait", s.order.free, s.order.countWaiting())
	}
}

// Many workers and many who add: no request is of two workers at the same time, and the last that was added of each is done.
func TestQueueIsSafeForConcurrentUse(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)
	q := NewQueue("test", 4, limiter, clocktesting.NewFakeClock(begin), &told{})
	const requests, times = 20, 50
	var wanted, done, busy [requests]atomic.Int64
	var workers, adders sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				r, end := q.Get()
				if end {
					return
				}
				var n int
				if _, err := fmt.Sscan(r.Name[1:], &n); err != nil {
					t.Error(err)
				}
				if busy[n].Add(1) > 1 {
					t.Errorf("%s is of two workers", r.Name)
				}
				done[n].Store(wanted[n].Load())
				busy[n].Add(-1)
				q.Done(r)
			}
		})
	}
	for n := range requests {
		adders.Go(func() {
			for i := range times {
				wanted[n].Store(int64(i + 1))
				low := -1
				q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, request(fmt.Sprintf("%c%d", 'a'+n%3, n)))
			}
		})
	}
	adders.Wait()
	q.ShutDownWithDrain()
	workers.Wait()
	for n := range done {
		if done[n].Load() != times {
			t.Errorf("request %d was done for the last time at its change %d of %d", n, done[n].Load(), times)
		}
	}
}

func (o *order[T]) countWaiting() int { return o.short.Len() + o.long.Len() }
