// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"slices"
	"strings"
)

// ErrorKind says whom an Error concerns.
type ErrorKind string

const (
	// Invalid: the author wrote what does not compile.
	Invalid ErrorKind = "Invalid"
	// Runtime: the expression could not be answered for the objects as they are.
	Runtime ErrorKind = "Runtime"
	// Exhausted: the evaluation went over a limit.
	Exhausted ErrorKind = "Exhausted"
	// Interrupted: the caller's context ended.
	Interrupted ErrorKind = "Interrupted"
	// Internal: our fault.
	Internal ErrorKind = "Internal"
)

// PathCloudEventData is the path of the data of the event.
const PathCloudEventData = "cloudEventData"

// PathOfCondition is the path of a condition.
func PathOfCondition(i int) string { return fmt.Sprintf("conditions[%d]", i) }

// PathOfRule is the path of a rule.
func PathOfRule(i int) string { return fmt.Sprintf("rules[%d]", i) }

// Error says why an expression has no answer.
type Error struct {
	Kind ErrorKind
	// Path is where the expression stands in the spec: conditions[0], cloudEventData, rules[0].when, say. Empty when the
	// error is about no expression.
	Path string
	// Line and Column are where it failed, counted from 1. They are 0 when that is not known.
	Line, Column int
	// Message says what is wrong.
	Message string
	// Snippet is the source line and, below it, a caret under the place. Empty when the place is not known.
	Snippet string
	// Object is the object on which it failed, such as "revisions.items[1] (ns/name)". Empty when there is none.
	Object string
	// Hint is what to write instead. Empty when that is not known.
	Hint string
}

// WithHint returns the error with one more hint.
func (e *Error) WithHint(hint string) *Error {
	out := *e
	out.Hint = strings.TrimPrefix(e.Hint+"; "+hint, "; ")
	return &out
}

// Error is the whole story on one line: all but the snippet.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.FormatPlace() + ": ")
	}
	b.WriteString(e.Message)
	if e.Object != "" {
		fmt.Fprintf(&b, " on %s", e.Object)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

// Describe says what is wrong in a field of the spec: with the position in it and the line, and without the path and the object.
func (e *Error) Describe() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", e.Line, e.Column)
	}
	b.WriteString(e.Message)
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	if e.Snippet != "" {
		fmt.Fprintf(&b, "\n%s", e.Snippet)
	}
	return b.String()
}

// FormatPlace writes the path, and the position in the expression where it is known.
func (e *Error) FormatPlace() string {
	if e.Line == 0 {
		return e.Path
	}
	return fmt.Sprintf("%s at %d:%d", e.Path, e.Line, e.Column)
}

// WithPath gives the same error of the expression at a path.
func (e *Error) WithPath(path string) *Error {
	there := *e
	there.Path = path
	return &there
}

// MakeSnippet makes a line of the source and a caret below the column, which counts from 1. Long lines are cut around it,
// which an ellipsis says.
func MakeSnippet(source string, line, column int) string {
	const before, after = 100, 60
	lines := strings.Split(source, "\n")
	if line < 1 || line > len(lines) || column < 1 {
		return ""
	}
	text := []rune(strings.TrimSuffix(lines[line-1], "\r"))
	at := min(column-1, len(text))
	start, end := max(0, at-before), min(len(text), at+after)
	shown := slices.Clone(text[start:end])
	if start > 0 {
		shown[0] = '…'
	}
	if end < len(text) {
		shown = append(shown, '…')
	}
	pad := make([]rune, 0, at-start)
	for _, r := range text[start:at] {
		if r != '\t' { // a tab stays one, or the caret would stand elsewhere
			r = ' '
		}
		pad = append(pad, r)
	}
	return "  | " + string(shown) + "\n  | " + string(pad) + "^"
}

// TruncateText shortens text for people to at most n bytes, at a code point.
func TruncateText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

// maxSource is how many characters are repeated of an expression.
const maxSource = 256

// ShortenSource returns an expression on one line, cut off where it is too long to be repeated. It counts characters, as a reader does: where bytes
// are what is bounded, TruncateText cuts.
func ShortenSource(source string) string {
	source = strings.Join(strings.Fields(source), " ")
	if r := []rune(source); len(r) > maxSource {
		return string(r[:maxSource-1]) + "…"
	}
	return source
}
