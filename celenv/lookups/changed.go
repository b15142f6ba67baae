// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lookups

import (
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/budget"
)

const (
	// maxComparisons is how many values are compared at most, and maxChanged is how many keys may have changed: with more, all is evaluated as soon.
	maxComparisons = 1 << 20
	maxChanged     = 1 << 14
	// textStep is how many bytes of texts are as much work as one value.
	textStep = 256
	// fewKeys is how many keys are compared sooner one after the other than looked up.
	fewKeys = 8
)

// Changes are the keys whose values have changed. Nil has none.
type Changes struct {
	keys map[Key]struct{}
	// looked has the variables that were compared, by their places, and whether that has succeeded.
	looked map[int]bool
	// compared is how many values were compared.
	compared int
}

// NewChanges returns Changes of these keys.
func NewChanges(keys ...Key) *Changes {
	c := &Changes{keys: map[Key]struct{}{}, looked: map[int]bool{}}
	for _, k := range keys {
		c.keys[k] = struct{}{}
	}
	return c
}

// ConcernAny says that an answer which has looked up these keys may be another one now.
func (c *Changes) ConcernAny(keys []Key) bool {
	if c == nil {
		return false
	}
	if len(c.keys) <= fewKeys {
		few := slices.Collect(maps.Keys(c.keys))
		return slices.ContainsFunc(keys, func(k Key) bool { return slices.Contains(few, k) })
	}
	for _, k := range keys {
		if _, changed := c.keys[k]; changed {
			return true
		}
	}
	return false
}

// AddVariable adds what is different in a value of a variable, which is known by its place, from what it was. It is not ok if that cannot be found out, or
// takes too much work: then every answer that has looked up anything of it may be another one. A variable is looked at once.
func (c *Changes) AddVariable(place int, before, now ref.Val) (ok bool) {
	return c.lookOnce(place, func() bool { return c.compareVariable(place, before, now) })
}

// AddPieces adds the keys of a variable whose values may be other ones because objects have changed: before and now are the maps that it makes of these
// objects alone, as they were and as they are, and all is the map of all objects, in which what was looked up is as it was before. It is not ok if that
// cannot be found out. A variable is looked at once.
func (c *Changes) AddPieces(place int, of Pieces, all, before, now ref.Val) (ok bool) {
	return c.lookOnce(place, func() bool { return c.comparePieces(place, of, all, before, now) })
}

// lookOnce looks at a variable that was not looked at. It is not ok if look is not, or if there are too many values or keys then.
func (c *Changes) lookOnce(place int, look func() (ok bool)) (ok bool) {
	ok, known := c.looked[place]
	if !known {
		ok = look() && c.compared <= maxComparisons && len(c.keys) <= maxChanged
		c.looked[place] = ok
	}
	return ok
}

// Knows says that a variable was looked at, and that it is known what has changed of it. Nil knows none.
func (c *Changes) Knows(place int) bool { return c != nil && c.looked[place] }

// comparePieces is AddPieces for a variable that was not looked at.
func (c *Changes) comparePieces(place int, of Pieces, all, before, now ref.Val) (ok bool) {
	known, isIndex := asIndex(all)
	was, wasIndex := asIndex(before)
	is, areIndexes := asIndex(now)
	if !isIndex || !wasIndex || !areIndexes {
		return false
	}
	c.keys[sumAll(place)] = struct{}{} // the order may be another one, too
	c.visitKeys(was, func(key ref.Val) {
		if value, found := is.Find(key); !of.Counts || !found || !c.isSame(was.Get(key), value) {
			c.addKey(place, key)
		}
	})
	c.visitKeys(is, func(key ref.Val) {
		isCompared := of.Counts && was.Contains(key) == types.True
		isKnown := of.Counts && is.Get(key) == types.True && known.Contains(key) == types.True // of a set: another object has it
		if !isCompared && !isKnown {
			c.addKey(place, key)
		}
	})
	return true
}

// visitKeys visits the keys of a map, until there are too many.
func (c *Changes) visitKeys(of traits.Mapper, visit func(key ref.Val)) {
	for it := of.Iterator(); it.HasNext() == types.True && c.compared <= maxComparisons && len(c.keys) <= maxChanged; {
		visit(it.Next())
	}
}

// addKey adds a key of a variable.
func (c *Changes) addKey(place int, key ref.Val) {
	c.compared++
	if text, ok := key.(types.String); ok {
		c.keys[sumKey(place, text)] = struct{}{}
	} else {
		c.keys[sumAll(place)] = struct{}{}
	}
}

// compareVariable is AddVariable for a variable that was not looked at.
func (c *Changes) compareVariable(place int, before, now ref.Val) (ok bool) {
	if c.isSame(before, now) {
		return true
	}
	was, wasIndex := asIndex(before)
	is, isIndex := asIndex(now)
	switch {
	case !wasIndex: // all of it was recorded
		c.keys[sumAll(place)] = struct{}{}
		return true
	case !isIndex:
		return false
	}
	same := c.addMissing(place, was, is)
	if same = c.addMissing(place, is, was) && same; !same {
		c.keys[sumAll(place)] = struct{}{}
	}
	return true
}

// addMissing adds the keys of a map that another one does not have with the same value, and says whether that one has all of them, in the same order.
func (c *Changes) addMissing(place int, of, in traits.Mapper) (same bool) {
	same = true
	other := in.Iterator()
	for it := of.Iterator(); it.HasNext() == types.True && c.compared <= maxComparisons && len(c.keys) <= maxChanged; {
		c.compared++
		key := it.Next()
		same = same && other.HasNext() == types.True && c.isSame(key, other.Next())
		if value, found := in.Find(key); found && c.isSame(of.Get(key), value) {
			continue
		}
		same = false
		c.addKey(place, key)
	}
	return same
}

// asIndex returns a value as a map that an expression has made. It is not ok for a part of an object, and for what is no map.
func asIndex(v ref.Val) (m traits.Mapper, ok bool) {
	if _, isObject := v.(*budget.SortedMap); isObject {
		return nil, false
	}
	m, ok = v.(traits.Mapper)
	return m, ok
}

// isSame says that two values are certainly the same: plain ones that are equal, the same object, and lists of such. It looks into nothing else, and
// at nothing at all after too many. Two timestamps may be equal and yet be written in other ways.
func (c *Changes) isSame(a, b ref.Val) bool {
	if c.compared++; c.compared > maxComparisons {
		return false
	}
	switch a := a.(type) {
	case types.String:
		c.compared += len(a) / textStep
		return a == b
	case types.Bool, types.Int, types.Uint, types.Null, types.Duration:
		return a == b
	case *budget.SortedMap:
		b, ok := b.(*budget.SortedMap)
		return ok && reflect.ValueOf(a.Native).Pointer() == reflect.ValueOf(b.Native).Pointer()
	case *budget.NativeList:
		b, ok := b.(*budget.NativeList)
		return ok && len(a.Native) == len(b.Native) && (len(a.Native) == 0 || &a.Native[0] == &b.Native[0])
	}
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if x.Kind() == reflect.Pointer && y.Kind() == reflect.Pointer && x.Pointer() == y.Pointer() {
		return true
	}
	one, isList := a.(traits.Lister)
	other, areLists := b.(traits.Lister)
	return isList && areLists && c.haveSame(one, other)
}

// haveSame says that two lists certainly have the same elements.
func (c *Changes) haveSame(a, b traits.Lister) bool {
	if a.Size() != b.Size() {
		return false
	}
	for i, j := a.Iterator(), b.Iterator(); i.HasNext() == types.True; {
		if !c.isSame(i.Next(), j.Next()) {
			return false
		}
	}
	return true
}
