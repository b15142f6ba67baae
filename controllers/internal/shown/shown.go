// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shown makes texts that came from outside fit to be shown to people. It shows nothing itself.
package shown

import (
	"strings"
	"unicode"

	"github.com/vtex/cleaner/controllers/internal/events"
)

// MaxText bounds what is repeated of an error or a name, in bytes.
const MaxText = events.MaxNote

// CleanText makes a text that came from outside fit to be shown: one line, printable, bounded.
func CleanText(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) { // controls, and what reorders text
			return ' '
		}
		return r
	}, s)
	return ShortenText(s, MaxText)
}

// ShortenText cuts a text after so many bytes, and says so.
func ShortenText(s string, most int) string {
	const more = "…"
	if len(s) <= most || most < len(more) {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(more)], "") + more
}
