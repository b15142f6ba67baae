// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package labelgroups

import (
	"fmt"
	"testing"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
)

// shelfOf has so many objects, which nobody looks at.
func shelfOf(n int) cachedobjects.Shelf {
	return cachedobjects.NewShelf(make(cachedobjects.SortedObjects, n))
}

// All groups take so many bytes at most, and those of one namespace take less.
func TestGroupsAreBounded(t *testing.T) {
	const half = maxBytesOfOne / bytesPerMember / 2
	many := shelfOf(half)
	var taken Bytes
	groups := New(&taken)
	add := func(g Group, members cachedobjects.Shelf) (fits bool) {
		groups.Finish(g, groups.Begin(g), members)
		return groups.Of[g] != nil
	}
	of := func(namespace string, n int) Group { return Group{namespace, fmt.Sprint("l-", n), "v"} }
	if !add(of("a", 1), many) || add(of("a", 2), many) {
		t.Error("the groups of a namespace are not bounded")
	}
	if !add(of("b", 1), many) {
		t.Error("a namespace takes the room of another")
	}
	small := of("a", 3)
	if !add(small, shelfOf(2)) {
		t.Error("a small one has no room")
	}
	if add(of("", 0), shelfOf(maxBytes/2/bytesPerMember)) || !add(of("", 1), many) {
		t.Error("the groups of all namespaces are not bounded by half")
	}
	fit := 0
	for n := range 20 {
		for i := range 2 {
			if add(of(fmt.Sprint("ns-", n), i), shelfOf(half-1000)) {
				fit++
			}
		}
	}
	if taken.all > maxBytes || fit < 10 || fit == 40 {
		t.Errorf("%d more fit in, and take %d bytes", fit, taken.all)
	}
	groups.set(small, groups.Of[small], shelfOf(2*half)) // it has grown
	if groups.Of[small] != nil {
		t.Error("a group has grown out of all bounds")
	}
	groups.DropAll()
	if !taken.IsZero() || len(groups.Of) > 0 {
		t.Errorf("counted are %+v", taken)
	}
}
