// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/library"
)

// Adapter shows Go values to expressions without copying them. Maps iterate in the order of their keys, so that what is
// made of them, and the error that comes first, are the same each time.
type Adapter struct {
	types.Adapter
	m *Meter
}

// NewAdapter makes an Adapter. m is charged for each use of a value; nil: uses are free.
func NewAdapter(m *Meter) Adapter { return Adapter{Adapter: types.DefaultTypeAdapter, m: m} }

// NativeToValue wraps a Go value.
func (a Adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return &SortedMap{Mapper: types.NewStringInterfaceMap(a, v), Native: v, m: a.m}
	case []any:
		return &NativeList{Lister: types.NewDynamicList(a, v), Native: v}
	default:
		return a.Adapter.NativeToValue(value)
	}
}

// SortedMap is a map that iterates in the order of its keys. It is used by pointer: cel-go hashes values.
type SortedMap struct {
	traits.Mapper
	Native map[string]any
	m      *Meter
}

// Iterator visits the keys in their order. They are sorted at once, also for a loop that ends with the first.
func (m *SortedMap) Iterator() traits.Iterator {
	m.m.paySorting(len(m.Native))
	return types.NewStringList(types.DefaultTypeAdapter, slices.Sorted(maps.Keys(m.Native))).Iterator()
}

// IsZeroValue says whether the map is empty, as optional.ofNonZeroValue asks.
func (m *SortedMap) IsZeroValue() bool { return len(m.Native) == 0 }

// NativeList is a list of values in Go. (That is not what Value gives for every list that is made of one.)
type NativeList struct {
	traits.Lister
	Native []any
}

// MakesOnDemand says that elements take no memory until they are asked for.
func (l *NativeList) MakesOnDemand() {}

// IsZeroValue says whether the list is empty, as optional.ofNonZeroValue asks.
func (l *NativeList) IsZeroValue() bool { return len(l.Native) == 0 }

// ConvertToNative gives a value in Go. An object of the Input is the very map.
func ConvertToNative(v ref.Val, limit int64) (any, error) {
	if own, ok := v.(*SortedMap); ok {
		return own.Native, nil
	}
	if MeasureValue(v, limit) > limit {
		return nil, fmt.Errorf("the value is larger than %d bytes", limit)
	}
	return library.ConvertToNative(v)
}

// IsObject says whether a value, in Go or of CEL, is a Kubernetes object.
func IsObject(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		metadata, _ := v["metadata"].(map[string]any)
		return isText(v["apiVersion"]) && isText(v["kind"]) && isText(metadata["name"])
	case ref.Val:
		return isText(LookupField(v, "apiVersion")) && isText(LookupField(v, "kind")) && isText(LookupField(LookupField(v, "metadata"), "name"))
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

// TypeOf gives the type of a value.
func TypeOf(v ref.Val) *types.Type {
	if t, ok := v.Type().(*types.Type); ok {
		return t
	}
	return types.DynType
}

// LookupField gives a field of a map; null where there is none.
func LookupField(v ref.Val, name types.String) ref.Val {
	if m, ok := v.(traits.Mapper); ok {
		if value, found := m.Find(name); found {
			return value
		}
	}
	return types.NullValue
}

// ReadObjectName gives the namespace and name of an object, and nothing when the value is something else.
func ReadObjectName(v ref.Val) string {
	metadata := LookupField(v, "metadata")
	name, _ := LookupField(metadata, "name").(types.String)
	namespace, _ := LookupField(metadata, "namespace").(types.String)
	if name != "" && namespace != "" {
		return string(namespace + "/" + name)
	}
	return string(name)
}
