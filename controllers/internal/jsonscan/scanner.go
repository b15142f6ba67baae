// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonscan reads one JSON value from a stream that any user may have written. It keeps only the fields that the caller asks for,
// so its memory does not depend on the text. What it reads, Helm's decoder reads in the same way; it refuses everything else, and never
// guesses.
package jsonscan

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxDepth is how deep values may be nested. Helm's own decoder allows ten times as much.
	maxDepth = 1000
	// maxToken bounds field names and numbers.
	maxToken = 1 << 10
)

// Scanner reads one JSON value. After the first error, all results are empty.
type Scanner struct {
	in charStream
	// token is the last literal, and name the last field name.
	token []byte
	name  bytes.Buffer
}

// New returns a Scanner that reads at most limit bytes.
func New(r io.Reader, limit int64) *Scanner {
	return &Scanner{in: charStream{r: bufio.NewReaderSize(r, 64<<10), limit: limit}}
}

// Err returns the first error; nil after Stop, if there was none before.
func (s *Scanner) Err() error {
	if s.in.stopped {
		return nil
	}
	return s.in.err
}

// Stop reads nothing more: the caller has all that it wants. All results are empty from then on, as after an error.
func (s *Scanner) Stop() {
	if s.in.err == nil {
		s.in.err, s.in.stopped = errStopped, true
	}
}

// SetError stops the Scanner with an error, unless there is one already.
func (s *Scanner) SetError(format string, args ...any) { s.in.setError(format, args...) }

// Offset returns the number of bytes read.
func (s *Scanner) Offset() int64 { return s.in.offset }

// NextOffset skips spaces, and returns the offset of the next value.
func (s *Scanner) NextOffset() int64 {
	s.in.peekNext()
	return s.in.offset
}

// ExpectEnd checks that nothing but spaces follows.
func (s *Scanner) ExpectEnd() { s.in.expectEnd() }

// readNull reads a null, if that is the next value.
func (s *Scanner) readNull() bool {
	if s.in.peekNext() != 'n' {
		return false
	}
	s.readLiteral()
	return s.in.err == nil
}

// readLiteral reads a number, true, false or null.
func (s *Scanner) readLiteral() []byte {
	s.token = s.token[:0]
	for b := s.in.readNext(); s.in.err == nil; {
		s.token = append(s.token, b)
		if len(s.token) > maxToken {
			s.in.setError("it has a number of more than %d digits", maxToken)
			break
		}
		next, found := s.in.peekByte()
		if !found || strings.ContainsRune(" \t\r\n,]}:", rune(next)) {
			break
		}
		b = s.in.readByte()
	}
	if s.in.err == nil && !isLiteral(s.token) {
		s.in.setError("it is not JSON: unexpected %q before byte %d", s.token[:min(len(s.token), 20)], s.in.offset)
	}
	return s.token
}

// isLiteral says whether a token is a number, true, false or null in JSON. It is called for millions of them.
func isLiteral(token []byte) bool {
	switch string(token) {
	case "true", "false", "null":
		return true
	}
	whole := bytes.TrimPrefix(token, []byte("-"))
	rest, found := cutDigits(whole)
	if !found || whole[0] == '0' && len(whole)-len(rest) > 1 {
		return false
	}
	if after, has := bytes.CutPrefix(rest, []byte(".")); has {
		if rest, found = cutDigits(after); !found {
			return false
		}
	}
	if len(rest) > 0 && rest[0]|' ' == 'e' {
		rest = rest[1:]
		if len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		}
		rest, found = cutDigits(rest)
	}
	return found && len(rest) == 0
}

// cutDigits removes the digits at the beginning of a text, and says whether there are any.
func cutDigits(text []byte) (rest []byte, found bool) {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return text[n:], n > 0
}

// ReadInteger reads a whole number. It returns 0 for null.
func (s *Scanner) ReadInteger() int {
	if s.readNull() {
		return 0
	}
	n, err := strconv.Atoi(string(s.readLiteral()))
	if err != nil {
		s.in.setError("it has %q where a whole number is expected", s.token[:min(len(s.token), 20)])
	}
	return n
}

// ReadText reads a string of at most `most` bytes. It returns "" for null. Errors call the string what.
func (s *Scanner) ReadText(what string, most int) string {
	if s.readNull() {
		return ""
	}
	s.in.expectByte('"')
	var b strings.Builder
	for s.in.err == nil {
		c := s.in.readByte()
		if c == '"' {
			break
		}
		if b.Len() == b.Cap() {
			b.Grow(max(64, min(b.Cap(), most-b.Cap()+utf8.UTFMax))) // doubled, but no further than it may grow
		}
		s.in.copyChar(c, &b)
		if b.Len() > most {
			s.in.setError("its %s is longer than %d KiB", what, most>>10)
		}
	}
	if s.in.err != nil {
		return ""
	}
	return b.String()
}

// readKey reads a field name and the colon. The result is valid until the next call.
func (s *Scanner) readKey() []byte {
	s.in.expectByte('"')
	s.name.Reset()
	for s.in.err == nil {
		c := s.in.readByte()
		if c == '"' {
			break
		}
		s.in.copyChar(c, &s.name)
		if s.name.Len() > maxToken {
			s.in.setError("it has a field name longer than %d KiB", maxToken>>10)
		}
	}
	s.in.expectByte(':')
	return s.name.Bytes()
}

// SkipValue skips a value of any type.
func (s *Scanner) SkipValue() {
	var open []byte // the closing bracket of each object and array that is open
	for s.in.err == nil {
		switch s.in.peekNext() {
		case '{', '[':
			if open = s.enterNested(open); len(open) == 0 {
				return
			}
			continue
		case '"':
			s.in.readByte()
			s.in.skipText()
		default:
			s.readLiteral()
		}
		if open = s.leaveNested(open); len(open) == 0 {
			return
		}
	}
}

// enterNested reads the beginning of an object or array, and its end too if it is empty.
func (s *Scanner) enterNested(open []byte) []byte {
	closing := byte(']')
	if s.in.readByte() == '{' {
		closing = '}'
	}
	if len(open) == maxDepth {
		s.in.setError("it is nested deeper than %d", maxDepth)
	}
	open = append(open, closing)
	if s.in.peekNext() == closing {
		return s.leaveNested(open)
	}
	if closing == '}' {
		s.skipKey()
	}
	return open
}

// leaveNested reads what follows a value: closing brackets, and the comma before the next value.
func (s *Scanner) leaveNested(open []byte) []byte {
	for s.in.err == nil && len(open) > 0 {
		closing := open[len(open)-1]
		switch b := s.in.readNext(); {
		case b == closing:
			open = open[:len(open)-1]
		case b == ',' && closing == '}':
			s.skipKey()
			return open
		case b == ',':
			return open
		default:
			s.in.setError("it is not JSON: unexpected %q at byte %d", b, s.in.offset)
		}
	}
	return open
}

func (s *Scanner) skipKey() {
	s.in.expectByte('"')
	s.in.skipText()
	s.in.expectByte(':')
}

// ReadObject reads an object: it calls the function of each field that it finds in fields, and skips the others. It returns false for
// null. Helm's decoder accepts a field twice, and in other letter case; Helm never writes that, and ReadObject refuses it.
func (s *Scanner) ReadObject(fields map[string]func()) (found bool) {
	if s.readNull() {
		return false
	}
	seen := map[string]bool{}
	s.readList('{', '}', func() {
		name := s.readKey()
		read, known := fields[string(name)]
		switch {
		case s.in.err != nil:
		case known && seen[string(name)]:
			s.in.setError("it has two fields %q", name)
		case known:
			seen[string(name)] = true
			read()
		default:
			for other := range fields {
				if bytes.EqualFold(name, []byte(other)) {
					s.in.setError("it has a field %q, which Helm writes as %q", name, other)
				}
			}
			s.SkipValue()
		}
	})
	return true
}

// ReadArray reads an array of at most `most` values, and calls read for each. It does nothing for null. Errors call the values what.
func (s *Scanner) ReadArray(what string, most int, read func()) {
	if s.readNull() {
		return
	}
	count := 0
	s.readList('[', ']', func() {
		if count++; count > most {
			s.in.setError("it has more than %d %s", most, what)
			return
		}
		read()
	})
}

// readList reads values between two brackets, separated by commas.
func (s *Scanner) readList(opening, closing byte, read func()) {
	s.in.expectByte(opening)
	if s.in.peekNext() == closing {
		s.in.readByte()
		return
	}
	for s.in.err == nil {
		read()
		switch b := s.in.readNext(); b {
		case closing:
			return
		case ',':
		default:
			s.in.setError("it is not JSON: unexpected %q at byte %d", b, s.in.offset)
		}
	}
}
