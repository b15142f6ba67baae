// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"sync"
)

// Turns are taken one at a time. Who waits comes after those of other addresses who wait, so that a flood from one address
// delays another one by one turn.
type Turns struct {
	all chan struct{}

	mu       sync.Mutex
	byCaller map[string]*callerTurns
}

// callerTurns are the turns of one address, and how many of it have one or wait.
type callerTurns struct {
	turn    chan struct{}
	waiting int
}

// NewTurns makes Turns.
func NewTurns() *Turns {
	return &Turns{all: make(chan struct{}, 1), byCaller: map[string]*callerTurns{}}
}

// Take waits for a turn of a remote address, and returns what ends it. It is false if ctx is done before. Meanwhile the slot of the
// request that ctx is of can be taken away.
func (t *Turns) Take(ctx context.Context, remoteAddr string) (end func(), ok bool) {
	setSlotState(ctx, waiting)
	if end, ok = t.await(ctx, callerOf(remoteAddr)); ok && !setSlotState(ctx, inUse) {
		end()
		return nil, false
	}
	return end, ok
}

// await waits for a turn of a caller.
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

// join counts one more who waits.
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

// leave counts one less.
func (t *Turns) leave(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.byCaller[caller]; own.waiting == 1 {
		delete(t.byCaller, caller)
	} else {
		own.waiting--
	}
}
