// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// charStream reads the text of a JSON value byte by byte, and the characters of its strings. After the first error, all results are empty.
type charStream struct {
	r *bufio.Reader
	// offset is the number of bytes read, and limit its maximum.
	offset, limit int64
	err           error
	// stopped says that err is no error: nothing more is wanted.
	stopped bool
}

var errStopped = errors.New("nothing more is read")

func (s *charStream) setError(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// readByte reads a byte.
func (s *charStream) readByte() byte {
	if s.err != nil {
		return 0
	}
	b, err := s.r.ReadByte()
	switch {
	case errors.Is(err, io.EOF):
		s.setError("it is not JSON: it ends too early")
		return 0
	case err != nil:
		s.setError("it cannot be read: %w", err)
		return 0
	}
	if s.offset++; s.offset > s.limit {
		s.setError("it is larger than %d MiB", s.limit>>20)
		return 0
	}
	return b
}

// peekByte returns the byte that follows, if there is one.
func (s *charStream) peekByte() (b byte, found bool) {
	next, err := s.r.Peek(1)
	switch {
	case errors.Is(err, io.EOF):
		return 0, false
	case err != nil:
		s.setError("it cannot be read: %w", err)
		return 0, false
	}
	return next[0], true
}

// unreadByte puts the last byte back.
func (s *charStream) unreadByte() {
	if s.err == nil && s.r.UnreadByte() == nil {
		s.offset--
	}
}

// readNext skips spaces, and reads the next byte.
func (s *charStream) readNext() byte {
	for {
		switch b := s.readByte(); b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
}

// peekNext skips spaces, and returns the next byte without reading it.
func (s *charStream) peekNext() byte {
	b := s.readNext()
	s.unreadByte()
	return b
}

func (s *charStream) expectByte(want byte) {
	if got := s.readNext(); got != want && s.err == nil {
		s.setError("it is not JSON: unexpected %q at byte %d, want %q", got, s.offset, want)
	}
}

// expectEnd checks that nothing but spaces follows.
func (s *charStream) expectEnd() {
	for s.err == nil {
		b, err := s.r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			s.setError("it cannot be read: %w", err)
		case !strings.ContainsRune(" \t\r\n", rune(b)):
			s.setError("it is not JSON: unexpected text after its end")
		}
		if s.offset++; s.offset > s.limit {
			s.setError("it is larger than %d MiB", s.limit>>20)
		}
	}
}

// skipText skips the rest of a string.
func (s *charStream) skipText() {
	for s.err == nil {
		s.skipPlain()
		switch c := s.readByte(); {
		case c == '"':
			return
		case c == '\\':
			s.readEscape()
		case c < ' ':
			s.setError("it is not JSON: a control character in a string, at byte %d", s.offset)
		}
	}
}

// skipPlain skips the buffered characters that need no decoding.
func (s *charStream) skipPlain() {
	ahead, _ := s.r.Peek(s.r.Buffered())
	n := 0
	for n < len(ahead) && ahead[n] >= ' ' && ahead[n] != '"' && ahead[n] != '\\' {
		n++
	}
	s.r.Discard(n) //nolint:errcheck // they are buffered
	if s.offset += int64(n); s.offset > s.limit {
		s.setError("it is larger than %d MiB", s.limit>>20)
	}
}

// runeWriter receives the characters of a string.
type runeWriter interface {
	io.ByteWriter
	WriteRune(r rune) (int, error)
}

// copyChar writes the character of a string that begins with byte c. Invalid UTF-8 becomes U+FFFD.
func (s *charStream) copyChar(c byte, b runeWriter) {
	switch {
	case c == '\\':
		b.WriteRune(s.readEscape()) //nolint:errcheck // writes to memory do not fail
	case c < ' ':
		s.setError("it is not JSON: a control character in a string, at byte %d", s.offset)
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

// readEscape reads the rest of an escape, after the backslash.
func (s *charStream) readEscape() rune {
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
		s.setError("it is not JSON: unknown escape \\%c in a string, at byte %d", c, s.offset)
		return 0
	}
}

// joinSurrogates reads the second escape of a surrogate pair, and returns the character that both encode.
func (s *charStream) joinSurrogates(first rune) rune {
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
		return utf8.RuneError // the second escape is a character of its own
	}
	for range next {
		s.readByte()
	}
	return joined
}

func (s *charStream) readHex() rune {
	var digits [4]byte
	for i := range digits {
		digits[i] = s.readByte()
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		s.setError("it is not JSON: invalid escape \\u%q in a string, at byte %d", digits, s.offset)
	}
	return rune(n)
}
