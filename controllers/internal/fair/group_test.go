// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// askIn stands in line as a name, in a group.
func (h *hall) askIn(g *Group, name string) {
	h.slots[name] = h.askSlot(types.NamespacedName{Namespace: name[:1]}, func() { h.came = append(h.came, name) }, g.placeWaiter)
}

// serve gives back whatever has come, one after the other, until nobody waits.
func (h *hall) serve() {
	for i := 0; i < len(h.came); i++ {
		h.leave(h.came[i], time.Second)
	}
}

// Of the batches of a namespace one ends after the other, and a batch that goes on waits again behind those that have come meanwhile.
func TestAGroupWaitsTogether(t *testing.T) {
	for name, tc := range map[string]struct{ asks, want string }{
		"ByTurns":         {"ax1 ay1 ax2 ay2 ax3 ay3", "ax1 ax2 ax3 ay1 ay2 ay3"},
		"Large":           {"ax1 ax2 ax3 ax4 ay1 ax5 ay2 az1 ax6 ax7", "ax1 ax2 ax3 ax4 ax5 ax6 ay1 ay2 az1 ax7"},
		"Alone":           {"ax1 a-1 ax2 a-2 ax3 ax4", "ax1 ax2 ax3 a-1 a-2 ax4"},
		"OtherNamespaces": {"ax1 ax2 bx1 ay1 by1 ax3", "ax1 bx1 ax2 by1 ax3 ay1"},
		"Soon":            {"ax1 ax2 a-1 900ms ax3", "ax1 ax2 ax3 a-1"},
		"Later":           {"ax1 ax2 a-1 1s ax3 a-2 ax4", "ax1 ax2 a-1 ax3 ax4 a-2"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall(2) // of which a namespace takes one
			groups := map[byte]*Group{'x': h.NewGroup(3), 'y': h.NewGroup(3), 'z': h.NewGroup(3)}
			for _, name := range strings.Fields(tc.asks) {
				if later, err := time.ParseDuration(name); err == nil {
					h.clock.SetTime(h.clock.Now().Add(later))
					continue
				}
				if g := groups[name[1]]; g != nil {
					h.askIn(g, name)
				} else {
					h.slots[name] = h.AskSlot(types.NamespacedName{Namespace: name[:1]}, func() { h.came = append(h.came, name) })
				}
			}
			h.serve()
			h.want(t, strings.Fields(tc.want)...)
		})
	}
}

// Whoever comes late waits for no more than the rest of what each batch before may send together, however much they send.
func TestAGroupKeepsNobodyWaiting(t *testing.T) {
	const batches, size = 5, 4
	h := newHall(2)
	var groups []*Group
	n := 0
	ask := func(b int) { h.askIn(groups[b], fmt.Sprintf("a%d-%d", b, n)); n++ }
	for b := range batches {
		groups = append(groups, h.NewGroup(size))
		ask(b)
	}
	h.ask("alate")
	for i := 0; i < len(h.came) && h.came[i] != "alate"; i++ { // each asks twice for each that it had
		b := int(h.came[i][1] - '0')
		ask(b)
		ask(b)
		h.leave(h.came[i], time.Second)
	}
	if got := len(h.came) - 1; got > batches*size {
		t.Errorf("%d came before one that waits for %d batches, of which each may send %d", got, batches, size)
	}
}

// A context ends the wait of a group's request, and the next one takes its place.
func TestAGroupLeaves(t *testing.T) {
	h := newHall(2)
	g, key := h.NewGroup(3), types.NamespacedName{Namespace: "a"}
	first, err := g.TakeSlot(t.Context(), key)
	if err != nil || !first.IsHeld() {
		t.Fatal(err)
	}
	why := errors.New("it is too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := g.TakeSlot(ctx, key); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	h.askIn(g, "a1")
	first.GiveBack()
	h.want(t, "a1")
}
