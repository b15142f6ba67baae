// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package patched

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// world is an object, and the patches that it has had since somebody else wrote it.
type world struct {
	version int
	has     map[patchID]map[string]bool
}

// Whatever deeds are done, in whatever order, and whoever writes meanwhile: a patch is said to stand only where it was made, for these
// items, and nobody but the operator has written since. And it is said so where nothing was lost on the way.
func TestAPatchStandsOnlyWhereItWasMade(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		p, objects := Patches{}, map[types.UID]*world{"u": {has: map[patchID]map[string]bool{}}, "v": {has: map[patchID]map[string]bool{}}}
		items := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID[string])
		for range rapid.IntRange(1, 12).Draw(t, "deeds") {
			uid := rapid.SampledFrom([]types.UID{"u", "v"}).Draw(t, "object")
			o := objects[uid]
			s := &plan.Step{
				Rule: rapid.SampledFrom([]string{"r", "q"}).Draw(t, "rule"), Action: rapid.IntRange(0, 1).Draw(t, "action"), Verb: plan.VerbPatch,
				Keys: items.Draw(t, "items"), Object: observed.Object{Ref: observed.Ref{UID: uid}},
			}
			id, named := patchID{s.Rule, s.Action}, fmt.Sprint(o.version)
			switch rapid.SampledFrom([]string{"patch", "free", "write", "lose", "look"}).Draw(t, "what") {
			case "patch":
				o.version++
				o.has[id] = map[string]bool{}
				for _, key := range s.Keys {
					o.has[id][key] = true
				}
				p.NotePatch(s, named, fmt.Sprint(o.version), now)
			case "free":
				s.Verb = plan.VerbRemoveFinalizer
				o.version++
				p.NotePatch(s, named, fmt.Sprint(o.version), now)
			case "write":
				o.version++
				o.has = map[patchID]map[string]bool{}
			case "lose":
				p.NotePatch(s, named, "", now)
				o.has = map[patchID]map[string]bool{}
			}
			want := !slices.ContainsFunc(s.Keys, func(key string) bool { return !o.has[id][key] })
			if got := p.HasStood(s, fmt.Sprint(o.version), now); got != want {
				t.Fatalf("%s %d of %s for %q stands: %t", s.Rule, s.Action, uid, s.Keys, got)
			}
			if p.HasStood(s, fmt.Sprint(o.version+1), now) {
				t.Fatal("it stands at a version that nobody has seen")
			}
		}
		if p.DropExpired(now.Add(forgetPatches + 1)); len(p) > 0 || p.CountBytes() != 0 {
			t.Fatalf("%d are remembered for ever, and take %d bytes", len(p), p.CountBytes())
		}
	})
}

// What is remembered is kept for its whole time, and no longer.
func TestPatchesExpire(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := Patches{}
	note := func(uid types.UID, at time.Duration) {
		p.NotePatch(&plan.Step{Rule: "r", Verb: plan.VerbPatch, Object: observed.Object{Ref: observed.Ref{UID: uid}}}, "1", "2", begin.Add(at))
	}
	note("early", 0)
	note("late", time.Minute)
	for _, tc := range []struct {
		at   time.Duration
		want int
	}{{0, 2}, {forgetPatches, 2}, {forgetPatches + 1, 1}, {forgetPatches + time.Minute, 1}, {forgetPatches + time.Minute + 1, 0}} {
		if p.DropExpired(begin.Add(tc.at)); len(p) != tc.want {
			t.Errorf("after %s %d are remembered, want %d", tc.at, len(p), tc.want)
		}
	}
}
