// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"sync"
)

// Turns lets one request at a time run. Each address has at most one request in the queue for the next turn, so that a flood from one
// address delays another address by one turn.
type Turns struct {
	all chan struct{}

	mu       sync.Mutex
	byCaller map[string]*callerTurns
}

// callerTurns is the queue of one address. waiting counts its requests, including the one that runs.
type callerTurns struct {
	turn    chan struct{}
	waiting int
}

// NewTurns returns an empty queue.
func NewTurns() *Turns {
	return &Turns{all: make(chan struct{}, 1), byCaller: map[string]*callerTurns{}}
}

// Take waits for a turn, and returns the function that ends it. ok is false if ctx is done first. While it waits, the slot of the
// request can be taken away.
func (t *Turns) Take(ctx context.Context, remoteAddr string) (end func(), ok bool) {
	setSlotState(ctx, waiting)
	if end, ok = t.await(ctx, callerOf(remoteAddr)); ok && !setSlotState(ctx, inUse) {
		end()
		return nil, false
	}
	return end, ok
}

// await waits for a turn: first among the caller's own requests, then among all callers.
func (t *Turns) await(ctx context.Context, caller string) (end func(), ok bool) {
	own := t.join(caller)
	select {
	case <-ctx.Done():
		t.leave(caller)
		return nil, false
	case own.turn <- struct{}{}:
	}
	select {
	case <-ctx.Done():
		<-own.turn
		t.leave(caller)
		return nil, false
	case t.all <- struct{}{}:
	}
	return func() {
		<-t.all
		<-own.turn
		t.leave(caller)
	}, true
}

// join adds a request to the queue of its caller.
func (t *Turns) join(caller string) *callerTurns {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.byCaller[caller]
	if own == nil {
		own = &callerTurns{turn: make(chan struct{}, 1)}
		t.byCaller[caller] = own
	}
	own.waiting++
	return own
}

// leave removes a request from the queue of its caller.
func (t *Turns) leave(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.byCaller[caller]; own.waiting == 1 {
		delete(t.byCaller, caller)
	} else {
		own.waiting--
	}
}
