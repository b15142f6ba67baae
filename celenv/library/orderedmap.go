// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// orderedMap is a map that iterates in a given order, so that lists made from it are the same each
// time. It is used by pointer: cel-go hashes values.
type orderedMap struct {
	traits.Mapper
	keys []ref.Val
}

func newOrderedMap(keys []ref.Val, entries map[ref.Val]ref.Val) ref.Val {
	return &orderedMap{Mapper: types.NewRefValMap(types.DefaultTypeAdapter, entries), keys: keys}
}

// Iterator visits the keys in the map's order.
func (m *orderedMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, m.keys).Iterator()
}

// IsZeroValue says whether the map is empty, as optional.ofNonZeroValue asks.
func (m *orderedMap) IsZeroValue() bool { return len(m.keys) == 0 }

// canBeKey says whether the value can be a key of a map.
func canBeKey(v ref.Val) bool {
	switch v.(type) {
	case types.String, types.Int, types.Uint, types.Bool:
		return true
	default:
		return false
	}
}
