// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"slices"
	"strings"
)

// shortName is how long a name is at most that is another one if more than one letter differs.
const shortName = 4

// SuggestName gives the name among candidates that is nearest to a mistyped one, as a question. Empty when none is near.
func SuggestName(name string, candidates []string) string {
	slices.Sort(candidates)
	best, distance := "", 2+len(name)/3
	if len(name) <= shortName {
		distance = 2
	}
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

// countEdits counts how many insertions, deletions and replacements of a byte, and swaps of two that stand side by side, make one text the other.
func countEdits(a, b string) int {
	before, row := []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			change := row[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			next[j] = min(row[j]+1, next[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
