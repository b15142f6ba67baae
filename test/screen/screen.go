// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package screen has terminals for tests, and says what a person would see there.
package screen

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// patience is how long a line may take to appear.
const patience = 30 * time.Second

// Screen is a terminal, and what is written there.
type Screen struct {
	// Writer is what programs write to.
	Writer *os.File

	t       *testing.T
	reader  *os.File
	written bytes.Buffer
}

// Open opens a terminal that is so wide.
func Open(t *testing.T, columns uint16) *Screen {
	t.Helper()
	t.Setenv("TERM", "xterm")
	reader, writer, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close(); writer.Close() })
	if err := pty.Setsize(writer, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	return &Screen{Writer: writer, t: t, reader: reader}
}

// WaitForLine reads what is written until the screen ends with a line.
func (s *Screen) WaitForLine(last string) {
	s.t.Helper()
	if err := s.reader.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	part := make([]byte, 4096)
	for lines := s.ListLines(); lines[len(lines)-1] != last; lines = s.ListLines() {
		n, err := s.reader.Read(part)
		if err != nil {
			s.t.Fatalf("%v: the screen shows\n%q\nand not %q", err, lines, last)
		}
		s.written.Write(part[:n])
	}
}

// ReadLines returns what a person sees when no program writes there any longer.
func (s *Screen) ReadLines() []string {
	s.t.Helper()
	if _, err := io.Copy(&s.written, s.reader); err != nil && !errors.Is(err, syscall.EIO) { // which is how Linux says that no program is left
		s.t.Fatal(err)
	}
	return s.ListLines()
}

// ListLines returns what a person sees.
func (s *Screen) ListLines() []string {
	lines, column := [][]rune{nil}, 0
	for _, r := range s.written.String() {
		last := len(lines) - 1
		switch r {
		case '\r':
			column = 0
		case '\n':
			lines, column = append(lines, nil), 0
		default:
			for len(lines[last]) <= column {
				lines[last] = append(lines[last], ' ')
			}
			lines[last][column] = r
			column++
		}
	}
	var out []string
	for _, l := range lines {
		out = append(out, strings.TrimRight(string(l), " "))
	}
	return out
}
