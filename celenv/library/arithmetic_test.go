// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	kubernetes "k8s.io/apiserver/pkg/cel/library"
)

// callExtended calls a function of the environment as programs do.
func callExtended(t *testing.T, function string, args ...ref.Val) ref.Val {
	t.Helper()
	env, err := cel.NewEnv(kubernetes.Lists(), kubernetes.Quantity(), Arithmetic())
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := env.Functions()[function].Bindings()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings {
		if b.Operator != function {
			continue
		}
		extended := ExtendBinding(b)
		if len(args) == 1 {
			return extended.Unary(args[0])
		}
		return extended.Binary(args[0], args[1])
	}
	t.Fatalf("there is no %s", function)
	return nil
}

func TestDurationsAreMultiplied(t *testing.T) {
	hours := func(n int64) ref.Val { return types.Duration{Duration: time.Duration(n) * time.Hour} }
	for name, tc := range map[string]struct {
		a, b ref.Val
		want string
	}{
		"DurationFirst": {hours(2), types.Int(3), `duration("21600s")`},
		"NumberFirst":   {types.Int(-3), hours(2), `duration("-21600s")`},
		"Zero":          {hours(2), types.Int(0), `duration("0s")`},
		"Most":          {hours(1), types.Int(2562047), `duration("9223369200s")`},
		"TooLong":       {hours(1), types.Int(2562048), "292 years"},
		"TooLongBelow":  {types.Int(math.MinInt64), hours(1), "292 years"},
		"LeastTurned":   {types.Duration{Duration: math.MinInt64}, types.Int(-1), "292 years"},
		"LeastTwice":    {types.Int(math.MinInt64), types.Duration{Duration: -1}, "292 years"},
		"ByADouble":     {hours(1), types.Double(1.5), "no such overload"},
		"Two":           {hours(1), hours(1), "no such overload"},
		"Numbers":       {types.Int(6), types.Int(7), "42"},
		"Doubles":       {types.Double(1.5), types.Double(2), "3.0"},
		"Overflow":      {types.Int(math.MaxInt64), types.Int(2), "integer overflow"},
		"Texts":         {types.String("a"), types.Int(2), "no such overload"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describeResult(callExtended(t, operators.Multiply, tc.a, tc.b)); !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// describeResult writes a value, or the message of an error.
func describeResult(v ref.Val) string {
	if err, ok := v.(*types.Err); ok {
		return err.Error()
	}
	if IsQuantity(v) {
		return v.(interface{ String() string }).String()
	}
	return types.Format(v)
}

func TestSumsByTheFirstElement(t *testing.T) {
	quantity := func(text string) ref.Val {
		env, err := cel.NewEnv(kubernetes.Quantity())
		if err != nil {
			t.Fatal(err)
		}
		bindings, err := env.Functions()["quantity"].Bindings()
		if err != nil {
			t.Fatal(err)
		}
		return bindings[0].Unary(types.String(text))
	}
	for name, tc := range map[string]struct {
		all  []ref.Val
		want string
	}{
		"Quantities":      {[]ref.Val{quantity("1Gi"), quantity("512Mi"), quantity("0")}, "1536Mi"},
		"Mixed units":     {[]ref.Val{quantity("100m"), quantity("1")}, "1100m"},
		"Many digits":     {[]ref.Val{quantity("9223372036854775807"), quantity("1")}, "9223372036854775808"},
		"No quantity":     {[]ref.Val{quantity("1"), types.String("2Gi")}, `sum: "2Gi" is among quantities, and is none: wrap it in quantity()`},
		"Durations":       {[]ref.Val{types.Duration{Duration: time.Hour}, types.Duration{Duration: time.Minute}}, `duration("3660s")`},
		"Doubles":         {[]ref.Val{types.Double(1.5), types.Double(1)}, "2.5"},
		"Not of one type": {[]ref.Val{types.Double(1.5), types.Int(1)}, "no such overload"},
		"Ints":            {[]ref.Val{types.Int(1), types.Int(2)}, "3"},
		"Nothing":         {nil, "0"},
		"Texts":           {[]ref.Val{types.String("a")}, "no such overload"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describeResult(callExtended(t, "sum", types.NewRefValList(types.DefaultTypeAdapter, tc.all))); !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
