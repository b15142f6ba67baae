// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"reflect"
	"strings"
)

// layouts are the types of the fields of structs, by their JSON names in lower case: JSON decoding ignores the case.
type layouts map[reflect.Type]map[string]reflect.Type

// findField returns the type of a field of a struct; nil if there is no such field.
func (l layouts) findField(of reflect.Type, name string) reflect.Type {
	fields, known := l[of]
	if !known {
		fields = map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(of) {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" && tag != "-" {
				fields[strings.ToLower(tag)] = f.Type
			}
		}
		l[of] = fields
	}
	return fields[strings.ToLower(name)]
}

// mapEntry is the memory of a map's entry, besides its value: its key, its place in a half-empty group of entries, and old groups
// that are not yet collected.
const mapEntry = 96

// addDecoded counts the memory that a value takes besides its place, and returns its type without pointers. It returns nil for
// a type that decodes itself and takes no more than its text.
func (t *trimmer) addDecoded(as reflect.Type) reflect.Type {
	for as != nil && as.Kind() == reflect.Pointer {
		as = as.Elem()
		t.addSize(as.Size())
	}
	if as != nil && reflect.PointerTo(as).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	return as
}

// addMember counts a member of an object, and returns the type that it is decoded into. A member of a struct already has its place.
func (t *trimmer) addMember(of reflect.Type, name string) reflect.Type {
	switch {
	case of == nil:
		return nil
	case of.Kind() == reflect.Struct:
		return t.layout.findField(of, name)
	case of.Kind() == reflect.Map:
		t.addSize(mapEntry + of.Elem().Size())
		return of.Elem()
	}
	return nil
}

// addEntry counts the place of an entry of a list, and returns the type that it is decoded into.
func (t *trimmer) addEntry(of reflect.Type) reflect.Type {
	if of == nil || of.Kind() != reflect.Slice {
		return nil
	}
	t.addSize(of.Elem().Size())
	return of.Elem()
}

// addSize counts bytes of memory, and ends the part if it takes more than maxDecoded.
func (t *trimmer) addSize(bytes uintptr) {
	if t.decoded += bytes; t.decoded > maxDecoded && t.keeping {
		t.exceed(t.field, "has far more entries than are allowed: it would take more than %d MiB of memory: leave some out", maxDecoded>>20)
	}
}
