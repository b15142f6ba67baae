// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"math"
)

// MaxWhole is the largest whole number that a spec may have: 2^53 - 1. Up to it, a float holds each.
const MaxWhole = 1<<53 - 1

// HasOneForm reports whether a number is stored in the same form however it was written. A number that is not, such as 9007199254740993
// or -0.0, may equal another one for a webhook's match conditions and still be stored differently. Such a change passes without review,
// and the stored spec is not the one that was signed.
func HasOneForm(n json.Number) bool {
	v, err := n.Float64()
	return err == nil && math.Abs(v) <= MaxWhole && (v != 0 || !math.Signbit(v))
}
