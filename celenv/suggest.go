// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"slices"
	"strings"
)

// suggestName gives the name among candidates that is nearest to a mistyped one, as a question. Empty when none is near.
func suggestName(name string, candidates []string) string {
	slices.Sort(candidates)
	best, distance := "", 2+len(name)/3
	for _, candidate := range candidates {
		if d := countEdits(strings.ToLower(name), strings.ToLower(candidate)); d < distance && candidate != name {
			best, distance = candidate, d
		}
	}
	if best == "" || distance >= len(name) {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// suggestLibraryFix says what to write instead of what cel-go itself found wrong. Empty when that is not known.
func suggestLibraryFix(message string) string {
	switch {
	case strings.Contains(message, "token recognition error at: '="):
		return "to compare, write =="
	case strings.HasPrefix(message, "invalid duration"):
		return `write it with the units h, m, s and ms; parseDuration("15d") knows days and weeks too`
	case strings.HasPrefix(message, "invalid timestamp"):
		return `write it as in timestamp("2006-01-02T15:04:05Z")`
	case strings.Contains(message, "nesting limit"):
		return fmt.Sprintf("at most %d loops may stand in one another: make a map with indexBy, groupBy or toSet instead", maxLoopNesting)
	case strings.HasPrefix(message, "found no matching overload for '_"):
		return "both sides must be of one type: convert one, with int(), double(), string() or timestamp()"
	}
	return ""
}

// countEdits counts how many insertions, deletions and replacements of a byte make one text the other.
func countEdits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(row[j]+1, row[j-1]+1, change)
		}
	}
	return row[len(b)]
}
