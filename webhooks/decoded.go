// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"reflect"
	"strings"
)

// layouts are the types of the fields of structs, by their names in JSON in lower case: they are decoded whatever their case.
type layouts map[reflect.Type]map[string]reflect.Type

// findField returns the type of a field of a struct; nil if it has none of this name.
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

// mapEntry is what an entry of a map takes besides its value: its key, its place in a group of entries that is half empty, and the
// former ones that are not collected yet.
const mapEntry = 96

// addDecoded counts what a value takes besides its place, and returns the type that is behind its pointers; nil for one that
// reads its text itself and takes no more than that.
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

// addMember counts a member of a map, and returns the type that it is decoded into. One of a struct has its place there.
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

// addEntry counts an entry of a list, and returns the type that it is decoded into. Whatever it is, it has its place.
func (t *trimmer) addEntry(of reflect.Type) reflect.Type {
	if of == nil || of.Kind() != reflect.Slice {
		return nil
	}
	t.addSize(of.Elem().Size())
	return of.Elem()
}

// addSize counts bytes, up to what a part may take.
func (t *trimmer) addSize(bytes uintptr) {
	if t.decoded += bytes; t.decoded > maxDecoded && t.keeping {
		t.exceed(t.field, "has far more entries than are allowed: it would take more than %d MiB of memory: leave some out", maxDecoded>>20)
	}
}
