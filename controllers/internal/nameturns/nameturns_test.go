// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package nameturns

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func cleaner(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// of is one Cleaner.
func of(namespace, name string) iter.Seq[types.NamespacedName] {
	return slices.Values([]types.NamespacedName{cleaner(namespace, name)})
}

// thing is what a Cleaner names.
type thing struct{ cleaner string }

// TestWhoLeavesTakesNothing shows that something stands in the lines of those namespaces only whose Cleaners name it now, and that what is gone
// delays nothing.
func TestWhoLeavesTakesNothing(t *testing.T) {
	p := New[string](30 * time.Second)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, namespace := range []string{"a", "b"} {
		for n := range AtOnce {
			if at, may := p.TakeTurn(fmt.Sprint(namespace, n), of(namespace, "c"), now); !may {
				t.Fatalf("name %d of %s waits until %s", n, namespace, at)
			}
		}
	}
	both := []types.NamespacedName{cleaner("a", "c"), cleaner("a", "d"), cleaner("b", "c")}
	stands := func(want string) {
		t.Helper()
		if at, may := p.TakeTurn("x", slices.Values(both), now); may || !at.Equal(now.Add(time.Second)) {
			t.Fatalf("it may be asked for at %s: %t", at, may)
		}
		if got := fmt.Sprint(len(p.of["a"].line), len(p.of["b"].line)); got != want {
			t.Errorf("in the lines of a and b stand %s, want %s", got, want)
		}
	}
	leave := func(n int) {
		p.LeaveLine("x", both[n])
		both = slices.Delete(both, n, n+1)
	}
	stands("1 1")
	leave(0)
	stands("1 1")
	leave(0)
	stands("0 1")
	p.LeaveLine("x", cleaner("a", "c"))
	p.LeaveLine("y", cleaner("b", "c"))
	p.LeaveLine("y", cleaner("z", "c"))
	stands("0 1")
	now = now.Add(time.Second)
	if at, may := p.TakeTurn("x", slices.Values(both), now); !may || len(p.of["b"].line) > 0 {
		t.Errorf("it may be asked for at %s, and %d stand in line", at, len(p.of["b"].line))
	}
}

// What Cleaners of two namespaces name has the first turn that either has.
func TestWhatSeveralNameHasTheFirstTurn(t *testing.T) {
	p := New[int](30 * time.Second)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 4 * AtOnce {
		p.TakeTurn(n, of("busy", "c"), now)
	}
	last := 4*AtOnce - 1
	if at, may := p.TakeTurn(last, of("busy", "c"), now); may || at.Before(now.Add(3*AtOnce*time.Second)) {
		t.Errorf("the last one may be asked for at %s", at)
	}
	both := slices.Values([]types.NamespacedName{cleaner("busy", "c"), cleaner("calm", "c")})
	if at, may := p.TakeTurn(last, both, now); !may {
		t.Errorf("it waits until %s although the other namespace has asked for nothing", at)
	}
	if stands := len(p.of["busy"].line); stands != 3*AtOnce-1 {
		t.Errorf("%d stand in line", stands)
	}
}

// Who has asked for little is remembered no longer.
func TestWhoRestsIsForgotten(t *testing.T) {
	p := New[int](30 * time.Second)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 4 * maxNamespaces {
		if at, may := p.TakeTurn(n, of(fmt.Sprint("ns", n), "c"), now); !may {
			t.Fatalf("namespace %d waits until %s", n, at)
		}
		now = now.Add(time.Second)
	}
	if len(p.of) > maxNamespaces {
		t.Errorf("%d namespaces are remembered", len(p.of))
	}
}

// TestCleanersTakeTurnsToHaveNamesAskedFor has twenty Cleaners name very many objects that the operator may not watch, under names of
// their own or under new ones all the time. Each name of another one of the namespace is asked for soon, and again and again.
func TestCleanersTakeTurnsToHaveNamesAskedFor(t *testing.T) {
	const cleaners, names, again = 20, 64, 30
	for name, anew := range map[string]bool{"Always": false, "Anew": true} {
		t.Run(name, func(t *testing.T) {
			p := New[*thing](again * time.Second)
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			due := map[*thing]time.Time{}
			add := func(name string) *thing {
				s := &thing{name}
				due[s] = now
				return s
			}
			ask := func(s *thing) bool {
				if due[s].After(now) {
					return false
				}
				at, may := p.TakeTurn(s, of("a", s.cleaner), now)
				if due[s] = at; may {
					due[s] = now.Add(again * time.Second)
				}
				return may
			}
			all := make([][]*thing, cleaners)
			name := func(n, minute int) {
				for _, s := range all[n] {
					p.LeaveLine(s, cleaner("a", s.cleaner))
					delete(due, s)
				}
				all[n] = nil
				for range names {
					all[n] = append(all[n], add(fmt.Sprintf("c-%d-%d", n, minute)))
				}
			}
			for n := range all {
				name(n, 0)
			}
			guards := []*thing{add("guard"), add("guard")}
			asked := map[*thing]int{}
			const seconds = 1200
			for second := range seconds {
				if anew {
					name(second%cleaners, 1+second)
				}
				for _, its := range all {
					for _, s := range its {
						if ask(s) {
							asked[nil]++
						}
					}
				}
				for _, s := range guards {
					if ask(s) {
						asked[s]++
					}
				}
				now = now.Add(time.Second)
			}
			for _, s := range guards { // each waits for one name of each, and for the other one
				if least := seconds / (again + 2*(cleaners+2)); asked[s] < least {
					t.Errorf("it was asked for %d times, want %d", asked[s], least)
				}
			}
			if asked[nil] < seconds/2 || asked[nil] > AtOnce+seconds {
				t.Errorf("%d others were asked for", asked[nil])
			}
			queue := p.of["a"]
			if len(queue.cleaners) > cleaners+1 || len(queue.places) != len(queue.line) {
				t.Errorf("%d Cleaners are remembered, and %d places of %d", len(queue.cleaners), len(queue.places), len(queue.line))
			}
		})
	}
}
