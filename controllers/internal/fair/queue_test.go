// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// told is what an Observer was told last.
type told struct {
	depth  int
	waited []time.Duration
}

func (o *told) SetQueueDepth(n int)               { o.depth = n }
func (o *told) ObserveQueueWait(by time.Duration) { o.waited = append(o.waited, by) }

type line struct {
	*Queue
	workers *Workers
	t       *testing.T
	clock   *clocktesting.FakeClock
	told    *told
}

func newLine(t *testing.T, workers int) *line {
	c, o := clocktesting.NewFakeClock(begin), &told{}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)
	w := NewWorkers(workers, c, o)
	l := &line{Queue: NewQueue("test", w, limiter), workers: w, t: t, clock: c, told: o}
	t.Cleanup(l.ShutDown)
	return l
}

// request is one for a Cleaner whose name begins with its namespace.
func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: name[:1], Name: name}}
}

func (l *line) add(names ...string) {
	for _, name := range names {
		l.Add(request(name))
	}
}

func (l *line) addLow(names ...string) {
	for _, name := range names {
		l.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, request(name))
	}
}

// get has a worker take the next ones.
func (l *line) get(names ...string) {
	l.t.Helper()
	for _, want := range names {
		got, _, end := l.GetWithPriority()
		if end || got.Name != want {
			l.t.Fatalf("a worker gets %q, want %q", got.Name, want)
		}
	}
}

// done has workers end their work after a while.
func (l *line) done(after time.Duration, names ...string) {
	l.clock.Step(after)
	for _, name := range names {
		l.Done(request(name))
	}
}

// TestWorkersAreSharedOut shows that many requests of one namespace do not delay another's, and that a worker is left for it.
func TestWorkersAreSharedOut(t *testing.T) {
	l := newLine(t, 4)
	for i := range 1000 {
		l.add(fmt.Sprint("a", i))
	}
	l.get("a0", "a1")
	l.add("b0")
	l.get("b0")
	l.done(time.Second, "b0", "a0")
	l.get("a2")
	l.add("b1", "b2")
	l.get("b1")
	l.done(time.Second, "a1", "a2", "b1")
	l.get("b2")
	if l.Len() != 997 || l.told.depth != 997 {
		t.Errorf("%d wait, and %d are said to; want 997", l.Len(), l.told.depth)
	}
}

// Who waits for a slot lends its worker, so that others are worked on, and has it back with the slot.
func TestWhoWaitsForASlotLendsItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slots := newLine(t, 2), newHall(1)
		slots.ask("z0")
		var all sync.WaitGroup
		held := make(chan string, 100)
		for i := range 100 {
			name := fmt.Sprintf("%c%d", 'a'+i%10, i)
			l.add(name)
			l.get(name)
			all.Go(func() {
				slot, err := l.workers.TakeSlot(t.Context(), slots.Slots, request(name).NamespacedName)
				if err != nil {
					t.Error(err)
				}
				held <- name
				slot.GiveBack()
			})
			synctest.Wait()
		}
		l.add("x0", "y0")
		l.get("x0", "y0") // both workers are at work, and 100 wait
		l.add("x1", "y1")
		synctest.Wait()
		if n := l.ready.order.free; n != 0 {
			t.Errorf("%d workers are free", n)
		}
		slots.slots["z0"].GiveBack()
		all.Wait()
		if len(held) != 100 {
			t.Errorf("%d have had their slot", len(held))
		}
		if n := l.ready.order.free; n != -100 {
			t.Errorf("%d workers are free, and 102 are at work", n)
		}
	})
}

// A namespace lends half of the workers that may be lent at most, the next one half of the rest: who waits beyond that keeps its worker.
func TestLentWorkersAreBounded(t *testing.T) {
	l := newLine(t, 1000)
	lend := func(namespace string, n int) (back []func()) {
		for i := range n {
			name := fmt.Sprint(namespace, i)
			l.add(name)
			l.get(name)
			back = append(back, l.ready.lendWorker(request(name)))
		}
		return back
	}
	back := lend("a", 200)
	if l.ready.lent != maxLent/2 || l.ready.order.free != 1000-80 {
		t.Errorf("%d workers are lent, and %d are free", l.ready.lent, l.ready.order.free)
	}
	back = append(back, lend("b", 200)...)
	if l.ready.lent != maxLent*3/4 || l.ready.order.free != 1000-80-140 {
		t.Errorf("%d workers are lent, and %d are free", l.ready.lent, l.ready.order.free)
	}
	for _, b := range back {
		b()
	}
	if l.ready.lent != 0 || len(l.ready.lentBy) != 0 || l.ready.order.free != 600 {
		t.Errorf("%d workers are lent, and %d are free", l.ready.lent, l.ready.order.free)
	}
	l.ready.lendWorker(request("c0"))() // nobody works on it
	if l.ready.order.free != 600 {
		t.Errorf("%d workers are free", l.ready.order.free)
	}
}

// One of eight workers is kept for namespaces whose work was short.
func TestWorkersAreKeptForShortWork(t *testing.T) {
	l := newLine(t, 16)
	l.add("z0")
	l.get("z0")
	l.done(time.Second, "z0")
	for i := range 20 {
		l.add(fmt.Sprintf("%c0", 'a'+i))
	}
	for i := range 14 {
		l.get(fmt.Sprintf("%c0", 'a'+i))
	}
	l.add("z1", "z2")
	l.get("z1")
	l.done(0, "z1")
	l.get("z2")
	l.done(time.Minute, "a0")
	l.get("o0")
}

// TestAWorkerWaitsForAPlace shows that a worker waits while all that is due is of a namespace that has its share, and gets the
// next one when there is room.
func TestAWorkerWaitsForAPlace(t *testing.T) {
	l := newLine(t, 2)
	l.add("a0", "a1")
	l.get("a0")
	got := make(chan string)
	go func() {
		r, _ := l.Get()
		got <- r.Name
	}()
	l.done(time.Second, "a0")
	if name := <-got; name != "a1" {
		t.Errorf("it gets %q", name)
	}
}

// TestOneRequestIsOneWork shows that no two workers have the same request, and that nothing is lost that comes meanwhile.
func TestOneRequestIsOneWork(t *testing.T) {
	l := newLine(t, 8)
	l.add("a0", "a0", "b0")
	l.get("a0")
	l.add("a0", "a0")
	l.get("b0")
	if n := l.Len(); n != 0 {
		t.Errorf("%d wait", n)
	}
	l.done(time.Second, "a0", "b0", "b0")
	l.get("a0")
	l.done(time.Second, "a0")
	if n := l.Len(); n != 0 {
		t.Errorf("%d wait", n)
	}
	if want := []time.Duration{0, 0, 0}; !slices.Equal(l.told.waited, want) {
		t.Errorf("they have waited for %v, want %v", l.told.waited, want)
	}
}

// TestWhatWasThereComesLast shows that a start on many objects does not delay what happens now, in its own namespace neither.
func TestWhatWasThereComesLast(t *testing.T) {
	l := newLine(t, 16)
	l.addLow("a0", "a1", "a2", "a3")
	l.add("a4", "a2")
	l.addLow("a4")
	l.get("a4", "a2", "a0")
	l.addLow("a4") // while a worker has it
	l.add("a2")
	l.done(time.Second, "a4", "a2", "a0")
	l.get("a2", "a1", "a3", "a4")
}

// TestDelays shows that a request comes when it is due, and after failures later each time.
func TestDelays(t *testing.T) {
	l := newLine(t, 8)
	l.AddWithOpts(priorityqueue.AddOpts{After: time.Minute, Priority: new(handler.LowPriority)}, request("a0"))
	l.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request("a1"))
	wait := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); l.Len() != n; {
			if time.Now().After(deadline) {
				t.Fatalf("%d wait, want %d", l.Len(), n)
			}
		}
	}
	for !l.clock.HasWaiters() { // the delays are of a goroutine of client-go
		time.Sleep(time.Millisecond)
	}
	if l.Len() != 0 {
		t.Fatalf("%d are due", l.Len())
	}
	l.clock.Step(time.Second)
	wait(1)
	l.get("a1")
	l.done(0, "a1")
	if n := l.NumRequeues(request("a1")); n != 1 {
		t.Errorf("it has failed %d times", n)
	}
	l.clock.Step(time.Minute)
	wait(1)
	l.get("a0")
}

// TestShutDown shows that workers end at once, and that what is left is done first where that is asked for.
func TestShutDown(t *testing.T) {
	l := newLine(t, 8)
	l.add("a0", "a1", "b0")
	l.get("a0")
	l.ShutDown()
	l.add("c0")
	if _, end := l.Get(); !end || !l.ShuttingDown() {
		t.Error("a worker goes on")
	}

	l = newLine(t, 8)
	l.add("a0", "a1")
	l.get("a0")
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		l.ready.ShutDownWithDrain()
	}()
	for !l.ShuttingDown() {
		time.Sleep(time.Millisecond)
	}
	l.get("a1")
	l.done(0, "a0", "a1")
	<-drained
	if _, end := l.Get(); !end {
		t.Error("a worker goes on")
	}
}
