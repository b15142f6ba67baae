// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package screen has terminals for tests, and says what a person would see there.
package screen

import (
	"bytes"
	"os"
	"strings"
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
	written bytes.Buffer
	// parts are what the terminal has got; it is closed when no program writes there any longer.
	parts <-chan []byte
}

// Open opens a terminal that is so wide.
func Open(t *testing.T, columns uint16) *Screen {
	t.Helper()
	t.Setenv("TERM", "xterm")
	reader, writer, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close(); reader.Close() })
	if err := pty.Setsize(writer, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	parts := make(chan []byte)
	go func() { // a read of a terminal has no deadline
		defer close(parts)
		for {
			part := make([]byte, 4096)
			n, err := reader.Read(part)
			if err != nil { // no program is left
				return
			}
			select {
			case parts <- part[:n]:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return &Screen{Writer: writer, t: t, parts: parts}
}

// WaitForLine reads what is written until the screen ends with a line.
func (s *Screen) WaitForLine(last string) {
	s.t.Helper()
	late := time.After(patience)
	for lines := s.ListLines(); lines[len(lines)-1] != last; lines = s.ListLines() {
		select {
		case part, ok := <-s.parts:
			if !ok {
				s.t.Fatalf("at the end, the screen shows\n%q\nand not %q", lines, last)
			}
			s.written.Write(part)
		case <-late:
			s.t.Fatalf("the screen shows\n%q\nand not %q", lines, last)
		}
	}
}

// ReadLines returns what a person sees when no program writes there any longer.
func (s *Screen) ReadLines() []string {
	s.t.Helper()
	for part := range s.parts {
		s.written.Write(part)
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
