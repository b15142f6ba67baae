// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestAReadSlotEndsWithItsContext waits for a slot, and has one that comes too late: nothing is done in it.
func TestAReadSlotEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	waits := ReadSlot(func(ctx context.Context) (func(), error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err := waits.run(ctx, func() { t.Error("it is read when its time is over") }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	left := false
	comes := ReadSlot(func(context.Context) (func(), error) { return func() { left = true }, nil })
	if err := comes.run(ctx, func() { t.Error("it is read when its time is over") }); !errors.Is(err, context.Canceled) || !left {
		t.Errorf("got %v, and the slot was left: %t", err, left)
	}
}

// TestTimeIsLimited shows when a reading ends, and that the wait for its slot does not count.
func TestTimeIsLimited(t *testing.T) {
	const limit = 10 * time.Second
	begin := func(t *testing.T, waits time.Duration) (c *clocktesting.FakeClock, ctx context.Context, slot ReadSlot) {
		t.Helper()
		c = clocktesting.NewFakeClock(epoch)
		ctx, slot, stop := LimitTime(t.Context(), c, limit, func(context.Context) (func(), error) {
			c.Step(waits)
			return func() {}, nil
		})
		t.Cleanup(stop)
		return c, ctx, slot
	}
	goesOn := func(t *testing.T, ctx context.Context) {
		t.Helper()
		if ctx.Err() != nil {
			t.Errorf("it ends too early: %v", context.Cause(ctx))
		}
	}
	ends := func(t *testing.T, ctx context.Context) {
		t.Helper()
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Second):
			t.Fatal("it does not end")
		}
		if cause := context.Cause(ctx); !errors.Is(cause, ErrTooSlow) {
			t.Errorf("it ends because of %v", cause)
		}
	}
	t.Run("WithoutASlot", func(t *testing.T) {
		c, ctx, _ := begin(t, 0)
		c.Step(limit - 1)
		goesOn(t, ctx)
		c.Step(1)
		ends(t, ctx)
	})
	t.Run("WithASlot", func(t *testing.T) {
		c, ctx, slot := begin(t, time.Hour)
		for range 3 {
			c.Step(limit / 4)
			if err := slot.run(ctx, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		goesOn(t, ctx)
		c.Step(limit/4 - 1)
		goesOn(t, ctx)
		c.Step(1)
		ends(t, ctx)
	})
	t.Run("Stopped", func(t *testing.T) {
		c := clocktesting.NewFakeClock(epoch)
		ctx, _, stop := LimitTime(t.Context(), c, limit, nil)
		stop()
		if !errors.Is(context.Cause(ctx), context.Canceled) || c.HasWaiters() {
			t.Errorf("it ended with %v, and its timer runs: %t", context.Cause(ctx), c.HasWaiters())
		}
	})
}
