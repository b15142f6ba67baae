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
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
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
	return types.Bool(checkJSON(text) == nil)
}

// IsPlainJSON says whether a text of JSON cannot be nested too deep, nor have a number that is too large. Then json.valid need not decode it.
func IsPlainJSON(text string) bool {
	const longNumber = 300 // digits: the largest number has 309
	depth, digits, inText := 0, 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if inText {
			switch c {
			case '\\':
				i++
			case '"':
				inText = false
			}
			continue
		}
		if digits++; c < '0' || c > '9' {
			digits = 0
		}
		switch c {
		case '"':
			inText = true
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxJSONDepth || digits > longNumber || c == 'e' && isDigit(text, i-1) || c == 'E' {
			return false
		}
	}
	return true
}

// isDigit says whether there is a digit at a place.
func isDigit(text string, i int) bool { return i >= 0 && text[i] >= '0' && text[i] <= '9' }

// checkJSON says what is wrong with the syntax of a text.
func checkJSON(text string) error {
	if len(text) > maxJSON {
		return fmt.Errorf("the text is longer than %d bytes", maxJSON)
	}
	d := json.NewDecoder(strings.NewReader(text))
	var whole json.RawMessage
	if err := d.Decode(&whole); err != nil {
		return describeDecodeError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more text after the value")
	}
	return nil
}

func decodeJSON(text string) (ref.Val, error) {
	if err := checkJSON(text); err != nil {
		return nil, err
	}
	r := jsonReader{text: text, tokens: json.NewDecoder(strings.NewReader(text)), keysOf: map[int][]ref.Val{}}
	r.tokens.UseNumber() // a float64 would change integers above 2^53
	return r.readValue(maxJSONDepth)
}

var errTooDeep = fmt.Errorf("lists and maps are nested more than %d deep", maxJSONDepth)

// describeDecodeError says in words of its reader where the text ended too early.
func describeDecodeError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the text ends before the value does")
	}
	return err
}

// jsonReader makes CEL values of a text of JSON that is known to be valid.
type jsonReader struct {
	text   string
	tokens *json.Decoder
	keysOf map[int][]ref.Val // the latest keys of an object with so many
}

// readValue reads the next value, if at most so many lists and maps are nested in it.
func (r *jsonReader) readValue(depth int) (ref.Val, error) {
	token, err := r.tokens.Token()
	if err != nil {
		return nil, describeDecodeError(err)
	}
	switch token := token.(type) {
	case nil:
		return types.NullValue, nil
	case bool:
		return types.Bool(token), nil
	case string:
		return r.shareText(token), nil
	case json.Number:
		return convertNumber(token)
	case json.Delim:
		if depth == 0 {
			return nil, errTooDeep
		}
		if token == '[' {
			return r.readList(depth - 1)
		}
		return r.readObject(depth - 1)
	default:
		return nil, fmt.Errorf("cannot read %T", token)
	}
}

// shareText returns a string that was just read as a part of the text, so that it takes no memory of its own.
func (r *jsonReader) shareText(read string) types.String {
	end := int(r.tokens.InputOffset()) - 1
	if begin := end - len(read); begin >= 0 && r.text[begin:end] == read {
		return types.String(r.text[begin:end])
	}
	return types.String(read) // it has escapes
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

// readList reads the rest of a list.
func (r *jsonReader) readList(depth int) (ref.Val, error) {
	elements := []ref.Val{}
	for r.tokens.More() {
		element, err := r.readValue(depth)
		if err != nil {
			return nil, err
		}
		elements = append(elements, element)
	}
	if _, err := r.tokens.Token(); err != nil {
		return nil, describeDecodeError(err)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, trimValues(elements)), nil
}

// readObject reads the rest of an object.
func (r *jsonReader) readObject(depth int) (ref.Val, error) {
	o := &jsonObject{}
	isSorted := true
	for r.tokens.More() {
		key, err := r.readValue(depth)
		if err != nil {
			return nil, err
		}
		value, err := r.readValue(depth)
		if err != nil {
			return nil, err
		}
		if n := len(o.keys); n > 0 && o.keys[n-1].(types.String) >= key.(types.String) {
			isSorted = false
		}
		o.keys, o.values = append(o.keys, key), append(o.values, value)
	}
	if _, err := r.tokens.Token(); err != nil {
		return nil, describeDecodeError(err)
	}
	if !isSorted {
		o.sort()
	}
	if same := r.keysOf[len(o.keys)]; slices.Equal(same, o.keys) {
		o.keys = same
	} else {
		o.keys = trimValues(o.keys)
		r.keysOf[len(o.keys)] = o.keys
	}
	o.values = trimValues(o.values)
	return o, nil
}

// trimValues returns values without much room behind them, and without what is in it.
func trimValues(values []ref.Val) []ref.Val {
	if cap(values) > len(values)+len(values)/4 {
		return append(make([]ref.Val, 0, len(values)), values...)
	}
	return slices.Clip(values)
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
