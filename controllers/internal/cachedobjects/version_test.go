// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import "testing"

func TestChooseLater(t *testing.T) {
	for _, tc := range []struct{ known, version, want string }{
		{"", "5", "5"}, {"5", "6", "6"}, {"6", "5", "6"}, {"5", "", "5"}, {"5", "x", "5"}, {"9", "10", "10"},
	} {
		if got := ChooseLater(tc.known, tc.version); got != tc.want {
			t.Errorf("of %q and %q it chooses %q, want %q", tc.known, tc.version, got, tc.want)
		}
	}
}

func TestIsAsNew(t *testing.T) {
	for _, tc := range []struct {
		version, other string
		want           bool
	}{
		{"5", "5", true}, {"6", "5", true}, {"5", "6", false}, {"10", "9", true}, {"", "5", false}, {"5", "", false}, {"x", "x", false},
	} {
		if got := IsAsNew(tc.version, tc.other); got != tc.want {
			t.Errorf("%q is as new as %q: %t", tc.version, tc.other, got)
		}
	}
}
