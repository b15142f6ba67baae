// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package contain

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// What hangs in one lane keeps no other waiting: all that others have is done meanwhile, however much of it comes first, and however much
// there is.
func TestALaneThatHangsHoldsUpNoOther(t *testing.T) {
	for _, others := range []int{1, 100} {
		var of []string
		for range 500 {
			of = append(of, "hangs")
		}
		for range others {
			of = append(of, "other")
		}
		done := make(chan struct{})
		var left sync.WaitGroup
		left.Add(others)
		go func() { left.Wait(); close(done) }()
		RunInLanes(4, of, "", func(i int) {
			if of[i] == "other" {
				left.Done()
				return
			}
			select {
			case <-done:
			case <-t.Context().Done():
			}
		})
	}
}

// Each is done once, those of a lane begin in their order, and no more run at a time than may.
func TestLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 0, 30).Draw(t, "of")
		places := rapid.IntRange(1, 5).Draw(t, "places")
		l := newLanes(of, rapid.SampledFrom([]string{"", "a", "bb", "z"}).Draw(t, "after"))
		last, has, running := map[string]int{}, map[string]int{}, []*lane{}
		for taken := 0; taken < len(of) || len(running) > 0; {
			if taken < len(of) && len(running) < places && rapid.Bool().Draw(t, "take") || len(running) == 0 {
				c, i := l.takePlace()
				before, known := last[c.name]
				if of[i] != c.name || known && i <= before {
					t.Fatalf("%d of %q comes after %d in lane %q", i, of[i], before, c.name)
				}
				for _, other := range l.order {
					if len(other.left) > 0 && has[other.name] < has[c.name] {
						t.Fatalf("%q has %d places, and gets one more before %q, which has %d", c.name, has[c.name], other.name, has[other.name])
					}
				}
				last[c.name] = i
				has[c.name]++
				taken++
				running = append(running, c)
				continue
			}
			n := rapid.IntRange(0, len(running)-1).Draw(t, "ends")
			has[running[n].name]--
			l.giveBack(running[n])
			running = slices.Delete(running, n, n+1)
		}
		for _, c := range l.order {
			if len(c.left) > 0 || c.has != 0 {
				t.Fatalf("%q has %d places, and %v are left", c.name, c.has, c.left)
			}
		}
	})
}

// Where one lane is the first, another one is the next time; and each is among the first before long.
func TestLanesTakeTurnsToBeFirst(t *testing.T) {
	for _, lanes := range []int{2, 5, 9} {
		const places = 4
		var of []string
		for n := range lanes {
			of = append(of, fmt.Sprint(n))
		}
		after, served, first := "", map[string]bool{}, map[string]bool{}
		for pass := range lanes {
			var mu sync.Mutex
			var order []string
			after = RunInLanes(1, of, after, func(i int) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, of[i])
			})
			if first[order[0]] {
				t.Errorf("of %d lanes %q is the first twice, in pass %d", lanes, order[0], pass)
			}
			first[order[0]] = true
		}
		after = ""
		for range (lanes + places - 1) / places {
			l := newLanes(of, after)
			for range min(places, lanes) {
				c, _ := l.takePlace()
				served[c.name] = true
			}
			after = newLanes(of, after).nextAfter(places)
		}
		if len(served) != lanes {
			t.Errorf("of %d lanes %d have had a place at once", lanes, len(served))
		}
	}
	if next := RunInLanes(4, nil, "a", func(int) { t.Error("there is nothing to do") }); next != "" {
		t.Errorf("after nothing comes what is after %q", next)
	}
}
