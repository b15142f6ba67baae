// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package contain

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// As many run at a time as may, and no more; and none is begun where there is none.
func TestAsManyRunAsMay(t *testing.T) {
	for _, tc := range []struct{ atATime, n, want int }{{1, 5, 1}, {4, 12, 4}, {8, 3, 3}} {
		var running, most atomic.Int64
		full := make(chan struct{})
		RunParallel(tc.atATime, tc.n, func(int) {
			now := running.Add(1)
			for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
			}
			if now == int64(tc.want) {
				select {
				case <-full:
				default:
					close(full)
				}
			}
			select {
			case <-full:
			case <-time.After(time.Minute):
				t.Errorf("of %d, %d at a time, fewer than %d run", tc.n, tc.atATime, tc.want)
			}
			running.Add(-1)
		})
		if most.Load() != int64(tc.want) {
			t.Errorf("of %d, %d at a time, %d ran", tc.n, tc.atATime, most.Load())
		}
	}
	RunParallel(4, 0, func(i int) { t.Errorf("%d of none is begun", i) })
}

// Whatever a panic carries is kept: an error, a runtime error, nil, and the end of a goroutine that is none.
func TestWhatAPanicCarries(t *testing.T) {
	odd := errors.New("odd")
	if p := CatchPanic(func() { panic(odd) }); p == nil || p.Error() != "panic: odd" {
		t.Errorf("caught %+v", p)
	} else if err, ok := p.Value.(error); !ok || !errors.Is(err, odd) {
		t.Errorf("it carries %v", p.Value)
	}
	if p := CatchPanic(func() { panic(nil) }); p == nil {
		t.Error("a panic of nothing is lost")
	} else if _, ok := p.Value.(*runtime.PanicNilError); !ok {
		t.Errorf("caught %+v", p)
	}
}

// Of several that panic at the same time the caller gets one, after all have returned; the observer is told of each.
func TestSeveralPanicAtOnce(t *testing.T) {
	var told, returned atomic.Int64
	SetObserver(func(*Panic) { told.Add(1) })
	defer SetObserver(func(*Panic) {})
	together := make(chan struct{})
	var here atomic.Int64
	p := CatchPanic(func() {
		RunParallel(3, 3, func(i int) {
			defer returned.Add(1)
			if here.Add(1) == 3 {
				close(together)
			}
			<-together
			panic(i)
		})
	})
	if p == nil || returned.Load() != 3 || told.Load() != 3 {
		t.Errorf("caught %v after %d have returned; the observer was told of %d", p, returned.Load(), told.Load())
	}
}
