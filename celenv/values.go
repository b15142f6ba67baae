// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// adapter shows Go values to expressions without copying them. Maps iterate in the order of their keys, so that what is
// made of them, and the error that comes first, are the same each time.
type adapter struct{ types.Adapter }

// NativeToValue wraps a Go value.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return &sortedMap{Mapper: types.NewStringInterfaceMap(a, v), native: v}
	case []any:
		return types.NewDynamicList(a, v)
	default:
		return a.Adapter.NativeToValue(value)
	}
}

// sortedMap is a map that iterates in the order of its keys. It is used by pointer: cel-go hashes values.
type sortedMap struct {
	traits.Mapper
	native map[string]any
}

// Iterator visits the keys in their order.
func (m *sortedMap) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, slices.Sorted(maps.Keys(m.native))).Iterator()
}

// IsZeroValue says whether the map is empty, as optional.ofNonZeroValue asks.
func (m *sortedMap) IsZeroValue() bool { return len(m.native) == 0 }
