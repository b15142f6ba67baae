// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// ValueBytes is what a place for a value takes.
const ValueBytes = 16

// NewRecord makes a map of a few texts, sorted and each once, and their values. It keeps both slices: records with the same keys share these.
func NewRecord(keys, values []ref.Val) *Map[Record] { return NewMapOf(Record{keys, values}) }

// Record are entries with a few keys, which are texts.
type Record struct{ keys, values []ref.Val }

// CountKeys returns how many there are.
func (r Record) CountKeys() int { return len(r.keys) }

// KeyAt returns the key at a place.
func (r Record) KeyAt(place int) ref.Val { return r.keys[place] }

// ValueAt returns the value at a place.
func (r Record) ValueAt(place int) ref.Val { return r.values[place] }

// CountBytes returns about how many bytes they take.
func (r Record) CountBytes() int { return 48 + ValueBytes*len(r.values) }

// FindPlace returns the place of a key.
func (r Record) FindPlace(key ref.Val) (place int, found bool) {
	if _, isText := key.(types.String); !isText {
		return 0, false
	}
	return slices.BinarySearchFunc(r.keys, key, CompareTexts)
}

// CompareTexts compares two keys that are texts.
func CompareTexts(a, b ref.Val) int {
	return strings.Compare(string(a.(types.String)), string(b.(types.String)))
}

// TrimSlice returns a slice without much room behind what it has, and without what is in this room.
func TrimSlice[T any](s []T) []T {
	if cap(s) > len(s)+len(s)/4 {
		return append(make([]T, 0, len(s)), s...)
	}
	return slices.Clip(s)
}
