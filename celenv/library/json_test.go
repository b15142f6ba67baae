// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

func TestUnmarshal(t *testing.T) {
	checkExamples(t, JSON(), map[string]example{
		"Null":           {`json.unmarshal("null")`, `null`},
		"True":           {`json.unmarshal("true")`, `true`},
		"Text":           {`json.unmarshal('"a\\u00e4\\n"')`, `"aä\n"`},
		"EmptyText":      {`json.unmarshal('""')`, `""`},
		"Int":            {`json.unmarshal("-7")`, `-7`},
		"AboveDoubles":   {`json.unmarshal("9007199254740993")`, `9007199254740993`},
		"GreatestInt":    {`json.unmarshal("9223372036854775807")`, `9223372036854775807`},
		"AboveAllInts":   {`json.unmarshal("9223372036854775808") == 9223372036854775808.0`, `true`},
		"LeastInt":       {`json.unmarshal("-9223372036854775808")`, `-9223372036854775808`},
		"BelowAllInts":   {`type(json.unmarshal("-9223372036854775809")) == double`, `true`},
		"Double":         {`json.unmarshal("1.5")`, `1.5`},
		"WholeDouble":    {`type(json.unmarshal("1.0")) == double`, `true`},
		"Exponent":       {`type(json.unmarshal("1e2")) == double`, `true`},
		"GreatestDouble": {`type(json.unmarshal("1e308")) == double`, `true`},
		"AboveDouble":    {`json.unmarshal("[1e309]")`, `error: json.unmarshal: the number 1e309 is too large`},
		"List":           {`json.unmarshal("[3, [], 1]")`, `[3, [], 1]`},
		"EmptyList":      {`json.unmarshal("[]")`, `[]`},
		"Map":            {`json.unmarshal('{"a": {"b": null}}')`, `{"a": {"b": null}}`},
		"EmptyMap":       {`json.unmarshal("{}")`, `{}`},
		"OrderOfKeys":    {`json.unmarshal('{"b": 1, "c": 2, "a": 3}').map(k, k)`, `["a", "b", "c"]`},
		"LastOfTwo":      {`json.unmarshal('{"a": 1, "a": 2}')`, `{"a": 2}`},
		"Spaces":         {`json.unmarshal(" \n[1] \t")`, `[1]`},
		"ErrorInAMap":    {`json.unmarshal('{"a": 1e999}')`, `error: json.unmarshal: the number 1e999 is too large`},
	})
}

func TestUnmarshalErrors(t *testing.T) {
	const ends, more = `error: json.unmarshal: the text ends before the value does`, `error: json.unmarshal: there is more text after the value`
	checkExamples(t, JSON(), map[string]example{
		"Empty":        {`json.unmarshal("")`, ends},
		"Space":        {`json.unmarshal(" ")`, ends},
		"HalfAMap":     {`json.unmarshal('{"a": ')`, ends},
		"HalfAList":    {`json.unmarshal("[1,")`, ends},
		"HalfAText":    {`json.unmarshal('"a')`, ends},
		"TwoValues":    {`json.unmarshal("1 2")`, more},
		"TwoMaps":      {`json.unmarshal("{}{}")`, more},
		"OneTooMany":   {`json.unmarshal("[]]")`, more},
		"WordAfter":    {`json.unmarshal("{} x")`, more},
		"Word":         {`json.unmarshal("yes")`, `error: json.unmarshal: invalid character 'y' looking for beginning of value`},
		"NoColon":      {`json.unmarshal('{"a" 1}')`, `error: json.unmarshal: invalid character '1' after object key`},
		"SingleQuotes": {`json.unmarshal("{'a': 1}")`, `error: json.unmarshal: invalid character '\'' looking for beginning of object key string`},
		"WrongType":    {`json.unmarshal(dyn(1))`, `error: no such overload: json.unmarshal(int)`},
	})
}

func TestUnmarshalIsBounded(t *testing.T) {
	nested := func(begin, within, end string, depth int) string {
		return strings.Repeat(begin, depth) + within + strings.Repeat(end, depth)
	}
	const deep = "json.unmarshal: lists and maps are nested more than 256 deep"
	for name, tc := range map[string]struct{ text, err string }{
		"LongText":         {`"` + strings.Repeat("a", maxJSON-2) + `"`, ""},
		"TooLongText":      {`"` + strings.Repeat("a", maxJSON-1) + `"`, "json.unmarshal: the text is longer than 4194304 bytes"},
		"DeepLists":        {nested("[", "", "]", 256), ""},
		"TooDeepLists":     {nested("[", "", "]", 257), deep},
		"TooDeepWithin":    {nested("[", "1,", "", 255) + "[[1]]" + strings.Repeat("]", 255), deep},
		"DeepMaps":         {nested(`{"a":`, "1", "}", 256), ""},
		"TooDeepMaps":      {nested(`{"a":`, "{}", "}", 256), deep},
		"DeepMixed":        {nested(`[{"a":`, "1", "}]", 128), ""},
		"TooDeepMapInside": {nested(`[{"a":`, "[]", "}]", 128), deep},
		"ManySideBySide":   {"[" + strings.Repeat("[[]],", 300) + "[[]]]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			message := ""
			if err, failed := unmarshalJSON(types.String(tc.text)).(*types.Err); failed {
				message = err.Error()
			}
			if message != tc.err {
				t.Errorf("got the error %q, want %q", message, tc.err)
			}
		})
	}
}

func TestValidJSON(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, `null`: true, `1`: true, `""`: true, ` [] `: true,
		``: false, `{`: false, `{} x`: false, `'a'`: false, `1e999`: false, strings.Repeat("[", 257) + strings.Repeat("]", 257): false,
	} {
		if got := evaluateExpression(t, JSON(), "json.valid("+strconv.Quote(text)+")"); got != strconv.FormatBool(want) {
			t.Errorf("%s: got %s", text, got)
		}
	}
}

// Whether a text is valid is whether it can be decoded.
func TestValidIsWhatCanBeDecoded(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	texts := []string{
		"1e308", "1e309", "[-1E400]", `"1e999"`, `{"e":1}`, "true", "false", "1.5e2", "1.", "0e0", `"\\"`, `"\"e"`, `"a`, strings.Repeat("1", 309), strings.Repeat("9", 310), "0." + strings.Repeat("3", 400),
		strings.Repeat("[", 256) + strings.Repeat("]", 256), strings.Repeat("[", 257) + strings.Repeat("]", 257), `"` + strings.Repeat("[", 300) + `"`, `"` + strings.Repeat("a", maxJSON-1) + `"`,
	}
	for range 5000 {
		texts = append(texts, randomJSON(random, 4))
	}
	for _, text := range texts {
		_, err := decodeJSON(text)
		if got := isValidJSON(types.String(text)); got != types.Bool(err == nil) {
			t.Errorf("%.100q: valid is %v, and decoding it gives the error %v", text, got, err)
		}
	}
}

func TestMarshal(t *testing.T) {
	for name, tc := range map[string]struct{ expression, want string }{
		"Null":          {`null`, `null`},
		"Bools":         {`[true, false]`, `[true,false]`},
		"Int":           {`-9223372036854775807`, `-9223372036854775807`},
		"Uint":          {`9223372036854775807u`, `9223372036854775807`},
		"LargeUint":     {`9223372036854775808u`, `9223372036854775808`},
		"GreatestUint":  {`18446744073709551615u`, `18446744073709551615`},
		"Double":        {`1.5`, `1.5`},
		"WholeDouble":   {`2.0`, `2`},
		"Text":          {`"a\n\"ä<>&"`, `"a\n\"ä<>&"`},
		"LinesAtTheEnd": {`"a\n\n"`, `"a\n\n"`},
		"Bytes":         {`b"x"`, `"eA=="`},
		"NoBytes":       {`b""`, `""`},
		"Time":          {`time`, `"2026-01-31T12:00:00Z"`},
		"Fraction":      {`timestamp("2026-01-31T12:00:00.000000001Z")`, `"2026-01-31T12:00:00.000000001Z"`},
		"Duration":      {`duration("90.5s")`, `"90.5s"`},
		"List":          {`[3, [], 1]`, `[3,[],1]`},
		"Empty":         {`[[], {}, "", null]`, `[[],{},"",null]`},
		"Map":           {`{"b": 1, "c": {"y": 1, "x": 2}, "a": 3}`, `{"a":3,"b":1,"c":{"x":2,"y":1}}`},
		"MapOfGo":       {`object.metadata`, `{"creationTimestamp":"2026-01-31T10:30:00Z","name":"web"}`},
		"MapOfJSON":     {`json.unmarshal('{"b": 1, "a": 9007199254740993}')`, `{"a":9007199254740993,"b":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := evaluateExpression(t, JSON(), "json.marshal("+tc.expression+")"); got != strconv.Quote(tc.want) {
				t.Errorf("got %s, want %q", got, tc.want)
			}
		})
	}
}

func TestMarshalErrors(t *testing.T) {
	checkExamples(t, JSON(), map[string]example{
		"NumberKey":     {`json.marshal({1: 2})`, `error: json.marshal: a key of a map is no string, but a int`},
		"BoolKeyInside": {`json.marshal([{"a": {true: 2}}])`, `error: json.marshal: a key of a map is no string, but a bool`},
		"NaN":           {`json.marshal(0.0 / 0.0)`, `error: json.marshal: JSON cannot say NaN`},
		"Infinity":      {`json.marshal([1.0 / 0.0])`, `error: json.marshal: JSON cannot say +Inf`},
		"LessInfinity":  {`json.marshal({"a": -1.0 / 0.0})`, `error: json.marshal: JSON cannot say -Inf`},
		"Optional":      {`json.marshal(optional.of(1))`, `error: json.marshal: a value of type optional_type cannot be written`},
		"Type":          {`json.marshal([int])`, `error: json.marshal: a value of type type cannot be written`},
	})
}

// Patches and selectors read numbers as the types of Go that Kubernetes has for them.
func TestConvertToNativeGivesTypesOfGo(t *testing.T) {
	for name, tc := range map[string]struct {
		value ref.Val
		want  any
	}{
		"Int":       {types.Int(1), int64(1)},
		"Uint":      {types.Uint(1), int64(1)},
		"MaxInt64":  {types.Uint(math.MaxInt64), int64(math.MaxInt64)},
		"LargeUint": {types.Uint(math.MaxInt64 + 1), json.Number("9223372036854775808")},
		"Double":    {types.Double(1), float64(1)},
		"Bool":      {types.True, true},
		"Text":      {types.String("a"), "a"},
		"Null":      {types.NullValue, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ConvertToNative(tc.value); err != nil || got != tc.want {
				t.Errorf("got %T %v, %v, want %T %v", got, got, err, tc.want, tc.want)
			}
		})
	}
}

func TestLibrariesHaveNames(t *testing.T) {
	names := map[string]bool{}
	for _, library := range []cel.SingletonLibrary{
		certificatesLibrary{}, conditionsLibrary{}, durationsLibrary{}, indexLibrary{}, jsonLibrary{}, networkLibrary{},
		objectsLibrary{}, podsLibrary{}, referencesLibrary{}, selectorsLibrary{},
	} {
		name := library.LibraryName()
		if names[name] || !strings.HasPrefix(name, "cleaner.") {
			t.Errorf("%T is called %q: two libraries of one name are taken for one", library, name)
		}
		names[name] = true
	}
}

// A number that is long is read once.
func TestLongNumbersAreReadOnce(t *testing.T) {
	v, err := decodeJSON(`{"a": 0.` + strings.Repeat("1", 2_000_000) + `, "b": 12}`)
	if err != nil {
		t.Fatal(err)
	}
	m := v.(traits.Mapper)
	if allocated := testing.AllocsPerRun(100, func() { m.Get(types.String("a")) }); allocated > 2 {
		t.Errorf("to look it up takes %v allocations", allocated)
	}
	if m.Get(types.String("b")) != types.Int(12) {
		t.Errorf("b is %v", m.Get(types.String("b")))
	}
}
