// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"math"
)

// MaxWhole is the largest whole number that a spec may have: 2^53 - 1. Up to it, a float holds each.
const MaxWhole = 1<<53 - 1

// HasOneForm says that a number is stored in one form, in whatever way it was written. One that is not, such as
// 9007199254740993, or -0.0, equals another one for the conditions of a webhook that is stored otherwise: the API server asks
// nobody who writes that in its place, and then the spec is not what was signed.
func HasOneForm(n json.Number) bool {
	v, err := n.Float64()
	return err == nil && math.Abs(v) <= MaxWhole && (v != 0 || !math.Signbit(v))
}
