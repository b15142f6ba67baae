// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"container/heap"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Group keeps the work of one batch together: in each namespace, what begins to wait within a second waits where the first of it began to wait. So batches
// of one namespace end one after the other. If each took its next slot by turns, all would end at the same time, and then none would have work for
// a slot while all prepare their next. Where work takes long, it is done by turns: no work waits more than a second longer. A Group is safe for
// concurrent use.
type Group struct {
	of   *Slots
	size int
	// places are by namespace. The lock of the Slots guards them.
	places map[string]*groupPlace
}

// placeLasts is how long a group may send work to its place.
const placeLasts = time.Second

// groupPlace is where a group waits in a namespace, since when, and how many more may wait there.
type groupPlace struct {
	used   time.Duration
	number int64
	since  time.Time
	left   int
}

// NewGroup makes a Group in which so many in a namespace wait together, and then the next so many.
func (s *Slots) NewGroup(size int) *Group {
	return &Group{of: s, size: size, places: map[string]*groupPlace{}}
}

// TakeSlot is TakeSlot of the Slots, in the group's place.
func (g *Group) TakeSlot(ctx context.Context, key types.NamespacedName) (*Slot, error) {
	return g.of.takeSlot(ctx, key, g.placeWaiter)
}

// placeWaiter moves one that has begun to wait to the place of its group.
func (g *Group) placeWaiter(w *waiter[*Slot]) {
	namespace := w.item.key.Namespace
	p := g.places[namespace]
	if p == nil || p.left == 0 || w.since.Sub(p.since) >= placeLasts {
		p = &groupPlace{used: w.used, number: w.number, since: w.since, left: g.size}
		g.places[namespace] = p
	}
	p.left--
	w.used, w.number = p.used, p.number
	heap.Fix(&w.of.waiting, w.place)
}
