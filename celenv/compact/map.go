// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Entries are what a Map has, each at its place.
type Entries interface {
	CountKeys() int
	KeyAt(place int) ref.Val
	ValueAt(place int) ref.Val
	FindPlace(key ref.Val) (place int, found bool)
	// CountBytes returns about how many bytes they take, without the keys and values that others have too.
	CountBytes() int
}

// Map is a map that iterates in the order of its entries, and takes little more memory than these. It is used by pointer: cel-go hashes values.
type Map[E Entries] struct{ entries E }

// NewMapOf makes a map of entries.
func NewMapOf[E Entries](entries E) *Map[E] { return &Map[E]{entries} }

// CountBytes returns about how many bytes a Map takes, without its keys and values. It is not ok for other values.
func CountBytes(v ref.Val) (bytes int, ok bool) {
	if m, is := v.(interface{ countBytes() int }); is {
		return m.countBytes(), true
	}
	return 0, false
}

func (m *Map[E]) countBytes() int { return m.entries.CountBytes() }

// Find returns the value of a key.
func (m *Map[E]) Find(key ref.Val) (ref.Val, bool) {
	place, found := m.entries.FindPlace(key)
	if !found {
		return nil, false
	}
	return m.entries.ValueAt(place), true
}

// Get returns the value of a key, or an error.
func (m *Map[E]) Get(key ref.Val) ref.Val {
	value, found := m.Find(key)
	if !found {
		return types.ValOrErr(value, "no such key: %v", key)
	}
	return value
}

// Contains says whether there is a key.
func (m *Map[E]) Contains(key ref.Val) ref.Val {
	_, found := m.entries.FindPlace(key)
	return types.Bool(found)
}

// Size returns the number of keys.
func (m *Map[E]) Size() ref.Val { return types.Int(m.entries.CountKeys()) }

// IsZeroValue says whether the map is empty, as optional.ofNonZeroValue asks.
func (m *Map[E]) IsZeroValue() bool { return m.entries.CountKeys() == 0 }

// Iterator visits the keys in the order of the map.
func (m *Map[E]) Iterator() traits.Iterator {
	return NewIterator(m.entries.CountKeys(), m.entries.KeyAt)
}

// Fold visits the entries in the order of the map, until the visitor has enough. Loops with two variables call it.
func (m *Map[E]) Fold(visitor traits.Folder) {
	for place := range m.entries.CountKeys() {
		if !visitor.FoldEntry(m.entries.KeyAt(place), m.entries.ValueAt(place)) {
			return
		}
	}
}

// Equal says whether another map has the same entries.
func (m *Map[E]) Equal(other ref.Val) ref.Val {
	others, isMap := other.(traits.Mapper)
	if !isMap || others.Size() != m.Size() {
		return types.False
	}
	for place := range m.entries.CountKeys() {
		value, found := others.Find(m.entries.KeyAt(place))
		if !found || types.Equal(m.entries.ValueAt(place), value) == types.False {
			return types.False
		}
	}
	return types.True
}

// Type returns the type of maps.
func (m *Map[E]) Type() ref.Type { return types.MapType }

// Value returns the map itself: a map of Go would be a copy, for which nothing was paid.
func (m *Map[E]) Value() any { return m }

// ConvertToNative returns a copy of the map as a value of Go.
func (m *Map[E]) ConvertToNative(to reflect.Type) (any, error) {
	values := make(map[ref.Val]ref.Val, m.entries.CountKeys())
	for place := range m.entries.CountKeys() {
		values[m.entries.KeyAt(place)] = m.entries.ValueAt(place)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, values).ConvertToNative(to)
}

// ConvertToType returns the map, or its type.
func (m *Map[E]) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.MapType:
		return m
	case types.TypeType:
		return types.MapType
	default:
		return types.NewErr("type conversion error from '%s' to '%s'", types.MapType, to)
	}
}
