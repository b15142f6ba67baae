// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
)

// Somebody has the turn for much memory for half a minute each half an hour, while a rule waits for an hour, or less, until something has
// held for long enough. It acts then, if nothing has changed that nobody looked at, and begins anew if something may have.
func TestWaitingForATurn(t *testing.T) {
	const held = 30 * time.Second
	for name, tc := range map[string]struct {
		reason, wait, when string
		// meanwhile happens while it waits for its turn.
		meanwhile func(r *rig)
		atLeast   time.Duration
		atMost    time.Duration
	}{
		"NothingHappens": {reason: "nothing has changed, so that what held goes on", wait: "1h", atLeast: time.Hour, atMost: 61 * time.Minute},
		"SomethingChanges": {
			reason: "it may have been otherwise for a moment", wait: "50m",
			meanwhile: func(r *rig) { r.watches.News.NoteChange(r.key()) }, atLeast: 65 * time.Minute, atMost: 66 * time.Minute,
		},
		"TimeChanges": {
			reason: "it was otherwise for a moment, as is known beforehand", wait: "20m", when: `time < timestamp("2026-01-01T01:25:05Z") || time >= timestamp("2026-01-01T01:25:06Z")`,
			atLeast: 35 * time.Minute, atMost: 36 * time.Minute,
		},
		"TimeChangesNothing": {
			reason: "it was not, as is known beforehand", wait: "20m", when: `time < timestamp("2030-01-01T00:00:00Z")`,
			atLeast: 20 * time.Minute, atMost: 21 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := greedy(8_000, tc.wait)
			if tc.when != "" {
				c.Spec.Rules[0].When = tc.when
			}
			r := newRig(t, c)
			turns := memoryquota.NewTurns(r.clock, func(types.NamespacedName) {})
			r.turns = turns
			r.clock.Step(10 * time.Minute)
			began := r.clock.Now()
			waits := 0
			for r.pass(); r.clock.Since(began) < 3*time.Hour && len(r.said()) == 0; r.pass() {
				r.clock.Step(5 * time.Minute)
				if r.clock.Since(began)%(30*time.Minute) != 15*time.Minute {
					continue
				}
				other := turns.BeginPass(types.NamespacedName{Namespace: "other", Name: "c"})
				if !other.HoldBytes(2 * memoryquota.Small) {
					t.Fatal("nobody may take much")
				}
				for n := range 3 {
					if r.pass().RequeueAfter != memoryRetry {
						t.Fatal("it does not wait for its turn")
					}
					if n == 0 && waits == 0 && tc.meanwhile != nil {
						tc.meanwhile(r)
					}
					r.clock.Step(held / 3)
				}
				other.EndPass()
				waits++
			}
			if took := r.clock.Since(began); took < tc.atLeast || took > tc.atMost || waits == 0 {
				t.Errorf("%s: after %s, with %d waits", tc.reason, took, waits)
			}
		})
	}
}

// An evaluation that comes to no end says nothing of what held before: it goes on if nothing has changed.
func TestAnEvaluationWithoutEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		news bool
		want int // how many are deleted after an hour
	}{"NothingHappens": {false, 1}, "SomethingChanges": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Rules[0].For = "1h"
			r := newRig(t, c, aPod("a", "Succeeded"))
			r.pass()
			r.clock.Step(30 * time.Minute)
			for range 3 {
				if tc.news {
					r.watches.News.NoteChange(r.key())
				}
				interrupted, cancel := context.WithCancel(t.Context())
				r.onKnown(cancel) // before the evaluation
				if _, err := r.Reconcile(interrupted, r.request()); err != nil {
					t.Fatal(err)
				}
				r.clock.Step(10 * time.Second)
			}
			r.onKnown(func() {})
			r.pass()
			r.clock.Step(30 * time.Minute)
			r.pass()
			if got := len(r.pods.took()); got != tc.want {
				t.Errorf("%d were deleted after an hour, want %d: %+v", got, tc.want, r.cleaner().Status.LastEvaluation)
			}
			r.clock.Step(30 * time.Minute)
			r.pass()
			if left := r.pods.names(); len(left) > 0 {
				t.Errorf("after another half hour %v are left", left)
			}
		})
	}
}
