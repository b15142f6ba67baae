// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package objectschema

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// goTypes makes schemas of Go types. A type that contains itself has one schema.
type goTypes map[reflect.Type]*Schema

// OfGoType returns the schema of the JSON that a Go type is written as.
func OfGoType(t reflect.Type) *Schema { return goTypes{}.makeSchema(t) }

// ofMetadata returns the schema of an object's metadata.
func ofMetadata() *Schema { return OfGoType(reflect.TypeFor[metav1.ObjectMeta]()) }

// openAPITyped is a type that is written as another one, such as a time, and says so.
type openAPITyped interface{ OpenAPISchemaType() []string }

func (g goTypes) makeSchema(t reflect.Type) *Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if known, ok := g[t]; ok {
		return known
	}
	if s, special := findSpecial(t); special {
		return s
	}
	switch t.Kind() {
	case reflect.String:
		return &Schema{Types: String, Enum: enums()[t]}
	case reflect.Bool:
		return &Schema{Types: Bool}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Schema{Types: Integer}
	case reflect.Float32, reflect.Float64:
		return &Schema{Types: Number | Integer}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return &Schema{Types: String} // in base64
		}
		return &Schema{Types: List, Elements: g.makeSchema(t.Elem())}
	case reflect.Map:
		return &Schema{Types: Map, Open: true, Entries: g.makeSchema(t.Elem())}
	case reflect.Struct:
		s := &Schema{Types: Map, Fields: map[string]*Schema{}}
		g[t] = s
		g.addFields(s, t)
		return s
	default:
		return nil
	}
}

// addFields adds the fields of a struct, and those of the structs that are written inline.
func (g goTypes) addFields(s *Schema, t reflect.Type) {
	for n := range t.NumField() {
		f := t.Field(n)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case name != "":
			s.Fields[name] = g.makeSchema(f.Type)
		case f.Anonymous || strings.Contains(options, "inline"):
			inner := f.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				g.addFields(s, inner)
			}
		default:
			s.Fields[f.Name] = g.makeSchema(f.Type)
		}
	}
}

// findSpecial returns the schema of a type that is not written as its Go type says; nil: it may be anything.
func findSpecial(t reflect.Type) (*Schema, bool) {
	value := reflect.New(t).Interface()
	if typed, ok := value.(openAPITyped); ok && t.Kind() != reflect.Slice {
		s := &Schema{}
		for _, name := range typed.OpenAPISchemaType() {
			s.Types |= typesByName()[name]
		}
		if one, ok := value.(interface{ OpenAPIV3OneOfTypes() []string }); ok {
			for _, name := range one.OpenAPIV3OneOfTypes() {
				s.Types |= typesByName()[name]
			}
		}
		if s.Types == 0 || s.Types&(Map|List) != 0 {
			return nil, true
		}
		return s, true
	}
	if _, ok := value.(json.Marshaler); ok {
		return nil, true
	}
	return nil, false
}

func typesByName() map[string]Types {
	return map[string]Types{"string": String, "integer": Integer, "number": Number | Integer, "boolean": Bool, "object": Map, "array": List}
}
