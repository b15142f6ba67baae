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
	// at is how many bytes were read, of at most limit.
	at, limit int64
	err       error
	// token is the last number, and name the last name of a field.
	token []byte
	name  bytes.Buffer
}

func newScanner(r io.Reader, limit int64) *scanner {
	return &scanner{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// take reads a byte.
func (s *scanner) take() byte {
	if s.err != nil {
		return 0
	}
	b, err := s.r.ReadByte()
	switch {
	case errors.Is(err, io.EOF):
		s.fail("it is no JSON: it ends too early")
		return 0
	case err != nil:
		s.fail("it does not unzip: %w", err)
		return 0
	}
	if s.at++; s.at > s.limit {
		s.fail("it is larger than %d MiB", s.limit>>20)
		return 0
	}
	return b
}

// untake puts back the byte that was read last.
func (s *scanner) untake() {
	if s.err == nil && s.r.UnreadByte() == nil {
		s.at--
	}
}

// takeNext reads the next byte that is no space.
func (s *scanner) takeNext() byte {
	for {
		switch b := s.take(); b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
}

// peekNext is the next byte that is no space.
func (s *scanner) peekNext() byte {
	b := s.takeNext()
	s.untake()
	return b
}

func (s *scanner) expect(want byte) {
	if got := s.takeNext(); got != want && s.err == nil {
		s.fail("it is no JSON: %q stands where %q should, at byte %d", got, want, s.at)
	}
}

// end makes sure that nothing follows.
func (s *scanner) end() {
	for s.err == nil {
		b, err := s.r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			s.fail("it does not unzip: %w", err)
		case !strings.ContainsRune(" \t\r\n", rune(b)):
			s.fail("it is no JSON: something follows its end")
		}
		if s.at++; s.at > s.limit {
			s.fail("it is larger than %d MiB", s.limit>>20)
		}
	}
}

// isNull reads a null, if it stands there.
func (s *scanner) isNull() bool {
	if s.peekNext() != 'n' {
		return false
	}
	s.literal()
	return s.err == nil
}

// literal reads a number, true, false or null.
func (s *scanner) literal() []byte {
	s.token = s.token[:0]
	for b := s.takeNext(); s.err == nil; {
		s.token = append(s.token, b)
		if len(s.token) > maxToken {
			s.fail("it has a number of more than %d digits", maxToken)
			break
		}
		next, err := s.r.Peek(1)
		if err != nil || strings.ContainsRune(" \t\r\n,]}:", rune(next[0])) {
			break
		}
		b = s.take()
	}
	if s.err == nil && !json.Valid(s.token) {
		s.fail("it is no JSON: %q stands before byte %d", s.token[:min(len(s.token), 20)], s.at)
	}
	return s.token
}

// integer reads a whole number; null is none.
func (s *scanner) integer() int {
	if s.isNull() {
		return 0
	}
	n, err := strconv.Atoi(string(s.literal()))
	if err != nil {
		s.fail("it has %q where a whole number should be", s.token[:min(len(s.token), 20)])
	}
	return n
}

// text reads a string of at most most bytes; null is an empty one.
func (s *scanner) text(what string, most int) string {
	if s.isNull() {
		return ""
	}
	s.expect('"')
	var b strings.Builder
	for s.err == nil {
		c := s.take()
		if c == '"' {
			break
		}
		if b.Len() == b.Cap() {
			b.Grow(max(64, min(b.Cap(), most-b.Cap()+utf8.UTFMax))) // doubled, but no further than it may grow
		}
		s.char(c, &b)
		if b.Len() > most {
			s.fail("its %s is longer than %d KiB", what, most>>10)
		}
	}
	if s.err != nil {
		return ""
	}
	return b.String()
}

// key reads the name of a field, and serves until the next one is read.
func (s *scanner) key() []byte {
	s.expect('"')
	s.name.Reset()
	for s.err == nil {
		c := s.take()
		if c == '"' {
			break
		}
		s.char(c, &s.name)
		if s.name.Len() > maxToken {
			s.fail("its longest name of a field is longer than %d KiB", maxToken>>10)
		}
	}
	s.expect(':')
	return s.name.Bytes()
}

// skipText reads over the rest of a string.
func (s *scanner) skipText() {
	for s.err == nil {
		s.skipPlain()
		switch c := s.take(); {
		case c == '"':
			return
		case c == '\\':
			s.escaped()
		case c < ' ':
			s.fail("it is no JSON: a control character stands in a string, at byte %d", s.at)
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
	if s.at += int64(n); s.at > s.limit {
		s.fail("it is larger than %d MiB", s.limit>>20)
	}
}

// runes is what a string is written to.
type runes interface {
	io.ByteWriter
	WriteRune(r rune) (int, error)
}

// char writes the character of a string that begins with c, and for what is no character the one that says so.
func (s *scanner) char(c byte, b runes) {
	switch {
	case c == '\\':
		b.WriteRune(s.escaped()) //nolint:errcheck // memory takes everything
	case c < ' ':
		s.fail("it is no JSON: a control character stands in a string, at byte %d", s.at)
	case c < utf8.RuneSelf:
		b.WriteByte(c)
	default:
		s.untake()
		bytes, _ := s.r.Peek(utf8.UTFMax)
		r, size := utf8.DecodeRune(bytes)
		for range size {
			s.take()
		}
		b.WriteRune(r)
	}
}

// escaped reads what follows a backslash.
func (s *scanner) escaped() rune {
	switch c := s.take(); c {
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
		return s.pair(s.hex())
	default:
		s.fail("it is no JSON: \\%c stands in a string, at byte %d", c, s.at)
		return 0
	}
}

// pair joins two escapes that stand for one character.
func (s *scanner) pair(first rune) rune {
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
		s.take()
	}
	return joined
}

func (s *scanner) hex() rune {
	var digits [4]byte
	for i := range digits {
		digits[i] = s.take()
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		s.fail("it is no JSON: \\u%q stands in a string, at byte %d", digits, s.at)
	}
	return rune(n)
}

// skip reads over a value, whatever it is.
func (s *scanner) skip() {
	var open []byte // of each object and array that has begun, what ends it
	for s.err == nil {
		switch s.peekNext() {
		case '{', '[':
			if open = s.enter(open); len(open) == 0 {
				return
			}
			continue
		case '"':
			s.take()
			s.skipText()
		default:
			s.literal()
		}
		if open = s.leave(open); len(open) == 0 {
			return
		}
	}
}

// enter begins an object or an array; one that is empty ends at once.
func (s *scanner) enter(open []byte) []byte {
	closing := byte(']')
	if s.take() == '{' {
		closing = '}'
	}
	if len(open) == maxDepth {
		s.fail("it is nested deeper than %d", maxDepth)
	}
	open = append(open, closing)
	if s.peekNext() == closing {
		return s.leave(open)
	}
	if closing == '}' {
		s.skipKey()
	}
	return open
}

// leave ends what ends after a value, up to where the next one begins.
func (s *scanner) leave(open []byte) []byte {
	for s.err == nil && len(open) > 0 {
		closing := open[len(open)-1]
		switch b := s.takeNext(); {
		case b == closing:
			open = open[:len(open)-1]
		case b == ',' && closing == '}':
			s.skipKey()
			return open
		case b == ',':
			return open
		default:
			s.fail("it is no JSON: %q stands at byte %d", b, s.at)
		}
	}
	return open
}

func (s *scanner) skipKey() {
	s.expect('"')
	s.skipText()
	s.expect(':')
}

// object reads an object: of the fields that are named, each by its function, and nothing of others. Helm writes a field
// once and under its very name; what it would read in another way than this does is refused. Nothing is read of null.
func (s *scanner) object(fields map[string]func()) (found bool) {
	if s.isNull() {
		return false
	}
	seen := map[string]bool{}
	s.list('{', '}', func() {
		name := s.key()
		read, known := fields[string(name)]
		switch {
		case s.err != nil:
		case known && seen[string(name)]:
			s.fail("it has two fields %q", name)
		case known:
			seen[string(name)] = true
			read()
		default:
			for other := range fields {
				if bytes.EqualFold(name, []byte(other)) {
					s.fail("it has a field %q, which Helm writes as %q", name, other)
				}
			}
			s.skip()
		}
	})
	return true
}

// array reads an array of at most most values, each by a function. Nothing is read of null.
func (s *scanner) array(what string, most int, read func()) {
	if s.isNull() {
		return
	}
	count := 0
	s.list('[', ']', func() {
		if count++; count > most {
			s.fail("it has more than %d %s", most, what)
			return
		}
		read()
	})
}

// list reads what stands between two brackets, with commas in between.
func (s *scanner) list(opening, closing byte, read func()) {
	s.expect(opening)
	if s.peekNext() == closing {
		s.take()
		return
	}
	for s.err == nil {
		read()
		switch b := s.takeNext(); b {
		case closing:
			return
		case ',':
		default:
			s.fail("it is no JSON: %q stands at byte %d", b, s.at)
		}
	}
}
