// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package stringhash

import (
	"fmt"
	"testing"
)

// Two texts are one sum by no luck.
func TestSumOf(t *testing.T) {
	seen := map[Sum]string{}
	for i := range 10_000 {
		text := fmt.Sprint(i)
		if other, there := seen[SumOf(text)]; there {
			t.Fatalf("%s and %s are one", text, other)
		}
		seen[SumOf(text)] = text
	}
	for text, want := range map[string]Sum{"7": SumOf(fmt.Sprint(7)), "": SumOf(fmt.Sprint())} {
		if got := SumOf(text); got != want || got == (Sum{}) {
			t.Errorf("the sum of %q is %x, want %x", text, got, want)
		}
	}
}

// Nor by skill: another process has another key, all of which is random.
func TestSumsOfAnotherProcessDiffer(t *testing.T) {
	one, other := newSumKey(), newSumKey()
	if len(one) != 32 || string(one) == string(other) {
		t.Errorf("the keys are %x and %x", one, other)
	}
	for i := 8; i < len(one); i += 8 {
		if string(one[:8]) == string(one[i:i+8]) {
			t.Errorf("the key repeats itself: %x", one)
		}
	}
}
