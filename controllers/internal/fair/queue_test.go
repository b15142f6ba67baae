// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"fmt"
	"slices"
	"testing"
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
	t     *testing.T
	clock *clocktesting.FakeClock
	told  *told
}

func newLine(t *testing.T, workers int) *line {
	c, o := clocktesting.NewFakeClock(begin), &told{}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)
	l := &line{Queue: NewQueue("test", workers, limiter, c, o), t: t, clock: c, told: o}
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

// TestWhoWaitsForASlotKeepsFewWorkers shows that work that waits for a slot keeps no more workers from others than other work does: of one
// namespace half of them, and where several namespaces have the rest, one whose work was short waits for none of them.
func TestWhoWaitsForASlotKeepsFewWorkers(t *testing.T) {
	l, readings := newLine(t, 16), newHall(1)
	read := func(names ...string) { // each has a worker, and stands in line
		for _, name := range names {
			l.get(name)
			readings.ask(name)
		}
	}
	for i := range 100 {
		l.add(fmt.Sprint("a", i))
	}
	read("a0", "a1", "a2", "a3", "a4", "a5", "a6")
	l.add("z0")
	l.get("z0")
	l.done(time.Millisecond, "z0")
	for _, name := range []string{"b0", "c0", "d0", "e0", "f0", "g0", "h0"} {
		l.add(name)
		read(name)
	}
	l.add("b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1")
	l.add("z1")
	l.get("z1")
	readings.leave("a0", 5*time.Second)
	l.done(5*time.Second, "a0")
	l.get("i1")
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
