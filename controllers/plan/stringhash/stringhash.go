// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stringhash stands short values in for texts that are remembered, and may be long.
//
// A sum never tells its text, is never stored, and never means anything in another process.
package stringhash

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
)

// Sum is a keyed hash that replaces a long string in memory. If two strings had the same hash, the `for` timer of one would count for
// the other, which would be acted on early. So a sum has 128 bits of SHA-256, which nobody finds two texts of by
// trying, and begins with a key that is another one in each process and never shown, so that nobody can try elsewhere.
type Sum [16]byte

// sumKey is what sums begin with.
var sumKey = newSumKey() //nolint:gochecknoglobals // chosen once, and never changed

func newSumKey() []byte {
	var key []byte
	for range 4 { // each seed has 64 bits
		key = binary.LittleEndian.AppendUint64(key, maphash.String(maphash.MakeSeed(), ""))
	}
	return key
}

// SumOf is the sum of a text.
func SumOf(text string) Sum {
	sum := sha256.Sum256(append(sumKey[:len(sumKey):len(sumKey)], text...))
	return Sum(sum[:16])
}
