// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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

// screen is where people read: the only way to standard output and standard error. What tenants write is shown there, and
// never obeyed: characters that move the cursor, change colours or reorder text come out as Go writes them, such as \x1b.
type screen struct {
	to         io.Writer
	colourMode *colourMode
}

// layout is text of this program: a constant, so that no text of others becomes one.
type layout string

// safeText is text that a terminal shows as it is.
type safeText string

// printf writes a layout, and in it the fields, each on one line unless it is safe already.
func (s screen) printf(format layout, fields ...any) {
	for i := range fields {
		fields[i] = cell{fields[i]}
	}
	fmt.Fprintf(s.to, string(format), fields...)
}

// cell is a value that is printed safely.
type cell struct{ value any }

// Format is called by fmt, for any verb.
func (f cell) Format(state fmt.State, verb rune) {
	text := fmt.Sprintf(fmt.FormatString(state, verb), f.value)
	if _, ok := f.value.(safeText); !ok {
		text = string(escapeText(text))
	}
	_, _ = io.WriteString(state, text) // fmt takes all
}

// newPainter makes one that puts the colours of this screen around texts.
func (s screen) newPainter() painter { return painter{s.colourMode.enabledFor(s.to)} }

// writeColumns lines up what is parted by tabs, in each block for itself.
func (s screen) writeColumns(write func(screen)) error {
	w := tabwriter.NewWriter(s.to, 0, 4, 3, ' ', 0)
	write(screen{to: w, colourMode: s.colourMode})
	return w.Flush()
}

// writeValue writes a value for programs; who reads it all the same is not deceived.
func (s screen) writeValue(form string, value any) error {
	var text []byte
	var err error
	if form == outputYAML {
		text, err = marshalYAML(value)
	} else {
		text, err = marshalJSON(value)
	}
	if err != nil {
		return err
	}
	_, err = s.to.Write(text)
	return err
}

// HandleWarningHeader shows what an API server warns of.
func (s screen) HandleWarningHeader(code int, _, text string) {
	if code == 299 && text != "" { // the one code that concerns people
		s.printf("%s %s\n", s.newPainter().yellow("warning:"), escapeLines(continuationIndent, text))
	}
}

// newHelpWriter is for the library of the command line, which writes help and the scripts for shells.
func (s screen) newHelpWriter() io.Writer { return helpWriter{s.to} }

type helpWriter struct{ to io.Writer }

// Write leaves line breaks and tabs as they are.
func (p helpWriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.to, replaceHidden(string(text), "\n\t", escapeAsGo))
	return len(text), err
}

// continuationIndent is how far the lines of a field are indented, but for its first: what begins a line is this program's own.
const continuationIndent = "  "

// escapeText makes a text safe, on one line.
func escapeText(text string) safeText { return safeText(replaceHidden(text, "", escapeAsGo)) }

// escapeLines makes a text safe that has lines of its own, such as an error with a caret below the source. All but the
// first are indented.
func escapeLines(indent, text string) safeText {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = string(escapeText(strings.ReplaceAll(line, "\t", "    "))) // a tab would end a cell
	}
	return safeText(strings.Join(lines, "\n"+indent))
}

// isHidden says that a terminal would not show a character as itself: one that controls, reorders text, or has no shape.
func isHidden(r rune) bool { return !unicode.IsGraphic(r) }

// replaceHidden replaces what is hidden, but for what is kept, and what is no UTF-8.
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

// escapeAsGo writes a character as strconv.Quote does.
func escapeAsGo(r rune) string { return strings.Trim(strconv.QuoteRuneToASCII(r), "'") }

// marshalJSON escapes also what encoding/json leaves as it is, all of which is in strings.
func marshalJSON(value any) ([]byte, error) {
	return encodeJSON(value, func(r rune) string {
		if r <= 0xffff {
			return fmt.Sprintf(`\u%04x`, r)
		}
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	})
}

// encodeJSON writes JSON, with what is hidden escaped.
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

// escapeAsYAML writes a character as YAML does between double quotes.
func escapeAsYAML(r rune) string { return fmt.Sprintf(`\U%08x`, r) }

// marshalYAML escapes also what the library refuses, or leaves as it is. Only between double quotes there are escapes.
func marshalYAML(value any) ([]byte, error) {
	text, err := encodeJSON(value, escapeAsYAML) // which is YAML, and no JSON
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

// quoteHidden puts double quotes around scalars that hide something.
func quoteHidden(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && strings.ContainsFunc(node.Value, isHidden) {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		quoteHidden(child)
	}
}
