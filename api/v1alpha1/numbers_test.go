// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"testing"
)

// TestHasOneForm shows which numbers are stored in one form, in whatever way they are written.
func TestHasOneForm(t *testing.T) {
	for n, want := range map[json.Number]bool{
		"0": true, "0.0": true, "1": true, "-1": true, "30.0": true, "0.1": true, "-0.1": true, "1.50": true, "1e3": true, "5e-324": true,
		"9007199254740991": true, "9007199254740991.0": true, "-9007199254740991": true, "9.007199254740991e15": true, "4503599627370495.5": true,
		"9007199254740992": false, "9007199254740992.0": false, "9007199254740993": false, "9007199254740993.0": false, "-9007199254740992": false,
		"9007199254740991.9": false, "9223372036854775807": false, "18446744073709551615": false, "1e16": false, "1e300": false, "-1e300": false, "1e999": false,
		"-0": false, "-0.0": false, "-0e5": false, "-1e-999": false,
		"": false, "NaN": false, "Inf": false,
	} {
		if got := HasOneForm(n); got != want {
			t.Errorf("%s: got %t, want %t", n, got, want)
		}
	}
}
