// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import "strings"

// lines counts what the lines of a YAML text can be at most, whatever they mean.
type lines struct {
	// directives are lines that begin with a percent sign, and directiveText is the number of their characters. comments begin at the
	// beginning of a block, or after a space.
	directives, comments, directiveText int
	// depth is how many blocks are open at once: each begins in another column, before any other text of its line.
	depth int
}

// countLines counts lines, separated by any of YAML's line breaks. It ignores byte order marks.
func countLines(text string) lines {
	all := lines{depth: 2}
	column, leading, directive, space := 0, true, false, false
	for _, c := range text {
		afterSpace := space
		space = c == ' ' || c == '\t'
		switch c {
		case '\n', '\r', '\u0085', '\u2028', '\u2029':
			column, leading, directive = 0, true, false
			continue
		case '\ufeff':
			continue
		}
		if directive {
			all.directiveText++
		}
		if !leading {
			if c == '#' && afterSpace {
				all.comments++
			}
			continue
		}
		switch c {
		case ' ', '\t', '-', '?', ':':
			column++
			all.depth = max(all.depth, column+2)
			continue
		case '#':
			all.comments++
		case '%':
			if column == 0 {
				all.directives++
				directive = true
			}
		}
		leading = false
	}
	return all
}

// countMaxNodes returns how many values a YAML text has at most, whatever it means: each but the first needs a character that separates
// it from the others. In a flow, one comma or bracket separates up to three values. In a block, a dash, a question mark or a colon with a
// space after it separates up to two.
func countMaxNodes(text string) int {
	n := 3
	for i := range len(text) {
		switch text[i] {
		case ',', '[', '{':
			n += 3
		case '-', '?', ':':
			if i+1 == len(text) || strings.IndexByte(" \t\r\n", text[i+1]) >= 0 {
				n += 2
			}
		}
	}
	return n
}
