// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/compact"
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
func (a Adapter) NativeToValue(value any) ref.Val { return a.m.wrapValue(value) }

// wrapValue makes a value of one in Go. m is charged for each use, unless it is nil.
func (m *Meter) wrapValue(value any) ref.Val {
	switch v := value.(type) {
	case string:
		return types.String(v)
	case map[string]any:
		return &SortedMap{Native: v, m: m}
	case []any:
		return &NativeList{Native: v, m: m}
	default:
		return types.DefaultTypeAdapter.NativeToValue(value)
	}
}

// SortedMap is a map in Go. It iterates in the order of its keys. It is used by pointer: cel-go hashes values.
type SortedMap struct {
	Native map[string]any
	m      *Meter
}

// Find returns the value of a key.
func (m *SortedMap) Find(key ref.Val) (ref.Val, bool) {
	name, isText := key.(types.String)
	if !isText {
		return nil, false
	}
	value, found := m.Native[string(name)]
	if !found {
		return nil, false
	}
	return m.m.wrapValue(value), true
}

// Get returns the value of a key, or an error.
func (m *SortedMap) Get(key ref.Val) ref.Val {
	value, found := m.Find(key)
	if !found {
		return types.ValOrErr(value, "no such key: %v", key)
	}
	return value
}

// Contains says whether there is a key.
func (m *SortedMap) Contains(key ref.Val) ref.Val {
	name, isText := key.(types.String)
	_, found := m.Native[string(name)]
	return types.Bool(isText && found)
}

// Iterator visits the keys in their order. They are sorted at once, also for a loop that ends with the first.
func (m *SortedMap) Iterator() traits.Iterator {
	m.m.paySorting(len(m.Native))
	return types.NewStringList(types.DefaultTypeAdapter, slices.Sorted(maps.Keys(m.Native))).Iterator()
}

// Size returns the number of keys.
func (m *SortedMap) Size() ref.Val { return types.Int(len(m.Native)) }

// IsZeroValue says whether the map is empty, as optional.ofNonZeroValue asks.
func (m *SortedMap) IsZeroValue() bool { return len(m.Native) == 0 }

// Type returns the type of maps.
func (m *SortedMap) Type() ref.Type { return types.MapType }

// Value returns the map in Go.
func (m *SortedMap) Value() any { return m.Native }

// Equal says whether another map has the same entries.
func (m *SortedMap) Equal(other ref.Val) ref.Val { return m.adaptMap().Equal(other) }

// ConvertToNative returns the map as a type of Go.
func (m *SortedMap) ConvertToNative(to reflect.Type) (any, error) {
	return m.adaptMap().ConvertToNative(to)
}

// ConvertToType returns the map, or its type.
func (m *SortedMap) ConvertToType(to ref.Type) ref.Val {
	if to == types.MapType {
		return m
	}
	return m.adaptMap().ConvertToType(to)
}

// adaptMap returns the map as cel-go has it.
func (m *SortedMap) adaptMap() traits.Mapper {
	return types.NewStringInterfaceMap(NewAdapter(m.m), m.Native)
}

// NativeList is a list of values in Go.
type NativeList struct {
	Native []any
	m      *Meter
}

// MakesOnDemand says that elements take no memory until they are asked for.
func (l *NativeList) MakesOnDemand() {}

// Get returns the element at a place, or an error.
func (l *NativeList) Get(index ref.Val) ref.Val {
	if i, isInt := index.(types.Int); isInt && i >= 0 && int(i) < len(l.Native) {
		return l.m.wrapValue(l.Native[i])
	}
	return l.adaptList().Get(index)
}

// Iterator visits the elements.
func (l *NativeList) Iterator() traits.Iterator {
	return compact.NewIterator(len(l.Native), func(i int) ref.Val { return l.m.wrapValue(l.Native[i]) })
}

// Fold visits the elements until the visitor has enough.
func (l *NativeList) Fold(visitor traits.Folder) {
	for i, value := range l.Native {
		if !visitor.FoldEntry(i, l.m.wrapValue(value)) {
			return
		}
	}
}

// Size returns the number of elements.
func (l *NativeList) Size() ref.Val { return types.Int(len(l.Native)) }

// IsZeroValue says whether the list is empty, as optional.ofNonZeroValue asks.
func (l *NativeList) IsZeroValue() bool { return len(l.Native) == 0 }

// Type returns the type of lists.
func (l *NativeList) Type() ref.Type { return types.ListType }

// Value returns the list in Go.
func (l *NativeList) Value() any { return l.Native }

// Add returns a list with the elements of another one after its own.
func (l *NativeList) Add(other ref.Val) ref.Val { return l.adaptList().Add(other) }

// Contains says whether an element equals a value.
func (l *NativeList) Contains(value ref.Val) ref.Val { return l.adaptList().Contains(value) }

// Equal says whether another list has the same elements.
func (l *NativeList) Equal(other ref.Val) ref.Val { return l.adaptList().Equal(other) }

// ConvertToNative returns the list as a type of Go.
func (l *NativeList) ConvertToNative(to reflect.Type) (any, error) {
	return l.adaptList().ConvertToNative(to)
}

// ConvertToType returns the list, or its type.
func (l *NativeList) ConvertToType(to ref.Type) ref.Val {
	if to == types.ListType {
		return l
	}
	return l.adaptList().ConvertToType(to)
}

// adaptList returns the list as cel-go has it.
func (l *NativeList) adaptList() traits.Lister {
	return types.NewDynamicList(NewAdapter(l.m), l.Native)
}

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
