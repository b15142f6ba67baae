// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxDepth is how deep the JSON of a record may be nested: Helm's own decoder would go ten times as far.
	maxDepth = 1000
	// maxToken bounds names of fields that are read, and numbers.
	maxToken = 1 << 10
)

// scanner reads one JSON value from a stream, and keeps nothing of it but what it is asked for: how much memory it takes
// does not depend on what is written there. The first error ends it; what it returns afterwards is empty.
type scanner struct {
	r *bufio.Reader
	// offset is how many bytes were read, of at most limit.
	offset, limit int64
	err           error
	// token is the last number, and name the last name of a field.
	token []byte
	name  bytes.Buffer
}

func newScanner(r io.Reader, limit int64) *scanner {
	return &scanner{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

func (s *scanner) setError(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// readByte reads a byte.
func (s *scanner) readByte() byte {
	if s.err != nil {
		return 0
	}
	b, err := s.r.ReadByte()
	switch {
	case errors.Is(err, io.EOF):
		s.setError("it is no JSON: it ends too early")
		return 0
	case err != nil:
		s.setError("it does not unzip: %w", err)
		return 0
	}
	if s.offset++; s.offset > s.limit {
		s.setError("it is larger than %d MiB", s.limit>>20)
		return 0
	}
	return b
}

// unreadByte puts back the byte that was read last.
func (s *scanner) unreadByte() {
	if s.err == nil && s.r.UnreadByte() == nil {
		s.offset--
	}
}

// readNext reads the next byte that is no space.
func (s *scanner) readNext() byte {
	for {
		switch b := s.readByte(); b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
}

// peekNext is the next byte that is no space.
func (s *scanner) peekNext() byte {
	b := s.readNext()
	s.unreadByte()
	return b
}

func (s *scanner) expectByte(want byte) {
	if got := s.readNext(); got != want && s.err == nil {
		s.setError("it is no JSON: %q stands where %q should, at byte %d", got, want, s.offset)
	}
}

// expectEnd makes sure that nothing follows.
func (s *scanner) expectEnd() {
	for s.err == nil {
		b, err := s.r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			s.setError("it does not unzip: %w", err)
		case !strings.ContainsRune(" \t\r\n", rune(b)):
			s.setError("it is no JSON: something follows its end")
		}
		if s.offset++; s.offset > s.limit {
			s.setError("it is larger than %d MiB", s.limit>>20)
		}
	}
}

// readNull reads a null, if it stands there.
func (s *scanner) readNull() bool {
	if s.peekNext() != 'n' {
		return false
	}
	s.readLiteral()
	return s.err == nil
}

// readLiteral reads a number, true, false or null.
func (s *scanner) readLiteral() []byte {
	s.token = s.token[:0]
	for b := s.readNext(); s.err == nil; {
		s.token = append(s.token, b)
		if len(s.token) > maxToken {
			s.setError("it has a number of more than %d digits", maxToken)
			break
		}
		next, err := s.r.Peek(1)
		if err != nil || strings.ContainsRune(" \t\r\n,]}:", rune(next[0])) {
			break
		}
		b = s.readByte()
	}
	if s.err == nil && !json.Valid(s.token) {
		s.setError("it is no JSON: %q stands before byte %d", s.token[:min(len(s.token), 20)], s.offset)
	}
	return s.token
}

// readInteger reads a whole number; null is none.
func (s *scanner) readInteger() int {
	if s.readNull() {
		return 0
	}
	n, err := strconv.Atoi(string(s.readLiteral()))
	if err != nil {
		s.setError("it has %q where a whole number should be", s.token[:min(len(s.token), 20)])
	}
	return n
}

// readText reads a string of at most most bytes; null is an empty one.
func (s *scanner) readText(what string, most int) string {
	if s.readNull() {
		return ""
	}
	s.expectByte('"')
	var b strings.Builder
	for s.err == nil {
		c := s.readByte()
		if c == '"' {
			break
		}
		if b.Len() == b.Cap() {
			b.Grow(max(64, min(b.Cap(), most-b.Cap()+utf8.UTFMax))) // doubled, but no further than it may grow
		}
		s.copyChar(c, &b)
		if b.Len() > most {
			s.setError("its %s is longer than %d KiB", what, most>>10)
		}
	}
	if s.err != nil {
		return ""
	}
	return b.String()
}

// readKey reads the name of a field, and serves until the next one is read.
func (s *scanner) readKey() []byte {
	s.expectByte('"')
	s.name.Reset()
	for s.err == nil {
		c := s.readByte()
		if c == '"' {
			break
		}
		s.copyChar(c, &s.name)
		if s.name.Len() > maxToken {
			s.setError("its longest name of a field is longer than %d KiB", maxToken>>10)
		}
	}
	s.expectByte(':')
	return s.name.Bytes()
}

// skipText reads over the rest of a string.
func (s *scanner) skipText() {
	for s.err == nil {
		s.skipPlain()
		switch c := s.readByte(); {
		case c == '"':
			return
		case c == '\\':
			s.readEscape()
		case c < ' ':
			s.setError("it is no JSON: a control character stands in a string, at byte %d", s.offset)
		}
	}
}

// skipPlain reads over what is at hand and stands for nothing but itself.
func (s *scanner) skipPlain() {
	ahead, _ := s.r.Peek(s.r.Buffered())
	n := 0
	for n < len(ahead) && ahead[n] >= ' ' && ahead[n] != '"' && ahead[n] != '\\' {
		n++
	}
	s.r.Discard(n) //nolint:errcheck // it is at hand
	if s.offset += int64(n); s.offset > s.limit {
		s.setError("it is larger than %d MiB", s.limit>>20)
	}
}

// runeWriter is what a string is written to.
type runeWriter interface {
	io.ByteWriter
	WriteRune(r rune) (int, error)
}

// copyChar writes the character of a string that begins with c, and for what is no character the one that says so.
func (s *scanner) copyChar(c byte, b runeWriter) {
	switch {
	case c == '\\':
		b.WriteRune(s.readEscape()) //nolint:errcheck // memory takes everything
	case c < ' ':
		s.setError("it is no JSON: a control character stands in a string, at byte %d", s.offset)
	case c < utf8.RuneSelf:
		b.WriteByte(c)
	default:
		s.unreadByte()
		bytes, _ := s.r.Peek(utf8.UTFMax)
		r, size := utf8.DecodeRune(bytes)
		for range size {
			s.readByte()
		}
		b.WriteRune(r)
	}
}

// readEscape reads what follows a backslash.
func (s *scanner) readEscape() rune {
	switch c := s.readByte(); c {
	case '"', '\\', '/':
		return rune(c)
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'u':
		return s.joinSurrogates(s.readHex())
	default:
		s.setError("it is no JSON: \\%c stands in a string, at byte %d", c, s.offset)
		return 0
	}
}

// joinSurrogates joins two escapes that stand for one character.
func (s *scanner) joinSurrogates(first rune) rune {
	if !utf16.IsSurrogate(first) {
		return first
	}
	next, _ := s.r.Peek(6)
	if len(next) < 6 || next[0] != '\\' || next[1] != 'u' {
		return utf8.RuneError
	}
	second, err := strconv.ParseUint(string(next[2:]), 16, 16)
	joined := utf16.DecodeRune(first, rune(second))
	if err != nil || joined == utf8.RuneError {
		return utf8.RuneError // the second one stands for itself
	}
	for range next {
		s.readByte()
	}
	return joined
}

func (s *scanner) readHex() rune {
	var digits [4]byte
	for i := range digits {
		digits[i] = s.readByte()
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		s.setError("it is no JSON: \\u%q stands in a string, at byte %d", digits, s.offset)
	}
	return rune(n)
}

// skipValue reads over a value, whatever it is.
func (s *scanner) skipValue() {
	var open []byte // of each object and array that has begun, what ends it
	for s.err == nil {
		switch s.peekNext() {
		case '{', '[':
			if open = s.enterNested(open); len(open) == 0 {
				return
			}
			continue
		case '"':
			s.readByte()
			s.skipText()
		default:
			s.readLiteral()
		}
		if open = s.leaveNested(open); len(open) == 0 {
			return
		}
	}
}

// enterNested begins an object or an array; one that is empty ends at once.
func (s *scanner) enterNested(open []byte) []byte {
	closing := byte(']')
	if s.readByte() == '{' {
		closing = '}'
	}
	if len(open) == maxDepth {
		s.setError("it is nested deeper than %d", maxDepth)
	}
	open = append(open, closing)
	if s.peekNext() == closing {
		return s.leaveNested(open)
	}
	if closing == '}' {
		s.skipKey()
	}
	return open
}

// leaveNested ends what ends after a value, up to where the next one begins.
func (s *scanner) leaveNested(open []byte) []byte {
	for s.err == nil && len(open) > 0 {
		closing := open[len(open)-1]
		switch b := s.readNext(); {
		case b == closing:
			open = open[:len(open)-1]
		case b == ',' && closing == '}':
			s.skipKey()
			return open
		case b == ',':
			return open
		default:
			s.setError("it is no JSON: %q stands at byte %d", b, s.offset)
		}
	}
	return open
}

func (s *scanner) skipKey() {
	s.expectByte('"')
	s.skipText()
	s.expectByte(':')
}

// readObject reads an object: of the fields that are named, each by its function, and nothing of others. Helm writes a field
// once and under its very name; what it would read in another way than this does is refused. Nothing is read of null.
func (s *scanner) readObject(fields map[string]func()) (found bool) {
	if s.readNull() {
		return false
	}
	seen := map[string]bool{}
	s.readList('{', '}', func() {
		name := s.readKey()
		read, known := fields[string(name)]
		switch {
		case s.err != nil:
		case known && seen[string(name)]:
			s.setError("it has two fields %q", name)
		case known:
			seen[string(name)] = true
			read()
		default:
			for other := range fields {
				if bytes.EqualFold(name, []byte(other)) {
					s.setError("it has a field %q, which Helm writes as %q", name, other)
				}
			}
			s.skipValue()
		}
	})
	return true
}

// readArray reads an array of at most most values, each by a function. Nothing is read of null.
func (s *scanner) readArray(what string, most int, read func()) {
	if s.readNull() {
		return
	}
	count := 0
	s.readList('[', ']', func() {
		if count++; count > most {
			s.setError("it has more than %d %s", most, what)
			return
		}
		read()
	})
}

// readList reads what stands between two brackets, with commas in between.
func (s *scanner) readList(opening, closing byte, read func()) {
	s.expectByte(opening)
	if s.peekNext() == closing {
		s.readByte()
		return
	}
	for s.err == nil {
		read()
		switch b := s.readNext(); b {
		case closing:
			return
		case ',':
		default:
			s.setError("it is no JSON: %q stands at byte %d", b, s.offset)
		}
	}
}
