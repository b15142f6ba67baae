// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"reflect"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// addsOnlyZeros says whether a message of a type has all that another one has, and in addition nothing but fields of zero value that JSON
// leaves out: those are always written in protobuf, but not by an older API server that does not know them.
func addsOnlyZeros(message, other []byte, t reflect.Type) bool {
	if bytes.Equal(message, other) {
		return true
	}
	l := layoutOf(t)
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeField(message)
		otherNumber, otherKind, otherLength := protowire.ConsumeField(other)
		switch {
		case length < 0 || otherLength < 0 && len(other) > 0:
			return false
		case len(other) == 0 || number != otherNumber:
			if !l.omitted[number] || !isZero(message[:length], kind) {
				return false
			}
			message = message[length:]
			continue
		case kind != otherKind || !addsOnlyZerosIn(message[:length], other[:otherLength], kind, l.fields[number]):
			return false
		}
		message, other = message[length:], other[otherLength:]
	}
	return len(other) == 0
}

// addsOnlyZerosIn is addsOnlyZeros for one field, with its number; t is nil if its type is not known.
func addsOnlyZerosIn(field, other []byte, kind protowire.Type, t reflect.Type) bool {
	if bytes.Equal(field, other) {
		return true
	}
	if kind != protowire.BytesType || t == nil || t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return false
	}
	return addsOnlyZeros(valueOf(field), valueOf(other), t)
}

// valueOf returns the bytes in a field of that kind.
func valueOf(field []byte) []byte {
	_, _, tag := protowire.ConsumeTag(field)
	value, _ := protowire.ConsumeBytes(field[tag:])
	return value
}

// isZero says whether a field has a number or a text of zero value.
func isZero(field []byte, kind protowire.Type) bool {
	_, _, tag := protowire.ConsumeTag(field)
	switch kind {
	case protowire.VarintType, protowire.BytesType: // the number, or the length
		return len(field) == tag+1 && field[tag] == 0
	case protowire.Fixed32Type, protowire.Fixed64Type:
		return len(bytes.Trim(field[tag:], "\x00")) == 0
	default:
		return false
	}
}

// isOmitted says whether JSON leaves out a field of a struct while it has its zero value.
func isOmitted(f reflect.StructField) bool {
	options := strings.Split(f.Tag.Get("json"), ",")[1:]
	for _, o := range options {
		if o == "omitzero" || o == "omitempty" && f.Type.Kind() != reflect.Struct {
			return true
		}
	}
	return false
}
