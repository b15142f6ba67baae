// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package jsontrim

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// cutBelow is a value without what is nested deeper, and whether there was any.
func cutBelow(value any, most int) (out any, cut bool) {
	switch value := value.(type) {
	case map[string]any:
		if most == 0 {
			return nil, true
		}
		for k, v := range value {
			inner, deeper := cutBelow(v, most-1)
			value[k], cut = inner, cut || deeper
		}
	case []any:
		if most == 0 {
			return nil, true
		}
		for i, v := range value {
			inner, deeper := cutBelow(v, most-1)
			value[i], cut = inner, cut || deeper
		}
	}
	return value, cut
}

// wrapped is a value in as many maps and lists, with other values beside it.
func wrapped(r *rand.Rand, value any, levels int) any {
	for range levels {
		if r.IntN(2) == 0 {
			value = []any{r.IntN(3), value, "]"}
		} else {
			value = map[string]any{"a": value, "}": nil}
		}
	}
	return value
}

// What is cut of an object is what is too deep, and each object that was cut says so, and no other of the list.
func TestOnlyWhatIsTooDeepIsCut(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		var all, want []any
		for range 1 + r.IntN(5) {
			o := map[string]any{"metadata": map[string]any{"name": "a"}, "spec": wrapped(r, random(r, 5), maxDepth-4+r.IntN(6))}
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			var same any
			if err := json.Unmarshal(text, &same); err != nil {
				t.Fatal(err)
			}
			left, cut := cutBelow(same, maxDepth)
			if cut {
				left.(map[string]any)[cutKey] = true
			}
			all, want = append(all, o), append(want, left)
		}
		text, err := json.Marshal(map[string]any{"kind": "List", "items": all})
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(makeShallow(t, list, string(text), r.IntN(100))), &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(any(want), got["items"]) { // a Diff would take for ever
			t.Fatalf("%s becomes %v, want %v", text, got["items"], want)
		}
	}
}

// Whatever is sent, and in whichever parts: the same is read, nothing of it is deeper than it may be, and it is no longer than what was sent
// but for the marks.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"name":"a","managedFields":[{"a":"]"}]},"spec":[{}]}`, `{"items":[{"metadata":{"managedFields":1}},{}]}`,
		`{"type":"ADDED","object":{"metadata":{"managedFields":[[]],"a":"\""}}}` + "\n", `{"items":[{"metadata":{"labels":{"a":"b"},"annotations":{"b":"c","a":"d"},"finalizers":["1","2","3","example.com/run",4],"name":"n"}}]}`,
		`]}"\`, `{"metadata":{"a",,"managedFields"}}`, nested(maxDepth + 2), `{"items":[` + strings.Repeat(`{"a":`, maxDepth+5),
	} {
		for which := range 6 {
			f.Add(text, uint8(which), uint8(7))
		}
	}
	f.Fuzz(func(t *testing.T, text string, which, size uint8) {
		use := filter{shape: object + shape(which%3)}
		if which%6 > 2 {
			use.kept = someKept
		}
		whole := makeShort(t, use, text, 0)
		if parts := makeShort(t, use, text, max(1, int(size))); parts != whole {
			t.Errorf("%q in parts of %d becomes %q, and else %q", text, size, parts, whole)
		}
		// Each value that is cut has two bytes at least, of which null makes four; the commas of metadata only move.
		if most := 2*len(text) + strings.Count(text, "}")*len(mark); len(whole) > most {
			t.Errorf("%d bytes become %d", len(text), len(whole))
		}
		if json.Valid([]byte(text)) && strings.HasPrefix(text, "{") && !json.Valid([]byte(whole)) {
			t.Errorf("%q becomes %q", text, whole)
		}
		checkPruned(t, use, text, whole)
	})
}

// checkPruned says when what is left of a response is not what is left of its maps. That can be said of JSON that names nothing twice, and
// escapes no name, as an API server sends it, and from which nothing is cut.
func checkPruned(t *testing.T, f filter, text, left string) {
	t.Helper()
	var sent, got map[string]any
	if json.Unmarshal([]byte(text), &sent) != nil || strings.Contains(left, mark) {
		return
	}
	plain, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	pruneAll(sent, f)
	if err := json.Unmarshal([]byte(makeShort(t, f, string(plain), 0)), &got); err != nil || !reflect.DeepEqual(got, sent) {
		t.Errorf("%s becomes %v, %v, want %v", plain, got, err, sent)
	}
}
