// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// newChars returns a stream of characters of a text, which comes in small pieces.
func newChars(text string) *charStream {
	return &charStream{r: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(text)), 16), limit: plenty}
}

// TestCharacters shows what characters of a string stand for, and how many bytes they take.
func TestCharacters(t *testing.T) {
	for _, tc := range []struct {
		text, want string
		says       string
	}{
		{text: "a", want: "a"},
		{text: "é", want: "é"},
		{text: "\U0001F600", want: "\U0001F600"},
		{text: "\xff", want: "\uFFFD"},
		{text: "\xe2\x82", want: "\uFFFD\uFFFD"},
		{text: `\"`, want: `"`},
		{text: `\\`, want: `\`},
		{text: `\/`, want: "/"},
		{text: `\b\f\n\r\t`, want: "\b\f\n\r\t"},
		{text: `\u0041\u00e9`, want: "Aé"},
		{text: `\ud83d\ude00`, want: "\U0001F600"},
		{text: `\ud83d`, want: "\uFFFD"},
		{text: `\ud83d\n`, want: "\uFFFD\n"},
		{text: `\ud83d\u0041`, want: "\uFFFDA"},
		{text: `\ude00\ud83d`, want: "\uFFFD\uFFFD"},
		{text: `\a`, says: `it is not JSON: unknown escape \a in a string, at byte 2`},
		{text: `\u12g4`, says: `it is not JSON: invalid escape \u"12g4" in a string, at byte 6`},
		{text: "\n", says: "it is not JSON: a control character in a string, at byte 1"},
		{text: `\u12`, says: "it is not JSON: it ends too early"},
	} {
		s, got := newChars(tc.text), &strings.Builder{}
		for s.err == nil && s.offset < int64(len(tc.text)) {
			s.copyChar(s.readByte(), got)
		}
		if tc.says != "" {
			if s.err == nil || s.err.Error() != tc.says {
				t.Errorf("%q: got %q, %v; want %q", tc.text, got, s.err, tc.says)
			}
			continue
		}
		if s.err != nil || got.String() != tc.want {
			t.Errorf("%q: got %q, %v; want %q", tc.text, got, s.err, tc.want)
		}
		skipped := newChars(tc.text + `"`)
		if skipped.skipText(); skipped.err != nil || skipped.offset != int64(len(tc.text)+1) {
			t.Errorf("%q: %d bytes are skipped, %v", tc.text, skipped.offset, skipped.err)
		}
	}
}

// TestBytes shows what the stream says of bytes that come next.
func TestBytes(t *testing.T) {
	s := newChars(" \t\r\na b")
	if b, found := s.peekByte(); b != ' ' || !found || s.offset != 0 {
		t.Errorf("the next byte is %q, %t, at %d", b, found, s.offset)
	}
	if b := s.peekNext(); b != 'a' || s.offset != 4 {
		t.Errorf("the next byte that is no space is %q, at %d", b, s.offset)
	}
	if b := s.readNext(); b != 'a' || s.offset != 5 {
		t.Errorf("it reads %q, up to %d", b, s.offset)
	}
	s.unreadByte()
	s.expectByte('a')
	s.expectByte('b')
	if b, found := s.peekByte(); found || s.err != nil {
		t.Errorf("after the end comes %q, %v", b, s.err)
	}
	s.expectEnd()
	s.expectByte('c')
	if b := s.readNext(); b != 0 || s.err == nil || s.err.Error() != "it is not JSON: it ends too early" {
		t.Errorf("after the end it reads %q, %v", b, s.err)
	}
	if n, err := s.r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("there are %d more, %v", n, err)
	}
	broken := &charStream{r: bufio.NewReader(iotest.ErrReader(io.ErrClosedPipe)), limit: plenty}
	if b, found := broken.peekByte(); found || !errors.Is(broken.err, io.ErrClosedPipe) {
		t.Errorf("a stream that fails has %q, %v", b, broken.err)
	}
}

// TestWherePiecesMeet has each kind of character where one piece of the stream ends and the next one begins.
func TestWherePiecesMeet(t *testing.T) {
	for _, char := range []string{"a", "é", "€", "\U0001F600", `\n`, `\u0041`, `\ud83d\ude00`, `\ud83d`, `\"`} {
		for before := 64<<10 - 14; before < 64<<10+2; before++ {
			text := `"` + strings.Repeat("x", before) + char + `y"`
			var want string
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			s := New(strings.NewReader(text), plenty)
			if got := s.ReadText("text", plenty); s.Err() != nil || got != want {
				t.Errorf("%s after %d bytes: it ends with %q, %v; want %q", char, before, got[max(0, len(got)-4):], s.Err(), want[len(want)-4:])
			}
			s = New(strings.NewReader(text), plenty)
			if s.SkipValue(); s.Err() != nil || s.Offset() != int64(len(text)) {
				t.Errorf("%s after %d bytes: %d bytes of %d are skipped, %v", char, before, s.Offset(), len(text), s.Err())
			}
		}
	}
}

// TestWhatIsNotAskedForTakesNoMemory skips values of some megabytes.
func TestWhatIsNotAskedForTakesNoMemory(t *testing.T) {
	const pieces, most = 1 << 20, 1 << 20
	for name, value := range map[string]string{
		"Text":    `"` + strings.Repeat("aaaa", pieces) + `"`,
		"Escapes": `"` + strings.Repeat(`\n\u0041`, pieces) + `"`,
		"Names":   "{" + strings.Repeat(`"b":1,`, pieces) + `"c":2}`,
		"Texts":   "[" + strings.Repeat(`"b",`, pieces) + `"c"]`,
		"Numbers": "[" + strings.Repeat("1.5e3,", pieces) + "1]",
		"Nested":  "[" + strings.Repeat("[{}],", pieces) + "[]]",
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"a":` + value + `,"n":7}`
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s, n := New(strings.NewReader(text), 16<<20), 0
			s.ReadObject(map[string]func(){"n": func() { n = s.ReadInteger() }})
			runtime.ReadMemStats(&after)
			if n != 7 || s.Err() != nil {
				t.Errorf("it reads %d, %v", n, s.Err())
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > most {
				t.Errorf("%d KiB are allocated for %d KiB", took>>10, len(text)>>10)
			}
		})
	}
}
