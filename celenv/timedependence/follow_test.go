// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timedependence

import (
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/library"
)

// language is what the tests of this package evaluate: the standard functions, and a time.
type language struct {
	env   *cel.Env
	calls *budget.Calls
	all   interpreter.Dispatcher
}

func newLanguage(t *testing.T) language {
	t.Helper()
	env, err := cel.NewEnv(
		cel.CustomTypeAdapter(budget.NewAdapter(nil)), cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), library.Arithmetic(),
		cel.Variable("time", cel.TimestampType), cel.Variable("x", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	calls, all, err := budget.NewCalls(env)
	if err != nil {
		t.Fatal(err)
	}
	return language{env, calls, all}
}

func (l language) compile(t *testing.T, source string) *cel.Ast {
	t.Helper()
	checked, issues := l.env.Compile(source)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	return checked
}

func (l language) analyze(t *testing.T, source string) Analysis {
	return Analyze(l.compile(t, source).NativeRep(), Answer, func(name string) *types.Type {
		if name == "time" {
			return types.TimestampType
		}
		return nil
	})
}

// newMeter makes a meter that anything can be paid with.
func newMeter(t *testing.T) *budget.Meter {
	limits := budget.Limits{}.WithDefaults(0)
	all := limits.AllSteps
	left := limits.NewSharedBudget(&all)
	m := &budget.Meter{Limits: limits}
	m.StartClock(t.Context(), time.Hour)
	m.Budget = &left
	t.Cleanup(m.ReleaseContext)
	return m
}

// evaluate gives the value of an expression at a time. With a lookout the time moves.
func (l language) evaluate(t *testing.T, source string, at time.Time, look *Lookout) ref.Val {
	t.Helper()
	checked, m := l.compile(t, source), newMeter(t)
	var now ref.Val = types.Timestamp{Time: at}
	values := budget.NewAdapter(m)
	options := []interpreter.PlannerOption{}
	if look != nil {
		moving, ok := NewTime(at, look)
		if !ok {
			t.Fatalf("%s is too far away", at)
		}
		now = moving
		follow, complete := FollowCalls(new(l.analyze(t, source)), l.calls, look, m)
		options = append(options, interpreter.CustomDecoratorV2(follow))
		defer func() {
			if err := complete(); err != nil {
				t.Error(err)
			}
		}()
	}
	attributes := interpreter.NewAttributeFactory(l.env.Container, values, l.env.CELTypeProvider())
	program, err := interpreter.NewInterpreter(l.all, l.env.Container, l.env.CELTypeProvider(), values, attributes).NewInterpretable(checked.NativeRep(), options...)
	if err != nil {
		t.Fatal(err)
	}
	vars, err := interpreter.NewActivation(map[string]any{"time": now, "x": map[string]any{"list": []any{"a"}}})
	if err != nil {
		t.Fatal(err)
	}
	return program.Eval(vars)
}

// What is foreseen is the moment at which the same expression, evaluated without any foresight, first has another value.
func TestFollowCalls(t *testing.T) {
	start := time.Date(2026, 6, 24, 12, 30, 0, 0, time.UTC)
	later := func(d time.Duration) string { return `timestamp("` + start.Add(d).Format(time.RFC3339Nano) + `")` }
	cases := map[string]struct {
		source string
		until  time.Duration // 0: for ever
	}{
		"Later than":         {`time > ` + later(time.Hour), time.Hour + 1},
		"At or later than":   {`time >= ` + later(time.Hour), time.Hour},
		"Earlier than":       {`time < ` + later(time.Hour), time.Hour},
		"Mirrored":           {later(time.Hour) + ` <= time`, time.Hour},
		"Past for ever":      {`time > ` + later(-time.Hour), 0},
		"Equal":              {`time == ` + later(time.Minute), time.Minute},
		"Not equal any more": {`time != ` + later(0), 1},
		"Difference":         {`time - ` + later(-time.Hour) + ` > duration("90m")`, 30*time.Minute + 1},
		"Sum":                {`time + duration("1h") >= ` + later(2*time.Hour), time.Hour},
		"What is left":       {later(time.Hour) + ` - time < duration("15m")`, 45*time.Minute + 1},
		"Hours of an age":    {`(time - ` + later(-time.Hour) + `).getHours() >= 3`, 2 * time.Hour},
		"Minutes, divided":   {`(time - ` + later(0) + `).getMinutes() / 10 == 2`, 20 * time.Minute},
		"A number of it":     {`int(time) + 5 > int(` + later(time.Minute) + `)`, 56 * time.Second},
		"Taken off a number": {`100 - (time - ` + later(0) + `).getSeconds() < 40`, 61 * time.Second},
		"Hour of the day":    {`time.getHours() == 12`, 30 * time.Minute},
		"Hour somewhere":     {`time.getHours("+00:15") == 12`, 15 * time.Minute},
		"Day":                {`time.getDate() == 24`, 11*time.Hour + 30*time.Minute},
		"Element of a list":  {`[time, ` + later(time.Hour) + `].map(t, t)[0] >= ` + later(time.Minute), time.Minute},
		"In a conditional":   {`(true ? time : ` + later(0) + `) > ` + later(time.Minute), time.Minute + 1},
		"In a map":           {`{"a": time}.a >= ` + later(time.Minute), time.Minute},
		"Optional":           {`optional.of(time).value() >= ` + later(time.Minute), time.Minute},
		"No time in it":      {`x.list.size() == 1`, 0},
		"How many":           {`[time, time].size() == 2`, 0},
		"As a timestamp":     {`timestamp(time) >= ` + later(time.Minute), time.Minute},
		"As a duration":      {`duration(time - ` + later(0) + `) >= duration("1m")`, time.Minute},
		"A number as one":    {`int(int(time)) >= int(` + later(time.Minute) + `)`, time.Minute},
		"Remainder":          {`int(time) % 7200 < 3600`, 30 * time.Minute},
		"Remainder, at last": {`int(time) % 86400 / 3600 >= 22`, 9*time.Hour + 30*time.Minute},
		"Negative remainder": {`-int(time) % 7200 > -3600`, 30 * time.Minute},
		"A double":           {`double(int(time) - int(` + later(0) + `)) / 3600.0 > 1.5`, 5401 * time.Second},
		"Times":              {`(time - ` + later(0) + `) * 3 >= duration("1h")`, 20 * time.Minute},
		"Times, turned":      {`-2 * (time - ` + later(0) + `) < duration("-1h")`, 30*time.Minute + 1},
		"Clock":              {`time.getHours() * 60 + time.getMinutes() >= 770`, 20 * time.Minute},
		"Two that go away":   {`time.getHours() - (` + later(time.Hour) + ` - time).getMinutes() > -40`, 8*time.Minute + 1},
		"One of numbers":     {`int(time) in [5, int(` + later(time.Minute) + `)]`, time.Minute},
		"One of times":       {`time in [` + later(time.Minute) + `, ` + later(time.Hour) + `]`, time.Minute},
		"Index":              {`[1, 2][time.getHours() / 13] == 2`, 30 * time.Minute},
		"Day of the week":    {`time.getDayOfWeek() in [0, 6]`, 59*time.Hour + 30*time.Minute},
		"Rest of the year":   {`365 - time.getDayOfYear() < 180`, 275*time.Hour + 30*time.Minute},
		"In a loop":          {`[1, 2].all(n, time > ` + later(time.Minute) + `)`, time.Minute + 1},
	}
	l := newLanguage(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			look := &Lookout{Until: Never}
			foreseen := l.evaluate(t, tc.source, start, look)
			now := l.evaluate(t, tc.source, start, nil)
			if foreseen.Equal(now) != types.True {
				t.Errorf("with the time moving it is %v, else %v", foreseen, now)
			}
			if look.Unknown {
				t.Fatal("nobody can say")
			}
			if tc.until == 0 {
				if look.Until < horizon {
					t.Errorf("it is foreseen to change in %s", time.Duration(look.Until))
				}
				return
			}
			if got := time.Duration(look.Until); got != tc.until {
				t.Fatalf("it is foreseen to change in %s, want %s", got, tc.until)
			}
			before, then := l.evaluate(t, tc.source, start.Add(tc.until-1), nil), l.evaluate(t, tc.source, start.Add(tc.until), nil)
			if before.Equal(now) != types.True || then.Equal(now) == types.True {
				t.Errorf("it is %v now, %v just before the moment and %v then", now, before, then)
			}
		})
	}
}

// Nothing is foreseen of what looks at a moving value in a way that is not known.
func TestFollowCallsSaysWhatItCannotKnow(t *testing.T) {
	l := newLanguage(t)
	for name, source := range map[string]string{
		"Text":            `string(time) == "2026"`,
		"In a list":       `time in [timestamp("1440-06-24T13:00:00Z")]`,
		"Equal lists":     `[time] == [timestamp("2026-06-24T13:00:00Z")]`,
		"Zone of nowhere": `time.getHours("Nowhere/Town") == 1`,
	} {
		t.Run(name, func(t *testing.T) {
			look := &Lookout{Until: Never}
			l.evaluate(t, source, time.Date(2026, 6, 24, 12, 30, 0, 0, time.UTC), look)
			if !look.Unknown {
				t.Errorf("it is believed to change in %s", time.Duration(look.Until))
			}
		})
	}
}

// A conversion that fails without any foresight fails with it, too.
func TestFollowCallsFailsAlike(t *testing.T) {
	l := newLanguage(t)
	for name, source := range map[string]string{
		"A number as a duration":    `[duration(dyn(int(time)))].size() == 1`,
		"A duration as a timestamp": `[timestamp(dyn(time - timestamp("2026-06-24T12:00:00Z")))].size() == 1`,
		"A timestamp as a duration": `[duration(dyn(time))].size() == 1`,
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Date(2026, 6, 24, 12, 30, 0, 0, time.UTC)
			now, foreseen := l.evaluate(t, source, at, nil), l.evaluate(t, source, at, &Lookout{Until: Never})
			if !types.IsError(now) || !types.IsError(foreseen) {
				t.Errorf("with the time moving it is %v, else %v", foreseen, now)
			}
		})
	}
}

func TestAnalyze(t *testing.T) {
	cases := map[string]struct {
		source        string
		calls         int
		result, blind bool
	}{
		"No time":             {source: `x.list.size() == 1`},
		"Comparison":          {source: `time > timestamp("2026-06-24T12:00:00Z")`, calls: 1},
		"The time itself":     {source: `time`, result: true},
		"A list of it":        {source: `[time, time]`, result: true},
		"A map of it":         {source: `{"a": time}`, result: true},
		"A key of a map":      {source: `{time: 1}`, blind: true},
		"An index":            {source: `[1, 2][int(time)]`, calls: 1},
		"An index, chosen":    {source: `[1, 2][x == 1 ? time.getHours() : 0]`, calls: 1, blind: true},
		"A part of a time":    {source: `time.getMonth()`, calls: 1, result: true},
		"Age as a number":     {source: `int(time) / 60`, calls: 2, result: true},
		"Text of it":          {source: `string(time)`, calls: 1},
		"And":                 {source: `time > timestamp("2026-06-24T12:00:00Z") && x == 1`, calls: 1},
		"Either":              {source: `x == 1 ? time : timestamp("2026-06-24T12:00:00Z")`, result: true},
		"Collected in a loop": {source: `[1].map(n, time)`, calls: 1, result: true},
		"Only in a loop":      {source: `[1].exists(n, time > timestamp("2026-06-24T12:00:00Z"))`, calls: 1},
		"A name of a loop":    {source: `[1].map(time, time)`},
	}
	l := newLanguage(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := l.analyze(t, tc.source)
			if len(a.Calls) != tc.calls || a.Result != tc.result || a.Blind != tc.blind {
				t.Errorf("got %d calls, result %t, blind %t, want %d, %t, %t", len(a.Calls), a.Result, a.Blind, tc.calls, tc.result, tc.blind)
			}
		})
	}
}

// A call that cannot be followed in the program is an error, so that no change of time goes unseen.
func TestFollowCallsMissesNone(t *testing.T) {
	_, complete := FollowCalls(&Analysis{Calls: map[int64]bool{1 << 40: true}}, newLanguage(t).calls, &Lookout{}, newMeter(t))
	if complete() == nil {
		t.Error("a call that is in no program is followed")
	}
}

func TestLookout(t *testing.T) {
	l := &Lookout{Until: Never}
	l.noteChange(Never)
	if l.Until != Never {
		t.Errorf("never is %d", l.Until)
	}
	l.noteChange(0)
	if l.Until != 1 {
		t.Errorf("at once is %d, want the next nanosecond", l.Until)
	}
	other := &Lookout{Until: 5, Unknown: true}
	other.Merge(*l)
	if other.Until != 1 || !other.Unknown {
		t.Errorf("merged to %+v", other)
	}
}

// Whoever looks at a moving value in a way of its own has seen something that nobody can foresee.
func TestLookingAtAValueIsNoted(t *testing.T) {
	for name, do := range map[string]func(*Value){
		"Equal":           func(v *Value) { v.Equal(v) },
		"Value":           func(v *Value) { v.Value() },
		"ConvertToType":   func(v *Value) { v.ConvertToType(types.StringType) },
		"ConvertToNative": func(v *Value) { _, _ = v.ConvertToNative(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			look := &Lookout{Until: Never}
			v, _ := NewTime(time.Date(2026, 6, 24, 0, 0, 0, 0, time.UTC), look)
			if v.Type(); look.Unknown {
				t.Fatal("its type does not move")
			}
			func() {
				defer func() { _ = recover() }() // cel-go converts to no nil
				do(v)
			}()
			if !look.Unknown {
				t.Error("it is not noted")
			}
		})
	}
}

// What stands in the objects that are read never moves: it costs nothing to look at it as it is now, however large it is.
func TestFreezeValue(t *testing.T) {
	m := newMeter(t)
	read := budget.NewAdapter(m)
	list, object := []any{"a", map[string]any{"b": []any{"c"}}}, map[string]any{"a": []any{"b"}}
	moving := func(look *Lookout) ref.Val {
		v, _ := NewTime(time.Date(2026, 6, 24, 0, 0, 0, 0, time.UTC), look)
		return v
	}
	for name, tc := range map[string]struct {
		value func(*Lookout) ref.Val
		moved bool
		paid  int64
	}{
		"List":   {func(*Lookout) ref.Val { return read.NativeToValue(list) }, false, 0},
		"Object": {func(*Lookout) ref.Val { return read.NativeToValue(object) }, false, 0},
		"Text":   {func(*Lookout) ref.Val { return types.String("a") }, false, 0},
		"Made": {func(*Lookout) ref.Val {
			return types.NewRefValList(read, []ref.Val{types.Int(1), read.NativeToValue(list)})
		}, false, 2},
		"Time":          {moving, true, 0},
		"List of times": {func(l *Lookout) ref.Val { return types.NewRefValList(read, []ref.Val{types.Int(1), moving(l)}) }, true, 2},
		"Map of times": {func(l *Lookout) ref.Val {
			return types.NewRefValMap(read, map[ref.Val]ref.Val{types.String("a"): moving(l)})
		}, true, 1},
		"Perhaps a time": {func(l *Lookout) ref.Val { return types.OptionalOf(moving(l)) }, true, 0},
		"None":           {func(*Lookout) ref.Val { return types.OptionalNone }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			look := &Lookout{Until: Never}
			v, before := tc.value(look), m.Steps
			now, moved := look.FreezeValue(v, m)
			if moved != tc.moved || look.Unknown != tc.moved || !moved && now != v {
				t.Errorf("it moves: %t, and nobody can say when: %t", moved, look.Unknown)
			}
			if paid := before - m.Steps; paid != tc.paid {
				t.Errorf("it costs %d steps, want %d", paid, tc.paid)
			}
			if _, again := look.FreezeValue(now, m); again {
				t.Error("it still moves")
			}
		})
	}
}

func TestNewTimeFarAway(t *testing.T) {
	for _, at := range []time.Time{time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if _, ok := NewTime(at, &Lookout{}); ok {
			t.Errorf("%s moves, and cannot be counted in nanoseconds", at)
		}
	}
}
