// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package shallow

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// makeShallow is what is read of a response that comes in parts of a size.
func makeShallow(t testing.TB, s shape, text string, size int) string {
	t.Helper()
	in := io.Reader(strings.NewReader(text))
	if size == 1 {
		in = iotest.OneByteReader(in)
	} else if size > 0 {
		in = chunks{in, size}
	}
	out, err := io.ReadAll(&body{Closer: io.NopCloser(in), in: in, filter: filter{shape: s}})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// chunks gives as many bytes at a time.
type chunks struct {
	io.Reader
	size int
}

func (c chunks) Read(p []byte) (int, error) { return c.Reader.Read(p[:min(len(p), c.size)]) }

// nested is a list in a list, as often.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// What is removed and cut is removed and cut in each part of a response, however it comes in parts, and nothing else is.
func TestFilter(t *testing.T) {
	const managed = `"managedFields":[{"manager":"m","fieldsV1":{"f:a":{},"k:{\"x\":\"}]\"}":[1,"]",{"a":"\\"}]}},{}]`
	deepManaged := `"managedFields":` + nested(12_000)
	for name, tc := range map[string]struct {
		shape      shape
		text, want string
	}{
		"first":       {object, `{"kind":"Pod","metadata":{` + managed + `,"name":"a"}}`, `{"kind":"Pod","metadata":{"name":"a"}}`},
		"last":        {object, `{"metadata":{"name":"a",` + managed + `},"spec":{"a":1}}`, `{"metadata":{"name":"a"},"spec":{"a":1}}`},
		"between":     {object, `{"metadata":{"labels":{"managedFields":"x","b":"c"},` + managed + `,"uid":"u"}}`, `{"metadata":{"labels":{"managedFields":"x","b":"c"},"uid":"u"}}`},
		"alone":       {object, `{"metadata":{` + managed + `}}`, `{"metadata":{}}`},
		"null":        {object, `{"metadata":{"managedFields":null,"name":"a"}}`, `{"metadata":{"name":"a"}}`},
		"text":        {object, `{"metadata":{"a":"b","managedFields":"}],{["}}`, `{"metadata":{"a":"b"}}`},
		"deep":        {object, `{"metadata":{"a":"b",` + deepManaged + `},"x":[]}`, `{"metadata":{"a":"b"},"x":[]}`},
		"with spaces": {object, "{ \"metadata\" : { \"name\" : \"a\" ,\n \"managedFields\" : [ ] ,\n \"uid\" : \"u\" } }\n", "{ \"metadata\" : { \"name\" : \"a\" \n \n ,\"uid\" : \"u\" } }\n"},
		"list":        {list, `{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a",` + managed + `}},{"metadata":{` + deepManaged + `}}]}`, `{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"metadata":{}}]}`},
		"no items":    {list, `{"items":[],"metadata":{}}`, `{"items":[],"metadata":{}}`},
		"null items":  {list, `{"items":null,"metadata":{}}`, `{"items":null,"metadata":{}}`},
		"events":      {events, `{"type":"ADDED","object":{"metadata":{` + managed + `,"a":"b"}}}` + "\n" + `{"type":"DELETED","object":{"metadata":{"a":"b",` + deepManaged + `}}}` + "\n", `{"type":"ADDED","object":{"metadata":{"a":"b"}}}` + "\n" + `{"type":"DELETED","object":{"metadata":{"a":"b"}}}` + "\n"},
		"a field of that name": {object, `{"managedFields":[1],"spec":{"metadata":{"managedFields":[2]}},"items":[{"metadata":{"managedFields":[3]}}],"object":{"metadata":{"managedFields":[4]}}}`,
			`{"managedFields":[1],"spec":{"metadata":{"managedFields":[2]}},"items":[{"metadata":{"managedFields":[3]}}],"object":{"metadata":{"managedFields":[4]}}}`},
		"metadata in a list":  {object, `{"metadata":[{"managedFields":1}]}`, `{"metadata":[{"managedFields":1}]}`},
		"long keys":           {object, `{"metadata":{"` + strings.Repeat("long\\\"", 50) + `":1,"managedFieldsX":2,"managedField":3,` + managed + `,"` + strings.Repeat("x", 40) + `":4}}`, `{"metadata":{"` + strings.Repeat("long\\\"", 50) + `":1,"managedFieldsX":2,"managedField":3,"` + strings.Repeat("x", 40) + `":4}}`},
		"as deep as may be":   {object, `{"spec":` + nested(maxDepth-1) + `}`, `{"spec":` + nested(maxDepth-1) + `}`},
		"too deep":            {object, `{"spec":` + nested(maxDepth) + `,"status":{"a":1}}`, `{"spec":` + strings.Repeat("[", maxDepth-1) + "null" + strings.Repeat("]", maxDepth-1) + `,"status":{"a":1},"\u0000cut":true}`},
		"far too deep":        {object, `{"spec":` + nested(100_000) + `}`, `{"spec":` + strings.Repeat("[", maxDepth-1) + "null" + strings.Repeat("]", maxDepth-1) + `,"\u0000cut":true}`},
		"too deep with texts": {object, `{"spec":` + strings.Repeat(`{"}":`, maxDepth) + `["]","\\",{"a":"\""}]` + strings.Repeat("}", maxDepth) + `}`, `{"spec":` + strings.Repeat(`{"}":`, maxDepth-1) + "null" + strings.Repeat("}", maxDepth-1) + `,"\u0000cut":true}`},
		"one of a list": {list, `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":` + nested(9_998) + `},{"metadata":{"name":"c"}}],"metadata":{}}`,
			`{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":` + strings.Repeat("[", maxDepth-1) + "null" + strings.Repeat("]", maxDepth-1) + `,"\u0000cut":true},{"metadata":{"name":"c"}}],"metadata":{}}`},
		"one of the events": {events, `{"type":"ADDED","object":{"metadata":{"name":"b"},"spec":` + nested(9_998) + `}}` + "\n" + `{"type":"ADDED","object":{"metadata":{"name":"c"}}}`,
			`{"type":"ADDED","object":{"metadata":{"name":"b"},"spec":` + strings.Repeat("[", maxDepth-1) + "null" + strings.Repeat("]", maxDepth-1) + `,"\u0000cut":true}}` + "\n" + `{"type":"ADDED","object":{"metadata":{"name":"c"}}}`},
		"cut off":      {object, `{"metadata":{"name":"a","man`, `{"metadata":{"name":"a"`},
		"not JSON":     {object, `404 page not found`, `404 page not found`},
		"too many end": {list, `]}]}{"a":1}`, `]}]}{"a":1}`},
		"nothing":      {list, ``, ``},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 1, 7, 1000} {
				if got := makeShallow(t, tc.shape, tc.text, size); got != tc.want {
					t.Errorf("in parts of %d: got %.300q, want %.300q", size, got, tc.want)
				}
			}
		})
	}
}

// prune removes what the filter removes from an object that is not too deep.
func prune(o any) {
	if o, ok := o.(map[string]any); ok {
		if m, ok := o["metadata"].(map[string]any); ok {
			delete(m, "managedFields")
		}
	}
}

// random is any value, with names and texts that the filter looks for.
func random(r *rand.Rand, deep int) any {
	texts := []string{"metadata", "managedFields", "items", "object", "a", `"`, `\`, `\"}],{[`, "", "é\u2028", strings.Repeat("long", 8)}
	switch n := r.IntN(8); {
	case n < 3 && deep > 0:
		out := map[string]any{}
		for range r.IntN(5) {
			out[texts[r.IntN(len(texts))]] = random(r, deep-1)
		}
		return out
	case n < 5 && deep > 0:
		out := []any{}
		for range r.IntN(4) {
			out = append(out, random(r, deep-1))
		}
		return out
	case n == 5:
		return float64(r.IntN(100))
	case n == 6:
		return nil
	default:
		return texts[r.IntN(len(texts))]
	}
}

// Whatever JSON is sent, only managedFields of objects are missing.
func TestFilterKeepsAllElse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		value := map[string]any{}
		for _, key := range []string{"metadata", "items", "object", "x"} {
			value[key] = random(r, 6)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			var spaced bytes.Buffer
			if err := json.Indent(&spaced, text, "", " "); err != nil {
				t.Fatal(err)
			}
			text = spaced.Bytes()
		}
		for s, name := range []string{object: "object", list: "list", events: "events"} {
			var want, got map[string]any
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			switch shape(s) {
			case object:
				prune(want)
			case list:
				items, _ := want["items"].([]any)
				for _, o := range items {
					prune(o)
				}
			case events:
				prune(want["object"])
			}
			out := makeShallow(t, shape(s), string(text), r.IntN(50))
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%s: %s becomes %s: %v", name, text, out, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: %s becomes %s: (-want +got)\n%s", name, text, out, diff)
			}
		}
	}
}

// What a user writes takes no memory: neither managedFields of megabytes, nor what is nested without end.
func TestFilterTakesNoMemory(t *testing.T) {
	for name, text := range map[string]string{
		"managedFields": `"managedFields":["` + strings.Repeat("x", 8<<20) + `"]`,
		"nesting":       `"managedFields":` + nested(4<<20),
		"key":           `"a":` + nested(4<<20),
	} {
		text = `{"items":[{"metadata":{` + text + `}}]}`
		in := &body{in: strings.NewReader(text), filter: filter{shape: list}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := io.Copy(io.Discard, in); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if most := uint64(512 << 10); after.TotalAlloc-before.TotalAlloc > most {
			t.Errorf("%s: %d bytes take %d", name, len(text), after.TotalAlloc-before.TotalAlloc)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"app":"web"},"managedFields":[{"manager":"m","fieldsV1":{` + strings.Repeat(`"f:a":{"f:b":{}},`, 50) + `"f:c":{}}}]},"spec":{` + strings.Repeat(`"containers":[{"name":"main","image":"example.com/web:1","env":[{"name":"A","value":"some text of a few words"}]}],`, 10) + `"x":1}}`
	text := `{"items":[` + strings.Repeat(pod+",", 1000) + pod + `]}`
	b.SetBytes(int64(len(text)))
	for range b.N {
		if _, err := io.Copy(io.Discard, &body{in: strings.NewReader(text), filter: filter{shape: list}}); err != nil {
			b.Fatal(err)
		}
	}
}
