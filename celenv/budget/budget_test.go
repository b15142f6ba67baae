// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"math"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/celenv/expr"
)

// evaluate runs an expression that pays with a meter. Its variables are x and y.
func evaluate(t *testing.T, source string, m *Meter, x, y any) (result ref.Val, stopped *expr.Error) {
	t.Helper()
	env, err := cel.NewEnv(
		cel.CustomTypeAdapter(NewAdapter(nil)), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Lists(), ext.Sets(), ext.Regex(),
		cel.Variable("x", cel.DynType), cel.Variable("y", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	calls, all, err := NewCalls(env)
	if err != nil {
		t.Fatal(err)
	}
	checked, issues := env.Compile(source)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	values := NewAdapter(m)
	attributes := NewAttributes(interpreter.NewAttributeFactory(env.Container, values, env.CELTypeProvider()), m)
	program, err := interpreter.NewInterpreter(all, env.Container, env.CELTypeProvider(), values, attributes).
		NewInterpretable(checked.NativeRep(), interpreter.CustomDecoratorV2(calls.MeterProgram(checked, m)))
	if err != nil {
		t.Fatal(err)
	}
	vars, err := interpreter.NewActivation(map[string]any{"x": x, "y": y})
	if err != nil {
		t.Fatal(err)
	}
	stopped = stopOf(t, m, func() { result = program.Eval(vars) })
	return result, stopped
}

// numbers is a list of n numbers; texts one of n texts.
func numbers(n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

// What an expression does is paid for, in proportion to what it does, and its answer is that of a program that pays nothing.
func TestMeterProgram(t *testing.T) {
	long := strings.Repeat("a", 64_000)
	cases := map[string]struct {
		source        string
		x, y          any
		want          any
		steps, growth int64 // at least, and at most four times as much and a little
	}{
		"Nothing":         {source: `1 + 2`, want: int64(3)},
		"Turns":           {source: `x.all(n, n >= 0)`, x: numbers(1000), want: true, steps: 1000},
		"Turns in turns":  {source: `x.all(n, x.all(m, true))`, x: numbers(100), want: true, steps: 10_000},
		"Filter":          {source: `x.filter(n, n < 3).size()`, x: numbers(1000), want: int64(3), steps: 1000, growth: 3 * ValueSize},
		"Map":             {source: `x.map(n, n).size()`, x: numbers(1000), want: int64(1000), steps: 1000, growth: 1000 * ValueSize},
		"List literal":    {source: `[x, y, x].size()`, x: 1, y: 2, want: int64(3), growth: 4 * ValueSize},
		"Map literal":     {source: `{"a": x, "b": y}.size()`, x: 1, y: 2, want: int64(2), growth: 48 + 2*ValueSize},
		"Map of a key":    {source: `{x: x, "b": y}.size()`, x: 1, y: 2, want: int64(2), growth: 128 + 2*entrySize},
		"Equal texts":     {source: `x == y`, x: long, y: long + "", want: true, steps: 1000},
		"Unequal":         {source: `x != y`, x: long, y: long + "", want: false, steps: 1000},
		"Equal lists":     {source: `x == y`, x: numbers(1000), y: numbers(1000), want: true, steps: 1000},
		"Short with long": {source: `x == y`, x: []any{"a"}, y: numbers(100_000), want: false},
		"In a list":       {source: `x in y`, x: -1, y: numbers(1000), want: false, steps: 1000},
		"In a constant":   {source: `x in ["a", "b"]`, x: long, want: false, steps: 1000},
		"In a map":        {source: `x in y`, x: "a", y: map[string]any{"a": 1}, want: true},
		"Key of a map":    {source: `y[x]`, x: long, y: map[string]any{long: "found"}, want: "found", steps: 62},
		"Joined texts":    {source: `(x + y).size()`, x: long, y: long, want: int64(128_000), steps: 2000, growth: 128_000},
		"Joined lists":    {source: `(x + y).size()`, x: numbers(1000), y: numbers(1000), want: int64(2000), growth: 2000 * ValueSize},
		"Contains":        {source: `x.contains("b")`, x: long, want: false, steps: 1000},
		"Compared texts":  {source: `x < y`, x: long, y: long, want: false, steps: 1000},
		"Lower case":      {source: `x.lowerAscii().size()`, x: long, want: int64(64_000), steps: 5000, growth: 64_000},
		"Repeated text":   {source: `x.replace("a", "bb").size()`, x: long, want: int64(128_000), steps: 1000, growth: 128_000},
		"Split":           {source: `x.split("a").size()`, x: long, want: int64(64_001), steps: 17_000, growth: 64_000 * ValueSize},
		"Joined":          {source: `x.join(",").size()`, x: []any{long, long}, want: int64(128_001), steps: 2000, growth: 128_000},
		"Matches":         {source: `x.matches("b")`, x: long, want: false, steps: 1000},
		"Sets":            {source: `sets.intersects(x, y)`, x: numbers(100), y: []any{int64(-1)}, want: false, steps: 100},
		"Distinct":        {source: `x.distinct().size()`, x: numbers(100), want: int64(100), steps: 10_000, growth: 100 * ValueSize},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			const plenty = 1 << 40
			m := newMeter(t.Context(), plenty, plenty, plenty)
			defer m.ReleaseContext()
			got, stopped := evaluate(t, tc.source, m, tc.x, tc.y)
			if stopped != nil {
				t.Fatal(stopped)
			}
			if want := NewAdapter(nil).NativeToValue(tc.want); got.Equal(want) != types.True {
				t.Errorf("got %v, want %v", got, want)
			}
			steps, growth := plenty-m.Steps, plenty-m.Growth
			if steps < tc.steps || steps > 4*tc.steps+64 {
				t.Errorf("it paid %d steps, want about %d", steps, tc.steps)
			}
			if growth < tc.growth || growth > 4*tc.growth+256 {
				t.Errorf("it paid for %d bytes, want about %d", growth, tc.growth)
			}
			if tc.steps == 0 {
				return
			}
			poor := newMeter(t.Context(), tc.steps-1, plenty, plenty)
			defer poor.ReleaseContext()
			if _, stopped := evaluate(t, tc.source, poor, tc.x, tc.y); stopped == nil {
				t.Error("it did without a step that it needs")
			}
		})
	}
}

// What is too long for a function is an error that says so, and no reason to stop the evaluation.
func TestTextsThatAreTooLong(t *testing.T) {
	for source, want := range map[string]string{
		`int(x)`:       "the text is 64000 bytes long, and at most 1024 are read here",
		`timestamp(x)`: "the text is 64000 bytes long, and at most 1024 are read here",
		`y.matches(x)`: "a regular expression that is not a literal may have 256 bytes, and this one has 64000",
	} {
		m := newMeter(t.Context(), math.MaxInt64, math.MaxInt64, math.MaxInt64)
		got, stopped := evaluate(t, source, m, strings.Repeat("1", 64_000), "1")
		m.ReleaseContext()
		if failure, ok := got.(*types.Err); stopped != nil || !ok || !strings.Contains(failure.Error(), want) {
			t.Errorf("%s: got %v, %v, want an error with %q", source, got, stopped, want)
		}
	}
}

// Errors are those that cel-go itself gives.
func TestErrorsGoThrough(t *testing.T) {
	for source, want := range map[string]string{
		`x == y.nothing`: "no such key: nothing",
		`x + y`:          "no such overload",
		`x.nothing in y`: "no such",
		`size(x)`:        "no such overload",
	} {
		m := newMeter(t.Context(), math.MaxInt64, math.MaxInt64, math.MaxInt64)
		got, stopped := evaluate(t, source, m, int64(1), map[string]any{})
		m.ReleaseContext()
		if failure, ok := got.(*types.Err); stopped != nil || !ok || !strings.Contains(failure.Error(), want) {
			t.Errorf("%s: got %v, %v, want an error with %q", source, got, stopped, want)
		}
	}
}

func TestTakesPattern(t *testing.T) {
	c := &Calls{Charges: newChargeTable()}
	for function, want := range map[string]bool{"matches": true, "regex.replace": true, "replace": false, "nothing": false} {
		if got := c.TakesPattern(function); got != want {
			t.Errorf("%s: %t, want %t", function, got, want)
		}
	}
}

func TestCheckPattern(t *testing.T) {
	cases := map[string]struct {
		pattern, want string
		size          int64
	}{
		"Letter":          {"a", "", 2},
		"Text":            {"abc", "", 4},
		"Repeated":        {"a{100}", "", 300},
		"Too large":       {"(abcdefghij){1000}", "is too large", 12_000},
		"Goes on":         {"(a{100}){100}", "is no regular expression", 1},
		"No pattern":      {"(", "is no regular expression", 1},
		"Long, no patten": {"(" + strings.Repeat("a", 300), "…", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := CheckPattern(tc.pattern)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if got := MeasurePattern(tc.pattern); got < tc.size/2 || got > 2*tc.size {
				t.Errorf("it has %d instructions, want about %d", got, tc.size)
			}
		})
	}
}

// Maps iterate in the order of their keys, so that what is made of them is the same each time.
func TestSortedMap(t *testing.T) {
	native := map[string]any{"b": 1, "a": 2, "c": 3}
	value := NewAdapter(nil).NativeToValue(native)
	for range 20 {
		var keys []string
		for it := value.(traits.Mapper).Iterator(); it.HasNext() == types.True; {
			keys = append(keys, string(it.Next().(types.String)))
		}
		if diff := cmp.Diff([]string{"a", "b", "c"}, keys); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	if back, err := ConvertToNative(value, 1); err != nil || back.(map[string]any)["a"] != 2 {
		t.Errorf("it comes back as %v, %v", back, err)
	}
}

func TestConvertToNativeIsBounded(t *testing.T) {
	large := types.NewRefValList(NewAdapter(nil), []ref.Val{types.String(strings.Repeat("a", 1000))})
	if _, err := ConvertToNative(large, 1000); err == nil {
		t.Error("a value over the limit is converted")
	}
	got, err := ConvertToNative(large, 2000)
	if err != nil || len(got.([]any)) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestIsObject(t *testing.T) {
	object := func(name any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name}}
	}
	built := types.NewRefValMap(NewAdapter(nil), map[ref.Val]ref.Val{types.String("apiVersion"): types.String("v1")})
	for name, tc := range map[string]struct {
		value any
		want  bool
	}{
		"Object":          {object("a"), true},
		"Value of one":    {NewAdapter(nil).NativeToValue(object("a")), true},
		"Without a name":  {object(""), false},
		"Name is no text": {object(1), false},
		"Map":             {map[string]any{}, false},
		"Built map":       {built, false},
		"Text":            {"a", false},
		"Value":           {types.String("a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsObject(tc.value); got != tc.want {
				t.Errorf("%t, want %t", got, tc.want)
			}
		})
	}
}

func TestIsZeroValue(t *testing.T) {
	for _, tc := range []struct {
		value any
		want  bool
	}{{map[string]any{}, true}, {map[string]any{"a": 1}, false}, {[]any{}, true}, {[]any{1}, false}} {
		zeroer, ok := NewAdapter(nil).NativeToValue(tc.value).(traits.Zeroer)
		if !ok || zeroer.IsZeroValue() != tc.want {
			t.Errorf("%v: want %t", tc.value, tc.want)
		}
	}
}
