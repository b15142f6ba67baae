// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package patched

import (
	"testing"
	"time"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// A patch need not be made again while its object is as the last deed left it.
func TestPatchesStand(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	step := func(action int, verb plan.Verb, keys ...string) *plan.Step {
		return &plan.Step{Rule: "r", Action: action, Verb: verb, Keys: keys, Object: observed.Object{Ref: observed.Ref{UID: "uid"}}}
	}
	patch, other := step(0, plan.VerbPatch, "a"), step(1, plan.VerbPatch, "a")
	cases := map[string]struct {
		reason string
		notes  func(p Patches)
		ask    *plan.Step
		at     string
		want   bool
	}{
		"Never":      {"it was not made", func(Patches) {}, patch, "8", false},
		"AsLeft":     {"it was made, and nobody came after", func(p Patches) { p.NotePatch(patch, "7", "8", now) }, patch, "8", true},
		"Changed":    {"somebody came after", func(p Patches) { p.NotePatch(patch, "7", "8", now) }, patch, "9", false},
		"AnotherOne": {"another patch was made", func(p Patches) { p.NotePatch(other, "7", "8", now) }, patch, "8", false},
		"MoreItems":  {"it was made for others", func(p Patches) { p.NotePatch(patch, "7", "8", now) }, step(0, plan.VerbPatch, "a", "b"), "8", false},
		"FewerItems": {"it was made for these too", func(p Patches) { p.NotePatch(step(0, plan.VerbPatch, "a", "b"), "7", "8", now) }, patch, "8", true},
		"Both":       {"the one after it was made too", func(p Patches) { p.NotePatch(patch, "7", "8", now); p.NotePatch(other, "8", "9", now) }, patch, "9", true},
		"InBetween":  {"somebody came between the two", func(p Patches) { p.NotePatch(patch, "7", "8", now); p.NotePatch(other, "9", "10", now) }, patch, "10", false},
		"ThenFreed": {"a finalizer was taken off after it", func(p Patches) {
			p.NotePatch(patch, "7", "8", now)
			p.NotePatch(step(1, plan.VerbRemoveFinalizer), "8", "9", now)
		}, patch, "9", true},
		"ThenGone": {"the object went", func(p Patches) {
			p.NotePatch(patch, "7", "8", now)
			p.NotePatch(step(1, plan.VerbDelete), "8", "", now)
		}, patch, "8", false},
		"UnknownState": {"nobody knows how it left the object", func(p Patches) { p.NotePatch(patch, "7", "", now) }, patch, "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := Patches{}
			tc.notes(p)
			if got := p.HasStood(tc.ask, tc.at, now); got != tc.want {
				t.Errorf("%s: it stands: %t", tc.reason, got)
			}
			if p.DropExpired(now.Add(forgetPatches + 1)); len(p) > 0 {
				t.Errorf("%v is remembered for ever", p)
			}
		})
	}
}

// A patch that was refreshed by a look is remembered on, and what is remembered is counted.
func TestPatchesAreCounted(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	step := &plan.Step{Rule: "r", Verb: plan.VerbPatch, Keys: []string{"a", "b"}, Object: observed.Object{Ref: observed.Ref{UID: "uid"}}}
	p := Patches{}
	if p.CountBytes() != 0 {
		t.Errorf("%d bytes are taken by nothing", p.CountBytes())
	}
	p.NotePatch(step, "7", "8", now)
	if want := int64(patchedBytes + madeBytes + 2*len(stringhash.Sum{})); p.CountBytes() != want {
		t.Errorf("%d bytes are taken, want %d", p.CountBytes(), want)
	}
	p.HasStood(step, "8", now.Add(forgetPatches))
	if p.DropExpired(now.Add(forgetPatches + 1)); len(p) != 1 {
		t.Error("what was of use is forgotten")
	}
}
