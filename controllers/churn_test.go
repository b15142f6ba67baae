// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// churning has one Pod be there when the watches are looked at, and another one when it is read live, each time others.
func churning() func(r *rig) {
	n := 0
	name := func() string { return fmt.Sprintf("x-%02d", n) }
	return func(r *rig) {
		if n > 0 {
			gone(name())(r)
		}
		n++
		r.pods.put(aPod(name(), "Succeeded"))
		r.pods.freeze()
		gone(name())(r)
		n++
		r.pods.put(aPod(name(), "Succeeded"))
	}
}

// What comes and goes all the time holds a Cleaner that cleans once up for one pause, and not for longer ones: what stays is cleaned.
func TestWhatComesAndGoesHoldsUpNothingElse(t *testing.T) {
	r := newRig(t, once(), aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	churn := churning()
	churn(r)
	if again := r.pass().RequeueAfter; again != time.Second || len(r.pods.took()) > 0 || r.cleaner().Status.LastEvaluation.Reason != v1alpha1.ReasonUnconfirmed {
		t.Fatalf("it comes back in %s, and says %+v", again, r.cleaner().Status.LastEvaluation)
	}
	r.clock.Step(time.Second)
	churn(r)
	r.pass()
	if diff := cmp.Diff([]string{"delete a", "delete b"}, r.pods.took()); diff != "" {
		t.Errorf("what was sent (-want +got):\n%s", diff)
	}
	if r.cleaner() != nil {
		t.Error("the Cleaner is there")
	}
}

// What a watch that lags has not shown is not left behind, whatever comes and goes meanwhile, and the pauses do not grow with each look.
func TestAWatchThatLagsLeavesNothingBehind(t *testing.T) {
	r := newRig(t, once(), aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	churn, behind := churning(), func() { r.pods.mu.Lock(); defer r.pods.mu.Unlock(); delete(r.pods.stale, "b") }
	for look, want := range []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 30, 30} {
		churn(r)
		behind()
		again := r.pass().RequeueAfter
		if again != time.Duration(want)*time.Second || len(r.pods.took()) > 0 {
			t.Fatalf("after look %d it comes back in %s, want %ds", look+1, again, want)
		}
		r.clock.Step(again)
	}
	churn(r)
	r.pass()
	if diff := cmp.Diff([]string{"delete a", "delete b"}, r.pods.took()); diff != "" {
		t.Errorf("what was sent (-want +got):\n%s", diff)
	}
	if r.cleaner() != nil {
		t.Error("the Cleaner is there")
	}
}

// A decision that begins anew does not take for old what an earlier one has waited for.
func TestADecisionThatBeginsAnewWaitsAnew(t *testing.T) {
	r := newRig(t, once(), aPod("a", "Succeeded"))
	churn := churning()
	churn(r)
	r.pass()
	r.clock.Step(time.Second)
	r.pods.put(aPod("b", "Running"))
	churn(r)
	r.pass() // the conditions do not hold
	r.clock.Step(time.Second)
	r.pods.put(aPod("b", "Succeeded"))
	churn(r)
	if again := r.pass().RequeueAfter; again != time.Second || len(r.pods.took()) > 0 {
		t.Errorf("it comes back in %s", again)
	}
}

// A dry run says what would be done while other objects come and go, and reads live no more often than it has to.
func TestADryRunWhileOthersComeAndGo(t *testing.T) {
	c := once()
	c.Spec.Mode = v1alpha1.ModeDryRun
	r := newRig(t, c, aPod("a", "Succeeded"))
	churn := churning()
	churn(r)
	r.pass()
	r.clock.Step(time.Second)
	for range 3 {
		churn(r)
		again := r.pass().RequeueAfter
		if e := r.cleaner().Status.LastEvaluation; e.Reason != v1alpha1.ReasonDryRun || again != time.Second {
			t.Fatalf("it comes back in %s, and says %+v", again, e)
		}
		r.clock.Step(again)
	}
	if diff := cmp.Diff([]string{"delete a dry run"}, r.pods.took()); diff != "" {
		t.Errorf("what was sent (-want +got):\n%s", diff)
	}
}

// A limit is for all that live reads want, and not for what of it is agreed on.
func TestALimitIsForAllThatLiveReadsWant(t *testing.T) {
	c := once()
	c.Spec.Limits = &v1alpha1.Limits{MaxActions: 2}
	r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	r.pods.freeze()
	r.pods.put(aPod("c", "Succeeded"))
	for look, want := range []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 30, 30} {
		again := r.pass().RequeueAfter
		if again != time.Duration(want)*time.Second {
			t.Fatalf("after look %d it comes back in %s, want %ds", look+1, again, want)
		}
		r.clock.Step(again)
	}
	if got := r.cleaner().Status.LastEvaluation.Reason; got != v1alpha1.ReasonLimitExceeded || len(r.pods.took()) > 0 {
		t.Errorf("it says %s", got)
	}
}
