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
	"maps"
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
	decoded, err := decodeJSON(string(v.(types.String)))
	if err != nil {
		return types.WrapErr(fmt.Errorf("json.unmarshal: %w", err))
	}
	value, err := convertFromJSON(decoded, maxJSONDepth)
	if err != nil {
		return types.WrapErr(fmt.Errorf("json.unmarshal: %w", err))
	}
	return value
}

func isValidJSON(v ref.Val) ref.Val {
	return types.Bool(!types.IsError(unmarshalJSON(v)))
}

func decodeJSON(text string) (any, error) {
	if len(text) > maxJSON {
		return nil, fmt.Errorf("the text is longer than %d bytes", maxJSON)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // a float64 would change integers above 2^53
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, describeDecodeError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the value")
	}
	return v, nil
}

var errTooDeep = fmt.Errorf("lists and maps are nested more than %d deep", maxJSONDepth)

// describeDecodeError says in words of its reader where the text ended too early.
func describeDecodeError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the text ends before the value does")
	}
	return err
}

// convertFromJSON makes a CEL value of what encoding/json decoded, if at most so many lists and maps are nested in it.
func convertFromJSON(v any, depth int) (ref.Val, error) {
	switch v := v.(type) {
	case nil:
		return types.NullValue, nil
	case bool:
		return types.Bool(v), nil
	case string:
		return types.String(v), nil
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return types.Int(i), nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %s is too large", v)
		}
		return types.Double(f), nil
	case []any:
		return convertListFromJSON(v, depth-1)
	case map[string]any:
		return convertMapFromJSON(v, depth-1)
	default:
		return nil, fmt.Errorf("cannot read %T", v)
	}
}

func convertListFromJSON(v []any, depth int) (ref.Val, error) {
	if depth < 0 {
		return nil, errTooDeep
	}
	elems := make([]ref.Val, len(v))
	for i := range v {
		var err error
		if elems[i], err = convertFromJSON(v[i], depth); err != nil {
			return nil, err
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elems), nil
}

func convertMapFromJSON(v map[string]any, depth int) (ref.Val, error) {
	if depth < 0 {
		return nil, errTooDeep
	}
	names := slices.Sorted(maps.Keys(v))
	keys := make([]ref.Val, len(names))
	entries := make(map[ref.Val]ref.Val, len(names))
	for i, name := range names {
		value, err := convertFromJSON(v[name], depth)
		if err != nil {
			return nil, err
		}
		keys[i] = types.String(name)
		entries[keys[i]] = value
	}
	return newOrderedMap(keys, entries), nil
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
