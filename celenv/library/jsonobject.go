// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// jsonObject is an object of a text of JSON: a map from strings that iterates in the order of its keys. Objects of one text that have the same
// keys, as the records of a table do, share them, so that each takes little more than its values. It is used by pointer: cel-go hashes values.
type jsonObject struct{ keys, values []ref.Val }

// sort sorts the keys, and keeps the last value of each.
func (o *jsonObject) sort() {
	order := make([]int32, len(o.keys))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return compareKeys(o.keys[a], o.keys[b]) })
	keys, values := make([]ref.Val, 0, len(order)), make([]ref.Val, 0, len(order))
	for n, i := range order {
		if n+1 == len(order) || o.keys[order[n+1]] != o.keys[i] {
			keys, values = append(keys, o.keys[i]), append(values, o.values[i])
		}
	}
	o.keys, o.values = keys, values
}

func compareKeys(a, b ref.Val) int {
	return strings.Compare(string(a.(types.String)), string(b.(types.String)))
}

// Find returns the value of a key.
func (o *jsonObject) Find(key ref.Val) (ref.Val, bool) {
	if _, isText := key.(types.String); !isText {
		return nil, false
	}
	i, found := slices.BinarySearchFunc(o.keys, key, compareKeys)
	if !found {
		return nil, false
	}
	return o.values[i], true
}

// Get returns the value of a key, or an error.
func (o *jsonObject) Get(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if !found {
		return types.ValOrErr(value, "no such key: %v", key)
	}
	return value
}

// Contains says whether there is a key.
func (o *jsonObject) Contains(key ref.Val) ref.Val {
	_, found := o.Find(key)
	return types.Bool(found)
}

// Size returns the number of keys.
func (o *jsonObject) Size() ref.Val { return types.Int(len(o.keys)) }

// IsZeroValue says whether the map is empty, as optional.ofNonZeroValue asks.
func (o *jsonObject) IsZeroValue() bool { return len(o.keys) == 0 }

// Iterator visits the keys in their order.
func (o *jsonObject) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, o.keys).Iterator()
}

// Equal says whether another map has the same entries.
func (o *jsonObject) Equal(other ref.Val) ref.Val {
	m, isMap := other.(traits.Mapper)
	if !isMap || m.Size() != o.Size() {
		return types.False
	}
	for i, key := range o.keys {
		if value, found := m.Find(key); !found || types.Equal(o.values[i], value) == types.False {
			return types.False
		}
	}
	return types.True
}

// Type returns the type of maps.
func (o *jsonObject) Type() ref.Type { return types.MapType }

// Value returns the entries as a map of Go.
func (o *jsonObject) Value() any { return o.copy().Value() }

// ConvertToNative returns the map as a value of Go.
func (o *jsonObject) ConvertToNative(to reflect.Type) (any, error) {
	return o.copy().ConvertToNative(to)
}

// ConvertToType returns the map, or its type.
func (o *jsonObject) ConvertToType(to ref.Type) ref.Val {
	if to == types.MapType {
		return o
	}
	return o.copy().ConvertToType(to)
}

// copy returns a map of cel-go with the same entries.
func (o *jsonObject) copy() ref.Val {
	entries := make(map[ref.Val]ref.Val, len(o.keys))
	for i, key := range o.keys {
		entries[key] = o.values[i]
	}
	return newOrderedMap(o.keys, entries)
}
