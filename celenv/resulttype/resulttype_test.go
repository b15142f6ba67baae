// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package resulttype

import (
	"math"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

func TestConvertToCount(t *testing.T) {
	for name, tc := range map[string]struct {
		value ref.Val
		want  int
		ok    bool
	}{
		"Int":      {types.Int(3), 3, true},
		"Negative": {types.Int(-3), -3, true},
		"Uint":     {types.Uint(3), 3, true},
		"Large":    {types.Uint(math.MaxUint64), math.MaxInt, true},
		"Double":   {types.Double(3), 0, false},
		"Null":     {types.NullValue, 0, false},
	} {
		if got, ok := ConvertToCount(tc.value); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %d, %t", name, got, ok)
		}
	}
}
