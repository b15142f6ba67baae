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

// Limits bound one Evaluation.
//
// Steps, Growth and Wall are what the conditions, the variables of the spec (whoever reads them first) and the forEach of
// all rules share. What is asked about one item of a rule has ItemSteps and ItemGrowth for itself: a bad item is an error
// of that item, and leaves the others theirs. Keep and a patch that several items share have as much as these items
// together, but no more than Steps and Growth. What is asked about items has a time of its own, as they are many.
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
	// ItemSteps is how much may be done for one item, its variables included. 100,000 when zero.
	ItemSteps int64
	// ItemGrowth is how much may be built for one item, in bytes. 4 MiB when zero.
	ItemGrowth int64
	// ItemWall is how much longer than Wall all items of all rules together may take, for each of them. 1ms when zero: a
	// look into an index takes about a thousandth of that.
	ItemWall time.Duration
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
	if l.ItemSteps <= 0 {
		l.ItemSteps = 100_000
	}
	if l.ItemGrowth <= 0 {
		l.ItemGrowth = 4 << 20
	}
	if l.ItemWall <= 0 {
		l.ItemWall = time.Millisecond
	}
	return l
}

// evaluation is the budget that conditions, variables of the spec and forEach share.
func (l Limits) evaluation() budget { return newBudget("the evaluation", l.Steps, l.Growth) }

// items is the budget of what is asked about so many items at once.
func (l Limits) items(n int) budget {
	if n <= 1 {
		return newBudget("the item", l.ItemSteps, l.ItemGrowth)
	}
	return newBudget("what is asked about several items", min(l.Steps, product(int64(n), l.ItemSteps)), min(l.Growth, product(int64(n), l.ItemGrowth)))
}

// errWall is why an evaluation's context ends when its time has passed.
var errWall = errors.New("the evaluation took too long")

// The sizes that Growth counts.
const (
	valueSize = 16
	entrySize = 64
)

// budget is how much may be done and built, and what is left of that.
type budget struct {
	whose               string
	maxSteps, maxGrowth int64
	steps, growth       int64
}

func newBudget(whose string, steps, growth int64) budget {
	return budget{whose: whose, maxSteps: steps, maxGrowth: growth, steps: steps, growth: growth}
}

// cost is what was used, in steps and bytes together.
func (b *budget) cost() int64 { return (b.maxSteps - b.steps) + (b.maxGrowth - b.growth) }

// meter counts what an evaluation does and builds, and stops it. One evaluation uses it at a time.
type meter struct {
	caller  context.Context
	ctx     context.Context // the caller's, with a deadline
	cancel  context.CancelFunc
	wall    time.Duration   // the time that ends at the deadline
	first   context.Context // ends when only half of that time is left; nil until it is of interest
	*budget                 // who pays now
	ticks   uint
	stopped *Error // why the evaluation was stopped

	// operands is where a call with one or two arguments shows them to its charge, without allocating.
	operands [2]ref.Val
}

// begin gives the meter a time, from now. What is done is paid from a budget that is set for each expression.
func (m *meter) begin(caller context.Context, wall time.Duration) {
	m.caller, m.wall, m.stopped, m.first = caller, wall, nil, nil
	m.ctx, m.cancel = context.WithTimeoutCause(caller, wall, errWall)
}

// again gives it a new time.
func (m *meter) again(wall time.Duration) {
	m.cancel()
	m.begin(m.caller, wall)
}

// longer makes the time end later.
func (m *meter) longer(by time.Duration) {
	deadline, _ := m.ctx.Deadline() // the caller's if that is earlier, which then stays what ends it
	m.cancel()
	m.wall += by
	m.first = nil
	m.ctx, m.cancel = context.WithDeadlineCause(m.caller, deadline.Add(by), errWall)
}

// spares says that there is time for more than answers: half of it is left.
func (m *meter) spares() bool {
	if m.first == nil {
		deadline, _ := m.ctx.Deadline()
		first, end := context.WithDeadline(m.ctx, deadline.Add(-m.wall/2))
		cancel := m.cancel
		m.first, m.cancel = first, func() { end(); cancel() }
	}
	return m.first.Err() == nil
}

// release lets go of what the meter was used for.
func (m *meter) release() {
	m.cancel()
	m.caller, m.ctx, m.first, m.budget = nil, nil, nil, nil
	clear(m.operands[:])
}

// work pays for n steps.
func (m *meter) work(n int64) {
	b := m.budget
	if n > b.steps {
		b.steps = 0
		m.stop(&Error{Kind: Exhausted, Message: fmt.Sprintf("%s needs more than %d steps", b.whose, b.maxSteps),
			Hint: "look things up in list.indexBy(x, key) instead of searching a list for each element of another"})
	}
	b.steps -= n
	m.check()
}

// build pays for n bytes.
func (m *meter) build(n int64) {
	b := m.budget
	if n > b.growth {
		b.growth = 0
		m.stop(&Error{Kind: Exhausted, Message: fmt.Sprintf("%s builds more than %d bytes of strings, lists and maps", b.whose, b.maxGrowth),
			Hint: "filter before you map, and join or concatenate less"})
	}
	b.growth -= n
	m.check()
}

// check looks at the context now and then, as that takes a lock.
func (m *meter) check() {
	const often = 64
	if m.ticks++; m.ticks%often != 0 {
		return
	}
	if m.ctx.Err() != nil {
		m.stop(m.interruption())
	}
}

// interruption says why the context ended.
func (m *meter) interruption() *Error {
	if errors.Is(context.Cause(m.ctx), errWall) {
		return &Error{Kind: Exhausted, Message: fmt.Sprintf("the evaluation takes longer than %s", m.wall)}
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
	case *sortedMap:
		return nativeSize(v.native, limit)
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && total <= limit; {
			key := it.Next()
			total += entrySize + size(key, limit-total)
			total += size(v.Get(key), limit-total)
		}
	case *nativeList:
		return nativeSize(v.native, limit)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && total <= limit; {
			total += size(it.Next(), limit-total)
		}
	}
	return total
}

// nativeSize is size for a value in Go, without making values of all that is in it.
func nativeSize(v any, limit int64) int64 {
	total := int64(valueSize)
	switch v := v.(type) {
	case string:
		total += int64(len(v))
	case map[string]any:
		for key, value := range v {
			if total > limit {
				break
			}
			total += entrySize + valueSize + int64(len(key)) + nativeSize(value, limit-total)
		}
	case []any:
		for _, value := range v {
			if total > limit {
				break
			}
			total += nativeSize(value, limit-total)
		}
	case ref.Val:
		return size(v, limit)
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
