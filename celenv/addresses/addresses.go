// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package addresses counts the addresses that ranges have for Pods, and says which ones ranges share. Expressions and the
// scheduler's plugin count by it, so it brings neither of them more than the standard library.
package addresses

import (
	"math"
	"net/netip"
)

// CountUsable is how many addresses a range has, less those that are reserved; never below 0. A range with more addresses than
// an int64 can count has as many as that.
func CountUsable(r netip.Prefix, reserved int64) int64 {
	bits := r.Addr().BitLen() - r.Bits()
	if bits > 63 {
		return math.MaxInt64
	}
	addresses := uint64(1) << bits
	less := uint64(max(reserved, 0))
	if addresses <= less {
		return 0
	}
	return int64(min(addresses-less, math.MaxInt64))
}
