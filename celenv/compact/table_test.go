// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// drawKey draws one of a few keys of all types, so that some come often.
func drawKey(random *rand.Rand, most int) ref.Val {
	switch n := random.IntN(most); random.IntN(5) {
	case 0:
		return types.Int(n - most/2)
	case 1:
		return types.Uint(n)
	case 2:
		return types.Bool(n%2 == 0)
	default:
		return types.String(fmt.Sprint(n))
	}
}

// Whatever the keys are, a map finds what a map of cel-go finds, and iterates in the order in which keys came first.
func TestTablesFindWhatMapsFind(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var keys, values, order []ref.Val
		want := map[ref.Val]ref.Val{}
		most := 1 + random.IntN(300)
		for i := range random.IntN(200) {
			key := drawKey(random, most)
			if _, isThere := want[key]; !isThere {
				order = append(order, key)
			}
			want[key] = types.Int(i)
			keys, values = append(keys, key), append(values, types.Int(i))
		}
		got, known := NewMap(keys, values), types.NewRefValMap(types.DefaultTypeAdapter, want)
		for i := range 200 {
			key := drawKey(random, most)
			if i%3 == 0 {
				key = types.Double(random.IntN(most)) / 2
			}
			value, found := got.Find(key)
			wantValue, wantFound := known.Find(key)
			if found != wantFound || found && value != wantValue {
				t.Fatalf("%T %v of %v: got %v, %v, want %v, %v", key, key, keys, value, found, wantValue, wantFound)
			}
		}
		at := 0
		for it := got.Iterator(); it.HasNext() == types.True; at++ {
			if key := it.Next(); key != order[at] {
				t.Fatalf("%v: key %d is %v, want %v", keys, at, key, order[at])
			}
		}
		if at != len(order) || got.Equal(known) != types.True || known.Equal(got) != types.True {
			t.Fatalf("%v: %d of %d keys, equal: %v", keys, at, len(order), got.Equal(known))
		}
	}
}

// A whole number is one key, whatever its type.
func TestNumbersOfOtherTypes(t *testing.T) {
	m := NewMap([]ref.Val{types.Int(1), types.Uint(2), types.Int(-3), types.Uint(math.MaxUint64)}, []ref.Val{types.True, types.True, types.True, types.True})
	for key, want := range map[ref.Val]types.Bool{
		types.Uint(1): true, types.Double(1): true, types.Int(2): true, types.Double(2): true, types.Double(-3): true, types.Uint(math.MaxUint64): true,
		types.Double(1.5): false, types.Double(math.NaN()): false, types.Double(math.Inf(1)): false, types.Int(3): false, types.Int(-1): false, types.String("1"): false,
	} {
		if got := m.Contains(key); got != want {
			t.Errorf("%T %v: got %v", key, key, got)
		}
	}
}

// A key that comes again has the place of the first, and is no other place.
func TestPlacesOfKeys(t *testing.T) {
	table := NewTable(makeKeys([]string{"a", "b", "a", "c", "b"}))
	want := []struct {
		place int
		isNew bool
	}{{0, true}, {1, true}, {0, false}, {2, true}, {1, false}}
	for i, w := range want {
		if table.IsComplete() {
			t.Fatalf("it is complete after %d keys", i)
		}
		if place, isNew := table.AddNext(); place != w.place || isNew != w.isNew {
			t.Errorf("key %d has the place %d, new: %v", i, place, isNew)
		}
	}
	if !table.IsComplete() || table.CountKeys() != 3 || table.FirstAt(2) != 3 || table.KeyAt(2) != types.String("c") {
		t.Errorf("it has %d places; key %d is at the last, %v", table.CountKeys(), table.FirstAt(2), table.KeyAt(2))
	}
}

// An index takes little more than it says, besides its keys and values.
func TestIndexesTakeLittleMemory(t *testing.T) {
	const keys = 100_000
	held := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, tc := range map[string]struct{ different, most int }{"Different": {keys, 13}, "Few": {100, 5}} {
		all := make([]ref.Val, keys)
		for i := range all {
			all[i] = types.String(fmt.Sprint("key-", i%tc.different))
		}
		before := held()
		table := NewTable(all)
		for !table.IsComplete() {
			table.AddNext()
		}
		m := NewIndex(table, 0, func(int) ref.Val { return types.True })
		took := held() - before
		said, _ := CountBytes(m)
		if took > keys*int64(tc.most) || took > 2*int64(said)+(64<<10) {
			t.Errorf("%s: a key takes %d bytes, and all together say that they take %d", name, took/keys, said)
		}
		runtime.KeepAlive(m)
		runtime.KeepAlive(all)
	}
}

func TestTrimSlice(t *testing.T) {
	for _, tc := range []struct{ length, room, most int }{{0, 100, 0}, {100, 110, 110}, {100, 200, 100}} {
		got := TrimSlice(make([]int, tc.length, tc.room))
		if len(got) != tc.length || cap(got) > tc.most {
			t.Errorf("%+v: %d of %d", tc, len(got), cap(got))
		}
	}
}
