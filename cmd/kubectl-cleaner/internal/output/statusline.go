// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"
)

// defaultWidth is the width of a terminal that does not say how wide it is.
const defaultWidth = 80

// StatusLine is a line of a terminal that is rewritten, and is gone before anything else is written there. It can be used by several goroutines.
type StatusLine struct {
	to    io.Writer
	width func() int

	mu sync.Mutex
	// shown is how many columns are written.
	shown int
	// begun says that something else has begun a line and not ended it: the status would be written into it.
	begun bool
}

// NewStatusLine returns a line on a terminal; nil if the writer is none, or one that cannot rewrite lines.
func NewStatusLine(to io.Writer) *StatusLine {
	file, ok := terminalOf(to)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &StatusLine{to: to, width: func() int {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
		return defaultWidth
	}}
}

// descriptor is a writer to a file.
type descriptor interface{ Fd() uintptr }

// terminalOf returns a writer as a terminal, if it is one.
func terminalOf(w io.Writer) (descriptor, bool) {
	file, ok := w.(descriptor)
	return file, ok && (isatty.IsTerminal(file.Fd()) || isatty.IsCygwinTerminal(file.Fd()))
}

// GuardWriter returns a writer that erases the line before it writes to a terminal. Another writer is returned as it is.
func (l *StatusLine) GuardWriter(to io.Writer) io.Writer {
	file, ok := terminalOf(to)
	if !ok || l == nil {
		return to
	}
	return guardedWriter{to: to, descriptor: file, line: l}
}

// guardedWriter writes to the terminal of a status line.
type guardedWriter struct {
	descriptor
	to   io.Writer
	line *StatusLine
}

// Write erases the status line, and writes.
func (g guardedWriter) Write(text []byte) (int, error) {
	g.line.mu.Lock()
	defer g.line.mu.Unlock()
	g.line.eraseText()
	if len(text) > 0 {
		g.line.begun = !bytes.HasSuffix(text, []byte("\n"))
	}
	return g.to.Write(text)
}

// ReplaceText replaces the text of the line. What does not fit is cut off: a line that the terminal wraps cannot be erased.
func (l *StatusLine) ReplaceText(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun {
		return
	}
	shown := []rune(string(EscapeText(text)))
	shown = shown[:min(len(shown), l.width()-1)]
	rest := max(0, l.shown-len(shown))
	_, _ = io.WriteString(l.to, "\r"+string(shown)+strings.Repeat(" ", rest)) // a terminal that is gone needs no status
	l.shown = len(shown) + rest
}

// EraseText takes the line off the terminal.
func (l *StatusLine) EraseText() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.eraseText()
}

func (l *StatusLine) eraseText() {
	if l.shown > 0 {
		_, _ = io.WriteString(l.to, "\r"+strings.Repeat(" ", min(l.shown, l.width()-1))+"\r")
		l.shown = 0
	}
}
