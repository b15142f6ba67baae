// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// Limits bound one call of Programs: all conditions of a Cleaner share them.
type Limits struct {
	// Steps is how much may be done: one for each turn of a loop, and for each value that a comparison of lists or maps,
	// a sort or a search has to look at. 5,000,000 when zero: the proposal's condition takes about 5 steps for each
	// Revision, and a search for each of 20,000 Pods among 1,000 Nodes would take 20,000,000 (indexBy: 21,000).
	Steps int64
	// Growth is how much may be built, in bytes: strings count their length, an element of a list 16, an entry of a map
	// 64. 64 MiB when zero.
	Growth int64
	// Wall is how long it may take. 10s when zero.
	Wall time.Duration
}

func (l Limits) orDefaults() Limits {
	if l.Steps <= 0 {
		l.Steps = 5_000_000
	}
	if l.Growth <= 0 {
		l.Growth = 64 << 20
	}
	if l.Wall <= 0 {
		l.Wall = 10 * time.Second
	}
	return l
}

// The sizes that Growth counts.
const (
	valueSize = 16
	entrySize = 64
)

// errWall is why an evaluation's context ends when Limits.Wall has passed.
var errWall = errors.New("the evaluation took too long")

// meter counts what an evaluation does and builds, and stops it. One evaluation uses it at a time.
type meter struct {
	limits        Limits
	ctx           context.Context
	steps, growth int64 // what is left
	ticks         uint
	stopped       *Error // why the evaluation was stopped

	// operands is where a call with one or two arguments shows them to its charge, without allocating.
	operands [2]ref.Val
}

func (m *meter) refill(ctx context.Context) {
	m.ctx, m.steps, m.growth, m.stopped = ctx, m.limits.Steps, m.limits.Growth, nil
}

// release lets go of what the meter was used for.
func (m *meter) release() {
	m.ctx = nil
	clear(m.operands[:])
}

// cost is what was used of a full meter, in steps and bytes together.
func (m *meter) cost() int64 {
	return (m.limits.Steps - m.steps) + (m.limits.Growth - m.growth)
}

// work pays for n steps.
func (m *meter) work(n int64) {
	if n > m.steps {
		m.steps = 0
		m.stop(&Error{Kind: Exhausted, Message: fmt.Sprintf("the evaluation needs more than %d steps", m.limits.Steps),
			Hint: "look things up in list.indexBy(x, key) instead of searching a list for each element of another"})
	}
	m.steps -= n
	m.check()
}

// build pays for n bytes.
func (m *meter) build(n int64) {
	if n > m.growth {
		m.growth = 0
		m.stop(&Error{Kind: Exhausted, Message: fmt.Sprintf("the evaluation builds more than %d bytes of strings, lists and maps", m.limits.Growth),
			Hint: "filter before you map, and join or concatenate less"})
	}
	m.growth -= n
	m.check()
}

// check looks at the context now and then, as that takes a lock.
func (m *meter) check() {
	const often = 64
	if m.ticks++; m.ticks%often != 0 {
		return
	}
	if m.ctx.Err() == nil {
		return
	}
	m.stop(m.interruption())
}

// interruption says why the context ended.
func (m *meter) interruption() *Error {
	if cause := context.Cause(m.ctx); errors.Is(cause, errWall) {
		return &Error{Kind: Exhausted, Message: fmt.Sprintf("the evaluation takes longer than %s", m.limits.Wall)}
	}
	return &Error{Kind: Interrupted, Message: "the evaluation was interrupted"}
}

// stop ends the evaluation the way cel-go's own limits do.
func (m *meter) stop(why *Error) {
	m.stopped = why
	panic(interpreter.EvalCancelledError{Message: why.Message, Cause: interpreter.CostLimitExceeded})
}

// size is how large a value is with all that is in it, in the bytes of Limits.Growth. It looks no further than limit:
// a value in which one list occurs many times can be too large to be walked.
func size(v ref.Val, limit int64) int64 {
	total := int64(valueSize)
	switch v := v.(type) {
	case types.String:
		total += int64(len(v))
	case types.Bytes:
		total += int64(len(v))
	case *types.Optional:
		if v.HasValue() {
			total += size(v.GetValue(), limit-total)
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && total <= limit; {
			key := it.Next()
			total += entrySize + size(key, limit-total)
			total += size(v.Get(key), limit-total)
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && total <= limit; {
			total += size(it.Next(), limit-total)
		}
	}
	return total
}

// values is about how many values there are in a value, itself among them. It looks no further than limit, and no
// further than what cannot be paid for any more.
func (m *meter) values(v ref.Val, limit int64) int64 {
	return size(v, product(valueSize, min(limit, m.steps)+1)) / valueSize
}

// flatSize is how large a value is without what its elements hold.
func flatSize(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String:
		return int64(len(v))
	case types.Bytes:
		return int64(len(v))
	case traits.Mapper:
		return product(entrySize, length(v))
	case traits.Lister:
		return product(valueSize, length(v))
	default:
		return valueSize
	}
}

// length is how many elements or bytes a value has.
func length(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String: // its Size counts code points, slowly
		return int64(len(v))
	case traits.Sizer:
		if n, ok := v.Size().(types.Int); ok {
			return int64(n)
		}
	}
	return 0
}

// product multiplies numbers that are not negative. What is too large for an int64 is the largest one.
func product(a, b int64) int64 {
	if a != 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// sum adds numbers that are not negative. What is too large for an int64 is the largest one.
func sum(numbers ...int64) int64 {
	total := int64(0)
	for _, n := range numbers {
		if n > math.MaxInt64-total {
			return math.MaxInt64
		}
		total += n
	}
	return total
}
