// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output writes to standard output and standard error. It is the only way there: whatever a tenant wrote is shown, and the
// terminal never obeys it.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// The values of --output.
const (
	Table = "table"
	YAML  = "yaml"
	JSON  = "json"
)

// Screen is standard output or standard error. Characters that move the cursor, change colours or reorder text come out as Go writes
// them, such as \x1b.
type Screen struct {
	To         io.Writer
	ColourMode *ColourMode
}

// layout is text of this program. Only constants become one, never a tenant's text.
type layout string

// SafeText is text that a terminal can show as it is.
type SafeText string

// Printf writes a layout with fields. Each field is made safe, and put on one line, unless it is SafeText.
func (s Screen) Printf(format layout, fields ...any) {
	for i := range fields {
		fields[i] = cell{fields[i]}
	}
	fmt.Fprintf(s.To, string(format), fields...)
}

// cell is a field of Printf.
type cell struct{ value any }

// Format is called by fmt, for any verb.
func (f cell) Format(state fmt.State, verb rune) {
	text := fmt.Sprintf(fmt.FormatString(state, verb), f.value)
	if _, ok := f.value.(SafeText); !ok {
		text = string(EscapeText(text))
	}
	_, _ = io.WriteString(state, text) // fmt takes all
}

// NewPainter returns a painter with this screen's colours.
func (s Screen) NewPainter() Painter { return Painter{s.ColourMode.enabledFor(s.To)} }

// WriteColumns aligns columns, which tabs separate.
func (s Screen) WriteColumns(write func(Screen)) error {
	w := tabwriter.NewWriter(s.To, 0, 4, 3, ' ', 0)
	write(Screen{To: w, ColourMode: s.ColourMode})
	return w.Flush()
}

// WriteValue writes a value as JSON or YAML, with hidden characters escaped.
func (s Screen) WriteValue(form string, value any) error {
	var text []byte
	var err error
	if form == YAML {
		text, err = MarshalYAML(value)
	} else {
		text, err = marshalJSON(value)
	}
	if err != nil {
		return err
	}
	_, err = s.To.Write(text)
	return err
}

// HandleWarningHeader shows a warning of the API server.
func (s Screen) HandleWarningHeader(code int, _, text string) {
	if code == 299 && text != "" { // the only code for warnings to users
		s.Printf("%s %s\n", s.NewPainter().Yellow("warning:"), EscapeLines(ContinuationIndent, text))
	}
}

// NewHelpWriter returns a writer for help and for the scripts of shells, which keeps line breaks and tabs.
func (s Screen) NewHelpWriter() io.Writer { return helpWriter{s.To} }

type helpWriter struct{ to io.Writer }

// Write escapes hidden characters, except line breaks and tabs.
func (p helpWriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.to, replaceHidden(string(text), "\n\t", escapeAsGo))
	return len(text), err
}

// ContinuationIndent indents all lines of a field but the first, so that only this program begins a line.
const ContinuationIndent = "  "

// EscapeText returns a text that is safe and on one line.
func EscapeText(text string) SafeText { return SafeText(replaceHidden(text, "", escapeAsGo)) }

// EscapeLines returns a safe text that keeps its lines, such as an error with a caret below the source. All lines but the first are
// indented.
func EscapeLines(indent, text string) SafeText {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = string(EscapeText(strings.ReplaceAll(line, "\t", "    "))) // a tab would end a cell
	}
	return SafeText(strings.Join(lines, "\n"+indent))
}

// isHidden reports whether a terminal would not show a character as itself: it controls, reorders text, or has no shape.
func isHidden(r rune) bool { return !unicode.IsGraphic(r) }

// replaceHidden escapes hidden characters, except those in keep, and bytes that are not UTF-8.
func replaceHidden(text, keep string, escaped func(rune) string) string {
	if !strings.ContainsFunc(text, isHidden) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case isHidden(r) && !strings.ContainsRune(keep, r):
			b.WriteString(escaped(r))
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// escapeAsGo escapes a character as strconv.Quote does.
func escapeAsGo(r rune) string { return strings.Trim(strconv.QuoteRuneToASCII(r), "'") }

// marshalJSON also escapes the hidden characters that encoding/json does not. All of them are in strings.
func marshalJSON(value any) ([]byte, error) {
	return encodeJSON(value, func(r rune) string {
		if r <= 0xffff {
			return fmt.Sprintf(`\u%04x`, r)
		}
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	})
}

// encodeJSON writes JSON with hidden characters escaped.
func encodeJSON(value any, escaped func(rune) string) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return []byte(replaceHidden(b.String(), "\n", escaped)), nil
}

// escapeAsYAML escapes a character as YAML does between double quotes.
func escapeAsYAML(r rune) string { return fmt.Sprintf(`\U%08x`, r) }

// MarshalYAML also escapes the hidden characters that the library refuses or leaves as they are. YAML has escapes only between double
// quotes.
func MarshalYAML(value any) ([]byte, error) {
	text, err := encodeJSON(value, escapeAsYAML) // YAML, but not JSON
	if err != nil {
		return nil, err
	}
	if text, err = sigsyaml.JSONToYAML(text); err != nil || replaceHidden(string(text), "\n", escapeAsYAML) == string(text) {
		return text, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	quoteHidden(&root)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(&root); err != nil {
		return nil, err
	}
	return []byte(replaceHidden(b.String(), "\n", escapeAsYAML)), nil
}

// quoteHidden puts double quotes around scalars with hidden characters.
func quoteHidden(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && strings.ContainsFunc(node.Value, isHidden) {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		quoteHidden(child)
	}
}
