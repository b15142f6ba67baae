// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"unicode"

	"github.com/vtex/cleaner/controllers/internal/events"
)

// maxText bounds what is repeated of an error or a name, in bytes.
const maxText = events.MaxNote

// cleanText makes a text that came from outside fit to be shown: one line, printable, bounded.
func cleanText(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) { // controls, and what reorders text
			return ' '
		}
		return r
	}, s)
	return shortenText(s, maxText)
}

// shortenText cuts a text after so many bytes, and says so.
func shortenText(s string, most int) string {
	const more = "…"
	if len(s) <= most || most < len(more) {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(more)], "") + more
}
