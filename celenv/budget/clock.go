// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vtex/cleaner/celenv/expr"
)

// ErrWall is why an evaluation's context ends when its time has passed.
var ErrWall = errors.New("the evaluation took too long")

// Clock bounds how long an evaluation takes. An evaluation that has begun waits for nothing: the caller waits before it begins one, such
// as for a processor.
type Clock struct {
	Ctx      context.Context // the caller's, with a deadline
	Wall     time.Duration   // the time that ends at the deadline
	Ended    *Ending         // says without a lock that Ctx has ended
	cancel   context.CancelFunc
	spareCtx context.Context // ends when only half of the time is left; nil until it is of interest
}

// Ending is set when a context has ended.
type Ending struct{ atomic.Bool }

// newEnding makes an ending of a context.
func newEnding(ctx context.Context) (e *Ending, release func() bool) {
	e = &Ending{}
	if ctx.Err() != nil { // at once, and not soon
		e.Store(true)
	}
	return e, context.AfterFunc(ctx, func() { e.Store(true) })
}

// newClock makes a clock that ends with the caller's context, and after a time from now.
func newClock(caller context.Context, wall time.Duration) Clock {
	ctx, cancel := context.WithTimeoutCause(caller, wall, ErrWall)
	ended, release := newEnding(ctx)
	return Clock{Ctx: ctx, Wall: wall, Ended: ended, cancel: func() { release(); cancel() }}
}

// HasSpareTime says that there is time for more than answers: half of it is left.
func (c *Clock) HasSpareTime() bool {
	if c.spareCtx == nil {
		deadline, _ := c.Ctx.Deadline()
		first, end := context.WithDeadline(c.Ctx, deadline.Add(-c.Wall/2))
		cancel := c.cancel
		c.spareCtx, c.cancel = first, func() { end(); cancel() }
	}
	return c.spareCtx.Err() == nil
}

// NewContextError says why the context ended.
func (c *Clock) NewContextError() *expr.Error {
	if errors.Is(context.Cause(c.Ctx), ErrWall) {
		return &expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("the evaluation takes longer than %s", c.Wall), Hint: HintTooLong}
	}
	return &expr.Error{Kind: expr.Interrupted, Message: "the evaluation was interrupted"}
}

// Release lets go of the context.
func (c *Clock) Release() {
	c.cancel()
	c.Ctx, c.spareCtx = nil, nil
}
