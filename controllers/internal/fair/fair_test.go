// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// hall is Slots with whoever has come, in their order.
type hall struct {
	*Slots
	clock *clocktesting.FakePassiveClock
	came  []string
	slots map[string]*Slot
}

func newHall(n int) *hall {
	c := clocktesting.NewFakePassiveClock(begin)
	return &hall{Slots: NewSlots(n, c), clock: c, slots: map[string]*Slot{}}
}

// ask stands in line as a name, which begins with its namespace.
func (h *hall) ask(names ...string) {
	for _, name := range names {
		h.slots[name] = h.AskSlot(request(name).NamespacedName, func() { h.came = append(h.came, name) })
	}
}

// leave gives back after a while.
func (h *hall) leave(name string, after time.Duration) {
	h.clock.SetTime(h.clock.Now().Add(after))
	h.slots[name].GiveBack()
}

func (h *hall) want(t *testing.T, names ...string) {
	t.Helper()
	if !slices.Equal(h.came, names) {
		t.Errorf("have come %v, want %v", h.came, names)
	}
}

// TestANamespaceLeavesSlotsToOthers shows that a namespace takes a slot while more are free than it has, and that what nobody else
// wants stays free for those who come.
func TestANamespaceLeavesSlotsToOthers(t *testing.T) {
	h := newHall(8)
	for i := range 20 {
		h.ask(fmt.Sprint("a", i))
	}
	h.want(t, "a0", "a1", "a2", "a3")
	h.ask("b0", "b1", "b2", "c0", "c1", "d0", "d1")
	h.want(t, "a0", "a1", "a2", "a3", "b0", "b1", "c0", "d0")
	h.leave("d0", time.Second)
	h.want(t, "a0", "a1", "a2", "a3", "b0", "b1", "c0", "d0", "d1")
}

// TestWhoHasUsedLeastComesFirst shows that time counts, and not the number of slots.
func TestWhoHasUsedLeastComesFirst(t *testing.T) {
	h := newHall(1)
	h.ask("a0", "a1", "a2", "b0", "b1", "b2", "b3")
	h.want(t, "a0")
	h.leave("a0", 10*time.Second)
	for i := range 3 { // each takes a second
		h.want(t, append([]string{"a0"}, []string{"b0", "b1", "b2"}[:i+1]...)...)
		h.leave(fmt.Sprint("b", i), time.Second)
	}
	h.leave("b3", 7*time.Second)
	h.want(t, "a0", "b0", "b1", "b2", "b3", "a1")
}

// TestACleanerDoesNotWaitForAllOfItsNamespace shows that of the Cleaners of one namespace the one comes first that has used the least time.
func TestACleanerDoesNotWaitForAllOfItsNamespace(t *testing.T) {
	h := newHall(1)
	h.ask("a0", "a1", "a2")
	h.leave("a0", 10*time.Second)
	h.ask("a0", "a3") // a0 has used 10 s, and a3 nothing
	h.leave("a1", 10*time.Second)
	h.leave("a2", time.Second)
	h.ask("a1", "a2")
	h.leave("a3", time.Second)
	h.leave("a2", 10*time.Second)
	h.leave("a0", time.Second)
	h.want(t, "a0", "a1", "a2", "a3", "a2", "a0", "a1")
}

// TestNewNamesAreNoCredit shows that Cleaners that come under new names all the time do not keep one of their namespace back that has used
// something: it waits for those that came before it, and for some that it has used more than.
func TestNewNamesAreNoCredit(t *testing.T) {
	const places, line = 8, 20
	for name, takes := range map[string]time.Duration{"Cheap": 100 * time.Millisecond, "AsCostly": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			h := newHall(places)
			n := 0
			ask := func() {
				n++
				h.ask(fmt.Sprint("a", n))
			}
			h.ask("aguard")
			h.leave("aguard", takes)
			h.came = nil
			for range places/2 + line {
				ask()
			}
			for range 50 {
				h.ask("aguard")
				for waits := 0; !slices.Contains(h.came, "aguard"); waits++ {
					if waits > 2*(line+places) {
						t.Fatalf("it waits while %d others are served, of which %d came before it", waits, line)
					}
					first := h.came[0]
					h.came = h.came[1:]
					h.leave(first, 10*time.Second/(places/2)) // as many of 10 s each are served at a time
					ask()
				}
				h.came = slices.DeleteFunc(h.came, func(name string) bool { return name == "aguard" })
				h.leave("aguard", takes)
			}
			if len(h.order.shares["a"].names) > maxNames {
				t.Error("all names are remembered")
			}
		})
	}
}

// TestNewNamespacesAreNoCredit shows that namespaces that come anew all the time do not keep one back that waits already: of those that
// have used the same, the one comes first that has waited longest.
func TestNewNamespacesAreNoCredit(t *testing.T) {
	const line = 20
	h := newHall(1)
	n := 0
	ask := func() {
		n++
		name := fmt.Sprint("n", n)
		h.slots[name] = h.AskSlot(types.NamespacedName{Namespace: name, Name: name}, func() { h.came = append(h.came, name) })
	}
	for range line {
		ask()
	}
	h.ask("calm")
	for waits := 1; !slices.Contains(h.came, "calm"); waits++ {
		if waits > line {
			t.Fatalf("it waits while %d namespaces are served, of which %d came before it", waits, line)
		}
		ask()
		h.leave(h.came[len(h.came)-1], 30*time.Second)
	}
}

// TestRestIsNoCredit shows that who comes late begins where those are who were served before, and that who leaves and comes again
// at once has not used less.
func TestRestIsNoCredit(t *testing.T) {
	h := newHall(1)
	h.ask("a0", "b0")
	h.leave("a0", 10*time.Second)
	h.leave("b0", time.Second)
	h.ask("a1") // it came alone, and has used 10 s; b has used 1 s
	h.ask("a2", "b1", "c0", "c1")
	h.leave("a1", time.Second) // b and c begin at 10 s, a is at 11 s
	h.leave("b1", 2*time.Second)
	h.leave("c0", 3*time.Second)
	h.want(t, "a0", "b0", "a1", "b1", "c0", "a2")
}

// Many namespaces with long work, one place each, take all places but those that are kept: a namespace whose work was short waits for none
// of them.
func TestShortWorkWaitsForNoLongWork(t *testing.T) {
	h := newHall(3)
	h.order.freeForLong--
	h.ask("calm0")
	h.want(t, "calm0")
	h.leave("calm0", 10*time.Millisecond)
	h.ask("a0", "b0", "e0", "d0", "new0")
	h.want(t, "calm0", "a0", "b0")
	for i := 1; i < 20; i++ {
		h.ask(fmt.Sprint("calm", i))
		if last := h.came[len(h.came)-1]; last != fmt.Sprint("calm", i) {
			t.Fatalf("%s has come last, and calm%d waits", last, i)
		}
		h.leave(fmt.Sprint("calm", i), 10*time.Millisecond)
	}
	h.came = nil
	h.leave("a0", 10*time.Second)
	h.leave("b0", 10*time.Second)
	h.want(t, "e0", "d0") // what is new may take long
	h.leave("e0", 10*time.Millisecond)
	h.want(t, "e0", "d0", "new0")
	h.leave("new0", 10*time.Millisecond)
	h.ask("e1", "new1") // both were short
	h.want(t, "e0", "d0", "new0", "e1", "new1")
}

// Who has had long work once does not get a kept place, until it was short for a while.
func TestLongWorkIsRemembered(t *testing.T) {
	h := newHall(2)
	h.order.freeForLong--
	works := func(name string, takes time.Duration) {
		h.ask(name)
		h.leave(name, takes)
	}
	works("a0", time.Millisecond)
	works("a0", 8*time.Second)
	h.ask("long0")
	n := 1
	for ; n < 100; n++ {
		h.came = nil
		h.ask("a1")
		if slices.Contains(h.came, "a1") {
			break
		}
		h.slots["a1"].GiveBack()
		h.leave("long0", 10*time.Second)
		works("a0", time.Millisecond)
		h.ask("long0")
	}
	if n < 10 || n > 30 {
		t.Errorf("it gets a kept place after %d times of short work", n)
	}
	h.leave("a1", 0)
	h.clock.SetTime(h.clock.Now().Add(forgetUsualAfter - time.Minute))
	works("b0", 0) // sweeps
	h.came = nil
	h.ask("a2")
	h.want(t, "a2")
	h.leave("a2", 0)
	h.clock.SetTime(h.clock.Now().Add(forgetUsualAfter))
	works("c0", 0)
	h.came = nil
	h.ask("a3")
	h.want(t)
}

// TestWhoRestsIsForgotten shows that namespaces without work take no memory for long.
func TestWhoRestsIsForgotten(t *testing.T) {
	h := newHall(4)
	for i := range 100 {
		slot := h.AskSlot(types.NamespacedName{Namespace: fmt.Sprint("namespace-", i)}, func() {})
		slot.GiveBack()
	}
	h.clock.SetTime(begin.Add(time.Hour))
	h.ask("a0", "b0")
	if n := len(h.order.shares); n != 2 {
		t.Errorf("%d namespaces are remembered, want 2", n)
	}
	for i := range 2*maxNames + 10 {
		h.ask(fmt.Sprint("c", i))
		h.leave(fmt.Sprint("c", i), time.Second)
	}
	if n := len(h.order.shares["c"].names); n > maxNames {
		t.Errorf("%d Cleaners of one namespace are remembered", n)
	}
}

// TestLeavingTheLine shows that who gives up takes nothing, before the slot is there and after.
func TestLeavingTheLine(t *testing.T) {
	h := newHall(1)
	h.ask("a0", "b0", "c0")
	h.slots["b0"].GiveBack()
	h.slots["b0"].GiveBack()
	h.leave("a0", time.Second)
	h.want(t, "a0", "c0")
	if h.slots["a0"].IsHeld() || h.slots["b0"].IsHeld() || !h.slots["c0"].IsHeld() {
		t.Error("what is held is wrong")
	}
	h.leave("a0", 0) // again
	h.ask("d0")
	h.want(t, "a0", "c0")
}

// TestTakeSlot shows that a context ends the wait, and that what it left is not lost.
func TestTakeSlot(t *testing.T) {
	h := newHall(1)
	first, err := h.TakeSlot(t.Context(), types.NamespacedName{Namespace: "a"})
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := h.TakeSlot(ctx, types.NamespacedName{Namespace: "b"}); !errors.Is(err, why) {
		t.Errorf("a wait that was ended gives %v", err)
	}
	first.GiveBack()
	if second, err := h.TakeSlot(t.Context(), types.NamespacedName{Namespace: "c"}); err != nil || !second.IsHeld() {
		t.Errorf("the slot is lost: %v", err)
	}
}

// TestNobodyWaitsForMany shows that ten thousand who wait of one namespace delay another one by one slot's time.
func TestNobodyWaitsForMany(t *testing.T) {
	h := newHall(2)
	for i := range 10_000 {
		h.ask(fmt.Sprint("a", i))
	}
	h.ask("b0")
	if last := h.came[len(h.came)-1]; last != "b0" {
		t.Errorf("%s has come, and b0 waits", last)
	}
}
