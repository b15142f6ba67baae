// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contain keeps a panic in a goroutine of ours from ending the process: the panic becomes an error for the caller that waits for
// the goroutine, with the stack of the place where it happened.
package contain

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Panic is what a function panicked with, as an error.
type Panic struct {
	Value any
	// Stack is where it happened, for the log.
	Stack string
}

// Error says what happened, without the stack.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// observer receives each panic once. There is one for the process, because some panics happen below code of others, which passes on only
// an error.
var observer atomic.Pointer[func(*Panic)] //nolint:gochecknoglobals // panics happen below code that hands on nothing but an error

// SetObserver has a function called for each panic that is contained from now on.
func SetObserver(tell func(*Panic)) { observer.Store(&tell) }

// NewPanic returns the Panic of what recover returned, for the function that recovers. One that was handed on from another
// goroutine keeps its stack.
func NewPanic(value any) *Panic {
	if p, ok := value.(*Panic); ok {
		return p
	}
	p := &Panic{Value: value, Stack: string(debug.Stack())}
	if tell := observer.Load(); tell != nil {
		(*tell)(p)
	}
	return p
}

// CatchPanic calls a function, and returns its panic; nil if there was none.
func CatchPanic(do func()) (caught *Panic) {
	defer func() {
		if value := recover(); value != nil {
			caught = NewPanic(value)
		}
	}()
	do()
	return nil
}

// RunParallel calls do for 0 to n-1, so many at a time, and returns when all have returned. After a panic no more are begun, and
// it panics itself, in the goroutine of the caller.
func RunParallel(atATime, n int, do func(i int)) {
	next := make(chan int)
	var first atomic.Pointer[Panic]
	var workers sync.WaitGroup
	for range min(atATime, n) {
		workers.Go(func() {
			for i := range next {
				if first.Load() != nil {
					continue // the caller still hands them out
				}
				if p := CatchPanic(func() { do(i) }); p != nil {
					first.CompareAndSwap(nil, p)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	if p := first.Load(); p != nil {
		panic(p)
	}
}
