// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vtex/cleaner/test/sink"
)

// TestSilentSinksDelayNoOther has very many Cleaners of a namespace name sinks that do not answer, before another one's event comes. The
// attempts that are under way end at the same time, as it is concealed when they do, and one of the next is that one's.
func TestSilentSinksDelayNoOther(t *testing.T) {
	const dead, slots = 120, defaultWorkers / namespaceShare
	silent, good, names := sink.Start(t), sink.Start(t), serveNames(t)
	silent.Otherwise(sink.Answer{Hang: true})
	log := &failures{told: make(chan Failure, 2*dead)}
	b := start(t, conceal, func(o *Options, l *timeouts) {
		o.Resolver, o.AttemptFailed, l.header = names.resolver(), log.record, 100*time.Millisecond
	})
	hang := func(name string) {
		names.set(name+".example", "127.0.0.1")
		b.send(name, strings.Replace(silent.URL, "127.0.0.1", name+".example", 1), 1)
	}
	stand := func(n int) { // waits until there are so many, of which all wait in the line of the namespace that have no slot
		for {
			b.pools.mu.Lock()
			p := b.pools.m["namespace "+key("").Namespace]
			is := p != nil && p.users == n && len(p.line) == n-slots
			b.pools.mu.Unlock()
			if is {
				return
			}
			if b.ctx.Err() != nil {
				t.Fatalf("there are not %d", n)
			}
			runtime.Gosched()
		}
	}
	end := func() {
		for range slots {
			<-log.told
		}
		b.clock.Step(20 * time.Second)
	}
	for n := range dead {
		hang(fmt.Sprint("dead-", n))
	}
	stand(dead)
	for run := range int64(3) { // it is new, and then one whose sink has answered
		b.send("guard", good.URL, run+1)
		stand(dead + int(run) + 1)
		hang(fmt.Sprint("late-", run)) // is the last to have come
		stand(dead + int(run) + 2)
		end()
		b.arrived(good, int(run)+1)
		stand(dead + int(run) + 1)
	}
}

// TestWhoIsNextInALine shows who has a slot when one is free: first who is answered, then who is new, and in turns who came first and last.
func TestWhoIsNextInALine(t *testing.T) {
	for name, tc := range map[string]struct {
		line []int  // how each stands
		want string // in which order they come
	}{
		"Alike":    {[]int{0, 0, 0, 0, 0, 0}, "0 5 1 4 2 3"},
		"Answered": {[]int{0, 0, 0, 0, -1, 0}, "0 4 1 5 2 3"},
		"Failed":   {[]int{5, 1, 0, 2, 0, 5}, "0 4 2 1 3 5"},
	} {
		t.Run(name, func(t *testing.T) {
			var line []*ticket
			at := map[*ticket]int{}
			for i, standing := range tc.line {
				line = append(line, &ticket{standing: standing})
				at[line[i]] = i
			}
			var got []string
			for calls := 0; len(line) > 0; calls++ {
				next := findNext(line, calls)
				got = append(got, fmt.Sprint(at[line[next]]))
				line = slices.Delete(line, next, next+1)
			}
			if is := strings.Join(got, " "); is != tc.want {
				t.Errorf("they come as %s, want %s", is, tc.want)
			}
		})
	}
}

// Who is called off takes no slot, whatever is free.
func TestNobodyTakesASlotTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ps := pools{m: map[string]*pool{}}
	p := ps.enterPool("p", 1)
	for range 64 { // each time it is as likely that the slot comes first
		if p.takeSlot(ctx, 0, nil) || p.free != 1 {
			t.Fatalf("it has one, and %d are free", p.free)
		}
	}
	for range 8 { // in turns, the first and the last in the line are called
		waits := &ticket{here: make(chan struct{})}
		p.line = append(p.line, waits)
		if p.takeSlot(ctx, 0, nil) || p.free != 0 || len(p.line) != 0 {
			t.Fatalf("beside another one, it has one, %d are free, and %d wait", p.free, len(p.line))
		}
		<-waits.here
		if p.takeSlot(ctx, 0, nil) || p.free != 0 || len(p.line) != 0 {
			t.Fatalf("where none is free, it has one, %d are free, and %d wait", p.free, len(p.line))
		}
		p.giveBack()
	}
}

// Who leaves the head of a line leaves it to those behind, who wait on.
func TestWhoLeavesALineCallsNobody(t *testing.T) {
	ps := pools{m: map[string]*pool{}}
	p, first, behind := ps.enterPool("p", 0), make(chan struct{}), &ticket{here: make(chan struct{})}
	p.calls = 1 // the last in the line is the next
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(first)
			if p.takeSlot(ctx, 0, nil) {
				t.Error("it has a slot")
			}
		}()
		synctest.Wait()
		p.line = append(p.line, behind)
		cancel()
		synctest.Wait()
	})
	<-first
	if p.free != 0 || !slices.Equal(p.line, []*ticket{behind}) {
		t.Errorf("%d are free, and %d wait", p.free, len(p.line))
	}
}

// Many take slots at a time, and some give up: no more have one than there are, and each slot comes back.
func TestPoolsAreSafeForConcurrentUse(t *testing.T) {
	const slots = 3
	ps := pools{m: map[string]*pool{}}
	kept := ps.enterPool("p", slots)
	busy := make(chan struct{}, slots)
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			changed := make(chan struct{}, 1)
			switch n % 3 {
			case 0:
				cancel()
			case 1:
				changed <- struct{}{}
			}
			p := ps.enterPool("p", slots)
			defer p.leavePool()
			if !p.takeSlot(ctx, n%2, changed) {
				return
			}
			select {
			case busy <- struct{}{}:
				<-busy
			default:
				t.Error("too many have a slot")
			}
			p.giveBack()
		})
	}
	all.Wait()
	if kept.free != slots || len(kept.line) != 0 {
		t.Errorf("%d are free, and %d wait", kept.free, len(kept.line))
	}
	if kept.leavePool(); len(ps.m) != 0 {
		t.Error("a pool is kept in which nobody is")
	}
}
