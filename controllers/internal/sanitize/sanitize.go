// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sanitize makes texts that came from outside fit to be shown to people. It shows nothing itself.
package sanitize

import (
	"fmt"
	"strings"
	"unicode"
)

// MaxText bounds what is repeated of an error or a name, in bytes.
const MaxText = 1024

// CleanText makes a text that came from outside fit to be shown: one line, printable, bounded.
func CleanText(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) { // controls, and what reorders text
			return ' '
		}
		return r
	}, s)
	return ShortenToBytes(s, fitStored(s, MaxText))
}

// fitStored is how many bytes of a text take no more than most in JSON, which has six for some characters.
func fitStored(s string, most int) int {
	for i := range len(s) {
		switch s[i] {
		case '<', '>', '&':
			most -= len(`\u003c`)
		case '"', '\\':
			most -= len(`\"`)
		default:
			most--
		}
		if most < 0 {
			return i
		}
	}
	return len(s)
}

// ShortenToBytes cuts a text that has more than so many bytes, and says so by its last character.
func ShortenToBytes(s string, most int) string {
	const more = "…"
	if len(s) <= most || most < len(more) {
		return s
	}
	return CutToBytes(s, most-len(more)) + more
}

// CutToBytes is the first bytes of a text that has more than so many, without parts of characters. What is cut off is not kept in memory.
func CutToBytes(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(strings.Clone(s[:most]), "")
}

// CountOf is a number of things, in words.
func CountOf(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
