// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// plenty is a limit that no text of a test comes to.
const plenty = 1 << 20

// readings are what a text may be read as.
func readings() map[string]func(s *Scanner) any {
	return map[string]func(s *Scanner) any{
		"value":   func(s *Scanner) any { s.SkipValue(); return nil },
		"integer": func(s *Scanner) any { return s.ReadInteger() },
		"text":    func(s *Scanner) any { return s.ReadText("name", 8<<10) },
		"texts": func(s *Scanner) any {
			var all []string
			s.ReadArray("names", 3, func() { all = append(all, s.ReadText("name", 8<<10)) })
			return all
		},
		"object": func(s *Scanner) any {
			all := map[string]any{}
			if !s.ReadObject(map[string]func(){
				"a": func() { all["a"] = s.ReadText("a", 8<<10) },
				"n": func() { all["n"] = s.ReadInteger() },
			}) {
				return "none"
			}
			return all
		},
	}
}

// readAs reads a text that nothing follows.
func readAs(reading, text string) (any, error) {
	s := New(strings.NewReader(text), plenty)
	got := readings()[reading](s)
	s.ExpectEnd()
	return got, s.Err()
}

// TestReading shows what is read, and how what cannot be read is refused.
func TestReading(t *testing.T) {
	for _, tc := range []struct {
		reading, text string
		want          any
		says          string
	}{
		{reading: "integer", text: "12", want: 12},
		{reading: "integer", text: " -3 \n", want: -3},
		{reading: "integer", text: "null", want: 0},
		{reading: "integer", text: "1.5", says: `it has "1.5" where a whole number is expected`},
		{reading: "integer", text: "true", says: `it has "true" where a whole number is expected`},
		{reading: "integer", text: "99999999999999999999999", says: `it has "99999999999999999999" where a whole number is expected`},
		{reading: "integer", text: "012", says: `it is not JSON: unexpected "012" before byte 3`},
		{reading: "integer", text: `"1"`, says: `it is not JSON: unexpected "\"1\"" before byte 3`},
		{reading: "integer", text: "1 2", says: "it is not JSON: unexpected text after its end"},
		{reading: "integer", text: "", says: "it is not JSON: it ends too early"},
		{reading: "integer", text: strings.Repeat("1", maxToken+1), says: "it has a number of more than 1024 digits"},

		{reading: "text", text: `"a b"`, want: "a b"},
		{reading: "text", text: "\t\"a\"\r\n", want: "a"},
		{reading: "text", text: "null", want: ""},
		{reading: "text", text: `""`, want: ""},
		{reading: "text", text: `"` + strings.Repeat("a", 8<<10) + `"`, want: strings.Repeat("a", 8<<10)},
		{reading: "text", text: `"` + strings.Repeat("a", 8<<10+1) + `"`, says: "its name is longer than 8 KiB"},
		{reading: "text", text: "1", says: "it is not JSON: unexpected '1' at byte 1, want '\"'"},
		{reading: "text", text: `"a`, says: "it is not JSON: it ends too early"},
		{reading: "text", text: "nul", says: `it is not JSON: unexpected "nul" before byte 3`},

		{reading: "texts", text: "null", want: []string(nil)},
		{reading: "texts", text: "[]", want: []string(nil)},
		{reading: "texts", text: `[ "a" , null,"c" ]`, want: []string{"a", "", "c"}},
		{reading: "texts", text: `["a","b","c","d"]`, says: "it has more than 3 names"},
		{reading: "texts", text: `["a",]`, says: "it is not JSON: unexpected ']' at byte 6, want '\"'"},
		{reading: "texts", text: `["a" "b"]`, says: "it is not JSON: unexpected '\"' at byte 6"},
		{reading: "texts", text: `["a"}`, says: "it is not JSON: unexpected '}' at byte 5"},
		{reading: "texts", text: `{}`, says: "it is not JSON: unexpected '{' at byte 1, want '['"},

		{reading: "object", text: "null", want: "none"},
		{reading: "object", text: "{}", want: map[string]any{}},
		{reading: "object", text: `{"n":1,"a":"b"}`, want: map[string]any{"a": "b", "n": 1}},
		{reading: "object", text: `{ "x" : {"a":[1,{}]} , "\u0061" : "b" }`, want: map[string]any{"a": "b"}},
		{reading: "object", text: `{"a":"b","a":"c"}`, says: `it has two fields "a"`},
		{reading: "object", text: `{"x":1,"x":2,"n":3}`, want: map[string]any{"n": 3}},
		{reading: "object", text: `{"A":"b"}`, says: `it has a field "A", which Helm writes as "a"`},
		{reading: "object", text: `{"` + strings.Repeat("k", maxToken+1) + `":1}`, says: "it has a field name longer than 1 KiB"},
		{reading: "object", text: `{"a" "b"}`, says: "it is not JSON: unexpected '\"' at byte 6, want ':'"},
		{reading: "object", text: `{a:"b"}`, says: "it is not JSON: unexpected 'a' at byte 2, want '\"'"},
		{reading: "object", text: `{"x":tru}`, says: `it is not JSON: unexpected "tru" before byte 8`},
		{reading: "object", text: `["a"]`, says: "it is not JSON: unexpected '[' at byte 1, want '{'"},

		{reading: "value", text: `{"a":[{"b":[]},{},"c",-1e5,true,null]}`},
		{reading: "value", text: strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)},
		{reading: "value", text: strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), says: "it is nested deeper than 1000"},
		{reading: "value", text: strings.Repeat(`{"a":`, maxDepth+1), says: "it is nested deeper than 1000"},
		{reading: "value", text: `[1}`, says: "it is not JSON: unexpected '}' at byte 3"},
		{reading: "value", text: `{"a":1,}`, says: "it is not JSON: unexpected '}' at byte 8, want '\"'"},
		{reading: "value", text: `{"a":1 "b":2}`, says: "it is not JSON: unexpected '\"' at byte 8"},
		{reading: "value", text: `[1,2`, says: "it is not JSON: it ends too early"},
		{reading: "value", text: "[1] ]", says: "it is not JSON: unexpected text after its end"},
	} {
		name := tc.text[:min(len(tc.text), 30)]
		got, err := readAs(tc.reading, tc.text)
		if tc.says != "" {
			if err == nil || err.Error() != tc.says {
				t.Errorf("%s %q: got %v, %v; want %q", tc.reading, name, got, err, tc.says)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s %q: %v (-want +got):\n%s", tc.reading, name, err, diff)
		}
	}
}

// TestOffsets shows where values stand, so that a caller can put others in their place.
func TestOffsets(t *testing.T) {
	const text = ` {"a" :  "b", "x":[1, 2] , "n":3}`
	s := New(iotest.OneByteReader(strings.NewReader(text)), plenty)
	places := map[string]string{}
	field := func(name string, read func()) func() {
		return func() {
			from := s.NextOffset()
			read()
			places[name] = text[from:s.Offset()]
		}
	}
	if from := s.NextOffset(); from != 1 {
		t.Errorf("the object begins at %d", from)
	}
	s.ReadObject(map[string]func(){
		"a": field("a", func() { s.ReadText("a", 10) }), "x": field("x", s.SkipValue), "n": field("n", func() { s.ReadInteger() }),
	})
	s.ExpectEnd()
	if diff := cmp.Diff(map[string]string{"a": `"b"`, "x": "[1, 2]", "n": "3"}, places); s.Err() != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", s.Err(), diff)
	}
	if s.Offset() != int64(len(text)) {
		t.Errorf("%d bytes were read of %d", s.Offset(), len(text))
	}
}

// TestTheFirstErrorEndsIt shows that nothing is read after an error, whoever has found it.
func TestTheFirstErrorEndsIt(t *testing.T) {
	s := New(strings.NewReader(`{"a":"b","n":1}`), plenty)
	first := errors.New("the first")
	calls := 0
	s.ReadObject(map[string]func(){
		"a": func() {
			calls++
			s.SetError("at a: %w", first)
			s.SetError("another")
		},
		"n": func() { calls++ },
	})
	if text, n := s.ReadText("name", 10), s.ReadInteger(); text != "" || n != 0 {
		t.Errorf("afterwards it reads %q, %d", text, n)
	}
	s.ReadArray("names", 10, func() { calls++ })
	s.SkipValue()
	s.ExpectEnd()
	if calls != 1 || !errors.Is(s.Err(), first) || s.Err().Error() != "at a: the first" {
		t.Errorf("%d values were read, and the error is %v", calls, s.Err())
	}
}

// TestTheLimitOfBytes shows that what is larger than it may be is not read to its end, whatever it is.
func TestTheLimitOfBytes(t *testing.T) {
	const limit = 1 << 20
	for name, text := range map[string]string{
		"Text":   `"` + strings.Repeat("a", 2*limit) + `"`,
		"Array":  "[" + strings.Repeat("1,", limit) + "1]",
		"Object": "{" + strings.Repeat(`"a":1,`, limit) + `"a":1}`,
		"Before": strings.Repeat(" ", 2*limit) + "1",
		"After":  "1" + strings.Repeat(" ", 2*limit),
	} {
		t.Run(name, func(t *testing.T) {
			source := strings.NewReader(text)
			s := New(source, limit)
			s.SkipValue()
			s.ExpectEnd()
			if err := s.Err(); err == nil || err.Error() != "it is larger than 1 MiB" {
				t.Errorf("got %v", err)
			}
			if read := len(text) - source.Len(); read > limit+128<<10 {
				t.Errorf("%d bytes were read", read)
			}
		})
	}
	s := New(strings.NewReader(`"`+strings.Repeat("a", limit-2)+`"`), limit)
	s.SkipValue()
	s.ExpectEnd()
	if s.Err() != nil {
		t.Errorf("one as large as it may be: %v", s.Err())
	}
}

// TestAStreamThatFails shows that the error of a stream is the one that is told, wherever it comes.
func TestAStreamThatFails(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{"", "[", `["a`, `["a\`, `["a\u00`, `{"a"`, `{"a":`, "[1", "[1,", "tr", "[1]"} {
		s := New(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), plenty)
		s.SkipValue()
		s.ExpectEnd()
		if err := s.Err(); !errors.Is(err, broken) || err.Error() != "it cannot be read: broken" {
			t.Errorf("after %q: got %v", text, err)
		}
	}
}

// readAny reads a value as encoding/json does, but with each number as it is written.
func readAny(s *Scanner) any {
	switch s.in.peekNext() {
	case '{':
		all := map[string]any{}
		s.readList('{', '}', func() {
			key := string(s.readKey())
			all[key] = readAny(s)
		})
		return all
	case '[':
		all := []any{}
		s.readList('[', ']', func() { all = append(all, readAny(s)) })
		return all
	case '"':
		return s.ReadText("text", plenty)
	}
	switch token := string(s.readLiteral()); token {
	case "null":
		return nil
	case "true", "false":
		return token == "true"
	default:
		return json.Number(token)
	}
}

// checkAgainstJSON reads a text in whole and over, and checks that encoding/json does so too and reads the same.
func checkAgainstJSON(t *testing.T, text []byte) {
	t.Helper()
	read, skipped := New(bytes.NewReader(text), plenty), New(iotest.HalfReader(bytes.NewReader(text)), plenty)
	got := readAny(read)
	read.ExpectEnd()
	skipped.SkipValue()
	skipped.ExpectEnd()
	valid := json.Valid(text)
	if (read.Err() == nil) != valid {
		t.Errorf("%q is JSON: %t, and reading it says %v", text, valid, read.Err())
	}
	if (skipped.Err() == nil) != valid {
		t.Errorf("%q is JSON: %t, and skipping it says %v", text, valid, skipped.Err())
	}
	if !valid || read.Err() != nil {
		return
	}
	var want any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q is read in another way (-encoding/json +this):\n%s", text, diff)
	}
}

// samples are texts that are JSON, or hardly not.
func samples() []string {
	all := []string{
		`{}`, `[]`, `[[],{}]`, `{"a":{"b":[1,2.5e-3,-0,true,false,null]}}`, " [ 1 , \"a\" ] \n", `{"a":1,"a":2}`, `{"":""}`, `"\u00e9\ud83d\ude00\\\/\"\b\f\n\r\t"`,
		`"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`, `"\uD83D\uDE00"`, "\"\xff\"", "\"\xe2\x82\"", "\"\xf0\x9f\x98\x80\"", "\"\u2028\"", "\"\x7f\"",
		`[1,]`, `{"a"}`, `{"a":}`, `{,}`, `[`, `]`, `"`, `"a`, `"\x"`, `"\u12g4"`, `"\u12`, "\"\n\"", "\"\x00\"", `'a'`, `nul`, `truee`, `1 2`, `01`, `-`, `1.`, `.5`, `+1`, `1e`, `0x1`, `NaN`, ``, ` `, `[1 2]`, `{"a":1 "b":2}`, `[1}`, `{"a":1]`,
		"\ufeff1", "[1]\x00", `{1:2}`, `[true false]`,
	}
	for _, digits := range []string{"00", "7f", "ff"} {
		all = append(all, fmt.Sprintf(`"\u00%s"`, digits))
	}
	return all
}

// TestItReadsWhatEncodingJSONReads compares the two for texts that are JSON, and for each of their beginnings.
func TestItReadsWhatEncodingJSONReads(t *testing.T) {
	for _, text := range samples() {
		for end := range len(text) + 1 {
			checkAgainstJSON(t, []byte(text[:end]))
		}
	}
}

// FuzzScanner compares the two for any text.
func FuzzScanner(f *testing.F) {
	for _, text := range samples() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 || bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxDepth || hasLongToken(text) {
			t.Skip()
		}
		checkAgainstJSON(t, text)
	})
}

// hasLongToken says that a text may have a number, or a name of a field, that is longer than one may be.
func hasLongToken(text []byte) bool {
	return slices.ContainsFunc(bytes.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" ,:[]{}", c) }), func(token []byte) bool { return len(token) > maxToken/3 })
}

// TestStop stops in the middle of a text: no more of it is read, and nothing is wrong with what follows.
func TestStop(t *testing.T) {
	text := strings.NewReader(`{"a": {"b": "x", "c": "y"}, "d": ` + strings.Repeat(" ", 1<<20) + "no JSON")
	s, got := New(text, plenty), []string{}
	read := func() { got = append(got, s.ReadText("text", 10)) }
	s.ReadObject(map[string]func(){
		"a": func() {
			s.ReadObject(map[string]func(){"b": func() { read(); s.Stop() }, "c": read})
		},
		"d": read,
	})
	s.ExpectEnd()
	if diff := cmp.Diff([]string{"x"}, got); diff != "" || s.Err() != nil {
		t.Errorf("it reads (-want +got), and ends with %v:\n%s", s.Err(), diff)
	}
	if text.Len() < 900<<10 {
		t.Errorf("%d bytes are left", text.Len())
	}
	if s.SkipValue(); s.ReadText("text", 10) != "" || s.ReadInteger() != 0 {
		t.Error("it reads more after the end")
	}
	wrong := New(strings.NewReader("x"), plenty)
	wrong.SkipValue()
	if wrong.Stop(); wrong.Err() == nil {
		t.Error("an error is forgotten")
	}
}
