// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/go-cmp/cmp"
)

// makers make the same map of texts in each of the ways there are.
var makers = map[string]func(names ...string) traits.Mapper{
	"Record": func(names ...string) traits.Mapper { return NewRecord(makeKeys(names), makeValues(names)) },
	"Index": func(names ...string) traits.Mapper {
		table, values := NewTable(makeKeys(names)), makeValues(names)
		for !table.IsComplete() {
			table.AddNext()
		}
		return NewIndex(table, 0, func(place int) ref.Val { return values[place] })
	},
	"Map": func(names ...string) traits.Mapper { return NewMap(makeKeys(names), makeValues(names)) },
}

func makeKeys(names []string) (keys []ref.Val) {
	for _, name := range names {
		keys = append(keys, types.String(name))
	}
	return keys
}

// makeValues gives each name its length.
func makeValues(names []string) (values []ref.Val) {
	for _, name := range names {
		values = append(values, types.Int(len(name)))
	}
	return values
}

// A Map is to an expression what a map of cel-go is.
func TestMapsAreMaps(t *testing.T) {
	for name, newMap := range makers {
		m := newMap("a", "bb", "ccc")
		same := types.NewRefValMap(types.DefaultTypeAdapter, map[ref.Val]ref.Val{types.String("ccc"): types.Int(3), types.String("bb"): types.Int(2), types.String("a"): types.Int(1)})
		for question, tc := range map[string]struct{ got, want any }{
			"Get":            {m.Get(types.String("bb")), types.Int(2)},
			"Missing":        {fmt.Sprint(m.Get(types.String("d"))), "no such key: d"},
			"OfAnotherType":  {m.Contains(types.Int(1)), types.False},
			"Uncomparable":   {m.Contains(types.Bytes("a")), types.False},
			"Contains":       {m.Contains(types.String("ccc")), types.True},
			"ContainsNot":    {m.Contains(types.String("")), types.False},
			"Size":           {m.Size(), types.Int(3)},
			"Equal":          {m.Equal(same), types.True},
			"EqualTheOther":  {same.Equal(m), types.True},
			"OtherKey":       {m.Equal(newMap("a", "bb", "ddd")), types.False},
			"OtherValue":     {m.Equal(NewMap(makeKeys([]string{"a", "bb", "ccc"}), makeValues([]string{"a", "bb", "c"}))), types.False},
			"FewerKeys":      {m.Equal(newMap("a")), types.False},
			"NoMap":          {m.Equal(types.Int(1)), types.False},
			"Type":           {m.Type(), types.MapType},
			"ConvertToMap":   {m.ConvertToType(types.MapType), ref.Val(m)},
			"ConvertToType":  {m.ConvertToType(types.TypeType), types.MapType},
			"ConvertToOther": {types.IsError(m.ConvertToType(types.IntType)), true},
			"Empty":          {newMap().(traits.Zeroer).IsZeroValue(), true},
			"NotEmpty":       {m.(traits.Zeroer).IsZeroValue(), false},
		} {
			if !reflect.DeepEqual(tc.got, tc.want) {
				t.Errorf("%s: %s: got %v, want %v", name, question, tc.got, tc.want)
			}
		}
		if native, err := m.ConvertToNative(reflect.TypeFor[map[string]any]()); err != nil || len(native.(map[string]any)) != 3 {
			t.Errorf("%s: as a map of Go it is %v, %v", name, native, err)
		}
		if m.Value() != ref.Val(m) {
			t.Errorf("%s: its value is %v", name, m.Value())
		}
		if n, ok := CountBytes(m); !ok || n < 48 {
			t.Errorf("%s: it takes %d bytes: %v", name, n, ok)
		}
	}
	if _, ok := CountBytes(types.Int(1)); ok {
		t.Error("it is known what a number takes")
	}
}

// visited collects what a map shows, up to a number of entries.
type visited struct {
	entries []string
	most    int
}

func (v *visited) FoldEntry(key, value any) bool {
	v.entries = append(v.entries, fmt.Sprint(key, value))
	return len(v.entries) < v.most
}

// All ways to go through a map show its entries in their order.
func TestMapsKeepTheirOrder(t *testing.T) {
	m := makers["Index"]("z", "aaa", "mm", "b").(*Map[Index])
	var keys []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, string(it.Next().(types.String)))
	}
	if diff := cmp.Diff([]string{"z", "aaa", "mm", "b"}, keys); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for most, want := range map[int][]string{9: {"z1", "aaa3", "mm2", "b1"}, 2: {"z1", "aaa3"}} {
		v := &visited{most: most}
		m.Fold(v)
		if diff := cmp.Diff(want, v.entries); diff != "" {
			t.Errorf("up to %d (-want +got):\n%s", most, diff)
		}
	}
}

// Expressions cannot tell such a map from another one.
func TestMapsInExpressions(t *testing.T) {
	env, err := cel.NewEnv(cel.Variable("m", cel.DynType), cel.OptionalTypes())
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		`m.map(k, k)`:                `["a", "bb"]`,
		`m.bb`:                       `2`,
		`m[?"c"]`:                    `optional.none()`,
		`m == {"a": 1, "bb": 2}`:     `true`,
		`"a" in m && !("c" in m)`:    `true`,
		`optional.ofNonZeroValue(m)`: `optional.of({"a": 1, "bb": 2})`,
		`has(m.a) && !has(m.c)`:      `true`,
	} {
		checked, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(checked)
		if err != nil {
			t.Fatal(err)
		}
		for name, newMap := range makers {
			if got, _, err := program.Eval(map[string]any{"m": newMap("a", "bb")}); err != nil || types.Format(got) != want {
				t.Errorf("%s: %s: got %v, %v, want %s", name, expression, got, err, want)
			}
		}
	}
}
