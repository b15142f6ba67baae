// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxObject bounds what one object takes in memory, in bytes: 16 times the 1.5 MiB that an API server stores of one. Objects
// that people write stay below: a definition of 1.5 MiB without any description takes as much, and all others that are known
// a half or less. One that is made to be large, such as a list of many small maps, takes up to 74 times its text.
const maxObject = 24 << 20

// errTooLarge says that an object was not read.
var errTooLarge = fmt.Errorf("it would take more than %d MiB of memory; select objects without it", maxObject>>20)

// isSmall reports whether data is below the bound whatever its content, when each byte counts for at most perByte.
func isSmall(data []byte, perByte int64) bool { return int64(len(data)) <= maxObject/perByte }

// CheckText errs on the JSON of an object that is not read into maps, because they would be too large.
func CheckText(data []byte) error {
	if !isSmall(data, perCharacter) && textSize(data, maxObject) > maxObject {
		return errTooLarge
	}
	return nil
}

// checkMessage is the same for a message in protobuf.
func checkMessage(message []byte, t reflect.Type) error {
	if !isSmall(message, perMessageByte) && messageSize(message, t, maxObject) > maxObject {
		return errTooLarge
	}
	return nil
}

// What values take in memory when they are read into maps, in bytes.
const (
	emptyMap   = 48
	smallMap   = 288 // of up to 8 entries
	largerMap  = 336 // the ninth entry, which makes the map grow
	entry      = 80  // each one more, in a map that has just doubled
	slice      = 24
	element    = 32 // in a slice that has just doubled
	number     = 8
	stringHead = 16

	inSmallMap = 8

	// perCharacter and perMessageByte are more than what a byte of JSON, or of a message of any kind, can come to: what is so
	// small that it stays below the bound in any case is not looked at.
	perCharacter, perMessageByte = 80, 2048
	// maxNesting is how deep JSON is read.
	maxNesting = 10_000
)

// textSize is about how much memory JSON takes when it is read into maps: never less than what they hold. It looks at the
// characters that give JSON its structure, and at nothing once there is more than most.
func textSize(data []byte, most int64) int64 {
	var total int64
	var open []int // the maps and lists around: how many entries a map has, and -1 for a list
	for i := 0; i < len(data) && total <= most; i++ {
		switch data[i] {
		case '"':
			n := stringLength(data[i+1:])
			total += stringHead + allocatedSize(n)
			i += n + 1
		case '{':
			open = append(open, 0)
			total += emptyMap
		case '[':
			open = append(open, -1)
			total += slice + element + number
		case '}', ']':
			open = open[:max(0, len(open)-1)]
		case ',':
			if len(open) > 0 && open[len(open)-1] < 0 {
				total += element + number
			}
		case ':':
			if len(open) > 0 && open[len(open)-1] >= 0 {
				open[len(open)-1]++
				total += number + entrySize(open[len(open)-1])
			}
		}
		if len(open) > maxNesting {
			return most + 1
		}
	}
	return total
}

// entrySize is how much the nth entry of a map adds to it.
func entrySize(n int) int64 {
	switch {
	case n == 1:
		return smallMap
	case n <= inSmallMap:
		return 0
	case n == inSmallMap+1:
		return largerMap
	default:
		return entry
	}
}

// stringLength is how many bytes there are before the quote that ends a string of JSON.
func stringLength(data []byte) int {
	for i := 0; i < len(data); i++ {
		n := bytes.IndexAny(data[i:], `"\`)
		if n < 0 {
			break
		}
		if i += n; data[i] == '"' {
			return i
		}
		i++ // what is escaped
	}
	return len(data)
}

// allocatedSize is what is allocated for n bytes.
func allocatedSize(n int) int64 {
	const least, part = 8, 8
	return int64(n) + int64(n)/part + least
}

// messageSize is about how much memory a message takes as an object of a type and, made of that, in maps: never less than
// what they hold. It looks no further than most.
func messageSize(message []byte, t reflect.Type, most int64) int64 {
	s := sizing{most: most}
	s.addMessage(message, t)
	return s.total
}

// sizing adds up what a message takes.
type sizing struct{ total, most int64 }

// addMessage counts a message of a type. One that is broken is counted as far as it can be read.
func (s *sizing) addMessage(data []byte, t reflect.Type) {
	l := layoutOf(t)
	s.total += l.size
	for len(data) > 0 && s.total <= s.most {
		n, kind, length := protowire.ConsumeField(data)
		if length < 0 {
			s.addText(len(data))
			return
		}
		_, _, tag := protowire.ConsumeTag(data)
		value := data[tag:length]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		s.addField(value, kind, l.fields[n])
		data = data[length:]
	}
}

// addField counts a value of a field, whose type is nil if it is not known.
func (s *sizing) addField(value []byte, kind protowire.Type, t reflect.Type) {
	s.total += entry + element + number
	switch {
	case t == nil || kind != protowire.BytesType || t.Kind() == reflect.String || t.Kind() == reflect.Uint8:
		s.addText(len(value))
	case t == embeddedJSON:
		s.addText(len(value))
		s.total += textSize(value, s.most-s.total)
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		s.addMessage(value, t)
	default: // numbers, with no tags between them
		s.total += int64(len(value)) * (element + 2*number)
	}
}

// addText counts bytes, which are there twice where maps have them in base64.
func (s *sizing) addText(n int) { s.total += 2 * (stringHead + allocatedSize(n)) }

// layout is what a type is made of.
type layout struct {
	// size is what a message takes without its fields.
	size int64
	// fields are the types of what is in its fields, by their numbers.
	fields map[protowire.Number]reflect.Type
	// omitted are the numbers of those that JSON leaves out while they have their zero value.
	omitted map[protowire.Number]bool
}

// embeddedJSON stands for a field with JSON in it.
var embeddedJSON = reflect.TypeFor[json.RawMessage]() //nolint:gochecknoglobals // never changes

// layouts are those that were asked for, by type.
var layouts sync.Map //nolint:gochecknoglobals // a function of the types of this program

// layoutOf is the layout of a struct, or of an entry of a map.
func layoutOf(t reflect.Type) layout {
	if known, ok := layouts.Load(t); ok {
		return known.(layout)
	}
	l := layout{fields: map[protowire.Number]reflect.Type{}, omitted: map[protowire.Number]bool{}}
	switch {
	case t.Kind() == reflect.Map:
		l.size = 3*(bytesOf(t.Key())+bytesOf(t.Elem())) + entry
		l.fields[1], l.fields[2] = elementType(t.Key()), elementType(t.Elem())
	case t == reflect.TypeFor[runtime.RawExtension]():
		l.size = 2*bytesOf(t) + element
		l.fields[1] = embeddedJSON
	default:
		l.size = 2*bytesOf(t) + element + emptyStructSize(t)
		for i := range t.NumField() {
			f := t.Field(i)
			if n, ok := fieldNumber(f); ok {
				l.fields[n], l.omitted[n] = elementType(f.Type), isOmitted(f)
			}
			if f.Type.Kind() == reflect.Map { // here, and in maps
				l.size += 2 * (emptyMap + smallMap)
			}
		}
	}
	layouts.Store(t, l)
	return l
}

// bytesOf is how many bytes a value of a type takes itself.
func bytesOf(t reflect.Type) int64 { return int64(t.Size()) } //nolint:gosec // no type is so large

// fieldNumber is the number of a field; false if it is in no message.
func fieldNumber(f reflect.StructField) (protowire.Number, bool) {
	tag := strings.Split(f.Tag.Get("protobuf"), ",") // such as bytes,2,rep,name=items
	if len(tag) < 2 {
		return 0, false
	}
	n, err := strconv.ParseInt(tag[1], 10, 32)
	return protowire.Number(n), err == nil
}

// elementType is the type of one value in a field.
func elementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return t
}

// emptyStructSize is what a struct takes in maps if nothing is set in it: what is not left out then is written.
func emptyStructSize(t reflect.Type) int64 {
	total := int64(emptyMap + smallMap)
	for i := range t.NumField() {
		f := t.Field(i)
		switch options := f.Tag.Get("json"); {
		case options == "-" || strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero"):
		case f.Type.Kind() == reflect.Struct:
			total += entry + emptyStructSize(f.Type)
		default:
			total += entry + stringHead
		}
	}
	return total
}
