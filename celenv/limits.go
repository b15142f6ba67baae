// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// Limits bound one Evaluation.
//
// Steps and Growth are what the conditions, the variables of the spec (whoever reads them first) and the forEach of all
// rules share. What is asked about one item of a rule has ItemSteps and ItemGrowth for itself: a bad item is an error of
// that item, and leaves the others theirs. Keep and a patch that several items share have as much as these items together,
// but no more than Steps and Growth.
//
// AllSteps, Wall and MaxWall bound everything together: once one of them is used up, nothing more is answered.
type Limits struct {
	// Steps is how much may be done: one for each turn of a loop, for each value that a comparison of lists or maps, a sort
	// or a search has to look at, and for each 64 bytes of text that a function reads. 5,000,000 when zero: the proposal's
	// condition takes about 5 steps for each Revision, and a search for each of 20,000 Pods among 1,000 Nodes would take
	// 20,000,000 (indexBy: 21,000).
	Steps int64
	// Growth is how much may be built, in bytes: strings count their length, an element of a list 16, an entry of a map
	// 64. What that takes in memory is at most four times as much. 64 MiB when zero.
	Growth int64
	// Value is how much one function may build at once, in the same bytes. 16 MiB when zero.
	Value int64
	// ItemSteps is how much may be done for one item, its variables included. 100,000 when zero.
	ItemSteps int64
	// ItemGrowth is how much may be built for one item, in bytes. 4 MiB when zero.
	ItemGrowth int64
	// AllSteps is how much may be done in all, for all items too; 64 bytes that are built are one step. 25,000,000 when
	// zero. What is foreseen and explained has half as much besides, and so has a search for the moment at which conditions
	// change. Together that is at most about 10 seconds of one processor.
	AllSteps int64
	// Wall is how long it may take, and ObjectWall how much longer for each object of the Input: 10s and 1ms when zero.
	// MaxWall is how long it may take in any case: 20s when zero, so that with a search, which has Wall, it is 30s. What the
	// author makes up, such as items that are no objects, gets no time.
	Wall, ObjectWall, MaxWall time.Duration
	// Items is how many items a rule may have. 250,000 when zero.
	Items int
	// Retained is how many bytes of what items gave may be held on to until the decision is made: see Evaluation.Retain.
	// 96 MiB when zero.
	Retained int64
}

func (l Limits) orDefaults() Limits {
	l.Steps = orDefault(l.Steps, 5_000_000)
	l.Growth = orDefault(l.Growth, 64<<20)
	l.Value = orDefault(l.Value, 16<<20)
	l.ItemSteps = orDefault(l.ItemSteps, 100_000)
	l.ItemGrowth = orDefault(l.ItemGrowth, 4<<20)
	l.AllSteps = orDefault(l.AllSteps, 25_000_000)
	l.Wall = orDefault(l.Wall, 10*time.Second)
	l.ObjectWall = orDefault(l.ObjectWall, time.Millisecond)
	l.MaxWall = orDefault(l.MaxWall, 20*time.Second)
	l.Items = orDefault(l.Items, 250_000)
	l.Retained = orDefault(l.Retained, 96<<20)
	return l
}

func orDefault[T int | int64 | time.Duration](given, otherwise T) T {
	if given <= 0 {
		return otherwise
	}
	return given
}

// evaluation is the budget that conditions, variables of the spec and forEach share.
func (l Limits) evaluation(all *int64) budget {
	return newBudget("the evaluation", l.Steps, l.Growth, all)
}

// items is the budget of what is asked about so many items at once.
func (l Limits) items(n int, all *int64) budget {
	if n <= 1 {
		return newBudget("the item", l.ItemSteps, l.ItemGrowth, all)
	}
	return newBudget("what is asked about several items", min(l.Steps, product(int64(n), l.ItemSteps)), min(l.Growth, product(int64(n), l.ItemGrowth)), all)
}

// wall is how long an evaluation of these objects may take.
func (l Limits) wall(in Input) time.Duration {
	objects := int64(0)
	for _, value := range in.Targets {
		if target, ok := value.(map[string]any); ok {
			items, _ := target["items"].([]any)
			objects += int64(len(items))
		}
	}
	more := time.Duration(min(product(objects, int64(l.ObjectWall)), int64(l.MaxWall)))
	return min(l.Wall+more, max(l.MaxWall, l.Wall))
}

// errWall is why an evaluation's context ends when its time has passed.
var errWall = errors.New("the evaluation took too long")

// The sizes that Growth counts.
const (
	valueSize = 16
	entrySize = 64
)

// readStep is how many bytes of text a function compares, hashes or scans in one step.
const readStep = 64

// budget is how much may be done and built, and what is left of that.
type budget struct {
	whose               string
	maxSteps, maxGrowth int64
	steps, growth       int64
	all                 *int64 // what is left of the steps that all budgets share
}

func newBudget(whose string, steps, growth int64, all *int64) budget {
	return budget{whose: whose, maxSteps: steps, maxGrowth: growth, steps: steps, growth: growth, all: all}
}

// cost is what was used, in steps and bytes together.
func (b *budget) cost() int64 { return (b.maxSteps - b.steps) + (b.maxGrowth - b.growth) }

// meter counts what an evaluation does and builds, and stops it. One evaluation uses it at a time.
type meter struct {
	ctx     context.Context // the caller's, with a deadline
	cancel  context.CancelFunc
	wall    time.Duration   // the time that ends at the deadline
	first   context.Context // ends when only half of that time is left; nil until it is of interest
	limits  Limits
	*budget         // who pays now
	ended   *ending // says without a lock that ctx has ended
	stopped *Error  // why the evaluation was stopped

	// operands is where a call with one or two arguments shows them to its charge, without allocating.
	operands [2]ref.Val
}

// ending is set when a context has ended.
type ending struct{ atomic.Bool }

// endingOf is an ending of a context.
func endingOf(ctx context.Context) (e *ending, release func() bool) {
	e = &ending{}
	if ctx.Err() != nil { // at once, and not soon
		e.Store(true)
	}
	return e, context.AfterFunc(ctx, func() { e.Store(true) })
}

// begin gives the meter a time, from now. What is done is paid from a budget that is set for each expression.
func (m *meter) begin(caller context.Context, wall time.Duration) {
	m.wall, m.stopped, m.first = wall, nil, nil
	ctx, cancel := context.WithTimeoutCause(caller, wall, errWall)
	ended, release := endingOf(ctx)
	m.ctx, m.ended, m.cancel = ctx, ended, func() { release(); cancel() }
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
	m.ctx, m.first, m.budget = nil, nil, nil
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
	m.spend(n)
}

// read pays for looking at n bytes of text once.
func (m *meter) read(n int64) {
	if n >= readStep {
		m.work(n / readStep)
	}
}

// build pays for n bytes.
func (m *meter) build(n int64) {
	m.hold(n)
	b := m.budget
	if n > b.growth {
		b.growth = 0
		m.stop(&Error{Kind: Exhausted, Message: fmt.Sprintf("%s builds more than %d bytes of strings, lists and maps", b.whose, b.maxGrowth),
			Hint: "filter before you map, and join or concatenate less"})
	}
	b.growth -= n
	m.spend(n / readStep)
}

// hold refuses what is too large for one function, whoever pays for it.
func (m *meter) hold(n int64) {
	if most := m.limits.Value; n > most && n <= m.growth {
		m.stop(&Error{Kind: Exhausted, Message: fmt.Sprintf("one function would build more than %d bytes", most), Hint: "give it a shorter text or list"})
	}
}

// copies pays for n bytes that a function needs while it works, and lets go of.
func (m *meter) copies(n int64) {
	m.hold(n)
	m.read(n)
}

// spend takes steps off what all expressions share, and looks whether the time is over.
func (m *meter) spend(n int64) {
	if all := m.all; n > *all {
		*all = 0
		m.stop(m.spent())
	}
	*m.all -= n
	if m.ended.Load() {
		m.stop(m.interruption())
	}
}

// over says why no expression can be answered any more; nil if there is no reason.
func (m *meter) over(all int64) *Error {
	switch {
	case m.ctx.Err() != nil:
		return m.interruption()
	case all <= 0:
		return m.spent()
	default:
		return nil
	}
}

// hintOver is what an author can do about an evaluation that is too long as a whole.
const hintOver = "let targets select fewer objects, iterate over fewer items, or look things up in list.indexBy(x, key) that a variable of the spec holds"

func (m *meter) spent() *Error {
	return &Error{Kind: Exhausted, Message: fmt.Sprintf("all expressions together need more than %d steps", m.limits.AllSteps), Hint: hintOver}
}

// interruption says why the context ended.
func (m *meter) interruption() *Error {
	if errors.Is(context.Cause(m.ctx), errWall) {
		return &Error{Kind: Exhausted, Message: fmt.Sprintf("the evaluation takes longer than %s", m.wall), Hint: hintOver}
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
func size(v ref.Val, limit int64) int64 { return (&measuring{limit: limit}).of(v) }

// size is the same, and ends when the time is over.
func (m *meter) size(v ref.Val, limit int64) int64 { return m.measure(v, limit, nil) }

// measure is size where each text takes so much more than its length.
func (m *meter) measure(v ref.Val, limit int64, more func(text string) int64) int64 {
	return m.walked(&measuring{limit: limit, more: more, ended: m.ended}, v)
}

// walked is what a walk counts of a value. It ends when the time is over.
func (m *meter) walked(walk *measuring, v ref.Val) int64 {
	n := walk.of(v)
	if m.ended.Load() {
		m.stop(m.interruption())
	}
	return n
}

// measuring is a walk over a value. It ends where total is over the limit.
type measuring struct {
	total, limit int64
	more         func(text string) int64
	under        func(key string) int64 // how many times more texts count below an entry; may be nil
	times        int64                  // what that is here
	ended        *ending                // may be nil
	visited      uint
}

// add counts bytes, and says whether to go on.
func (w *measuring) add(n int64) bool {
	const often = 1024
	w.total += n
	if w.visited++; w.visited%often == 0 && w.ended != nil && w.ended.Load() {
		w.limit = -1
	}
	return w.total <= w.limit
}

// text counts a text.
func (w *measuring) text(text string) bool {
	n := product(int64(len(text)), 1+w.times)
	if w.more != nil {
		n += w.more(text)
	}
	return w.add(n)
}

// enter goes below an entry of a map, and gives what counted above it.
func (w *measuring) enter(key string) (before int64) {
	before = w.times
	if w.under != nil {
		w.times = max(before, w.under(key))
	}
	return before
}

func (w *measuring) of(v ref.Val) int64 {
	w.value(v)
	return w.total
}

func (w *measuring) value(v ref.Val) bool {
	switch v := v.(type) {
	case *sortedMap:
		return w.native(v.native)
	case *nativeList:
		return w.native(v.native)
	}
	if !w.add(valueSize) {
		return false
	}
	switch v := v.(type) {
	case types.String:
		return w.text(string(v))
	case types.Bytes:
		return w.add(int64(len(v)))
	case *types.Optional:
		return !v.HasValue() || w.value(v.GetValue())
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			if !w.add(entrySize) || !w.value(key) {
				return false
			}
			name, _ := key.(types.String)
			before := w.enter(string(name))
			if !w.value(v.Get(key)) {
				return false
			}
			w.times = before
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !w.value(it.Next()) {
				return false
			}
		}
	}
	return true
}

// native counts a value in Go, without making values of all that is in it.
func (w *measuring) native(v any) bool {
	if v, ok := v.(ref.Val); ok {
		return w.value(v)
	}
	if !w.add(valueSize) {
		return false
	}
	switch v := v.(type) {
	case string:
		return w.text(v)
	case map[string]any:
		for key, value := range v {
			if !w.add(entrySize+valueSize) || !w.text(key) {
				return false
			}
			before := w.enter(key)
			if !w.native(value) {
				return false
			}
			w.times = before
		}
	case []any:
		for _, value := range v {
			if !w.native(value) {
				return false
			}
		}
	}
	return true
}

// escaped is how much longer a text becomes as JSON.
func escaped(text string) int64 {
	n, odd := int64(0), int64(1) // of a character that JSON may have as it is
	if !utf8.ValidString(text) {
		odd = 5
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ':
			n += 5
		case c >= utf8.RuneSelf:
			n += odd
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

// values is about how many values there are in a value, itself among them. It looks no further than limit, and no
// further than what cannot be paid for any more.
func (m *meter) values(v ref.Val, limit int64) int64 {
	return m.size(v, product(valueSize, min(limit, m.steps)+1)) / valueSize
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
