// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestNextBackoff(t *testing.T) {
	a := New(time.Time{})
	for n, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if got := a.NextBackoff(3 * time.Second); got != want {
			t.Errorf("after failure %d it waits %s, want %s", n, got, want)
		}
	}
	for a.Failures = 0; a.Failures < 100; {
		if got := a.NextBackoff(time.Hour); got <= 0 || got > time.Hour {
			t.Fatalf("after %d failures it waits %s", a.Failures, got)
		}
	}
}

// An Alarm rings when it is due, also if that was set while it was waited for, and not before.
func TestWaitDue(t *testing.T) {
	var mu sync.Mutex
	clock := clocktesting.NewFakeClock(start)
	a := New(time.Time{})
	ctx, stop := context.WithCancel(t.Context())
	rings := make(chan bool, 1)
	wait := func() { rings <- a.WaitDue(ctx, clock, &mu) }
	set := func(due time.Time) {
		mu.Lock()
		defer mu.Unlock()
		a.SetDue(due)
	}
	quiet := func(when string) {
		t.Helper()
		select {
		case <-rings:
			t.Fatalf("%s, it rings", when)
		case <-time.After(10 * time.Millisecond):
		}
	}
	go wait()
	quiet("without a time")
	set(start.Add(time.Hour))
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	quiet("before its time")
	clock.Step(time.Hour)
	if !<-rings {
		t.Error("at its time, it has ended")
	}
	go wait()
	if !<-rings {
		t.Error("after its time, it has ended")
	}
	set(time.Time{})
	go wait()
	quiet("without a time again")
	set(start)
	if !<-rings {
		t.Error("at an earlier time, it has ended")
	}
	set(time.Time{})
	go wait()
	stop()
	if <-rings {
		t.Error("it rings when its context is done")
	}
}
