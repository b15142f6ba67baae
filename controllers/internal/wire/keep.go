// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/celenv/projection"
)

// KeepParts returns what a projection keeps of the whole object. What was read of protobuf is not put into maps but for that. It may be
// called once, instead of Content.
func (o *Object) KeepParts(p *projection.Projection) (map[string]any, error) {
	if o.typed != nil && !p.Whole {
		return convertParts(o.typed, o.GroupVersionKind(), p)
	}
	content, err := o.Content()
	if err != nil {
		return nil, err
	}
	return p.ApplyToMap(content), nil
}

// convertParts converts what a projection keeps of an object, and changes the object.
func convertParts(o typed, kind schema.GroupVersionKind, p *projection.Projection) (map[string]any, error) {
	pruneValue(reflect.ValueOf(o).Elem(), p)
	var u unstructured.Unstructured
	if _, err := convertToUnstructured(o, kind, &u); err != nil {
		return nil, err
	}
	return p.ApplyToMap(u.Object), nil
}

// pruneValue sets to zero what a projection keeps nothing of, where that changes nothing of what it keeps: this need not be converted. It
// leaves values as they are that write their JSON themselves.
func pruneValue(v reflect.Value, p *projection.Projection) {
	switch {
	case p != nil && (p.Whole || len(p.References) > 0):
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			pruneValue(v.Elem(), p)
		}
	case writesItself(v.Type()):
	case v.Kind() == reflect.Slice:
		pruneElements(v, p)
	case v.Kind() == reflect.Struct && (p == nil || !p.Shape && p.Entries == nil): // else all fields show that are there
		pruneFields(v, p)
	}
}

// pruneElements is pruneValue for a list.
func pruneElements(v reflect.Value, p *projection.Projection) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return
	}
	if p == nil {
		p = &projection.Projection{}
	}
	typeOf := findTypeField(v.Type().Elem())
	if typeOf == nil && len(p.ByType) > 0 {
		return
	}
	left := 0
	for i := range v.Len() {
		kind := ""
		if typeOf != nil {
			kind = typeOf(v.Index(i))
		}
		each, kept := p.OfType(kind)
		switch {
		case kept:
			pruneValue(v.Index(i), each)
		case left > 0 || i < v.Len()-1: // else it stays as it is: that there are some may show
			continue
		}
		if left != i {
			v.Index(left).Set(v.Index(i))
		}
		left++
	}
	v.Set(v.Slice(0, left))
}

// findTypeField returns a function that reads the field type of a struct, which is a string in JSON; nil if it has none.
func findTypeField(t reflect.Type) func(reflect.Value) string {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range fieldsOf(t) {
		if f.name == "type" && t.Field(f.index).Type.Kind() == reflect.String {
			return func(v reflect.Value) string { return v.Field(f.index).String() }
		}
	}
	return nil
}

// pruneFields is pruneValue for the fields of a struct.
func pruneFields(v reflect.Value, p *projection.Projection) {
	for _, f := range fieldsOf(v.Type()) {
		field := v.Field(f.index)
		if f.inline {
			pruneValue(field, p)
			continue
		}
		var kept *projection.Projection
		found := false
		if p != nil {
			kept, found = p.Fields[f.name]
		}
		switch {
		case !found:
			field.SetZero()
		case f.omitZero:
			before := reflect.New(field.Type()).Elem()
			before.Set(field)
			if pruneValue(field, kept); field.IsZero() { // it must not look as if it were not there
				field.Set(before)
			}
		default:
			pruneValue(field, kept)
		}
	}
}

// jsonField is a field of a struct that JSON has.
type jsonField struct {
	index            int
	name             string
	inline, omitZero bool
}

// fieldLists are those that were asked for, by type.
var fieldLists sync.Map //nolint:gochecknoglobals // a function of the types of this program

// fieldsOf lists the fields of a struct that JSON has.
func fieldsOf(t reflect.Type) []jsonField {
	if known, ok := fieldLists.Load(t); ok {
		return known.([]jsonField)
	}
	var all []jsonField
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		if !tagged && !f.Anonymous {
			name = f.Name
		}
		if f.IsExported() && name != "-" {
			all = append(all, jsonField{i, name, name == "", strings.Contains(options, "omitzero")})
		}
	}
	fieldLists.Store(t, all)
	return all
}

// selfWritten says of the types that were asked for whether their values write their JSON themselves.
var selfWritten sync.Map //nolint:gochecknoglobals // a function of the types of this program

// writesItself says that values of a type write their JSON themselves.
func writesItself(t reflect.Type) bool {
	if known, ok := selfWritten.Load(t); ok {
		return known.(bool)
	}
	marshaler := reflect.TypeFor[json.Marshaler]()
	writes := t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
	selfWritten.Store(t, writes)
	return writes
}
