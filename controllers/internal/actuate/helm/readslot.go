// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
)

// ReadSlot takes the slot in which a record may be read, and waits for it: each read takes some tens of megabytes, and some tenths of a second. The
// caller calls leave after it. ReadSlot returns an error if ctx is done before. A program that has nothing else to do meanwhile, such as the
// command line, needs no ReadSlot: nil does not wait.
type ReadSlot func(ctx context.Context) (leave func(), err error)

// run does some work in a slot, or says why it did not.
func (s ReadSlot) run(ctx context.Context, work func()) error {
	if s != nil {
		leave, err := s(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	if err := ctx.Err(); err != nil { // it may be done although the slot has come
		return err
	}
	work()
	return nil
}

// ErrTooSlow ends what takes too long.
var ErrTooSlow = errors.New("reading what the uninstall depends on takes too long: the API server is too slow, or the release is too large")

// LimitTime returns a context that ends with ErrTooSlow after so much time, and a slot whose wait does not count. They are for one
// goroutine, which calls stop in the end.
func LimitTime(ctx context.Context, c clock.Clock, limit time.Duration, wait ReadSlot) (_ context.Context, slot ReadSlot, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	left, began, timer := limit, c.Now(), c.NewTimer(limit)
	go func() {
		select {
		case <-timer.C():
			cancel(ErrTooSlow)
		case <-ctx.Done():
		}
	}()
	slot = func(ctx context.Context) (leave func(), err error) {
		timer.Stop()
		left -= c.Since(began)
		leave, err = wait(ctx)
		began = c.Now()
		timer.Reset(max(left, 0))
		return leave, err
	}
	return ctx, slot, func() {
		timer.Stop()
		cancel(nil)
	}
}
