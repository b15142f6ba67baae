// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"time"
)

// turns bound what is computed at a time.
type turns struct {
	// asked has an entry for each request whose page waits for what is computed, and running for each computation: one that does not end when its
	// page has left must not keep others waiting, and there must not be ever more of them.
	asked, running chan struct{}
}

func newTurns() turns {
	return turns{asked: make(chan struct{}, maxComputing), running: make(chan struct{}, maxRunning)}
}

// computed is what a computation gave.
type computed[T any] struct {
	value T
	err   error
}

// takeTurn computes something that takes processor time and reads much, within bounds: few at a time, and each for a limited time. It returns when
// the time is over or the page has left, also if the computation has not ended. What is computed must be used nowhere else.
func takeTurn[T any](ctx context.Context, t turns, limit time.Duration, compute func(context.Context) (T, error)) (T, error) {
	var none T
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTakesTooLong)
	defer cancel()
	for _, room := range []chan struct{}{t.asked, t.running} {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
		if room == t.asked {
			defer func() { <-room }()
		}
	}
	result := make(chan computed[T], 1)
	go func() {
		defer func() { <-t.running }()
		// A part of the time is left to show what there is.
		ctx, cancel := context.WithTimeoutCause(ctx, limit-limit/10, errTakesTooLong)
		defer cancel()
		result <- recoverPanic(ctx, compute)
	}()
	select {
	case is := <-result:
		return is.value, is.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// recoverPanic computes something. A panic fails this page, and not the command, as in the handlers of net/http.
func recoverPanic[T any](ctx context.Context, compute func(context.Context) (T, error)) (is computed[T]) {
	defer func() {
		if p := recover(); p != nil {
			is.err = fmt.Errorf("this is a defect of kubectl cleaner: %v", p)
		}
	}()
	is.value, is.err = compute(ctx)
	if is.err != nil && ctx.Err() != nil {
		is.err = context.Cause(ctx)
	}
	return is
}
