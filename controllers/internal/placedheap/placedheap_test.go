// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package placedheap

import (
	"container/heap"
	"math/rand/v2"
	"testing"
)

// number is an element that comes in the order of its value.
type number struct{ value, place int }

func (n *number) IsBefore(other *number) bool { return n.value < other.value }
func (n *number) SetPlace(place int)          { n.place = place }

// Whatever is added, changed and taken out, each element knows its place, and the first has the least value.
func TestElementsKnowTheirPlace(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	all := make([]*number, 20)
	for i := range all {
		all[i] = &number{place: -1}
	}
	var h Heap[*number]
	for range 2000 {
		n := all[random.IntN(len(all))]
		switch random.IntN(4) {
		case 0:
			h.SetMember(n, n.place, false)
		case 1:
			if len(h) > 0 {
				if first := heap.Pop(&h).(*number); first.place != -1 {
					t.Fatalf("what was taken out is at %d", first.place)
				}
			}
		default:
			n.value = random.IntN(100)
			h.SetMember(n, n.place, true)
		}
		members := 0
		for _, n := range all {
			switch {
			case n.place < 0:
				continue
			case n.place >= len(h) || h[n.place] != n:
				t.Fatalf("%+v is not at its place", n)
			case h[0].value > n.value:
				t.Fatalf("the first is %d, and there is %d", h[0].value, n.value)
			}
			members++
		}
		if members != len(h) {
			t.Fatalf("%d know a place, and %d are there", members, len(h))
		}
	}
}
