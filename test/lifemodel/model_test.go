// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

import (
	"math/rand/v2"
	"testing"
)

// A test that follows labels needs to know which step one means.
func TestLabelsAreUnambiguous(t *testing.T) {
	const walks, steps = 200, 60
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			m := &Model{Scenario: s}
			for seed := range uint64(walks) {
				rng := rand.New(rand.NewPCG(seed, 0))
				state := m.Init()
				for range steps {
					next := m.Succ(state)
					seen := map[Label]bool{}
					for _, step := range next {
						if seen[step.Label] {
							t.Fatalf("seed %d: two steps are called %q in %+v", seed, step.Label, state)
						}
						seen[step.Label] = true
					}
					if len(next) == 0 {
						break
					}
					state = next[rng.IntN(len(next))].To
				}
			}
		})
	}
}

// A trace leads from the first state to the step that breaks the property.
func TestTracesCanBeFollowed(t *testing.T) {
	for _, s := range Scenarios() {
		if s.Name != "orders" {
			continue
		}
		m := &Model{Scenario: s.Reduced(), Without: PanicButton}
		e := m.Explore(enough, OrdersObeyed)
		f, ok := e.Findings[OrdersObeyed]
		if !ok {
			t.Fatal("Explore() found nothing")
		}
		state, broke := m.Init(), Sound
		for i, l := range f.Trace {
			found := false
			for _, step := range m.Succ(state) {
				if step.Label == l && !found {
					found, state, broke = true, step.To, step.Breaks
				}
			}
			if !found {
				t.Fatalf("step %d of the trace cannot be taken: %v", i+1, l)
			}
		}
		if broke != OrdersObeyed {
			t.Errorf("the last step of the trace breaks %v, want %v", broke, OrdersObeyed)
		}
	}
}

// Each kind of step has a name of its own: traces are read by people.
func TestStepsHaveNames(t *testing.T) {
	seen := map[string]What{}
	for w := Read; w <= GiveRights; w++ {
		name := w.String()
		if other, known := seen[name]; name == "" || known {
			t.Errorf("What(%d).String(): got %q, which is also that of %d", w, name, other)
		}
		seen[name] = w
	}
}
