// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"slices"
	"strings"
)

// SuggestName gives the name among candidates that is nearest to a mistyped one, as a question. Empty when none is near.
func SuggestName(name string, candidates []string) string {
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
