// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/library"
)

// adapter shows Go values to expressions without copying them. Maps iterate in the order of their keys, so that what is
// made of them, and the error that comes first, are the same each time.
type adapter struct {
	types.Adapter
	// m pays for what is done each time that a value is used. Nil: nobody does.
	m *meter
}

// NativeToValue wraps a Go value.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return &sortedMap{Mapper: types.NewStringInterfaceMap(a, v), native: v, m: a.m}
	case []any:
		return &nativeList{Lister: types.NewDynamicList(a, v), native: v}
	default:
		return a.Adapter.NativeToValue(value)
	}
}

// sortedMap is a map that iterates in the order of its keys. It is used by pointer: cel-go hashes values.
type sortedMap struct {
	traits.Mapper
	native map[string]any
	m      *meter
}

// Iterator visits the keys in their order. They are sorted at once, also for a loop that ends with the first.
func (m *sortedMap) Iterator() traits.Iterator {
	m.m.paySorting(len(m.native))
	return types.NewStringList(types.DefaultTypeAdapter, slices.Sorted(maps.Keys(m.native))).Iterator()
}

// IsZeroValue says whether the map is empty, as optional.ofNonZeroValue asks.
func (m *sortedMap) IsZeroValue() bool { return len(m.native) == 0 }

// nativeList is a list of values in Go. (That is not what Value gives for every list that is made of one.)
type nativeList struct {
	traits.Lister
	native []any
}

// IsZeroValue says whether the list is empty, as optional.ofNonZeroValue asks.
func (l *nativeList) IsZeroValue() bool { return len(l.native) == 0 }

// convertToNative gives a value in Go. An object of the Input is the very map.
func convertToNative(v ref.Val, limit int64) (any, error) {
	if own, ok := v.(*sortedMap); ok {
		return own.native, nil
	}
	if measureValue(v, limit) > limit {
		return nil, fmt.Errorf("the value is larger than %d bytes", limit)
	}
	return library.ConvertToNative(v)
}

// isObject says whether a value, in Go or of CEL, is a Kubernetes object.
func isObject(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		metadata, _ := v["metadata"].(map[string]any)
		return isText(v["apiVersion"]) && isText(v["kind"]) && isText(metadata["name"])
	case ref.Val:
		return isText(lookupField(v, "apiVersion")) && isText(lookupField(v, "kind")) && isText(lookupField(lookupField(v, "metadata"), "name"))
	default:
		return false
	}
}

// isText says whether a value, in Go or of CEL, is a string that is not empty.
func isText(v any) bool {
	switch v := v.(type) {
	case string:
		return v != ""
	case types.String:
		return v != ""
	default:
		return false
	}
}
