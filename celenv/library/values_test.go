// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/celenv/compact"
)

func TestQuoteValue(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, tc := range map[string]struct {
		value any
		want  string
	}{
		"Text":      {"a\"b\n", `"a\"b\n"`},
		"Empty":     {"", `""`},
		"OfCEL":     {types.String("a"), `"a"`},
		"Longest":   {long, `"` + long + `"`},
		"TooLong":   {long + "b", `"` + long + `"…`},
		"LongOfCEL": {types.String(long + "b"), `"` + long + `"…`},
		"Number":    {int64(1), "a int64"},
		"Nil":       {nil, "a <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quoteValue(tc.value); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestUnwrapOptional(t *testing.T) {
	for name, tc := range map[string]struct{ value, want ref.Val }{
		"Plain":    {types.String("a"), types.String("a")},
		"Empty":    {types.String(""), types.String("")},
		"False":    {types.False, types.False},
		"Null":     {types.NullValue, nil},
		"None":     {types.OptionalNone, nil},
		"OfNull":   {types.OptionalOf(types.NullValue), nil},
		"Optional": {types.OptionalOf(types.Int(1)), types.Int(1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unwrapOptional(tc.value); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestConvertToMap(t *testing.T) {
	adapt := types.DefaultTypeAdapter.NativeToValue
	for name, tc := range map[string]struct {
		value ref.Val
		want  map[string]any
		ok    bool
	}{
		"OfGo":      {adapt(map[string]any{"a": int64(1)}), map[string]any{"a": int64(1)}, true},
		"OfCEL":     {compact.NewMap([]ref.Val{types.String("a"), types.String("b")}, []ref.Val{types.Int(0), types.Int(1)}), map[string]any{"a": int64(0), "b": int64(1)}, true},
		"OfTexts":   {adapt(map[string]string{"a": "b"}), map[string]any{"a": "b"}, true},
		"Empty":     {adapt(map[string]any{}), map[string]any{}, true},
		"List":      {adapt([]any{}), nil, false},
		"Text":      {adapt("a"), nil, false},
		"Null":      {types.NullValue, nil, false},
		"NumberKey": {adapt(map[int]string{1: "a"}), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := convertToMap(tc.value)
			if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
				t.Errorf("got %t (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// Objects are large, and each is read many times.
func TestConvertToMapDoesNotCopyAnObject(t *testing.T) {
	object := map[string]any{}
	got, _ := convertToMap(types.DefaultTypeAdapter.NativeToValue(object))
	object["a"] = "b"
	if got["a"] != "b" {
		t.Error("it is a copy")
	}
}

// unreadList is a list that must not be read.
type unreadList struct {
	traits.Lister
	t *testing.T
}

// Iterator reports that the list is copied.
func (l unreadList) Iterator() traits.Iterator {
	l.t.Error("the list is read")
	return l.Lister.Iterator()
}

// A list is no map, however long it is.
func TestConvertToMapReadsNoList(t *testing.T) {
	if _, ok := convertToMap(unreadList{types.NewStringList(types.DefaultTypeAdapter, []string{"a"}), t}); ok {
		t.Error("a list is a map")
	}
}

func TestLookupNative(t *testing.T) {
	m := map[string]any{"a": map[string]any{"b": map[string]any{"c": "x"}}, "text": "y", "null": nil}
	for name, tc := range map[string]struct {
		path []string
		want any
	}{
		"Here":        {[]string{"text"}, "y"},
		"Within":      {[]string{"a", "b", "c"}, "x"},
		"NotHere":     {[]string{"b"}, nil},
		"NotWithin":   {[]string{"a", "c", "c"}, nil},
		"BelowAText":  {[]string{"text", "b"}, nil},
		"BelowNull":   {[]string{"null", "b", "c"}, nil},
		"NotItsParts": {[]string{"c"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lookupNative(m, tc.path...); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestListMaps(t *testing.T) {
	a, b := map[string]any{"n": "a"}, map[string]any{"n": "b"}
	for name, tc := range map[string]struct {
		value any
		want  []map[string]any
	}{
		"Maps":     {[]any{b, a}, []map[string]any{b, a}},
		"AndOther": {[]any{"x", a, nil, []any{b}}, []map[string]any{a}},
		"NoMaps":   {[]any{"x"}, []map[string]any{}},
		"Map":      {a, []map[string]any{}},
		"Nil":      {nil, []map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, listMaps(tc.value)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
