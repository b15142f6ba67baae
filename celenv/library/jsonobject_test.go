// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/compact"
)

// What json.unmarshal gives is what encoding/json gives, whatever the text: with escapes, keys that occur twice or are not sorted, and
// bytes that are no UTF-8.
func TestUnmarshalGivesWhatIsWritten(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		text := randomJSON(random, 4)
		var want any
		wantErr := json.Unmarshal([]byte(text), &want)
		got, err := decodeJSON(text)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("%q: got the error %v, want %v", text, err, wantErr)
		}
		if err != nil {
			continue
		}
		native, err := ConvertToNative(got)
		if err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(native)
		if err != nil {
			t.Fatal(err)
		}
		var again any
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, want) {
			t.Fatalf("%q: got %s, want %v", text, written, want)
		}
	}
}

// randomJSON writes a value, or, once in a while, what is none.
func randomJSON(random *rand.Rand, depth int) string {
	texts := []string{`""`, `"a"`, `"b"`, `"longer text"`, `"\u00e4\n\""`, `"ä"`, "\"\xff\"", `"\ud800"`, `"a\u0000"`, `"\\"`, `"\\\""`, `"[{,:"`}
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch random.IntN(kinds) {
	case 0:
		return texts[random.IntN(len(texts))]
	case 1:
		return fmt.Sprint(random.IntN(100) - 50)
	case 2:
		return []string{"true", "false", "null", "1.5", "-0.25", "1e3"}[random.IntN(6)]
	case 3:
		if random.IntN(20) == 0 {
			return []string{"", "{", "]", "{1:2}", `{"a":1,}`, "[1,]", "nul", `"`, "01"}[random.IntN(9)]
		}
		return []string{" 7 ", "\t[ ]\r\n", "\n{ }", "\r-0"}[random.IntN(4)]
	case 4:
		var parts []string
		for range random.IntN(4) {
			parts = append(parts, randomJSON(random, depth-1))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		var parts []string
		for range random.IntN(5) {
			parts = append(parts, texts[random.IntN(len(texts))]+": "+randomJSON(random, depth-1))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
}

func TestJSONObjectIsAMap(t *testing.T) {
	read := func(text string) traits.Mapper {
		v, err := decodeJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		return v.(traits.Mapper)
	}
	m := read(`{"b": 2, "a": 1, "c": null}`)
	same := compact.NewMap([]ref.Val{types.String("c"), types.String("b"), types.String("a")}, []ref.Val{types.NullValue, types.Int(2), types.Int(1)})
	for name, tc := range map[string]struct{ got, want any }{
		"Get":            {m.Get(types.String("b")), types.Int(2)},
		"Missing":        {fmt.Sprint(m.Get(types.String("d"))), "no such key: d"},
		"OfAnotherType":  {m.Contains(types.Int(1)), types.False},
		"Contains":       {m.Contains(types.String("c")), types.True},
		"ContainsNot":    {m.Contains(types.String("")), types.False},
		"Size":           {m.Size(), types.Int(3)},
		"Equal":          {m.Equal(same), types.True},
		"EqualTheOther":  {same.Equal(m), types.True},
		"OtherValue":     {m.Equal(read(`{"a": 1, "b": 3, "c": null}`)), types.False},
		"OtherKey":       {m.Equal(read(`{"a": 1, "b": 2, "d": null}`)), types.False},
		"FewerKeys":      {m.Equal(read(`{"a": 1}`)), types.False},
		"NoMap":          {m.Equal(types.Int(1)), types.False},
		"Type":           {m.Type(), types.MapType},
		"ConvertToMap":   {m.ConvertToType(types.MapType), m},
		"ConvertToType":  {m.ConvertToType(types.TypeType), types.MapType},
		"Empty":          {read(`{}`).(traits.Zeroer).IsZeroValue(), true},
		"NotEmpty":       {m.(traits.Zeroer).IsZeroValue(), false},
		"ConvertToOther": {types.IsError(m.ConvertToType(types.IntType)), true},
	} {
		if !reflect.DeepEqual(tc.got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, tc.got, tc.want)
		}
	}
	if native, err := m.ConvertToNative(reflect.TypeFor[map[string]any]()); err != nil || len(native.(map[string]any)) != 3 {
		t.Errorf("as a map of Go it is %v, %v", native, err)
	}
}

// A record of a table takes no more than what says where its keys and values are in the text, as MeasureJSON says.
func TestRecordsTakeLittleMemory(t *testing.T) {
	const records = 10_000
	var b strings.Builder
	for i := range records {
		fmt.Fprintf(&b, `%s"10.0.%d.%d":{"interface":"eth0","pod":"team/web-%d-7d4b9c6f5d","podUid":"9f0d9a3e-5a50-4a9e-8f6e-%012d"}`, map[bool]string{true: "{", false: ","}[i == 0], i/250, i%250, i, i)
	}
	text := b.String() + "}"
	held := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	v, err := decodeJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	took := (held() - before) / records
	runtime.KeepAlive(v)
	runtime.KeepAlive(text)
	bytes, _ := MeasureJSON(text)
	if said := int64(bytes) / records; took > said+said/4 {
		t.Errorf("a record takes %d bytes, and MeasureJSON says %d", took, said)
	}
	if took > 80 {
		t.Errorf("a record takes %d bytes", took)
	}
	t.Logf("a record takes %d bytes", took)
}

// What takes longer than its text says is measured: numbers that are read digit by digit, and large objects whose keys are sorted.
func TestMeasureJSONCountsSteps(t *testing.T) {
	for text, want := range map[string]int{
		`[1, 1.5, -20, true, "1e5", {"e": 0}]`: 0,
		`[1e5]`:                                SlowNumberSteps,
		`{"a": 1E-5, "b": 0.12345678901234567890123}`:                            2 * SlowNumberSteps,
		`[{` + strings.Repeat(`"k":0,`, smallObject-2) + `"k":0}]`:               0,
		`[{` + strings.Repeat(`"k":0,`, 64*smallObject-1) + `"k":{"a":{}}}, {}]`: 64 * 11,
	} {
		if _, got := MeasureJSON(text); got != want {
			t.Errorf("%.60s: %d steps, want %d", text, got, want)
		}
	}
}
