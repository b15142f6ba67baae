// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// A number that a rule keeps is fixed if no item, no group, no variable and no time can change it.
func TestKeepsFixedNumber(t *testing.T) {
	for name, tc := range map[string]struct {
		rule Rule
		want bool
	}{
		"None":      {Rule{}, false},
		"Number":    {Rule{Keep: new(intstr.FromInt32(3))}, true},
		"Zero":      {Rule{Keep: new(intstr.FromInt32(0))}, true},
		"Text":      {Rule{Keep: new(intstr.FromString(" 3 "))}, true},
		"Parameter": {Rule{Keep: new(intstr.FromString("params.threshold"))}, true},
		"Sum":       {Rule{Keep: new(intstr.FromString("params.threshold + 1"))}, false},
		"Field":     {Rule{Keep: new(intstr.FromString("params.a.b"))}, false},
		"Items":     {Rule{Keep: new(intstr.FromString("items.size()"))}, false},
		"Variable":  {Rule{Keep: new(intstr.FromString("variables.params"))}, false},
		"Groups":    {Rule{Keep: new(intstr.FromInt32(3)), GroupBy: "item.a"}, false},
		"Keys":      {Rule{Keep: new(intstr.FromInt32(3)), Key: "item.a"}, false},
	} {
		if got := tc.rule.KeepsFixedNumber(); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
