// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// halfWay has the API server abort the first DELETE of Pod a between its two writes: the Pod is terminating then, at a new version, and
// some changes are made to it. It answers later requests as any other.
func halfWay(change ...func(metav1.Object)) func(r *rig) {
	return func(r *rig) {
		aborted := false
		refusing(func(verb, name string) *apierrors.StatusError {
			if name != "a" || aborted {
				return nil
			}
			aborted = true
			o := r.pods.objects[name].DeepCopy()
			o.SetDeletionTimestamp(&metav1.Time{Time: r.clock.Now()})
			o.SetDeletionGracePeriodSeconds(new(int64))
			for _, c := range change {
				c(o)
			}
			r.pods.keep(o)
			return unavailable(verb, name)
		})(r)
	}
}

// TestADeleteThatWasAbortedHalfWay carries Cleaners from pass to pass whose DELETE left its object terminating.
func TestADeleteThatWasAbortedHalfWay(t *testing.T) {
	const (
		lost  = `again in 1s; sent delete a, delete b; left a; said Normal Deleted targets.pods: deleted 1: Pod shop/b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 1 acted, 1 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `
		seen  = `again in 1s; sent delete a; left a; Evaluated True ConditionsMet; Ready Unknown Terminating; Reconciling True Terminating; TargetsResolved True Resolved; resolved 2; counted 1 acted, 1 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `
		waits = `again in 2s; left a; Evaluated True ConditionsMet; Ready Unknown Terminating; Reconciling True Terminating; TargetsResolved True Resolved; resolved 2; counted 1 acted, 1 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `
		told  = `a second DELETE removed 1 of the objects, which were still terminating although nothing held them`
	)
	holding := func(o metav1.Object) { o.SetFinalizers([]string{"example.com/hold"}) }
	gracious := func(o metav1.Object) { o.SetDeletionGracePeriodSeconds(new(int64(30))) }
	for name, tc := range map[string]struct {
		reason string
		spec   func(c *v1alpha1.Cleaner)
		steps  []step
	}{
		"Again": {
			reason: "after --settle, one more DELETE at the present version", steps: []step{
				{halfWay(), lost},
				{after(time.Second), seen},
				{after(time.Minute), waits},
				{after(10 * time.Minute), `again in 1h0m0s; sent delete a; said Normal Completed run 1: 2 pods/v1 deleted (` + told + `), Normal Deleted targets.pods: deleted 1: Pod shop/a; the Cleaner is gone`},
			},
		},
		"Held": {
			reason: "not of what a finalizer holds", steps: []step{
				{halfWay(holding), lost},
				{after(time.Second), seen},
				{after(time.Minute), waits},
				{after(10 * time.Minute), `again in 1h0m0s; left a; said Normal Completed run 1: 1 pods/v1 deleted, 1 pods/v1 terminating, Warning StillTerminating Pod shop/a still has finalizers: example.com/hold; the Cleaner is gone`},
			},
		},
		"Grace": {
			reason: "not of what has a grace period", steps: []step{
				{halfWay(gracious), lost},
				{after(time.Second), seen},
				{after(time.Minute), waits},
				{after(10 * time.Minute), `again in 1h0m0s; left a; said Normal Completed run 1: 1 pods/v1 deleted, 1 pods/v1 gone; the Cleaner is gone`},
			},
		},
		"Unwanted": {
			reason: "not if the condition is false now", steps: []step{
				{halfWay(), lost},
				{after(time.Second), seen},
				{after(time.Minute), waits},
				{all(putting("c", "Running"), after(10*time.Minute)), `again in 1h0m0s; left a, c; said Normal Completed run 1: 1 pods/v1 deleted, 1 pods/v1 gone; the Cleaner is gone`},
			},
		},
		"Refused": {
			reason: "and no third one", steps: []step{
				{halfWay(), lost},
				{after(time.Second), seen},
				{after(time.Minute), waits},
				{all(refusing(forbidden), after(10*time.Minute)), `again in 1s; sent delete a; left a; Evaluated True ConditionsMet; Ready Unknown Terminating; Reconciling True Terminating; TargetsResolved True Resolved; resolved 2; counted 1 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(refusing(nil), after(time.Minute)), `again in 2s; left a; Evaluated True ConditionsMet; Ready Unknown Terminating; Reconciling True Terminating; TargetsResolved True Resolved; resolved 2; counted 1 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{after(10 * time.Minute), `again in 1h0m0s; left a; said Normal Completed run 1: 1 pods/v1 deleted, 1 pods/v1 gone; the Cleaner is gone`},
			},
		},
		"Suspended": {
			reason: "not while the Cleaner is suspended", steps: []step{
				{halfWay(), lost},
				{after(time.Second), seen},
				{after(time.Minute), waits},
				{all(editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }), after(10*time.Minute)), `again in 1h0m0s; left a; Evaluated True ConditionsMet; Ready Unknown Suspended; Reconciling True Suspended; TargetsResolved True Resolved; resolved 2; counted 1 acted, 1 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false }), `again in 1h0m0s; sent delete a; said Normal Completed run 1: 2 pods/v1 deleted (` + told + `), Normal Deleted targets.pods: deleted 1: Pod shop/a; the Cleaner is gone`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := once()
			if tc.spec != nil {
				tc.spec(c)
			}
			live(t, tc.reason, newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded")), tc.steps)
		})
	}
}

// A second DELETE is no second action for limits.
func TestASecondDeleteCountsOnce(t *testing.T) {
	c := once()
	c.Spec.Limits, c.Spec.CloudEventSink = &v1alpha1.Limits{MaxActions: 5, Per: "1h"}, "http://127.0.0.1:1"
	r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	halfWay()(r)
	for _, d := range []time.Duration{0, time.Second, time.Minute, 10 * time.Minute} {
		r.clock.Step(d)
		r.pass()
	}
	if got := r.pods.took(); len(got) != 4 {
		t.Errorf("it has sent %q", got)
	}
	if left, counted := r.pods.names(), len(r.memories.memoryOf(r.key()).Done); len(left) != 0 || counted != 2 {
		t.Errorf("%q are left, and %d actions are counted, want 2", left, counted)
	}
}
