// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placedheap has heaps whose elements know their place, so that one can be moved or taken out. It decides nothing, and its callers need a lock.
package placedheap

import "container/heap"

// Heap is a heap, for package heap, of elements that know their place in it; -1 if they are not there.
type Heap[E interface {
	IsBefore(other E) bool
	SetPlace(place int)
}] []E

func (h Heap[E]) Len() int           { return len(h) }
func (h Heap[E]) Less(i, j int) bool { return h[i].IsBefore(h[j]) }
func (h Heap[E]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].SetPlace(i)
	h[j].SetPlace(j)
}

// Push is for package heap.
func (h *Heap[E]) Push(e any) {
	e.(E).SetPlace(len(*h))
	*h = append(*h, e.(E))
}

// Pop is for package heap.
func (h *Heap[E]) Pop() any {
	var none E
	last := (*h)[len(*h)-1]
	last.SetPlace(-1)
	(*h)[len(*h)-1] = none
	*h = (*h)[:len(*h)-1]
	return last
}

// SetMember has an element with this place in the heap, or out of it: it is added, moved or taken out.
func (h *Heap[E]) SetMember(e E, place int, member bool) {
	switch isMember := place >= 0; {
	case isMember && !member:
		heap.Remove(h, place)
	case isMember:
		heap.Fix(h, place)
	case member:
		heap.Push(h, e)
	}
}
