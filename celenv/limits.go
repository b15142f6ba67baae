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
	// Retained is how many bytes of what items gave may be held on to until the decision is made: see Evaluation.RetainBytes.
	// 96 MiB when zero.
	Retained int64
}

func (l Limits) withDefaults() Limits {
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

// newSharedBudget gives the budget that conditions, variables of the spec and forEach share.
func (l Limits) newSharedBudget(all *int64) budget {
	return newBudget("the evaluation", l.Steps, l.Growth, all)
}

// newItemBudget gives the budget of what is asked about so many items at once.
func (l Limits) newItemBudget(n int, all *int64) budget {
	if n <= 1 {
		return newBudget("the item", l.ItemSteps, l.ItemGrowth, all)
	}
	return newBudget("what is asked about several items", min(l.Steps, multiplyCapped(int64(n), l.ItemSteps)), min(l.Growth, multiplyCapped(int64(n), l.ItemGrowth)), all)
}

// computeWall says how long an evaluation of these objects may take.
func (l Limits) computeWall(in Input) time.Duration {
	objects := int64(0)
	for _, value := range in.Targets {
		if target, ok := value.(map[string]any); ok {
			items, _ := target["items"].([]any)
			objects += int64(len(items))
		}
	}
	more := time.Duration(min(multiplyCapped(objects, int64(l.ObjectWall)), int64(l.MaxWall)))
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
	owner               string
	maxSteps, maxGrowth int64
	steps, growth       int64
	allSteps            *int64 // what is left of the steps that all budgets share
}

func newBudget(whose string, steps, growth int64, all *int64) budget {
	return budget{owner: whose, maxSteps: steps, maxGrowth: growth, steps: steps, growth: growth, allSteps: all}
}

// sumCost adds up what was used, in steps and bytes together.
func (b *budget) sumCost() int64 { return (b.maxSteps - b.steps) + (b.maxGrowth - b.growth) }

// meter counts what an evaluation does and builds, and stops it. One evaluation uses it at a time.
type meter struct {
	ctx      context.Context // the caller's, with a deadline
	cancel   context.CancelFunc
	wall     time.Duration   // the time that ends at the deadline
	spareCtx context.Context // ends when only half of that time is left; nil until it is of interest
	limits   Limits
	*budget          // who pays now
	ended    *ending // says without a lock that ctx has ended
	stopped  *expr.Error  // why the evaluation was stopped

	// operands is where a call with one or two arguments shows them to its charge, without allocating.
	operands [2]ref.Val
}

// ending is set when a context has ended.
type ending struct{ atomic.Bool }

// newEnding makes an ending of a context.
func newEnding(ctx context.Context) (e *ending, release func() bool) {
	e = &ending{}
	if ctx.Err() != nil { // at once, and not soon
		e.Store(true)
	}
	return e, context.AfterFunc(ctx, func() { e.Store(true) })
}

// startClock gives the meter a time, from now. What is done is paid from a budget that is set for each expression.
func (m *meter) startClock(caller context.Context, wall time.Duration) {
	m.wall, m.stopped, m.spareCtx = wall, nil, nil
	ctx, cancel := context.WithTimeoutCause(caller, wall, errWall)
	ended, release := newEnding(ctx)
	m.ctx, m.ended, m.cancel = ctx, ended, func() { release(); cancel() }
}

// hasSpareTime says that there is time for more than answers: half of it is left.
func (m *meter) hasSpareTime() bool {
	if m.spareCtx == nil {
		deadline, _ := m.ctx.Deadline()
		first, end := context.WithDeadline(m.ctx, deadline.Add(-m.wall/2))
		cancel := m.cancel
		m.spareCtx, m.cancel = first, func() { end(); cancel() }
	}
	return m.spareCtx.Err() == nil
}

// releaseContext lets go of what the meter was used for.
func (m *meter) releaseContext() {
	m.cancel()
	m.ctx, m.spareCtx, m.budget = nil, nil, nil
	clear(m.operands[:])
}

// paySteps pays for n steps.
func (m *meter) paySteps(n int64) {
	b := m.budget
	if n > b.steps {
		b.steps = 0
		m.stopEvaluation(&expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("%s needs more than %d steps", b.owner, b.maxSteps),
			Hint: "look things up in list.indexBy(x, key) instead of searching a list for each element of another"})
	}
	b.steps -= n
	m.spendSharedSteps(n)
}

// payReading pays for looking at n bytes of text once.
func (m *meter) payReading(n int64) {
	if n >= readStep {
		m.paySteps(n / readStep)
	}
}

// payBuilding pays for n bytes.
func (m *meter) payBuilding(n int64) {
	m.checkValueSize(n)
	b := m.budget
	if n > b.growth {
		b.growth = 0
		m.stopEvaluation(&expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("%s builds more than %d bytes of strings, lists and maps", b.owner, b.maxGrowth),
			Hint: "filter before you map, and join or concatenate less"})
	}
	b.growth -= n
	m.spendSharedSteps(n / readStep)
}

// checkValueSize refuses what is too large for one function, whoever pays for it.
func (m *meter) checkValueSize(n int64) {
	if most := m.limits.Value; n > most && n <= m.growth {
		m.stopEvaluation(&expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("one function would build more than %d bytes", most), Hint: "give it a shorter text or list"})
	}
}

// payCopying pays for n bytes that a function needs while it works, and lets go of.
func (m *meter) payCopying(n int64) {
	m.checkValueSize(n)
	m.payReading(n)
}

// spendSharedSteps takes steps off what all expressions share, and looks whether the time is over.
func (m *meter) spendSharedSteps(n int64) {
	if all := m.allSteps; n > *all {
		*all = 0
		m.stopEvaluation(m.newStepsError())
	}
	*m.allSteps -= n
	if m.ended.Load() {
		m.stopEvaluation(m.newContextError())
	}
}

// checkAbort says why no expression can be answered any more; nil if there is no reason.
func (m *meter) checkAbort(all int64) *expr.Error {
	switch {
	case m.ctx.Err() != nil:
		return m.newContextError()
	case all <= 0:
		return m.newStepsError()
	default:
		return nil
	}
}

// hintTooLong is what an author can do about an evaluation that is too long as a whole.
const hintTooLong = "let targets select fewer objects, iterate over fewer items, or look things up in list.indexBy(x, key) that a variable of the spec holds"

func (m *meter) newStepsError() *expr.Error {
	return &expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("all expressions together need more than %d steps", m.limits.AllSteps), Hint: hintTooLong}
}

// newContextError says why the context ended.
func (m *meter) newContextError() *expr.Error {
	if errors.Is(context.Cause(m.ctx), errWall) {
		return &expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("the evaluation takes longer than %s", m.wall), Hint: hintTooLong}
	}
	return &expr.Error{Kind: expr.Interrupted, Message: "the evaluation was interrupted"}
}

// stopEvaluation ends the evaluation the way cel-go's own limits do.
func (m *meter) stopEvaluation(why *expr.Error) {
	m.stopped = why
	panic(interpreter.EvalCancelledError{Message: why.Message, Cause: interpreter.CostLimitExceeded})
}

// measureValue measures how large a value is with all that is in it, in the bytes of Limits.Growth. It looks no further than limit:
// a value in which one list occurs many times can be too large to be walked.
func measureValue(v ref.Val, limit int64) int64 { return (&sizeWalk{limit: limit}).measureValue(v) }

// measureValue does the same, and ends when the time is over.
func (m *meter) measureValue(v ref.Val, limit int64) int64 { return m.measureWith(v, limit, nil) }

// measureWith is measureValue where each text takes so much more than its length.
func (m *meter) measureWith(v ref.Val, limit int64, more func(text string) int64) int64 {
	return m.walkValue(&sizeWalk{limit: limit, extraBytes: more, ended: m.ended}, v)
}

// walkValue gives what a walk counts of a value. It ends when the time is over.
func (m *meter) walkValue(walk *sizeWalk, v ref.Val) int64 {
	n := walk.measureValue(v)
	if m.ended.Load() {
		m.stopEvaluation(m.newContextError())
	}
	return n
}

// sizeWalk is a walk over a value. It ends where total is over the limit.
type sizeWalk struct {
	total, limit int64
	extraBytes   func(text string) int64
	factorBelow  func(key string) int64 // how many times more texts count below an entry; may be nil
	factor       int64                  // what that is here
	ended        *ending                // may be nil
	visited      uint
}

// addBytes counts bytes, and says whether to go on.
func (w *sizeWalk) addBytes(n int64) bool {
	const often = 1024
	w.total += n
	if w.visited++; w.visited%often == 0 && w.ended != nil && w.ended.Load() {
		w.limit = -1
	}
	return w.total <= w.limit
}

// addText counts a text.
func (w *sizeWalk) addText(text string) bool {
	n := multiplyCapped(int64(len(text)), 1+w.factor)
	if w.extraBytes != nil {
		n += w.extraBytes(text)
	}
	return w.addBytes(n)
}

// enterEntry goes below an entry of a map, and gives what counted above it.
func (w *sizeWalk) enterEntry(key string) (before int64) {
	before = w.factor
	if w.factorBelow != nil {
		w.factor = max(before, w.factorBelow(key))
	}
	return before
}

func (w *sizeWalk) measureValue(v ref.Val) int64 {
	w.addValue(v)
	return w.total
}

func (w *sizeWalk) addValue(v ref.Val) bool {
	switch v := v.(type) {
	case *sortedMap:
		return w.addNative(v.native)
	case *nativeList:
		return w.addNative(v.native)
	}
	if !w.addBytes(valueSize) {
		return false
	}
	switch v := v.(type) {
	case types.String:
		return w.addText(string(v))
	case types.Bytes:
		return w.addBytes(int64(len(v)))
	case *types.Optional:
		return !v.HasValue() || w.addValue(v.GetValue())
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			if !w.addBytes(entrySize) || !w.addValue(key) {
				return false
			}
			name, _ := key.(types.String)
			before := w.enterEntry(string(name))
			if !w.addValue(v.Get(key)) {
				return false
			}
			w.factor = before
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !w.addValue(it.Next()) {
				return false
			}
		}
	}
	return true
}

// addNative counts a value in Go, without making values of all that is in it.
func (w *sizeWalk) addNative(v any) bool {
	if v, ok := v.(ref.Val); ok {
		return w.addValue(v)
	}
	if !w.addBytes(valueSize) {
		return false
	}
	switch v := v.(type) {
	case string:
		return w.addText(v)
	case map[string]any:
		for key, value := range v {
			if !w.addBytes(entrySize+valueSize) || !w.addText(key) {
				return false
			}
			before := w.enterEntry(key)
			if !w.addNative(value) {
				return false
			}
			w.factor = before
		}
	case []any:
		for _, value := range v {
			if !w.addNative(value) {
				return false
			}
		}
	}
	return true
}

// countEscapes counts how much longer a text becomes as JSON.
func countEscapes(text string) int64 {
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

// countValues counts about how many values there are in a value, itself among them. It looks no further than limit, and no
// further than what cannot be paid for any more.
func (m *meter) countValues(v ref.Val, limit int64) int64 {
	return m.measureValue(v, multiplyCapped(valueSize, min(limit, m.steps)+1)) / valueSize
}

// measureFlat measures how large a value is without what its elements hold.
func measureFlat(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String:
		return int64(len(v))
	case types.Bytes:
		return int64(len(v))
	case traits.Mapper:
		return multiplyCapped(entrySize, measureLength(v))
	case traits.Lister:
		return multiplyCapped(valueSize, measureLength(v))
	default:
		return valueSize
	}
}

// measureLength says how many elements or bytes a value has.
func measureLength(v ref.Val) int64 {
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

// multiplyCapped multiplies numbers that are not negative. What is too large for an int64 is the largest one.
func multiplyCapped(a, b int64) int64 {
	if a != 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// addCapped adds numbers that are not negative. What is too large for an int64 is the largest one.
func addCapped(numbers ...int64) int64 {
	total := int64(0)
	for _, n := range numbers {
		if n > math.MaxInt64-total {
			return math.MaxInt64
		}
		total += n
	}
	return total
}
