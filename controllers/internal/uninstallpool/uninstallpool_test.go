// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstallpool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// newPool makes a pool with a key for each number, and what says who was woken.
func newPool(slots int) (_ *Pool, woken func() []string) {
	var mu sync.Mutex
	var all []string
	p := NewPool(fair.NewSlots(slots, clock.RealClock{}), func(key types.NamespacedName) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, key.Name)
	})
	return p, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func cleaner(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(n)}
}

// begin asks for a slot, which is there, and runs a job in it.
func begin(ctx context.Context, t *testing.T, p *Pool, n int, job func(context.Context)) context.CancelFunc {
	t.Helper()
	p.AskSlot(cleaner(n))
	if p.FindSlot(cleaner(n)) != life.SlotHeld {
		t.Fatalf("%d has no slot", n)
	}
	return p.RunJob(ctx, cleaner(n), job)
}

// A job outlives the pass that has begun it.
func TestAJobOutlivesItsPass(t *testing.T) {
	p, _ := newPool(1)
	ctx, end := context.WithCancel(t.Context())
	end()
	ended := make(chan error)
	begin(ctx, t, p, 1, func(ctx context.Context) { ended <- ctx.Err() })
	if err := <-ended; err != nil {
		t.Errorf("it ends with its pass: %v", err)
	}
	p.jobs.Wait()
}

// TestSlotsAreAskedFor shows that who waits is woken when a slot is there, once, and that who has left is not.
func TestSlotsAreAskedFor(t *testing.T) {
	p, woken := newPool(1)
	go1 := make(chan struct{})
	begin(t.Context(), t, p, 1, func(context.Context) { <-go1 })
	for n := 2; n < 6; n++ {
		p.AskSlot(cleaner(n))
		p.AskSlot(cleaner(n))
		if got := p.FindSlot(cleaner(n)); got != life.SlotAsked {
			t.Errorf("%d has %d, want %d", n, got, life.SlotAsked)
		}
	}
	p.LeaveSlot(cleaner(2))
	p.LeaveSlot(cleaner(2))
	close(go1)
	p.jobs.Wait()
	if p.FindSlot(cleaner(3)) != life.SlotHeld {
		t.Error("3 has no slot")
	}
	if p.FindSlot(cleaner(1)) != life.NoSlot {
		t.Error("the slot of a job that has ended is there still")
	}
	p.LeaveSlot(cleaner(3)) // it does not want it any more
	done := make(chan struct{})
	p.RunJob(t.Context(), cleaner(4), func(context.Context) { close(done) })
	<-done
	p.jobs.Wait()
	if got, want := woken(), []string{"1", "3", "4", "5"}; !slices.Equal(got, want) {
		t.Errorf("woken were %v, want %v", got, want)
	}
}

// TestManyGoAtTheSpeedOfTheSlots shows that hundreds of releases that expire at once begin as soon as slots are free: each is woken once, when
// its slot is there, and no slot is empty while another one waits.
func TestManyGoAtTheSpeedOfTheSlots(t *testing.T) {
	const releases, slots = 600, 8
	ready := make(chan types.NamespacedName, releases)
	p := NewPool(fair.NewSlots(slots, clock.RealClock{}), func(key types.NamespacedName) { ready <- key })
	for n := range releases {
		p.AskSlot(types.NamespacedName{Namespace: fmt.Sprint("ns-", n%20), Name: fmt.Sprint(n)})
	}
	begun := map[types.NamespacedName]int{}
	for rounds := 1; len(begun) < releases; rounds++ {
		if len(ready) == 0 || len(ready) > slots {
			t.Fatalf("in round %d %d have a slot, and %d of %d were begun", rounds, len(ready), len(begun), releases)
		}
		if rounds > releases/(slots/2) {
			t.Fatalf("%d of %d were begun after %d rounds", len(begun), releases, rounds)
		}
		end := make(chan struct{})
		for range len(ready) {
			key := <-ready
			if p.FindSlot(key) != life.SlotHeld {
				t.Fatalf("%s is woken without a slot", key)
			}
			begun[key]++
			p.RunJob(t.Context(), key, func(context.Context) { <-end })
		}
		close(end)
		p.jobs.Wait()
	}
	for key, n := range begun {
		if n != 1 {
			t.Errorf("%s was begun %d times", key, n)
		}
	}
}

// TestJobsEnd shows that one that is under way ends when it is told to, or when the manager stops, which waits for it; and that none
// begins after that.
func TestJobsEnd(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	p, _ := newPool(4)
	ctx, stopAll := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- p.Start(ctx) }()

	began, ended := make(chan int, 3), make(chan int, 3)
	job := func(n int) func(context.Context) {
		return func(ctx context.Context) {
			began <- n
			<-ctx.Done()
			ended <- n
		}
	}
	stop := begin(t.Context(), t, p, 1, job(1))
	<-began
	stop()
	if n := <-ended; n != 1 {
		t.Errorf("job %d ended, want 1", n)
	}
	begin(t.Context(), t, p, 2, job(2))
	<-began
	stopAll()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := <-ended; n != 2 {
		t.Errorf("job %d ended, want 2", n)
	}
	begin(t.Context(), t, p, 3, job(3))()
	if len(began) > 0 {
		t.Error("a job began after the end")
	}
}

// TestAJobNeedsASlot shows that a mistake of the caller is a panic, and no job without a slot.
func TestAJobNeedsASlot(t *testing.T) {
	p, _ := newPool(1)
	defer func() {
		if recover() == nil {
			t.Error("it runs")
		}
	}()
	p.RunJob(t.Context(), cleaner(1), func(context.Context) {})
}
