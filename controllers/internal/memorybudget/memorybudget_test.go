// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memorybudget

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// heap is what a Budget measures: what is live, and what is garbage that was live when it was last collected.
type heap struct {
	mu            sync.Mutex
	live, garbage int64
	collections   int
}

func (h *heap) measure() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live + h.garbage
}

func (h *heap) collect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.garbage = 0
	h.collections++
}

func (h *heap) set(live, garbage int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live, h.garbage = live, garbage
}

// looks runs a Budget, and has it look once each time.
type looks struct {
	*testing.T
	*heap
	clock *clocktesting.FakeClock
	// holds are what can be given up, and given what was.
	holds []int64
	given []int64
}

func newLooks(t *testing.T, limit int64, holds ...int64) *looks {
	l := &looks{T: t, heap: &heap{}, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), holds: holds}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		NewMeasured(limit, l.measure, l.collect).Run(ctx, l.clock, l.giveUp)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	if limit > 0 {
		l.awaitTimer()
	}
	return l
}

func (l *looks) giveUp(atLeast int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.holds) == 0 {
		return false
	}
	most := slices.Max(l.holds)
	if most < atLeast {
		return false
	}
	l.holds = slices.DeleteFunc(l.holds, func(n int64) bool { return n == most })
	l.given = append(l.given, most)
	l.live -= most
	l.garbage += most
	return true
}

// awaitTimer waits until the next look is planned.
func (l *looks) awaitTimer() {
	l.Helper()
	for end := time.Now().Add(time.Minute); !l.clock.HasWaiters(); runtime.Gosched() {
		if time.Now().After(end) {
			l.Fatal("it does not look again")
		}
	}
}

// after lets time pass, and holds what was given up by then against what is wanted.
func (l *looks) after(d time.Duration, want ...int64) {
	l.Helper()
	l.clock.Step(d)
	l.awaitTimer()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.given, want) {
		l.Fatalf("it gives up %v, want %v", l.given, want)
	}
}

func TestTheLargestGoesFirstAndNoMoreThanNeeded(t *testing.T) {
	l := newLooks(t, 1000, 100, 500, 300)
	l.set(800, 0)
	l.after(lookEvery)
	l.set(900, 0)
	l.after(lookEvery, 500)
	l.after(settleFor, 500) // its garbage is collected, and 400 are left
	l.set(850, 0)
	l.after(lookEvery, 500, 300)
}

// Those who read what was given up hold it for a while: nothing else is given up for that.
func TestWhatIsGivenUpHasTimeToGo(t *testing.T) {
	l := newLooks(t, 1000, 100, 500, 300)
	l.set(900, 0)
	l.after(lookEvery, 500)
	l.set(900, 0) // it is held
	for range 4 {
		l.after(time.Second, 500)
	}
	l.after(time.Second, 500, 300)
}

// What was live when garbage was last collected may be garbage by now: nothing is given up for it.
func TestGarbageIsCollectedFirst(t *testing.T) {
	l := newLooks(t, 1000, 500)
	l.set(600, 390)
	l.after(lookEvery)
	if l.collections != 1 {
		t.Errorf("garbage is collected %d times", l.collections)
	}
	l.after(lookEvery)
	if l.collections != 1 {
		t.Errorf("garbage is collected %d times although there is room", l.collections)
	}
}

// What others hold does not go by giving up what holds little, and to collect garbage each second would take all the time there is.
func TestNothingIsGivenUpForLittle(t *testing.T) {
	l := newLooks(t, 1000, 19, 10)
	l.set(990, 0)
	for range 30 {
		l.after(lookEvery)
	}
	if l.collections != 1 {
		t.Errorf("garbage is collected %d times in half a minute", l.collections)
	}
	l.mu.Lock()
	l.holds = append(l.holds, 20)
	l.mu.Unlock()
	l.after(lookEvery)
	l.set(1021, 0) // more is in use
	l.after(lookEvery, 20)
	if l.collections != 2 {
		t.Errorf("garbage is collected %d times", l.collections)
	}
}

func TestChooseLargest(t *testing.T) {
	sizes := map[string]int64{"a": 1, "b": 5, "c": 3, "d": 2}
	for atLeast, want := range map[int64][]string{0: {"b"}, 5: {"b"}, 6: {"b", "c"}, 8: {"b", "c"}, 10: {"b", "c", "d"}, 11: {"b", "c", "d", "a"}, 12: nil} {
		if got := ChooseLargest(sizes, atLeast); !slices.Equal(got, want) {
			t.Errorf("for %d bytes it chooses %v, want %v", atLeast, got, want)
		}
	}
	if got := ChooseLargest(map[string]int64{}, 0); got != nil {
		t.Errorf("of nothing it chooses %v", got)
	}
}

func TestHasRoom(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, used, more int64
		want              bool
	}{
		"NoLimit":  {0, math.MaxInt64 / 2, math.MaxInt64 / 2, true},
		"Fits":     {1000, 300, 400, true},
		"TooMuch":  {1000, 300, 401, false},
		"Nothing":  {1000, 700, 0, true},
		"FullYet":  {1000, 701, 0, false},
		"AllOfIt":  {1000, 0, 1000, false},
		"LargeOne": {math.MaxInt64, 1 << 40, 1 << 40, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewMeasured(tc.limit, func() int64 { return tc.used }, func() {})
			if got := b.HasRoom(tc.more); got != tc.want {
				t.Errorf("HasRoom(%d) = %t with %d of %d", tc.more, got, tc.used, tc.limit)
			}
		})
	}
}

// Without a limit nothing is measured.
func TestWithoutALimitItEndsAtOnce(t *testing.T) {
	measured := func() int64 {
		t.Error("it measures")
		return 0
	}
	NewMeasured(0, measured, func() {}).Run(t.Context(), clocktesting.NewFakeClock(time.Now()), func(int64) bool {
		t.Error("something is given up")
		return false
	})
}

// The limit is Go's own, or becomes it; and what is measured is the heap of this process.
func TestTheLimitIsThatOfGo(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	debug.SetMemoryLimit(math.MaxInt64)
	if b := New(0); b.Limit() != 0 {
		t.Errorf("the limit is %d although Go has none", b.Limit())
	}
	debug.SetMemoryLimit(6 << 30)
	if b := New(0); b.Limit() != 6<<30 {
		t.Errorf("the limit is %d, and not that of Go", b.Limit())
	}
	b := New(5 << 30)
	if got := debug.SetMemoryLimit(-1); got != 5<<30 || b.Limit() != got {
		t.Errorf("the limit is %d, and Go's %d", b.Limit(), got)
	}
	runtime.GC()
	empty := measureLive()
	held := make([]byte, 64<<20)
	b.collect()
	if more := b.measure() - empty; more < 60<<20 || more > 80<<20 {
		t.Errorf("64 MiB take %d bytes", more)
	}
	runtime.KeepAlive(held)
}

func TestNamespaceShare(t *testing.T) {
	for limit, want := range map[int64]int64{0: math.MaxInt64, 1000: 250} {
		if got := NewMeasured(limit, nil, nil).NamespaceShare(); got != want {
			t.Errorf("of %d bytes, it is %d, want %d", limit, got, want)
		}
	}
}
