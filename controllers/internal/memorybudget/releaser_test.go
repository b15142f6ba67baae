// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memorybudget

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

const mebi = 1 << 20

// spare is a heap that a Releaser looks at.
type spare struct {
	*testing.T
	clock *clocktesting.FakeClock

	mu       sync.Mutex
	now      heapUse
	looks    int
	released int
}

func (s *spare) measure() heapUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return s.now
}

func (s *spare) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released++
	s.now.used, s.now.free = s.now.live, 0
}

func startReleaser(t *testing.T, now heapUse) *spare {
	s := &spare{T: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), now: now}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- (&Releaser{s.clock, s.measure, s.release}).Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s.awaitLooks(1)
	return s
}

func (s *spare) awaitLooks(n int) {
	s.Helper()
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		s.mu.Lock()
		looks := s.looks
		s.mu.Unlock()
		if looks >= n {
			return
		}
		if time.Now().After(end) {
			s.Fatal("it does not look")
		}
	}
}

// after has a heap be so at the next look, and holds the number of releases until the one after it against what is wanted.
func (s *spare) after(when string, now heapUse, want int) {
	s.Helper()
	s.mu.Lock()
	now.allocated += s.now.allocated
	s.now = now
	looks := s.looks
	s.mu.Unlock()
	for n := range 2 { // by the second look, the first has released what it may
		s.clock.Step(releaseLooks)
		s.awaitLooks(looks + n + 1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released != want {
		s.Errorf("%s, it has released %d times, want %d", when, s.released, want)
	}
}

func TestHasSpare(t *testing.T) {
	for name, tc := range map[string]struct {
		use  heapUse
		want bool
	}{
		"Nothing":        {heapUse{live: 50 * mebi, used: 50 * mebi}, false},
		"Free":           {heapUse{live: 50 * mebi, used: 50 * mebi, free: 16 * mebi}, true},
		"Garbage":        {heapUse{live: 50 * mebi, used: 66 * mebi}, true},
		"Both":           {heapUse{live: 50 * mebi, used: 60 * mebi, free: 6 * mebi}, true},
		"Little":         {heapUse{live: 50 * mebi, used: 60 * mebi, free: 5 * mebi}, false},
		"LittleOfMuch":   {heapUse{live: 800 * mebi, used: 900 * mebi, free: 99 * mebi}, false},
		"MuchOfMuch":     {heapUse{live: 800 * mebi, used: 900 * mebi, free: 100 * mebi}, true},
		"LessThanIsLive": {heapUse{live: 50 * mebi, used: 20 * mebi}, false},
	} {
		if got := tc.use.hasSpare(); got != tc.want {
			t.Errorf("%s: it is %t", name, got)
		}
	}
}

// What was needed for a while goes back when little is done, and not again for some time.
func TestSpareMemoryIsReleased(t *testing.T) {
	full := heapUse{live: 50 * mebi, used: 50 * mebi, free: 40 * mebi}
	s := startReleaser(t, heapUse{live: 50 * mebi, used: 50 * mebi})
	s.after("without spare memory", heapUse{live: 50 * mebi, used: 50 * mebi}, 0)
	s.after("with spare memory", full, 1)
	s.after("soon after", full, 1)
	s.clock.Step(releaseRest)
	s.after("later", full, 2)
}

// A process that allocates much uses what is spare.
func TestABusyProcessKeepsItsMemory(t *testing.T) {
	s := startReleaser(t, heapUse{live: 50 * mebi, used: 50 * mebi, free: 40 * mebi})
	for look := range 5 {
		s.mu.Lock()
		s.now.allocated += quietBytes
		s.mu.Unlock()
		s.clock.Step(releaseLooks)
		s.awaitLooks(look + 2)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released > 0 {
		t.Errorf("it has released %d times", s.released)
	}
}

// Of this process, as much is spare after a release as before a peak.
func TestThePeakOfAProcessGoesBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	r := NewReleaser(clock.RealClock{})
	r.release()
	peak := make([]byte, 64*mebi)
	for i := range peak {
		peak[i] = 1
	}
	runtime.KeepAlive(peak)
	if u := r.measure(); u.used < 64*mebi {
		t.Fatalf("with 64 MiB, it has %+v", u)
	}
	r.release()
	if u := r.measure(); u.hasSpare() {
		t.Errorf("after a release, it has %+v", u)
	}
}
