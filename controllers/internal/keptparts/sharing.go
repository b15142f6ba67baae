// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package keptparts

import (
	"hash/maphash"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
)

const (
	// maxShared is how many parts of objects a generation of a Sharing has.
	maxShared = 8192
	// maxSharedSize is how large a part is at most, about, in bytes. Larger ones are seldom equal.
	maxSharedSize = 1 << 10
	// maxSharedText is how long a text is at most that is shared by itself.
	maxSharedText = 64
	// maxStack is how long a stack may become that is kept.
	maxStack = 1 << 12
	// sizeOfValue is about what a value takes besides its text, sizeOfMap what a map takes besides its entries, and sizeOfEntry what an entry
	// takes whose value is shared.
	sizeOfValue = 48
	sizeOfMap   = 200
	sizeOfEntry = 32
)

// Sharing gives equal parts of objects the same memory. It has two generations of parts. When the new one is full, it becomes the old one, and
// what of the old one is met again comes into the new one: so parts that many objects have stay, and parts that no object has go. Its
// memory is bounded, whatever there is in a cluster. It is safe for concurrent use.
type Sharing struct {
	seed maphash.Seed

	mu         sync.Mutex
	young, old map[uint64]any
	// stack has the entries of the maps and lists that are gone through, so that one that is known need not be copied.
	stack []entry
}

// entry is an entry of a map, or an element of a list without its key.
type entry struct {
	key   string
	value any
}

// NewSharing makes a Sharing without parts.
func NewSharing() *Sharing {
	return &Sharing{seed: maphash.MakeSeed(), young: map[uint64]any{}}
}

// ShareValue returns an object that is equal to one, and shares what is equal in others. It is a map[string]any of the same kinds of values as
// unstructured objects have. Neither may be changed afterwards. What identifies an object is not looked for in others. The size is about how
// many bytes it takes besides what it shares with others.
func (s *Sharing) ShareValue(object map[string]any) (_ map[string]any, size int) {
	if object == nil {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out, size := make(map[string]any, len(object)), sizeOfMap
	for key, value := range object {
		var of hashed
		if metadata, ok := value.(map[string]any); ok && key == "metadata" {
			of = s.shareMetadata(metadata)
		} else {
			of = s.share(value)
		}
		out[key] = of.value
		size += of.own
	}
	return out, size
}

// shareMetadata is ShareValue for metadata.
func (s *Sharing) shareMetadata(metadata map[string]any) hashed {
	out, size := make(map[string]any, len(metadata)), sizeOfMap
	for key, value := range metadata {
		of := hashed{value: value, own: sizeOfValue}
		switch key {
		case "name", "uid", "resourceVersion":
		default:
			of = s.share(value)
		}
		out[key] = of.value
		size += of.own
	}
	return hashed{value: out, own: size}
}

// ShareLabels is ShareValue for labels. Nil stays nil.
func (s *Sharing) ShareLabels(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := hashed{size: sizeOfValue}
	for key, value := range labels {
		n.addEntry(s.hash(key), hashed{hash: s.hash(value), size: sizeOfValue + len(key) + len(value)})
	}
	n.hash ^= 1 // no map of other values
	if known, found := s.find(n, func(known any) bool {
		other, ok := known.(map[string]string)
		return ok && maps.Equal(labels, other)
	}); found {
		return known.(map[string]string)
	}
	n.value = labels
	s.keep(n)
	return labels
}

// hashed is a value, and what is known of it: about how many bytes it takes, and how many of these it shares with no other.
type hashed struct {
	value     any
	hash      uint64
	size, own int
}

// addEntry adds what is known of an entry of a map. The order of entries does not matter.
func (n *hashed) addEntry(key uint64, entry hashed) {
	n.hash += mix(key ^ entry.hash*3)
	n.size += entry.size
}

// mix spreads the bits of a hash.
func mix(h uint64) uint64 {
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

func (s *Sharing) hash(text string) uint64 { return maphash.String(s.seed, text) }

// share returns a value, or one that is equal.
func (s *Sharing) share(value any) hashed {
	switch v := value.(type) {
	case map[string]any:
		return s.shareMap(v)
	case []any:
		return s.shareList(v)
	case string:
		n := hashed{value: value, hash: s.hash(v), size: sizeOfValue + len(v), own: sizeOfValue + len(v)}
		if len(v) > maxSharedText {
			return n
		}
		if known, found := s.find(n, func(known any) bool { return known == value }); found {
			n.value, n.own = known, sizeOfEntry
		} else {
			s.keep(n)
		}
		return n
	default: // another number, a bool or nil
		return hashed{value: value, hash: maphash.Comparable(s.seed, value), size: sizeOfValue, own: sizeOfValue}
	}
}

func (s *Sharing) shareMap(v map[string]any) hashed {
	n, start := hashed{hash: 2, size: sizeOfValue, own: sizeOfMap}, len(s.stack)
	for key, value := range v {
		of := s.share(value)
		of.size += len(key)
		n.addEntry(s.hash(key), of)
		n.own += of.own
		s.stack = append(s.stack, entry{key, of.value})
	}
	entries := s.stack[start:]
	known, found := s.find(n, func(known any) bool {
		other, ok := known.(map[string]any)
		return ok && len(other) == len(entries) && !slices.ContainsFunc(entries, func(e entry) bool {
			value, has := other[e.key]
			return !has || !isSame(e.value, value)
		})
	})
	if n.value = known; found {
		n.own = sizeOfEntry
	} else {
		out := make(map[string]any, len(entries))
		for _, e := range entries {
			out[e.key] = e.value
		}
		n.value = out
		s.keep(n)
	}
	s.popTo(start)
	return n
}

func (s *Sharing) shareList(v []any) hashed {
	n, start := hashed{hash: 3, size: sizeOfValue, own: sizeOfValue}, len(s.stack)
	for _, value := range v {
		of := s.share(value)
		n.hash = mix(n.hash*31 + of.hash)
		n.size += of.size
		n.own += of.own
		s.stack = append(s.stack, entry{value: of.value})
	}
	elements := s.stack[start:]
	known, found := s.find(n, func(known any) bool {
		other, ok := known.([]any)
		return ok && slices.EqualFunc(elements, other, func(e entry, value any) bool { return isSame(e.value, value) })
	})
	if n.value = known; found {
		n.own = sizeOfEntry
	} else {
		out := make([]any, len(elements))
		for i, e := range elements {
			out[i] = e.value
		}
		n.value = out
		s.keep(n)
	}
	s.popTo(start)
	return n
}

// popTo takes entries off the stack.
func (s *Sharing) popTo(start int) {
	clear(s.stack[start:])
	if s.stack = s.stack[:start]; start == 0 && cap(s.stack) > maxStack {
		s.stack = nil
	}
}

// isSame says that two values are equal which were shared before: so equal maps and lists are mostly one, and others count as different.
func isSame(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
	}
	switch b := b.(type) {
	case map[string]any, []any:
		return false
	case float64: // 0 and -0 are two
		a, ok := a.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	default:
		return a == b
	}
}

// find returns what equals a value, if that is kept.
func (s *Sharing) find(n hashed, equals func(known any) bool) (known any, found bool) {
	if n.size > maxSharedSize {
		return nil, false
	}
	if known, found = s.young[n.hash]; found && equals(known) {
		return known, true
	}
	if known, found = s.old[n.hash]; found && equals(known) {
		n.value = known
		s.keep(n)
		return known, true
	}
	return nil, false
}

// keep keeps a value, unless it is too large.
func (s *Sharing) keep(n hashed) {
	if n.size > maxSharedSize {
		return
	}
	if len(s.young) >= maxShared {
		s.young, s.old = make(map[uint64]any, maxShared), s.young
	}
	s.young[n.hash] = n.value
}
