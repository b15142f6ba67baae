// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package contain

import (
	"strings"
	"sync/atomic"
	"testing"
)

func explode(i int) {
	var list []int
	_ = list[i] //nolint:gosec // the panic is meant
}

func TestCatch(t *testing.T) {
	if p := CatchPanic(func() {}); p != nil {
		t.Errorf("nothing happened, and %v was caught", p)
	}
	var told []*Panic
	SetObserver(func(p *Panic) { told = append(told, p) })
	p := CatchPanic(func() { explode(3) })
	if p == nil || !strings.Contains(p.Error(), "index out of range [3]") || !strings.Contains(p.Stack, "explode") {
		t.Fatalf("caught %+v", p)
	}
	if again := CatchPanic(func() { panic(p) }); again != p {
		t.Errorf("handed on it is %+v, without the stack of where it happened", again)
	}
	if len(told) != 1 || told[0] != p {
		t.Errorf("the observer was told of %v", told)
	}
	SetObserver(func(*Panic) {})
}

func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 3, 100} {
		done := make([]bool, n)
		var running, most atomic.Int64
		RunParallel(4, n, func(i int) {
			most.Store(max(most.Load(), running.Add(1)))
			done[i] = true
			running.Add(-1)
		})
		for i := range done {
			if !done[i] {
				t.Errorf("of %d, %d was left out", n, i)
			}
		}
		if most.Load() > 4 {
			t.Errorf("%d ran at a time", most.Load())
		}
	}
}

func TestEachHandsAPanicToItsCaller(t *testing.T) {
	var begun atomic.Int64
	p := CatchPanic(func() {
		RunParallel(1, 1000, func(i int) { // of several at a time, others may go on until the panic was caught
			begun.Add(1)
			if i == 1 {
				explode(i)
			}
		})
	})
	if p == nil || !strings.Contains(p.Stack, "explode") {
		t.Fatalf("caught %+v", p)
	}
	if n := begun.Load(); n != 2 {
		t.Errorf("%d were begun", n)
	}
}
