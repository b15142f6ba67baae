// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"crypto/sha256"
	"hash/maphash"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

const (
	// maxCompared is how many values of a label are compared one by one. Of more, one is found by its hash.
	maxCompared = 8
	// MaxListed is how many values of a label are listed.
	MaxListed = 32
	// maxRequired is how many of the labels that an object must have are listed.
	maxRequired = 8
)

// Selector is a label selector that compares an object at a cost that does not depend on how many values are selected. It never
// changes.
type Selector struct {
	labels.Selector
	// few is what compares few values, and many what looks among many.
	few  labels.Selector
	many []manyValues
	// required are some of the labels that an object must have.
	required []RequiredLabel
	terms    int
	digest   [sha256.Size]byte
}

// RequiredLabel is a label that an object must have.
type RequiredLabel struct {
	Key string
	// Values are those that it may have. Nil: any, or more than MaxListed.
	Values []string
}

// manyValues are the values of a requirement: a label must have one of them, or none.
type manyValues struct {
	key  string
	none bool
	valueSet
}

// CompileSelector prepares a selector, at a cost that depends on its values. One that is prepared costs nothing.
func CompileSelector(s labels.Selector) *Selector {
	if c, ok := s.(*Selector); ok {
		return c
	}
	requirements, selectable := s.Requirements()
	if !selectable { // it selects nothing, which is not what it is to have no requirements
		return &Selector{Selector: s, few: s, digest: sha256.Sum256([]byte("nothing"))}
	}
	c := &Selector{terms: len(requirements)}
	var all, few []labels.Requirement
	for _, r := range requirements {
		values := r.ValuesUnsorted()
		anew, set := newManyValues(r, values)
		if set != nil {
			c.many = append(c.many, *set)
		} else {
			few = append(few, r)
		}
		all = append(all, anew)
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if len(values) > MaxListed {
				values = nil
			}
			c.required = append(c.required, RequiredLabel{Key: r.Key(), Values: values})
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			c.required = append(c.required, RequiredLabel{Key: r.Key()})
		}
	}
	slices.SortStableFunc(c.required, compareChoices)
	c.required = c.required[:min(len(c.required), maxRequired)]
	c.Selector, c.few = labels.NewSelector().Add(all...), labels.NewSelector().Add(few...)
	c.digest = sha256.Sum256([]byte("labels " + c.String()))
	return c
}

// compareChoices puts labels with fewer values first, and those with any last.
func compareChoices(a, b RequiredLabel) int {
	choices := func(l RequiredLabel) int { return cmp.Or(len(l.Values), MaxListed+1) }
	return cmp.Compare(choices(a), choices(b))
}

// newManyValues returns a set of the values of a requirement, if they are many, and a requirement that shares these values, so that they
// are in memory once.
func newManyValues(r labels.Requirement, values []string) (labels.Requirement, *manyValues) {
	none := r.Operator() == selection.NotIn
	if len(values) <= maxCompared || !none && r.Operator() != selection.In {
		return r, nil
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted) // as they are written
	sorted = slices.Compact(sorted)
	anew, err := labels.NewRequirement(r.Key(), r.Operator(), sorted)
	if err != nil { // it was none; its values are compared one by one
		return r, nil
	}
	return *anew, &manyValues{key: r.Key(), none: none, valueSet: newValueSet(sorted)}
}

// Matches says that labels are selected.
func (s *Selector) Matches(l labels.Labels) bool {
	if !s.few.Matches(l) {
		return false
	}
	for i := range s.many {
		m := &s.many[i]
		value, exists := l.Lookup(m.key)
		if (exists && m.has(value)) == m.none {
			return false
		}
	}
	return true
}

// RequiredLabels are labels that an object must have to be selected, those with the fewest values first; few, however many there are.
// They must not be changed.
func (s *Selector) RequiredLabels() []RequiredLabel { return s.required }

// CountTerms is how many comparisons it takes at most to say whether labels are selected, where one among many values is one.
func (s *Selector) CountTerms() int { return s.terms }

// Digest is the same for selectors that are written the same.
func (s *Selector) Digest() [sha256.Size]byte { return s.digest }

// DeepCopySelector returns the selector itself: it never changes.
func (s *Selector) DeepCopySelector() labels.Selector { return s }

// valueSet finds a value among many by its hash. Besides the values it takes six to twelve bytes for each, a third of what a map takes.
type valueSet struct {
	seed   maphash.Seed
	values []string
	// slots has for each value its position and one more: at its hash, or at the next one that was free. Zero is free.
	slots []uint32
}

func newValueSet(values []string) valueSet {
	s := valueSet{seed: maphash.MakeSeed(), values: values, slots: make([]uint32, 1<<bits.Len(uint(len(values)*3/2)))}
	for i, v := range values {
		n, _ := s.find(v)
		s.slots[n] = uint32(i + 1)
	}
	return s
}

func (s *valueSet) has(v string) bool {
	n, _ := s.find(v)
	return s.slots[n] != 0
}

// find returns the slot of a value, or the free one where it would be, and how many values it was compared with.
func (s *valueSet) find(v string) (slot uint64, compared int) {
	mask := uint64(len(s.slots) - 1) //nolint:gosec // a length, of at least one
	for slot = maphash.String(s.seed, v) & mask; ; slot = (slot + 1) & mask {
		at := s.slots[slot]
		if at == 0 {
			return slot, compared
		}
		compared++
		if s.values[at-1] == v {
			return slot, compared
		}
	}
}

// CountComparisons is what it costs to compare an object with a query, and only the place of one: one for each term of the selectors.
func (q *Query) CountComparisons() (object, place int) {
	place = 1
	if q.Namespaces.Labels != nil {
		place += CompileSelector(q.Namespaces.Labels).CountTerms()
	}
	return place + CompileSelector(q.Labels).CountTerms() + len(q.Fields.Requirements()), place
}
