// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tiny is what the tests plant mutants in.
package tiny

// May says whether an object may be deleted. Its test does not see that own is asked.
func May(own, protected bool) bool {
	return own && !protected
}

// Count counts up to n. Its test sees a loop that does not end only by the time it takes.
func Count(n int) int {
	sum := 0
	for sum < n {
		sum++
	}
	return sum
}
