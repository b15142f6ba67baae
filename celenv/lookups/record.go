// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lookups

import (
	"hash/fnv"
	"reflect"
	"slices"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// MaxKeys is how many keys one answer may look up. An answer that looks up more depends on all of their maps.
const MaxKeys = 16

// Key is the sum of a key and of the variable in whose map it is, or stands for all that a variable has.
type Key uint64

// sumKey returns the Key of a text in the map of a variable, which is known by its place.
func sumKey(place int, key types.String) Key {
	return sumText(strconv.Itoa(place) + ":" + string(key))
}

// sumAll returns the Key of all that a variable has.
func sumAll(place int) Key {
	return sumText(strconv.Itoa(place))
}

func sumText(text string) Key {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return Key(h.Sum64())
}

// Record is what is looked up. It is for one goroutine.
type Record struct {
	keys []Key
	maps map[int]*recorded // by the place of their variable
}

// BeginAnswer forgets what was looked up.
func (r *Record) BeginAnswer() { r.keys = r.keys[:0] }

// ListKeys returns what was looked up since BeginAnswer. They are valid until the next one.
func (r *Record) ListKeys() []Key { return r.keys }

// RecordValue returns the value of a variable so that lookups in it are recorded. Of what is no map of an index, all is recorded at once.
func (r *Record) RecordValue(place int, v ref.Val) ref.Val {
	m, isIndex := asIndex(v)
	if !isIndex {
		r.addKey(place, sumAll(place))
		return v
	}
	known := r.maps[place]
	if known == nil || known.Mapper != m {
		known = &recorded{Mapper: m, place: place, by: r}
		if r.maps == nil {
			r.maps = map[int]*recorded{}
		}
		r.maps[place] = known
	}
	return known
}

// addKey adds a key of a variable.
func (r *Record) addKey(place int, k Key) {
	switch {
	case slices.Contains(r.keys, k):
	case len(r.keys) < MaxKeys:
		r.keys = append(r.keys, k)
	case !slices.Contains(r.keys, sumAll(place)):
		r.keys = append(r.keys, sumAll(place)) // once for each variable
	}
}

// recorded is a map whose lookups are recorded. Whatever else is asked of it depends on all that it has.
type recorded struct {
	traits.Mapper
	place int
	by    *Record
}

func (m *recorded) recordKey(key ref.Val) {
	if text, ok := key.(types.String); ok {
		m.by.addKey(m.place, sumKey(m.place, text))
	} else { // numbers of several types may be one key
		m.recordAll()
	}
}

func (m *recorded) recordAll() { m.by.addKey(m.place, sumAll(m.place)) }

// Contains says whether the map has a key.
func (m *recorded) Contains(key ref.Val) ref.Val {
	m.recordKey(key)
	return m.Mapper.Contains(key)
}

// Find returns the value of a key.
func (m *recorded) Find(key ref.Val) (ref.Val, bool) {
	m.recordKey(key)
	return m.Mapper.Find(key)
}

// Get returns the value of a key, or an error.
func (m *recorded) Get(key ref.Val) ref.Val {
	m.recordKey(key)
	return m.Mapper.Get(key)
}

// Equal says whether the map equals another value.
func (m *recorded) Equal(other ref.Val) ref.Val {
	m.recordAll()
	return m.Mapper.Equal(other)
}

// Iterator visits the keys.
func (m *recorded) Iterator() traits.Iterator {
	m.recordAll()
	return m.Mapper.Iterator()
}

// Size returns how many keys there are.
func (m *recorded) Size() ref.Val {
	m.recordAll()
	return m.Mapper.Size()
}

// ConvertToNative returns the map in Go, as a type.
func (m *recorded) ConvertToNative(as reflect.Type) (any, error) {
	m.recordAll()
	return m.Mapper.ConvertToNative(as)
}

// ConvertToType returns the map as a type of CEL.
func (m *recorded) ConvertToType(as ref.Type) ref.Val {
	m.recordAll()
	return m.Mapper.ConvertToType(as)
}

// Value returns the map in Go.
func (m *recorded) Value() any {
	m.recordAll()
	return m.Mapper.Value()
}
