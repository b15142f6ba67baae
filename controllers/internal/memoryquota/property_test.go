// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memoryquota

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// Whoever takes whatever, in whatever order: no bound is broken, what is taken is what is counted, and who takes no more than there was
// room for need not forget, unless its namespace has as much then as any other, and it has as much as any other of that.
func TestNoBoundIsBroken(t *testing.T) {
	bounds := Bounds{Cleaner: 10, Namespace: 20, Namespaces: 50, Cluster: 30}
	namespaces, names := rapid.SampledFrom([]string{"", "a", "b", "c", "d"}), rapid.SampledFrom([]string{"1", "2", "3"})
	rapid.Check(t, func(t *rapid.T) {
		b, taken := NewBook(bounds), map[types.NamespacedName]int64{}
		b.modest = 4
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			key := types.NamespacedName{Namespace: namespaces.Draw(t, "namespace"), Name: names.Draw(t, "name")}
			room := b.FindRoom(key)
			if room < 0 || room > bounds.Cleaner {
				t.Fatalf("there is room for %d", room)
			}
			bytes := rapid.Int64Range(0, bounds.Cleaner).Draw(t, "bytes")
			taken[key] = bytes
			for _, victim := range b.ChargeBytes(key, bytes) {
				if victim == key && bytes <= room && b.sums[key.Namespace]+bytes < largestBut(key.Namespace, b.sums) {
					t.Fatalf("%s takes %d of %d, and has to forget", key, bytes, room)
				}
				if victim == key && bytes <= min(room, b.modest) && bytes < largestBut(key.Name, b.taken[key.Namespace]) {
					t.Fatalf("%s takes %d of %d, others of its namespace have more, and it has to forget", key, bytes, room)
				}
				if taken[victim] == 0 && victim != key {
					t.Fatalf("%s has nothing to forget", victim)
				}
				taken[victim] = 0
			}
			sums, total := map[string]int64{}, int64(0)
			for k, n := range taken {
				if sums[k.Namespace] += n; k.Namespace != "" {
					total += n
				}
			}
			if b.total != total || total > bounds.Namespaces || sums[""] > bounds.Cluster {
				t.Fatalf("%d are counted of %d, and %d of ClusterCleaners", b.total, total, sums[""])
			}
			for namespace, n := range sums {
				if b.sums[namespace] != n || namespace != "" && n > bounds.Namespace {
					t.Fatalf("namespace %q has %d, and %d are counted", namespace, n, b.sums[namespace])
				}
				if _, remembered := b.taken[namespace]; remembered != (n > 0) {
					t.Fatalf("namespace %q, which has %d, is remembered: %t", namespace, n, remembered)
				}
			}
		}
	})
}

// Whoever asks, ends and waits, in whatever order: one has its turn at most, whoever is refused is called in the end, and nothing is
// remembered of a line in which nobody is.
func TestWhoeverWaitsHasItsTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLine()
		keys := rapid.SampledFrom([]string{"a/1", "a/2", "b/1", "/1"})
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			key := keys.Draw(t, "key")
			s := l.shares[key]
			switch what := rapid.SampledFrom([]string{"hold", "hold", "end", "gone", "wait"}).Draw(t, "what"); {
			case what == "wait":
				l.clock.Step(7 * time.Second)
			case what == "gone":
				l.LeaveLine(keyOf(key))
			case s == nil:
				l.shares[key] = l.BeginPass(keyOf(key))
			case what == "end":
				s.EndPass()
				delete(l.shares, key)
			default:
				if s.HoldBytes(2*Small) && l.holder != s {
					t.Fatalf("%s holds much without its turn", key)
				}
			}
		}
		for _, s := range l.shares {
			s.EndPass()
		}
		for left := len(l.line); left > 0; left-- { // all who were refused come when they are called
			if l.Turns.called == (types.NamespacedName{}) {
				t.Fatalf("%d wait, and nobody is called", left)
			}
			s := l.BeginPass(l.Turns.called)
			if !s.HoldBytes(2*Small) || len(l.line) != left-1 {
				t.Fatalf("%s was called, and has no turn; %d wait of %d", s.key, len(l.line), left)
			}
			s.EndPass()
		}
		if l.holder != nil || len(l.served) > 1 { // who had the last turn
			t.Fatalf("of an empty line %v are remembered", l.served)
		}
	})
}

// A Cleaner that is gone while its pass was refused does not wait, and is still said to have been refused.
func TestWhoIsGoneDoesNotWait(t *testing.T) {
	l := newLine()
	holder, refused := l.BeginPass(keyOf("a/1")), l.BeginPass(keyOf("b/1"))
	if !holder.HoldBytes(2*Small) || refused.HoldBytes(2*Small) {
		t.Fatal("two have their turn, or none")
	}
	l.clock.Step(3 * time.Second)
	if since, waits := refused.FindWait(); since != 3*time.Second || !waits {
		t.Errorf("it waits for %s: %t", since, waits)
	}
	if since, waits := holder.FindWait(); since != 0 || waits {
		t.Errorf("who has its turn waits for %s: %t", since, waits)
	}
	l.LeaveLine(keyOf("b/1"))
	if since, waits := refused.FindWait(); since != 0 || !waits || refused.HoldBytes(0) {
		t.Errorf("who is gone waits for %s, and was refused: %t", since, waits)
	}
}

// Many passes at a time: one takes much at most, and each has its turn.
func TestTurnsAreSafeForConcurrentUse(t *testing.T) {
	wake := map[types.NamespacedName]chan struct{}{}
	for i := range 20 {
		wake[keyOf(fmt.Sprintf("%d/c", i))] = make(chan struct{}, 100)
	}
	turns := NewTurns(clocktesting.NewFakeClock(time.Unix(0, 0)), func(key types.NamespacedName) { wake[key] <- struct{}{} })
	var large sync.Mutex
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for key, called := range wake {
		all.Go(func() {
			for {
				s := turns.BeginPass(key)
				if s.HoldBytes(2 * Small) {
					if large.TryLock() {
						runtime.Gosched() // others may come, and be refused
						large.Unlock()
					} else {
						t.Error("two take much at the same time")
					}
					s.EndPass()
					return
				}
				s.EndPass()
				select {
				case <-called:
				case <-ctx.Done():
					t.Errorf("%s waits for ever", key)
					return
				}
			}
		})
	}
	all.Wait()
}
