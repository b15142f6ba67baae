// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
)

// CountParts returns how many parts of a value p names, besides the value itself.
func (p *Projection) CountParts() int {
	if p == nil {
		return 0
	}
	n := 0
	for _, keyed := range []map[string]*Projection{p.Fields, p.ByType} {
		for _, kept := range keyed {
			n += 1 + kept.CountParts()
		}
	}
	for _, inner := range []*Projection{p.Elements, p.Entries} {
		if inner != nil {
			n += 1 + inner.CountParts()
		}
	}
	return n
}

// Digest is the same for Projections that are written in the same way. Others differ, even if they keep the same.
func (p *Projection) Digest() [sha256.Size]byte {
	h := sha256.New()
	p.writeTo(h)
	return [sha256.Size]byte(h.Sum(nil))
}

// writeTo writes a Projection, so that where each part ends shows from what is before it.
func (p *Projection) writeTo(h hash.Hash) {
	switch {
	case p == nil:
		h.Write([]byte{0})
		return
	case p.Whole:
		h.Write([]byte{1})
		return
	}
	flags := byte(2)
	for n, is := range []bool{p.Scalar, p.Shape} {
		if is {
			flags |= 4 << n
		}
	}
	h.Write([]byte{flags})
	h.Write(binary.AppendUvarint(nil, uint64(len(p.References))))
	for _, kind := range p.References {
		h.Write(append(binary.AppendUvarint(nil, uint64(len(kind))), kind...))
	}
	for _, keyed := range []map[string]*Projection{p.Fields, p.ByType} {
		h.Write(binary.AppendUvarint(nil, uint64(len(keyed))))
		for _, key := range slices.Sorted(maps.Keys(keyed)) {
			h.Write(append(binary.AppendUvarint(nil, uint64(len(key))), key...))
			keyed[key].writeTo(h)
		}
	}
	p.Elements.writeTo(h)
	p.Entries.writeTo(h)
}
