// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memorybudget

import (
	"context"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestChoosePercent(t *testing.T) {
	for name, tc := range map[string]struct {
		live int64
		want int
	}{
		"Nothing":  {0, 400},
		"Small":    {10 << 20, 400},
		"Quarter":  {16 << 20, 300},
		"Half":     {32 << 20, 100},
		"TwoParts": {43 << 20, 50},
		"Full":     {64 << 20, 50},
		"Large":    {4 << 30, 50},
		"Largest":  {math.MaxInt64 / 200, 50},
	} {
		if got := choosePercent(tc.live); got != tc.want {
			t.Errorf("%s: a heap of %d bytes may grow by %d %%, want %d %%", name, tc.live, got, tc.want)
		}
	}
}

// A heap that is larger never has less room, and one of up to 40 MiB always grows to 56 MiB, and to no more than 64 MiB.
func TestTheGoalGrowsWithTheHeap(t *testing.T) {
	for live := int64(1 << 20); live < 1<<30; live += 1 << 19 {
		goal := live + live/100*int64(choosePercent(live))
		if live >= 13<<20 && live <= 40<<20 && (goal < 56<<20 || goal > 64<<20) {
			t.Errorf("a heap of %d MiB grows to %d MiB", live>>20, goal>>20)
		}
		if live > 43<<20 && goal > live+live/2 {
			t.Errorf("a heap of %d MiB grows to %d MiB", live>>20, goal>>20)
		}
	}
}

// pace is a Pacer whose heap is what the test says.
type pace struct {
	mu     sync.Mutex
	live   int64
	chosen []int
}

func (p *pace) measure() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

func (p *pace) set(percent int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chosen = append(p.chosen, percent)
	return 77
}

func (p *pace) last() (percent, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.chosen) == 0 {
		return 0, 0
	}
	return p.chosen[len(p.chosen)-1], len(p.chosen)
}

// collectUntil collects garbage until the last choice is the one that is wanted.
func (p *pace) collectUntil(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; runtime.GC() {
		percent, times := p.last()
		if percent == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the heap may grow by %d %% after %d choices, want %d %%", percent, times, want)
		}
	}
}

func TestThePacerFollowsTheHeap(t *testing.T) {
	p := &pace{live: 32 << 20}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- (&Pacer{live: p.measure, set: p.set}).Start(ctx) }()
	p.collectUntil(t, 100)
	for _, heap := range []struct {
		live int64
		want int
	}{{200 << 20, 50}, {16 << 20, 300}, {1 << 20, 400}} {
		p.mu.Lock()
		p.live = heap.live
		p.mu.Unlock()
		p.collectUntil(t, heap.want)
	}
	_, before := p.last()
	for range 5 {
		runtime.GC()
	}
	if _, after := p.last(); after != before {
		t.Errorf("it chooses the same again, %d times", after-before)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if percent, _ := p.last(); percent != 77 {
		t.Errorf("it leaves %d %% behind, want 77 %% as before", percent)
	}
}

// Who sets GOGC has that.
func TestGOGCIsRespected(t *testing.T) {
	t.Setenv("GOGC", "250")
	p := NewPacer()
	if p != nil {
		t.Fatal("there is a Pacer although GOGC is set")
	}
	if err := p.Start(t.Context()); err != nil || p.NeedLeaderElection() {
		t.Errorf("it cannot be started: %v", err)
	}
	t.Setenv("GOGC", "")
	if NewPacer() == nil {
		t.Error("there is no Pacer although GOGC is not set")
	}
}
