// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package objectschema

import (
	"maps"
	"slices"
	"strings"
)

// Types is a set of types of JSON values.
type Types uint8

// The types. A number is an integer too.
const (
	String Types = 1 << iota
	Integer
	Number
	Bool
	Map
	List
)

// String lists the types, for people.
func (t Types) String() string {
	var names []string
	for n, name := range []string{"a string", "an integer", "a number", "a bool", "a map", "a list"} {
		if t&(1<<n) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// Schema says what a value may be. Nil says nothing. Schemas may contain themselves, and are never changed once they are made.
type Schema struct {
	// Types are those that the value may have; none: any.
	Types Types
	// Fields are the known keys of a map.
	Fields map[string]*Schema
	// Open means that a map may have other keys. Lenient means that it may have them, although a field that is not known is likely a mistake:
	// the API server keeps it, and nothing reads it.
	Open, Lenient bool
	// Entries are the values of keys that are not among Fields, if Open; nil: anything.
	Entries *Schema
	// Elements are the elements of a list; nil: anything.
	Elements *Schema
	// Enum are the only texts that the value may be; none: any.
	Enum []string
	// Usual are texts that the value often is. Another one is likely a mistake if it resembles one of them.
	Usual []string
	// Hints say of keys that a map does not have what to write instead.
	Hints map[string]string
}

// May says that a value may have one of these types.
func (s *Schema) May(types Types) bool { return s == nil || s.Types == 0 || s.Types&types != 0 }

// HasKey says that a value may have a key, and what is under it; nil: anything.
func (s *Schema) HasKey(key string) (*Schema, bool) {
	if s == nil || s.Types == 0 {
		return nil, true
	}
	if !s.May(Map) {
		return nil, false
	}
	if field, known := s.Fields[key]; known {
		return field, true
	}
	if s.Open {
		return s.Entries, true
	}
	return nil, false
}

// ListFields returns the known keys of a map, sorted.
func (s *Schema) ListFields() []string { return slices.Sorted(maps.Keys(s.Fields)) }

// withUsual returns the schema with the usual texts of the value at a path. An element of a list stands in a path as *. The schema itself stays
// as it is.
func (s *Schema) withUsual(usual []string, path ...string) *Schema {
	if s == nil {
		return nil
	}
	out := *s
	switch {
	case len(path) == 0:
		out.Usual = usual
	case path[0] == "*":
		out.Elements = s.Elements.withUsual(usual, path[1:]...)
	case s.Fields[path[0]] != nil:
		out.Fields = maps.Clone(s.Fields)
		out.Fields[path[0]] = s.Fields[path[0]].withUsual(usual, path[1:]...)
	}
	return &out
}
