// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// delaysOf are how many actions were done, and the sum of their delays since they were due.
func delaysOf(r *rig) (count uint64, sum time.Duration) {
	r.t.Helper()
	all, err := r.registry.Gather()
	must(r.t, err)
	for _, family := range all {
		if family.GetName() == "cleaner_action_delay_seconds" {
			h := family.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), time.Duration(h.GetSampleSum() * float64(time.Second)).Round(time.Millisecond)
		}
	}
	r.t.Fatal("there is no such metric")
	return 0, 0
}

// The delay of an action counts from the moment at which it became due: not from when it was decided on, nor from the last attempt.
func TestDelayCountsFromWhenItIsDue(t *testing.T) {
	at := func(d time.Duration) string { return epoch.Add(time.Hour + d).Format(time.RFC3339) }
	for name, tc := range map[string]struct {
		change  func(c *v1alpha1.Cleaner)
		happens func(r *rig)
		want    time.Duration
	}{
		"A for timer, in time": {func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].For = "5m" }, func(r *rig) {
			r.pods.put(aPod("a", "Succeeded"))
			r.clock.Step(r.pass().RequeueAfter)
			r.pass()
		}, 0},
		"A for timer, a minute late": {func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].For = "5m" }, func(r *rig) {
			r.pods.put(aPod("a", "Succeeded"))
			r.clock.Step(r.pass().RequeueAfter + time.Minute)
			r.pass()
		}, time.Minute},
		"Time alone, a minute late": {func(c *v1alpha1.Cleaner) {
			c.Spec.Rules[0].When = `time >= timestamp("` + at(7*time.Minute) + `")`
		}, func(r *rig) {
			r.pods.put(aPod("a", "Running"))
			r.clock.Step(r.pass().RequeueAfter + time.Minute)
			r.pass()
		}, time.Minute},
		"A schedule, a minute late": {func(c *v1alpha1.Cleaner) { c.Spec.Schedule = "7 1 1 1 *" }, func(r *rig) {
			r.pods.put(aPod("a", "Succeeded"))
			r.clock.Step(r.pass().RequeueAfter + time.Minute)
			r.pass()
		}, time.Minute},
		"A change, 3 seconds ago": {nil, func(r *rig) {
			r.pass()
			r.clock.Step(time.Minute)
			r.pods.put(aPod("a", "Succeeded"))
			r.watches.News.NoteChange(r.key())
			r.clock.Step(3 * time.Second)
			r.pass()
		}, 3 * time.Second},
		"A change that waits for the shortest interval": {nil, func(r *rig) {
			r.clock.Step(-DefaultMinInterval / 2)
			r.pass()
			r.pods.put(aPod("a", "Succeeded"))
			r.watches.News.NoteChange(r.key())
			r.clock.Step(DefaultMinInterval / 4)
			r.clock.Step(r.pass().RequeueAfter)
			r.pass()
		}, DefaultMinInterval},
		"Refused for two minutes": {nil, func(r *rig) {
			r.pass()
			r.clock.Step(time.Minute)
			r.pods.put(aPod("a", "Succeeded"))
			r.watches.News.NoteChange(r.key())
			r.pods.answer = func(string, string) *apierrors.StatusError {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("not now"))
			}
			for began := r.clock.Now(); r.clock.Since(began) < 2*time.Minute; {
				r.clock.Step(min(r.pass().RequeueAfter, 2*time.Minute-r.clock.Since(began)))
			}
			r.pods.answer = nil
			r.clock.Step(5 * time.Minute)
			r.pass()
		}, 7 * time.Minute},
		"Not due while it was suspended": {nil, func(r *rig) {
			r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true })
			r.pods.put(aPod("a", "Succeeded"))
			for range 20 {
				r.clock.Step(max(time.Second, r.pass().RequeueAfter))
			}
			r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false })
			r.pass()
		}, 0},
		"Not due in DryRun": {nil, func(r *rig) {
			r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Mode = v1alpha1.ModeDryRun })
			r.pods.put(aPod("a", "Succeeded"))
			for range 20 {
				r.clock.Step(max(time.Second, r.pass().RequeueAfter))
			}
			r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Mode = v1alpha1.ModeEnforce })
			r.pass()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			if tc.change != nil {
				tc.change(c)
			}
			r := newRig(t, c)
			tc.happens(r)
			if count, sum := delaysOf(r); count != 1 || sum != tc.want {
				t.Errorf("%d actions took %s, want one and %s; left are %v", count, sum, tc.want, r.pods.names())
			}
		})
	}
}

// A rule that changes its objects again and again is due again each time: the delay does not grow.
func TestDelayOfARuleThatCallsItself(t *testing.T) {
	c := done(v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"annotations": {"at": string(time)}}}`}})
	r := newRig(t, c, aPod("a", "Succeeded"))
	for range 10 {
		r.clock.Step(max(time.Second, r.pass().RequeueAfter))
	}
	if count, sum := delaysOf(r); count < 3 || sum > time.Second {
		t.Errorf("%d patches took %s", count, sum)
	}
}
