// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package jsontrim

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// makeShallow is what is read of a response that comes in parts of a size.
func makeShallow(t testing.TB, s shape, text string, size int) string {
	t.Helper()
	return makeShort(t, filter{shape: s}, text, size)
}

// makeShort is what is read of a response through a filter.
func makeShort(t testing.TB, f filter, text string, size int) string {
	t.Helper()
	in := io.Reader(strings.NewReader(text))
	if size == 1 {
		in = iotest.OneByteReader(in)
	} else if size > 0 {
		in = chunks{in, size}
	}
	out, err := io.ReadAll(&body{Closer: io.NopCloser(in), in: in, filter: f})
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

// someKept is what tests keep of metadata.
var someKept = &Kept{Group: "example.com", Annotations: []string{"example.com/mine", "a"}, Finalizers: 2, Finalizer: "example.com/run"}

// Of the metadata of some kinds only a part is kept, wherever an object is and however the response comes in parts. Nothing of that name
// elsewhere is dropped.
func TestFilterKeepsAPartOfMetadata(t *testing.T) {
	const (
		labels = `"labels":{"a":"b","c":"]}"}`
		owners = `"ownerReferences":[{"name":"a","uid":"}"}]`
		spec   = `"spec":{"metadata":{` + labels + `,"annotations":{"x":"y"},"finalizers":["1","2","3"],` + owners + `}}`
	)
	long := strings.Repeat("long\\\"", 5000)
	for name, tc := range map[string]struct {
		shape      shape
		text, want string
	}{
		"all":            {object, `{"metadata":{"name":"n",` + labels + `,"uid":"u",` + owners + `},` + spec + `}`, `{"metadata":{"name":"n","uid":"u"},` + spec + `}`},
		"first":          {object, `{"metadata":{` + labels + `,"name":"n"}}`, `{"metadata":{"name":"n"}}`},
		"annotations":    {object, `{"metadata":{"annotations":{"b":"c","a":"x,}","` + long + `":"y","example.com/mine":"{","z":{"a":1}},"name":"n"}}`, `{"metadata":{"annotations":{"a":"x,}","example.com/mine":"{"},"name":"n"}}`},
		"of others":      {object, `{"metadata":{"annotations":{"b":"c"},` + labels + `}}`, `{"metadata":{"annotations":{}}}`},
		"no annotations": {object, `{"metadata":{"annotations":{},"finalizers":[]}}`, `{"metadata":{"annotations":{},"finalizers":[]}}`},
		"null":           {object, `{"metadata":{"annotations":null,"labels":null,"finalizers":null}}`, `{"metadata":{"annotations":null,"finalizers":null}}`},
		"spaces":         {object, "{ \"metadata\": { \"annotations\": { \"b\" : \"c\" , \"a\": \"x\" } , \"name\": \"n\" } }", "{ \"metadata\": { \"annotations\": {  \"a\": \"x\" }  ,\"name\": \"n\" } }"},
		"all finalizers": {object, `{"metadata":{"finalizers":["1","2","3"],` + labels + `}}`, `{"metadata":{"finalizers":["1","2","3"]}}`},
		"list": {list, `{"metadata":{` + labels + `},"items":[{"metadata":{` + labels + `,"name":"n"},` + spec + `},{` + spec + `,"metadata":{` + owners + `,"name":"m"}}]}`,
			`{"metadata":{` + labels + `},"items":[{"metadata":{"name":"n"},` + spec + `},{` + spec + `,"metadata":{"name":"m"}}]}`},
		"events":                 {events, `{"type":"ADDED","object":{"metadata":{"name":"n",` + labels + `}}}` + "\n", `{"type":"ADDED","object":{"metadata":{"name":"n"}}}` + "\n"},
		"finalizers of a list":   {list, `{"items":[{"metadata":{"finalizers":["1","2","3","example.com/run","` + long + `","example.com/run"],"name":"n"}},{"metadata":{"finalizers":["1"]}}]}`, `{"items":[{"metadata":{"finalizers":["1","2","example.com/run"],"name":"n"}},{"metadata":{"finalizers":["1"]}}]}`},
		"finalizers of an event": {events, `{"object":{"metadata":{"finalizers":["1", "2", "3"],"annotations":{"a":"b","c":"d"}}}}`, `{"object":{"metadata":{"finalizers":["1", "2"],"annotations":{"a":"b"}}}}`},
		"cut off":                {object, `{"metadata":{"annotations":{"a":"x","exam`, `{"metadata":{"annotations":{"a":"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 1, 7, 1000} {
				if got := makeShort(t, filter{shape: tc.shape, kept: someKept}, tc.text, size); got != tc.want {
					t.Errorf("in parts of %d: got %.300q, want %.300q", size, got, tc.want)
				}
			}
		})
	}
}

// prune removes what the filter removes from an object that is not too deep.
func prune(o any, f filter) {
	single := f.shape == object
	content, _ := o.(map[string]any)
	m, ok := content["metadata"].(map[string]any)
	if !ok {
		return
	}
	delete(m, "managedFields")
	if f.kept == nil {
		return
	}
	delete(m, "labels")
	delete(m, "ownerReferences")
	if annotations, ok := m["annotations"].(map[string]any); ok {
		maps.DeleteFunc(annotations, func(name string, _ any) bool { return !slices.Contains(f.kept.Annotations, name) })
	}
	if all, ok := m["finalizers"].([]any); ok && !single && len(all) > f.kept.Finalizers {
		first, rest := all[:f.kept.Finalizers:f.kept.Finalizers], all[f.kept.Finalizers:]
		if slices.ContainsFunc(rest, func(v any) bool { return v == any(f.kept.Finalizer) }) {
			first = append(first, f.kept.Finalizer)
		}
		m["finalizers"] = first
	}
}

// pruneAll removes what the filter removes from a response.
func pruneAll(response map[string]any, f filter) {
	switch f.shape {
	case object:
		prune(response, f)
	case list:
		items, _ := response["items"].([]any)
		for _, o := range items {
			prune(o, f)
		}
	case events:
		prune(response["object"], f)
	}
}

// random is any value, with names and texts that the filter looks for.
func random(r *rand.Rand, deep int) any {
	texts := []string{"metadata", "managedFields", "labels", "annotations", "finalizers", "ownerReferences", "example.com/mine", "example.com/run", "items", "object", "a", `"`, `\`, `\"}],{[`, "", "é\u2028", strings.Repeat("long", 8)}
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

// randomObject is an object with metadata as it may be, and much of what the filter looks for.
func randomObject(r *rand.Rand) any {
	if r.IntN(4) == 0 {
		return random(r, 5)
	}
	metadata := map[string]any{"name": "n"}
	for _, key := range []string{"labels", "annotations", "ownerReferences", "managedFields", "x"} {
		if r.IntN(2) == 0 {
			metadata[key] = random(r, 4)
		}
	}
	if r.IntN(2) == 0 {
		var all []any
		for range r.IntN(6) {
			all = append(all, random(r, 2*r.IntN(2)))
		}
		metadata["finalizers"] = all
	}
	return map[string]any{"metadata": metadata, "spec": random(r, 5), "status": random(r, 5)}
}

// Whatever JSON is sent, only managedFields of objects are missing, and of some kinds the metadata that is not kept.
func TestFilterKeepsAllElse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		value := map[string]any{}
		if i%4 < 2 {
			for _, key := range []string{"metadata", "items", "object", "x"} {
				value[key] = random(r, 6)
			}
		} else {
			value, _ = randomObject(r).(map[string]any)
			if value == nil {
				value = map[string]any{}
			}
			value["items"], value["object"] = []any{randomObject(r), randomObject(r)}, randomObject(r)
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
			for _, kept := range []*Kept{nil, someKept} {
				f := filter{shape: shape(s), kept: kept}
				var want, got map[string]any
				if err := json.Unmarshal(text, &want); err != nil {
					t.Fatal(err)
				}
				pruneAll(want, f)
				out := makeShort(t, f, string(text), r.IntN(50))
				if err := json.Unmarshal([]byte(out), &got); err != nil {
					t.Fatalf("%s: %s becomes %s: %v", name, text, out, err)
				}
				if !reflect.DeepEqual(want, got) {
					t.Fatalf("%s, kept %v: %s becomes %s: (-want +got)\n%s", name, kept, text, out, cmp.Diff(want, got))
				}
			}
		}
	}
}

// The spec and the status of an object are the same bytes, whatever its metadata loses.
func TestFilterLeavesSpecAndStatus(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		rest, err := json.Marshal(map[string]any{"spec": random(r, 6), "status": random(r, 6)})
		if err != nil {
			t.Fatal(err)
		}
		one, err := json.Marshal(randomObject(r))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(one, []byte(`{"metadata":{`)) {
			continue
		}
		var o struct{ Metadata json.RawMessage }
		if err := json.Unmarshal(one, &o); err != nil {
			t.Fatal(err)
		}
		text := rest[: len(rest)-1 : len(rest)-1]
		whole := string(text) + `,"metadata":` + string(o.Metadata) + `}`
		for s, around := range map[shape][2]string{object: {"", ""}, list: {`{"items":[`, "]}"}, events: {`{"object":`, "}\n"}} {
			got := makeShort(t, filter{shape: s, kept: someKept}, around[0]+whole+around[1], r.IntN(50))
			if !strings.HasPrefix(got, around[0]+string(text)+`,"metadata":{`) || !strings.HasSuffix(got, "}}"+around[1]) {
				t.Fatalf("%s becomes %s", whole, got)
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
		"labels":        `"labels":{` + strings.Repeat(`"abc":"",`, 1<<20) + `"x":""}`,
		"annotations":   `"annotations":{"` + strings.Repeat("x", 8<<20) + `":"y","z":"` + strings.Repeat("x", 8<<20) + `"}`,
		"owners":        `"ownerReferences":[` + strings.Repeat(`{},`, 1<<20) + `{}]`,
		"finalizers":    `"finalizers":[` + strings.Repeat(`"abc",`, 1<<20) + `"` + strings.Repeat("x", 8<<20) + `"]`,
	} {
		text = `{"items":[{"metadata":{` + text + `}}]}`
		in := &body{in: strings.NewReader(text), filter: filter{shape: list, kept: someKept}}
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
