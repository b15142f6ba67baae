// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"hash/maphash"
	"iter"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// Table finds the places of keys that are added one after the other, in some 8 bytes for each key. Strings, numbers and bools can be keys, and whatever
// else Go can compare.
type Table struct {
	keys   []ref.Val // those to add, also if one is there twice
	added  uint32    // how many were added
	places uint32
	firsts []uint32 // at each place, which key it is; nil: at each place its own
	slots  []uint32 // each 0, or one more than a place; their number is a power of two
	seed   maphash.Seed
	// owned says that no list has the slice of keys too.
	owned bool
}

// NewTable makes a table for these keys. It keeps the slice.
func NewTable(keys []ref.Val) *Table {
	t := &Table{keys: keys, seed: maphash.MakeSeed()}
	t.makeSlots(len(keys))
	return t
}

// NewOwnTable makes a complete table of keys, and keeps each key once.
func NewOwnTable(keys iter.Seq[ref.Val]) *Table {
	t := &Table{seed: maphash.MakeSeed(), owned: true}
	t.makeSlots(0)
	for key := range keys {
		slot, found := t.search(key)
		if found {
			continue
		}
		t.keys = append(t.keys, key)
		t.added++
		t.places++
		if t.slots[slot] = t.places; int(t.places) > len(t.slots)*2/3 {
			t.makeSlots(2 * len(t.keys))
		}
	}
	t.keys = TrimSlice(t.keys)
	return t
}

// makeSlots makes slots for so many keys: at most two of three are taken then.
func (t *Table) makeSlots(keys int) {
	size := 4
	for size < keys+keys/2 {
		size *= 2
	}
	t.slots = make([]uint32, size)
	for place := range t.places {
		slot, _ := t.search(t.KeyAt(int(place)))
		t.slots[slot] = place + 1
	}
}

// trimSlots makes fewer slots, if most are not needed.
func (t *Table) trimSlots() {
	if places := int(t.places); len(t.slots) > 4*places+4 {
		t.makeSlots(places)
	}
}

// search returns the slot of a key, or the one where it belongs.
func (t *Table) search(key ref.Val) (slot int, found bool) {
	mask := len(t.slots) - 1
	slot = int(t.hash(key)) & mask //nolint:gosec // the mask makes it small
	for ; t.slots[slot] != 0; slot = (slot + 1) & mask {
		if t.KeyAt(int(t.slots[slot])-1) == key {
			return slot, true
		}
	}
	return slot, false
}

func (t *Table) hash(key ref.Val) uint64 {
	if text, is := key.(types.String); is {
		return maphash.String(t.seed, string(text))
	}
	return maphash.Comparable(t.seed, key)
}

// IsComplete says that all keys were added.
func (t *Table) IsComplete() bool { return int(t.added) == len(t.keys) }

// AddNext adds the next key, and returns its place, which is new unless an earlier key is the same.
func (t *Table) AddNext() (place int, isNew bool) {
	n := t.added
	t.added++
	slot, found := t.search(t.keys[n])
	switch {
	case found && t.firsts == nil:
		t.firsts = make([]uint32, n)
		for i := range n {
			t.firsts[i] = i
		}
		fallthrough
	case found:
		return int(t.slots[slot]) - 1, false
	case t.firsts != nil:
		t.firsts = append(t.firsts, n)
	}
	t.places++
	t.slots[slot] = t.places
	return int(t.places) - 1, true
}

// FirstAt returns which of the keys is the one at a place.
func (t *Table) FirstAt(place int) int {
	if t.firsts != nil {
		return int(t.firsts[place])
	}
	return place
}

// FindPlace returns the place of a key. A whole number is the same key in each type of numbers.
func (t *Table) FindPlace(key ref.Val) (place int, found bool) {
	if !reflect.TypeOf(key).Comparable() {
		return 0, false
	}
	if slot, found := t.search(key); found {
		return int(t.slots[slot]) - 1, true
	}
	switch key.(type) {
	case types.Int, types.Uint, types.Double:
		return t.findNumber(key)
	default:
		return 0, false
	}
}

// findNumber returns the place of a number that is there as another type of numbers.
func (t *Table) findNumber(number ref.Val) (place int, found bool) {
	for _, to := range []ref.Type{types.IntType, types.UintType} {
		same := number.ConvertToType(to)
		if types.IsError(same) || same.Equal(number) != types.True {
			continue
		}
		if slot, found := t.search(same); found {
			return int(t.slots[slot]) - 1, true
		}
	}
	return 0, false
}

// CountKeys returns how many places there are.
func (t *Table) CountKeys() int { return int(t.places) }

// KeyAt returns the key at a place.
func (t *Table) KeyAt(place int) ref.Val { return t.keys[t.FirstAt(place)] }

// HasRepeated says that a key was there twice.
func (t *Table) HasRepeated() bool { return t.firsts != nil }

// CountBytes returns about how many bytes the table takes, without keys that a list has too.
func (t *Table) CountBytes() int {
	const tableBytes, indexBytes, keyBytes = 128, 4, 2 * ValueBytes
	bytes := tableBytes + indexBytes*(len(t.slots)+len(t.firsts))
	if t.owned {
		bytes += keyBytes * len(t.keys)
	}
	return bytes
}

// Index are entries with the keys of a Table.
type Index struct {
	*Table
	value func(place int) ref.Val
	bytes int // that value has
}

// NewIndex makes a map of the keys of a complete table and their values. Value has so many bytes.
func NewIndex(keys *Table, bytes int, value func(place int) ref.Val) *Map[Index] {
	keys.trimSlots()
	return NewMapOf(Index{keys, value, bytes})
}

// NewIndexOfValues makes a map of the keys of a complete table and their values.
func NewIndexOfValues(keys *Table, values []ref.Val) *Map[Index] {
	values = TrimSlice(values)
	return NewIndex(keys, ValueBytes*len(values), func(place int) ref.Val { return values[place] })
}

// NewMap makes a map of keys, in their order, and the value of each. The last value of a key counts. It keeps the keys.
func NewMap(keys, values []ref.Val) *Map[Index] {
	table, last := NewTable(keys), make([]ref.Val, 0, len(values))
	for _, value := range values {
		place, isNew := table.AddNext()
		if isNew {
			last = append(last, nil)
		}
		last[place] = value
	}
	return NewIndexOfValues(table, last)
}

// ValueAt returns the value at a place.
func (i Index) ValueAt(place int) ref.Val { return i.value(place) }

// CountBytes returns about how many bytes the entries take, without keys.
func (i Index) CountBytes() int { return i.Table.CountBytes() + i.bytes }
