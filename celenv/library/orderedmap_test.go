// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/go-cmp/cmp"
)

// newTestMap maps texts to their places, in an order that is not the one of the alphabet.
func newTestMap(names ...string) ref.Val {
	var keys []ref.Val
	entries := map[ref.Val]ref.Val{}
	for i, name := range names {
		keys = append(keys, types.String(name))
		entries[keys[i]] = types.Int(i)
	}
	return newOrderedMap(keys, entries)
}

func TestOrderedMapKeepsItsOrder(t *testing.T) {
	m := newTestMap("z", "a", "m", "b").(traits.Mapper)
	for range 10 { // a map of Go would iterate otherwise by now
		var got []string
		for it := m.Iterator(); it.HasNext() == types.True; {
			got = append(got, string(it.Next().(types.String)))
		}
		if diff := cmp.Diff([]string{"z", "a", "m", "b"}, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

func TestOrderedMapIsAMap(t *testing.T) {
	m := newTestMap("z", "a").(traits.Mapper)
	if got := m.Get(types.String("a")); got != types.Int(1) {
		t.Errorf("a is %v", got)
	}
	if _, found := m.Find(types.String("b")); found {
		t.Error("b is there")
	}
	if got := m.Size(); got != types.Int(2) {
		t.Errorf("it has %v keys", got)
	}
	if m.Equal(newTestMap("z", "a")) != types.True || m.Equal(newTestMap("z", "b")) != types.False {
		t.Error("it is not equal to what has the same entries, or to others too")
	}
}

func TestOrderedMapIsEmpty(t *testing.T) {
	for name, tc := range map[string]struct {
		m    ref.Val
		want string
	}{
		"Empty": {newTestMap(), `optional.none()`},
		"One":   {newTestMap("a"), `optional.of({"a": 0})`},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := compileExpression(t, cel.Lib(objectsLibrary{}), `optional.ofNonZeroValue(object)`)
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := program.Eval(map[string]any{"object": tc.m})
			if err != nil || types.Format(got) != tc.want {
				t.Errorf("got %v, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestCanBeKey(t *testing.T) {
	for _, v := range []ref.Val{types.String(""), types.Int(0), types.Uint(0), types.False} {
		if !canBeKey(v) {
			t.Errorf("%T cannot be a key", v)
		}
	}
	for _, v := range []ref.Val{types.Double(1), types.NullValue, types.Bytes("a"), types.Duration{}, types.OptionalNone, newTestMap(), types.NewRefValList(types.DefaultTypeAdapter, nil)} {
		if canBeKey(v) {
			t.Errorf("%T can be a key", v)
		}
	}
}
