// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package recurring

import (
	"math/bits"
	"os"
	"testing"

	"github.com/vtex/cleaner/test/lifemodel"
)

// enough is more than any small world has.
const enough = 4_000_000

// In a small world no property breaks. With CLEANER_LIFE_MODEL=whole the worlds are the large ones.
func TestPropertiesHold(t *testing.T) {
	for _, s := range Scenarios() {
		limit := enough
		if os.Getenv("CLEANER_LIFE_MODEL") == "whole" {
			limit = 30_000_000
		} else {
			s = s.Reduced()
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			e := lifemodel.Explore(&Model{Scenario: s}, limit, lifemodel.Sound)
			t.Logf("%d states, %d steps", e.States, e.Steps)
			if !e.Whole {
				t.Errorf("Explore(%d): stopped after %d states", limit, e.States)
			}
			for _, f := range e.Faults() {
				t.Error(f)
			}
		})
	}
}

// An operator that lacks a rule breaks the property that the rule serves.
func TestEachRuleIsNeeded(t *testing.T) {
	scenarios := map[string]Scenario{}
	for _, s := range Scenarios() {
		scenarios[s.Name] = s.Reduced()
	}
	var tried Rule
	for _, mutant := range Mutants() {
		tried |= mutant.Without
		t.Run(mutant.Name, func(t *testing.T) {
			t.Parallel()
			s, ok := scenarios[mutant.Scenario]
			if !ok {
				t.Fatalf("there is no scenario %q", mutant.Scenario)
			}
			e := lifemodel.Explore(&Model{Scenario: s, Without: mutant.Without}, enough, mutant.Breaks)
			f, broken := e.Findings[mutant.Breaks]
			if !broken {
				t.Fatalf("%v holds in all %d states without the rule; found %v", mutant.Breaks, e.States, e.Faults())
			}
			t.Log(f)
		})
	}
	if tried != everyRule {
		t.Errorf("%d rules have no mutant", bits.OnesCount32(uint32(everyRule&^tried)))
	}
}
