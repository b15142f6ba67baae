// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package tiny

import "testing"

func TestMay(t *testing.T) {
	if !May(true, false) || May(true, true) {
		t.Error("only what is protected may not be deleted")
	}
}

func TestCount(t *testing.T) {
	for _, n := range []int{0, 3} {
		if got := Count(n); got != n {
			t.Errorf("counted %d to %d", n, got)
		}
	}
}

// TestSlow fails: lists skip it.
func TestSlow(t *testing.T) {
	t.Error("this test takes too long")
}
