// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// TestALatePassDoesNotOverlookABreak shows that what changed while a Cleaner stood in line counts from when it changed: its `for` begins anew
// if nobody looked for long, and goes on if the pass came in time.
func TestALatePassDoesNotOverlookABreak(t *testing.T) {
	for name, tc := range map[string]struct {
		late time.Duration
		left int
	}{"InTime": {DefaultMinInterval, 0}, "Late": {time.Minute, 1}} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Rules[0].For = "5m"
			r := newRig(t, c, aPod("a", "Succeeded"))
			r.pass()
			r.clock.Step(5*time.Minute - tc.late)
			r.watches.News.NoteChange(r.key())
			r.clock.Step(tc.late)
			r.pass()
			r.clock.Step(time.Second)
			r.pass()
			if len(r.pods.names()) != tc.left {
				t.Errorf("after a pass that came %s after a change %v are left, want %d", tc.late, r.pods.names(), tc.left)
			}
		})
	}
}

// TestABreakByTimeIsNotOverlooked shows that `when` counts as broken where time alone breaks it for half a minute, whether that is known
// beforehand or not, and whether the pass comes in time or a minute late; and that a late pass costs nothing where time breaks nothing.
func TestABreakByTimeIsNotOverlooked(t *testing.T) {
	const (
		known   = `time < timestamp("2026-01-01T01:02:10Z") || time >= timestamp("2026-01-01T01:02:40Z")`
		unknown = `string(time) < "2026-01-01T01:02:10Z" || string(time) >= "2026-01-01T01:02:40Z"`
		again   = 7*time.Minute + 40*time.Second // after the break
	)
	for name, tc := range map[string]struct {
		when            string
		late            time.Duration
		atLeast, atMost time.Duration
	}{
		"Known":                 {known, 0, again, again},
		"KnownLate":             {known, time.Minute, again, again + time.Minute},
		"NoBreak":               {`time > timestamp("2026-01-01T00:00:00Z")`, 0, 5 * time.Minute, 5 * time.Minute},
		"NoBreakLate":           {`time > timestamp("2026-01-01T00:00:00Z")`, time.Minute, 6 * time.Minute, 6 * time.Minute},
		"Unknown":               {unknown, 0, again, again + time.Hour}, // what is false, and cannot be foreseen, is looked at again after an hour
		"UnknownLate":           {unknown, time.Minute, again, again + time.Hour},
		"UnknownAndNoBreak":     {`string(time) > "2026"`, 0, 5 * time.Minute, 5 * time.Minute},
		"UnknownNoBreakButLate": {`string(time) > "2026"`, time.Minute, 8 * time.Minute, 9 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Rules[0].For, c.Spec.Rules[0].When = "5m", tc.when
			r := newRig(t, c, aPod("a", "Succeeded"))
			began, late, passes := r.clock.Now(), tc.late, 0
			for next := r.pass(); len(r.pods.names()) > 0; next = r.pass() {
				r.clock.Step(next.RequeueAfter)
				if at := r.clock.Since(began); at >= 2*time.Minute {
					r.clock.Step(late)
					late = 0
				}
				if passes++; passes > 200 {
					t.Fatalf("after %s it has come back %d times: %+v", r.clock.Since(began), passes, r.cleaner().Status.Pending)
				}
			}
			if took := r.clock.Since(began); took < tc.atLeast || took > tc.atMost {
				t.Errorf("it is deleted after %s, want %s to %s", took, tc.atLeast, tc.atMost)
			}
		})
	}
}
