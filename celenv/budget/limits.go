// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/expr"
)

// Limits bound one Evaluation.
//
// Steps and Growth are what the conditions, the variables of the spec (with the first expression that reads them) and the forEach of all
// rules share. Each item of a rule has its own ItemSteps and ItemGrowth: a bad item is an error of that item, and leaves the others
// theirs. Keep and a patch that several items share have as much as these items together, but no more than Steps and Growth.
//
// AllSteps and Wall bound everything together: once one of them is used up, the evaluation is aborted.
type Limits struct {
	// Steps is how much may be done: one for each turn of a loop, for each value that a comparison of lists or maps, a sort
	// or a search has to look at, and for each 64 bytes of text that a function reads. Half of AllSteps when zero: the
	// proposal's condition takes about 5 steps for each Revision, and a search for each of 20,000 Pods among 1,000 Nodes
	// would take 20,000,000 (indexBy: 21,000).
	Steps int64
	// Growth is how much may be built, in bytes: strings count their length, an element of a list 16, an entry of a map
	// up to 64. What that takes in memory is at most twice as much. 128 MiB when zero.
	Growth int64
	// Value is how much one function may build at once, in the same bytes. 32 MiB when zero.
	Value int64
	// ItemSteps is how much may be done for one item, its variables included. 100,000 when zero.
	ItemSteps int64
	// ItemGrowth is how much may be built for one item, in bytes. 8 MiB when zero.
	ItemGrowth int64
	// AllSteps is how much may be done in all, for all items too; 64 bytes that are built are one step. 25,000,000 when zero. Predictions
	// and explanations have half as much in addition, and so has a search for the moment at which conditions change. Together that is at
	// most about 10 seconds of one processor.
	AllSteps int64
	// Wall is how long it may take, and SearchWall how long a search for the moment at which conditions change may take after it: 20s and
	// 10s when zero. That is several times as long as the steps take on a processor of their own: the rest of the process, and of the
	// machine, uses some of it. Whatever the evaluation is about, it gets no more.
	Wall, SearchWall time.Duration
	// Items is how many items a rule may have. 250,000 when zero.
	Items int
	// Retained is how many bytes of what items gave may be held on to until the decision is made: see Evaluation.RetainBytes.
	// 96 MiB when zero.
	Retained int64
}

// UsualMemory is how many bytes of memory the operator may use for which the defaults are made.
const UsualMemory = 680 << 20

// WithDefaults gives the limits with their default in the place of each that is not set, for an operator that may use so many bytes of
// memory. With it grows from UsualMemory on, up to 8 times as much, what an evaluation may build, hold and iterate over. Steps and Wall do not grow: no
// evaluation may take longer. 0 or less: the memory is not known.
func (l Limits) WithDefaults(memory int64) Limits {
	const most = 8
	times := min(max(float64(memory)/UsualMemory, 1), most)
	grow := func(n int64) int64 { return int64(times * float64(n)) }
	l.AllSteps = orDefault(l.AllSteps, 25_000_000)
	l.Steps = orDefault(l.Steps, l.AllSteps/2)
	l.Growth = orDefault(l.Growth, grow(128<<20))
	l.Value = orDefault(l.Value, grow(32<<20))
	l.ItemSteps = orDefault(l.ItemSteps, 100_000)
	l.ItemGrowth = orDefault(l.ItemGrowth, 8<<20)
	l.Wall = orDefault(l.Wall, 20*time.Second)
	l.SearchWall = orDefault(l.SearchWall, 10*time.Second)
	l.Items = orDefault(l.Items, int(grow(250_000)))
	l.Retained = orDefault(l.Retained, grow(96<<20))
	return l
}

func orDefault[T int | int64 | time.Duration](given, otherwise T) T {
	if given <= 0 {
		return otherwise
	}
	return given
}

// NewSharedBudget gives the budget that conditions, variables of the spec and forEach share.
func (l Limits) NewSharedBudget(all *int64) Budget {
	return NewBudget("the evaluation", l.Steps, l.Growth, all)
}

// NewItemBudget gives the budget of what is asked about so many items at once.
func (l Limits) NewItemBudget(n int, all *int64) Budget {
	whose, steps, growth := "the item", l.ItemSteps, l.ItemGrowth
	if n > 1 {
		whose, steps, growth = "what is asked about several items", min(l.Steps, MultiplyCapped(int64(n), l.ItemSteps)), min(l.Growth, MultiplyCapped(int64(n), l.ItemGrowth))
	}
	b := NewBudget(whose, steps, growth, all)
	b.Passing = true
	return b
}

// The sizes that Growth counts.
const (
	ValueSize = 16
	entrySize = 64
)

// ReadStep is how many bytes of text a function compares, hashes or scans in one step.
const ReadStep = 64

// lookupBytes is how many bytes of text are found in a map in the time in which one is read: they are hashed and compared at once.
const lookupBytes = 16

// Budget is how much may be done and built, and what is left of that.
type Budget struct {
	Owner               string
	MaxSteps, MaxGrowth int64
	Steps, Growth       int64
	AllSteps            *int64 // what is left of the steps that all budgets share
	Passing             bool   // built values are released with the item
}

// NewBudget makes a budget of so many steps and bytes, and of steps that it shares with others.
func NewBudget(whose string, steps, growth int64, all *int64) Budget {
	return Budget{Owner: whose, MaxSteps: steps, MaxGrowth: growth, Steps: steps, Growth: growth, AllSteps: all}
}

// SumCost adds up what was used, in steps and bytes together.
func (b *Budget) SumCost() int64 { return (b.MaxSteps - b.Steps) + (b.MaxGrowth - b.Growth) }

// Meter counts what an evaluation does and builds, and stops it. One evaluation uses it at a time.
type Meter struct {
	Clock   Clock
	Limits  Limits
	*Budget             // who pays now
	Held    Holding     // how much memory is held
	Stopped *expr.Error // why the evaluation was stopped

	// operands is where a call with one or two arguments shows them to its charge, without allocating.
	operands [2]ref.Val
}

// StartClock starts the time of an evaluation. Each expression sets the budget that its evaluation is charged to.
func (m *Meter) StartClock(caller context.Context, wall time.Duration) {
	m.Clock, m.Stopped, m.Held = newClock(caller, wall), nil, Holding{}
}

// ReleaseContext lets go of what the meter was used for.
func (m *Meter) ReleaseContext() {
	m.Clock.Release()
	m.Budget, m.Held = nil, Holding{}
	clear(m.operands[:])
}

// PaySteps pays for n steps.
func (m *Meter) PaySteps(n int64) {
	b := m.Budget
	if n > b.Steps {
		b.Steps = 0
		m.StopEvaluation(&expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("%s needs more than %d steps", b.Owner, b.MaxSteps),
			Hint: "look things up in list.indexBy(x, key) instead of searching a list for each element of another"})
	}
	b.Steps -= n
	m.spendSharedSteps(n)
}

// payReading pays for looking at n bytes of text once.
func (m *Meter) payReading(n int64) {
	if n >= ReadStep {
		m.PaySteps(n / ReadStep)
	}
}

// payBuilding pays for n bytes.
func (m *Meter) payBuilding(n int64) {
	b := m.Budget
	if n > b.Growth {
		b.Growth = 0
		m.StopEvaluation(&expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("%s builds more than %d bytes of strings, lists and maps", b.Owner, b.MaxGrowth),
			Hint: "filter before you map, and join or concatenate less"})
	}
	m.checkValueSize(n)
	b.Growth -= n
	m.spendSharedSteps(n / ReadStep)
	if !m.Held.takeBuilt(n, b.Passing) {
		m.StopEvaluation(NewMemoryError())
	}
}

// checkValueSize refuses a value that is too large for one function, whichever budget pays for it.
func (m *Meter) checkValueSize(n int64) {
	if most := m.Limits.Value; n > most {
		m.StopEvaluation(&expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("one function would build more than %d bytes", most), Hint: "give it a shorter text or list"})
	}
}

// payCopying pays for n bytes that a function needs while it works, and lets go of.
func (m *Meter) payCopying(n int64) {
	m.checkValueSize(n)
	m.payReading(n)
}

// spendSharedSteps takes steps off what all expressions share, and looks whether the time is over.
func (m *Meter) spendSharedSteps(n int64) {
	if all := m.AllSteps; n > *all {
		*all = 0
		m.StopEvaluation(m.Limits.newStepsError())
	}
	*m.AllSteps -= n
	if m.Clock.Ended.Load() {
		m.StopEvaluation(m.Clock.NewContextError())
	}
}

// CheckAbort returns why no further expression can be evaluated; nil if there is no reason.
func (m *Meter) CheckAbort(all int64) *expr.Error {
	switch {
	case m.Clock.Ctx.Err() != nil:
		return m.Clock.NewContextError()
	case all <= 0:
		return m.Limits.newStepsError()
	case m.Held.refused:
		return NewMemoryError()
	default:
		return nil
	}
}

// HintTooLong is what an author can do about an evaluation that is too long as a whole.
const HintTooLong = "let targets select fewer objects, iterate over fewer items, or look things up in list.indexBy(x, key) that a variable of the spec holds"

func (l Limits) newStepsError() *expr.Error {
	return &expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("all expressions together need more than %d steps", l.AllSteps), Hint: HintTooLong}
}

// StopEvaluation ends the evaluation the way cel-go's own limits do.
func (m *Meter) StopEvaluation(why *expr.Error) {
	m.Stopped = why
	panic(interpreter.EvalCancelledError{Message: why.Message, Cause: interpreter.CostLimitExceeded})
}

// MeasureValue measures how large a value is with all that is in it, in the bytes of Limits.Growth. It looks no further than limit:
// a value in which one list occurs many times can be too large to be walked.
func MeasureValue(v ref.Val, limit int64) int64 { return (&sizeWalk{limit: limit}).measureValue(v) }

// sizeWalk is a walk over a value. It ends where total is over the limit, and stops the evaluation of a meter when its time is
// over.
type sizeWalk struct {
	total, limit int64
	extraBytes   func(text string) int64
	factorBelow  func(key string) int64 // how many times more texts count below an entry; may be nil
	factor       int64                  // what that is here
	maps         int64                  // how many maps are around what is counted
	copied       int64                  // what is counted, as often as there are maps around it
	meter        *Meter                 // may be nil
	visited      uint
}

// addBytes counts bytes, and reports whether to continue.
func (w *sizeWalk) addBytes(n int64) bool {
	const often = 1024
	w.total += n
	w.copied = AddCapped(w.copied, MultiplyCapped(n, w.maps))
	if w.visited++; w.visited%often == 0 && w.isOver() {
		w.limit = -1
	}
	return w.total <= w.limit
}

// addText counts a text.
func (w *sizeWalk) addText(text string) bool {
	n := MultiplyCapped(int64(len(text)), 1+w.factor)
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

// isOver says that there is no more time.
func (w *sizeWalk) isOver() bool { return w.meter != nil && w.meter.Clock.Ended.Load() }

// measureValue gives what a value counts.
func (w *sizeWalk) measureValue(v ref.Val) int64 {
	w.addValue(v)
	if w.isOver() {
		w.meter.StopEvaluation(w.meter.Clock.NewContextError())
	}
	return w.total
}

func (w *sizeWalk) addValue(v ref.Val) bool {
	switch v := v.(type) {
	case *SortedMap:
		return w.addNative(v.Native)
	case *NativeList:
		return w.addNative(v.Native)
	}
	if !w.addBytes(ValueSize) {
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
		return w.addMap(v)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !w.addValue(it.Next()) {
				return false
			}
		}
	}
	return true
}

// addMap counts the entries of a map.
func (w *sizeWalk) addMap(v traits.Mapper) bool {
	w.maps++
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
	w.maps--
	return true
}

// addNative counts a value in Go, without making values of all that is in it.
func (w *sizeWalk) addNative(v any) bool {
	if v, ok := v.(ref.Val); ok {
		return w.addValue(v)
	}
	if !w.addBytes(ValueSize) {
		return false
	}
	switch v := v.(type) {
	case string:
		return w.addText(v)
	case map[string]any:
		return w.addNativeMap(v)
	case []any:
		for _, value := range v {
			if !w.addNative(value) {
				return false
			}
		}
	}
	return true
}

// addNativeMap counts the entries of a map in Go.
func (w *sizeWalk) addNativeMap(v map[string]any) bool {
	w.maps++
	for key, value := range v {
		if !w.addBytes(entrySize+ValueSize) || !w.addText(key) {
			return false
		}
		before := w.enterEntry(key)
		if !w.addNative(value) {
			return false
		}
		w.factor = before
	}
	w.maps--
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

// countValues counts about how many values there are in a value, itself among them. It looks no further than limit, and no further than
// the budget reaches.
func (m *Meter) countValues(v ref.Val, limit int64) int64 {
	walk := sizeWalk{meter: m, limit: MultiplyCapped(ValueSize, min(limit, m.Steps)+1)}
	return walk.measureValue(v) / ValueSize
}

// measureFlat measures how large a value is without what its elements hold.
func measureFlat(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String:
		return int64(len(v))
	case types.Bytes:
		return int64(len(v))
	case traits.Mapper:
		return MultiplyCapped(entrySize, MeasureLength(v))
	case traits.Lister:
		return MultiplyCapped(ValueSize, MeasureLength(v))
	default:
		return ValueSize
	}
}

// MeasureLength says how many elements or bytes a value has.
func MeasureLength(v ref.Val) int64 {
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

// MultiplyCapped multiplies numbers that are not negative. What is too large for an int64 is the largest one.
func MultiplyCapped(a, b int64) int64 {
	if a != 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// AddCapped adds numbers that are not negative. What is too large for an int64 is the largest one.
func AddCapped(numbers ...int64) int64 {
	total := int64(0)
	for _, n := range numbers {
		if n > math.MaxInt64-total {
			return math.MaxInt64
		}
		total += n
	}
	return total
}
