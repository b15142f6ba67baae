// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestLiteralsAreThoseOfJSON holds all short texts of what literals are made of against what JSON takes.
func TestLiteralsAreThoseOfJSON(t *testing.T) {
	var try func(text string)
	try = func(text string) {
		if want := text != "" && json.Valid([]byte(text)); isLiteral([]byte(text)) != want {
			t.Errorf("%q is a literal: %t", text, !want)
		}
		if len(text) == 6 {
			return
		}
		for _, c := range "01.eE+-" {
			try(text + string(c))
		}
	}
	try("")
	for _, text := range []string{"true", "false", "null", "True", "truex", "nul", strings.Repeat("9", 400), "1_0", "0x1", "NaN"} {
		if want := json.Valid([]byte(text)); isLiteral([]byte(text)) != want {
			t.Errorf("%q is a literal: %t", text, !want)
		}
	}
}
