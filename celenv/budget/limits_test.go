// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/expr"
)

// newMeter makes a meter that has so many steps and bytes to spend, and so many steps that all budgets share.
func newMeter(ctx context.Context, steps, growth, all int64) *Meter {
	budget := NewBudget("the test", steps, growth, &all)
	m := &Meter{Limits: Limits{}.WithDefaults(0)}
	m.StartClock(ctx, time.Hour)
	m.Budget = &budget
	return m
}

// stopOf says why a deed was stopped; nil if it was not.
func stopOf(t *testing.T, m *Meter, do func()) (why *expr.Error) {
	t.Helper()
	defer func() {
		switch stop := recover().(type) {
		case nil:
		case interpreter.EvalCancelledError:
			why = m.Stopped
			if why == nil || stop.Message != why.Message {
				t.Errorf("it was stopped with %q, and says %v", stop.Message, why)
			}
		default:
			panic(stop)
		}
	}()
	do()
	return nil
}

func TestPayments(t *testing.T) {
	const plenty = math.MaxInt64
	cases := map[string]struct {
		steps, growth, all int64
		pay                func(*Meter)
		want               string // in the message; empty: it can be paid
	}{
		"Last step":            {10, plenty, plenty, func(m *Meter) { m.PaySteps(10) }, ""},
		"One step too many":    {10, plenty, plenty, func(m *Meter) { m.PaySteps(11) }, "the test needs more than 10 steps"},
		"Steps add up":         {10, plenty, plenty, func(m *Meter) { m.PaySteps(6); m.PaySteps(5) }, "the test needs more than 10 steps"},
		"Last shared step":     {plenty, plenty, 10, func(m *Meter) { m.PaySteps(10) }, ""},
		"Shared steps":         {plenty, plenty, 10, func(m *Meter) { m.PaySteps(11) }, "all expressions together need more than"},
		"Last byte":            {plenty, 10, plenty, func(m *Meter) { m.payBuilding(10) }, ""},
		"One byte too many":    {plenty, 10, plenty, func(m *Meter) { m.payBuilding(11) }, "the test builds more than 10 bytes"},
		"Building takes steps": {plenty, plenty, 10, func(m *Meter) { m.payBuilding(11 * ReadStep) }, "all expressions together need more than"},
		"Short texts are free": {0, 0, 0, func(m *Meter) { m.payReading(ReadStep - 1) }, ""},
		"Reading":              {10, plenty, plenty, func(m *Meter) { m.payReading(11 * ReadStep) }, "the test needs more than 10 steps"},
		"Copying builds not":   {10, 0, plenty, func(m *Meter) { m.payCopying(0); m.payReading(10 * ReadStep) }, ""},
		"One function's value": {plenty, plenty, plenty, func(m *Meter) { m.payBuilding(32<<20 + 1) }, "one function would build more than 33554432 bytes"},
		"One function's copy":  {plenty, plenty, plenty, func(m *Meter) { m.payCopying(32<<20 + 1) }, "one function would build more than 33554432 bytes"},
		"Sorting few keys":     {0, 0, 0, func(m *Meter) { m.paySorting(ValueSize - 1) }, ""},
		"Sorting many keys":    {10, plenty, plenty, func(m *Meter) { m.paySorting(1 << 10) }, "the test needs more than 10 steps"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMeter(t.Context(), tc.steps, tc.growth, tc.all)
			defer m.ReleaseContext()
			why := stopOf(t, m, func() { tc.pay(m) })
			switch {
			case why == nil && tc.want != "":
				t.Errorf("it was paid, want %q", tc.want)
			case why != nil && (tc.want == "" || !strings.Contains(why.Message, tc.want)):
				t.Errorf("got %q, want %q", why.Message, tc.want)
			case why != nil && (why.Kind != expr.Exhausted || why.Hint == ""):
				t.Errorf("it does not say what to do: %+v", why)
			}
		})
	}
}

// A budget that is used up stays so, and says what was used.
func TestBudgetStaysUsedUp(t *testing.T) {
	m := newMeter(t.Context(), 10, 10, math.MaxInt64)
	defer m.ReleaseContext()
	m.PaySteps(3)
	m.payBuilding(4)
	if cost := m.SumCost(); cost != 7 {
		t.Errorf("it cost %d, want 7", cost)
	}
	stopOf(t, m, func() { m.PaySteps(100) })
	if why := stopOf(t, m, func() { m.PaySteps(1) }); why == nil {
		t.Error("there is a step left after all were used up")
	}
}

func TestItemBudget(t *testing.T) {
	limits, all := Limits{Steps: 1000, Growth: 1000, ItemSteps: 10, ItemGrowth: 20}.WithDefaults(0), int64(math.MaxInt64)
	for _, tc := range []struct {
		items         int
		steps, growth int64
	}{{0, 10, 20}, {1, 10, 20}, {3, 30, 60}, {70, 700, 1000}, {math.MaxInt, 1000, 1000}} {
		if b := limits.NewItemBudget(tc.items, &all); b.MaxSteps != tc.steps || b.MaxGrowth != tc.growth {
			t.Errorf("%d items have %d steps and %d bytes, want %d and %d", tc.items, b.MaxSteps, b.MaxGrowth, tc.steps, tc.growth)
		}
	}
}

func TestWithDefaults(t *testing.T) {
	if got := (Limits{Steps: 3, Wall: -1}).WithDefaults(0); got.Steps != 3 || got.Wall != 20*time.Second || got.Retained == 0 || got.Items == 0 {
		t.Errorf("got %+v", got)
	}
}

// The end of the caller's context is not the end of the evaluation's time.
// With the memory grows what an evaluation may build, hold and iterate over, but not how long it may take.
func TestLimitsGrowWithMemory(t *testing.T) {
	usual := Limits{}.WithDefaults(0)
	for name, tc := range map[string]struct {
		memory int64
		times  int64
	}{
		"Unknown":  {0, 1},
		"Little":   {128 << 20, 1},
		"Usual":    {UsualMemory, 1},
		"Twice":    {2 * UsualMemory, 2},
		"Fourfold": {4 * UsualMemory, 4},
		"Endless":  {math.MaxInt64, 8},
	} {
		want := usual
		want.Growth, want.Value, want.Retained, want.Items = tc.times*usual.Growth, tc.times*usual.Value, tc.times*usual.Retained, int(tc.times)*usual.Items
		if got := (Limits{}).WithDefaults(tc.memory); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestTheTimeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := newMeter(ctx, math.MaxInt64, math.MaxInt64, math.MaxInt64)
	defer m.ReleaseContext()
	if problem := m.CheckAbort(1); problem != nil {
		t.Errorf("it ended at once: %v", problem)
	}
	if problem := m.CheckAbort(0); problem == nil || problem.Kind != expr.Exhausted {
		t.Errorf("without steps: %v", problem)
	}
	if !m.Clock.HasSpareTime() {
		t.Error("an hour has no half that is left")
	}
	cancel()
	if problem := m.CheckAbort(1); problem == nil || problem.Kind != expr.Interrupted {
		t.Errorf("after the caller's end: %v", problem)
	}
	if m.Clock.HasSpareTime() {
		t.Error("there is time to spare after the end")
	}

	over := &Meter{Limits: Limits{}.WithDefaults(0)}
	over.StartClock(t.Context(), 0)
	all := int64(math.MaxInt64)
	budget := NewBudget("the test", 10, 10, &all)
	over.Budget = &budget
	if why := stopOf(t, over, func() { over.PaySteps(1) }); why == nil || why.Kind != expr.Exhausted || !strings.Contains(why.Message, "longer than") {
		t.Errorf("after its time: %v", why)
	}
	if !errors.Is(context.Cause(over.Clock.Ctx), ErrWall) {
		t.Errorf("the cause is %v", context.Cause(over.Clock.Ctx))
	}
	over.ReleaseContext()
	if over.Clock.Ctx != nil || over.Budget != nil {
		t.Error("it holds on to what it was used for")
	}
}

func TestMeasureValue(t *testing.T) {
	native := func(v any) ref.Val { return NewAdapter(nil).NativeToValue(v) }
	built := types.NewRefValMap(NewAdapter(nil), map[ref.Val]ref.Val{types.String("key"): types.String("value")})
	cases := map[string]struct {
		value ref.Val
		want  int64
	}{
		"Number":         {types.Int(1), ValueSize},
		"Text":           {types.String("abcd"), ValueSize + 4},
		"Bytes":          {types.Bytes("abcd"), ValueSize + 4},
		"Native list":    {native([]any{"ab", "c"}), 3*ValueSize + 3},
		"Native map":     {native(map[string]any{"key": "value"}), ValueSize + entrySize + ValueSize + 3 + ValueSize + 5},
		"Map":            {built, ValueSize + entrySize + ValueSize + 3 + ValueSize + 5},
		"List":           {types.NewRefValList(NewAdapter(nil), []ref.Val{types.String("ab")}), 2*ValueSize + 2},
		"Optional":       {types.OptionalOf(types.String("ab")), 2*ValueSize + 2},
		"Empty optional": {types.OptionalNone, ValueSize},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := MeasureValue(tc.value, math.MaxInt64); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// A value in which one list occurs again and again is not walked to its end.
func TestMeasureValueStops(t *testing.T) {
	var v any = []any{"text"}
	for range 64 {
		v = []any{v, v, v, v}
	}
	if got := MeasureValue(NewAdapter(nil).NativeToValue(v), 1000); got <= 1000 || got > 2000 {
		t.Errorf("it measured %d bytes, and was to stop after 1000", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := newMeter(ctx, math.MaxInt64, math.MaxInt64, math.MaxInt64)
	defer m.ReleaseContext()
	cancel()
	<-ctx.Done()
	m.Clock.Ended.Store(true) // AfterFunc runs soon, and not at once
	if why := stopOf(t, m, func() { (&sizeWalk{meter: m, limit: math.MaxInt64}).measureValue(NewAdapter(nil).NativeToValue(v)) }); why == nil {
		t.Error("it went on after the time was over")
	}
}

func TestCountEscapes(t *testing.T) {
	for text, want := range map[string]int64{"abc": 0, `"\`: 2, "\x00\n": 10, "ü": 2, "\xff": 5} {
		if got := countEscapes(text); got != want {
			t.Errorf("%q: %d more, want %d", text, got, want)
		}
	}
}

func TestCappedNumbers(t *testing.T) {
	for _, tc := range []struct{ got, want int64 }{
		{MultiplyCapped(3, 4), 12},
		{MultiplyCapped(0, math.MaxInt64), 0},
		{MultiplyCapped(2, math.MaxInt64/2+1), math.MaxInt64},
		{AddCapped(), 0},
		{AddCapped(1, 2, 3), 6},
		{AddCapped(math.MaxInt64, 1, 5), math.MaxInt64},
	} {
		if tc.got != tc.want {
			t.Errorf("got %d, want %d", tc.got, tc.want)
		}
	}
}
