// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/compact"
)

// maxJSON is the longest text that json.unmarshal reads: more than an object in a cluster can hold.
const maxJSON = 4 << 20

// maxJSONDepth is how deep lists and maps may be nested in what json.unmarshal reads: deeper than what anybody writes.
const maxJSONDepth = 256

// JSON reads and writes the JSON that objects carry as strings.
//
//	json.unmarshal(<string>) -> <dyn>    // integers are ints where an int can hold them, maps iterate in the order of their keys
//	json.marshal(<dyn>) -> <string>      // keys sorted, no spaces, nothing escaped that need not be: equal values give equal text
//	json.valid(<string>) -> <bool>       // whether json.unmarshal would read it
func JSON() cel.EnvOption { return cel.Lib(jsonLibrary{}) }

type jsonLibrary struct{}

func (jsonLibrary) LibraryName() string { return "cleaner.json" }

func (jsonLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("json.unmarshal",
			cel.Overload("json_unmarshal_string", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(unmarshalJSON))),
		cel.Function("json.marshal",
			cel.Overload("json_marshal_dyn", []*cel.Type{cel.DynType}, cel.StringType, cel.UnaryBinding(marshalJSON))),
		cel.Function("json.valid",
			cel.Overload("json_valid_string", []*cel.Type{cel.StringType}, cel.BoolType, cel.UnaryBinding(isValidJSON))),
	}
}

func (jsonLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func unmarshalJSON(v ref.Val) ref.Val {
	value, err := decodeJSON(string(v.(types.String)))
	if err != nil {
		return types.WrapErr(fmt.Errorf("json.unmarshal: %w", err))
	}
	return value
}

func isValidJSON(v ref.Val) ref.Val {
	text := string(v.(types.String))
	if !IsPlainJSON(text) {
		return types.Bool(!types.IsError(unmarshalJSON(v)))
	}
	return types.Bool(len(text) <= maxJSON && json.Valid([]byte(text)))
}

// visitStructure visits the bytes of a text of JSON that are in no string, and the quote before each string.
func visitStructure(text string) iter.Seq2[int, byte] {
	return func(visit func(int, byte) bool) {
		inString := false
		for i := 0; i < len(text); i++ {
			switch c := text[i]; {
			case inString && c == '\\':
				i++
			case inString:
				inString = c != '"'
			case !visit(i, c):
				return
			default:
				inString = c == '"'
			}
		}
	}
}

// shortNumber is how many characters a number has that is read quickly, unless it has an exponent.
const shortNumber = 20

// SlowNumberSteps is how many steps of an evaluation it may take to read a slow number.
const SlowNumberSteps = 30

// IsSlowNumber says that a number may have to be read digit by digit, which takes up to a thousand times as long as usual.
func IsSlowNumber(text string) bool {
	return len(text) > shortNumber || strings.ContainsAny(text, "eE")
}

// IsPlainJSON says whether a text of JSON cannot be nested too deep, nor have a number that is too large. Then json.valid need not decode it.
func IsPlainJSON(text string) bool {
	const longNumber = 300 // digits: the largest number has 309
	depth, digits := 0, 0
	for i, c := range visitStructure(text) {
		if digits++; c < '0' || c > '9' {
			digits = 0
		}
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxJSONDepth || digits > longNumber || isExponent(text, i) {
			return false
		}
	}
	return true
}

// MeasureJSON returns about how many bytes of memory a text of JSON needs once it is read, besides its own, and how many steps of an evaluation it
// takes to read its slow numbers and to sort the keys of its large objects.
func MeasureJSON(text string) (bytes, steps int) {
	const textBytes, listBytes, elementBytes, stringBytes, numberBytes, replaced = 128, 96, 48, 32, 32, 3
	var isList [maxJSONDepth + 1]bool // at each depth
	var keys [maxJSONDepth + 1]int
	depth, texts, number := 0, 0, 0
	bytes = textBytes
	addValue := func() {
		if isList[depth] {
			bytes += elementBytes
		} else {
			bytes += 2 * nodeBytes
		}
	}
	for i, c := range visitStructure(text) {
		if number++; !isOfNumber(c) {
			number = 0
		}
		if number == shortNumber+1 || isExponent(text, i) {
			bytes += numberBytes
			steps += SlowNumberSteps
		}
		switch c {
		case '"':
			texts++
		case ',':
			addValue()
		case ':':
			keys[depth]++
		case '[', '{':
			if depth == maxJSONDepth { // it will be refused there
				return bytes, steps
			}
			if depth++; c == '[' {
				bytes += listBytes
			}
			isList[depth], keys[depth] = c == '[', 0
			addValue()
		case ']', '}':
			steps += countSorting(keys[depth])
			depth = max(0, depth-1)
		}
	}
	switch {
	case !utf8.ValidString(text): // each byte that is none becomes a character that says so
		bytes += replaced*len(text) + stringBytes*texts
	case strings.Contains(text, `\`): // texts with escapes are no parts of the whole
		bytes += len(text) + stringBytes*texts
	}
	return bytes, steps
}

// countSorting is how many steps of an evaluation it takes to sort so many keys.
func countSorting(keys int) int {
	if keys < smallObject {
		return 0
	}
	return keys * bits.Len(uint(keys)) / smallObject
}

// isExponent says that an exponent begins at a place of a text, outside of strings.
func isExponent(text string, i int) bool {
	return (text[i] == 'e' || text[i] == 'E') && isDigit(text, i-1)
}

// isOfNumber says that a number has such a byte.
func isOfNumber(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// isDigit says whether there is a digit at a place.
func isDigit(text string, i int) bool { return i >= 0 && text[i] >= '0' && text[i] <= '9' }

// checkJSON says what is wrong with the syntax of a text.
func checkJSON(text string) error {
	if len(text) > maxJSON {
		return fmt.Errorf("the text is longer than %d bytes", maxJSON)
	}
	if json.Valid([]byte(text)) {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	var whole json.RawMessage
	if err := d.Decode(&whole); err != nil {
		return describeDecodeError(err)
	}
	return errors.New("there is more text after the value")
}

func decodeJSON(text string) (ref.Val, error) {
	if err := checkJSON(text); err != nil {
		return nil, err
	}
	r := jsonReader{jsonText: &jsonText{text: text}}
	node, err := r.readNode(maxJSONDepth)
	if err != nil {
		return nil, err
	}
	r.nodes = compact.TrimSlice(r.nodes)
	return r.makeValue(node), nil
}

var errTooDeep = fmt.Errorf("lists and maps are nested more than %d deep", maxJSONDepth)

// describeDecodeError says in words of its reader where the text ended too early.
func describeDecodeError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the text ends before the value does")
	}
	return err
}

func convertNumber(number json.Number) (ref.Val, error) {
	if i, err := number.Int64(); err == nil {
		return types.Int(i), nil
	}
	f, err := number.Float64()
	if err != nil {
		return nil, fmt.Errorf("the number %s is too large", number)
	}
	return types.Double(f), nil
}

func marshalJSON(v ref.Val) ref.Val {
	text, err := EncodeJSON(v)
	if err != nil {
		return types.WrapErr(fmt.Errorf("json.marshal: %w", err))
	}
	return types.String(text)
}

// EncodeJSON gives what json.marshal gives for a value.
func EncodeJSON(v ref.Val) (string, error) {
	value, err := ConvertToNative(v)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// ConvertToNative gives a CEL value as JSON holds it in Go: map[string]any, []any, string, bool, float64, int64 (or a json.Number where
// that is too small), or nil.
func ConvertToNative(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		return convertUint(v), nil
	case types.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("JSON cannot say %v", f)
		}
		return float64(v), nil
	case types.String:
		return string(v), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), nil
	case types.Timestamp:
		return v.Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.ConvertToType(types.StringType).Value(), nil
	case traits.Lister:
		return convertList(v)
	case traits.Mapper:
		return convertMap(v)
	default:
		return nil, fmt.Errorf("a value of type %s cannot be written", v.Type().TypeName())
	}
}

func convertUint(v types.Uint) any {
	if v > math.MaxInt64 {
		return json.Number(strconv.FormatUint(uint64(v), 10))
	}
	return int64(v)
}

func convertList(v traits.Lister) (any, error) {
	list := []any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		elem, err := ConvertToNative(it.Next())
		if err != nil {
			return nil, err
		}
		list = append(list, elem)
	}
	return list, nil
}

func convertMap(v traits.Mapper) (any, error) {
	object := map[string]any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("a key of a map is no string, but a %s", key.Type().TypeName())
		}
		value, err := ConvertToNative(v.Get(key))
		if err != nil {
			return nil, err
		}
		object[string(name)] = value
	}
	return object, nil
}
