// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// NewIterator makes an iterator that visits so many values, each at its place.
func NewIterator(count int, at func(place int) ref.Val) traits.Iterator {
	return &iterator{Iterator: emptyIterator, count: count, at: at}
}

// emptyIterator says what all iterators of cel-go say of their type.
var emptyIterator = types.NewRefValList(types.DefaultTypeAdapter, nil).Iterator() //nolint:gochecknoglobals // it never changes

type iterator struct {
	traits.Iterator
	count, next int
	at          func(place int) ref.Val
}

// HasNext says whether there is another value.
func (i *iterator) HasNext() ref.Val { return types.Bool(i.next < i.count) }

// Next returns it; nil if there is none.
func (i *iterator) Next() ref.Val {
	if i.next >= i.count {
		return nil
	}
	i.next++
	return i.at(i.next - 1)
}
