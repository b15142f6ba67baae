// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// A dry run tells all that would be done, however many batches that is, and what it has confirmed stays so until it changes.
func TestADryRunTellsAllThatWouldBeDone(t *testing.T) {
	const all = life.MaxBatch + 120
	var pods []*unstructured.Unstructured
	for i := range all {
		pods = append(pods, aPod(fmt.Sprintf("p-%04d", i), "Succeeded"))
	}
	c := done(deletes())
	c.Spec.Mode = v1alpha1.ModeDryRun
	c.Spec.Rules[0].Confirm = []v1alpha1.Confirm{{Target: "pods", Name: "item.metadata.name"}}
	r := newRig(t, c, pods...)
	tells := func(objects, reads, requests int) {
		t.Helper()
		r.pods.gets = 0
		r.pass()
		want := fmt.Sprintf("Mode is DryRun: %d objects would be acted on; nothing was changed.", objects)
		if got := r.cleaner().Status.LastEvaluation.Message; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		if sent := r.pods.took(); len(sent) != requests {
			t.Errorf("%d requests were sent, want %d", len(sent), requests)
		}
		if r.pods.gets != reads {
			t.Errorf("%d objects were read, want %d", r.pods.gets, reads)
		}
	}
	tells(all, all, all)
	r.clock.Step(time.Minute)
	tells(all, 0, 0) // nothing of it has changed
	r.clock.Step(time.Minute)
	r.pods.put(aPod("p-0000", "Succeeded"))
	r.pods.put(aPod("more", "Succeeded"))
	tells(all+1, 2, 2)
	r.clock.Step(time.Minute)
	gone("more")(r)
	r.pods.put(aPod("p-0001", "Running"))
	tells(all-1, 0, 0)
	r.clock.Step(time.Minute)
	r.edit(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now"} })
	tells(all-1, all-1, all-1) // its author asks for it
}

// What would be refused is counted, is asked again until it would not be, and is shown once.
func TestADryRunCountsRefusals(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Once": once(), "Recurring": done(deletes())} {
		t.Run(name, func(t *testing.T) {
			c.Spec.Mode = v1alpha1.ModeDryRun
			r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"))
			refusing(func(verb, name string) *apierrors.StatusError {
				if name == "a" {
					return forbidden(verb, name)
				}
				return nil
			})(r)
			for _, step := range []struct {
				do    func(r *rig)
				sent  []string
				ready metav1.ConditionStatus
				says  string
			}{
				{nothing, []string{"delete a dry run", "delete b dry run"}, metav1.ConditionFalse, "Mode is DryRun: requests for 1 object would be refused, and 1 object would be acted on; nothing was changed. Pod shop/a: "},
				{after(time.Second), []string{"delete a dry run"}, metav1.ConditionFalse, "Mode is DryRun: requests for 1 object would be refused, "},
				{after(time.Second), nil, metav1.ConditionFalse, "Mode is DryRun: requests for 1 object would be refused, "},
				{all(after(time.Second), refusing(nil)), []string{"delete a dry run"}, metav1.ConditionTrue, "Mode is DryRun: 2 objects would be acted on; nothing was changed."},
				{after(time.Hour), nil, metav1.ConditionTrue, "Mode is DryRun: 2 objects would be acted on; nothing was changed."},
			} {
				step.do(r)
				r.pass()
				same(t, "requests", step.sent, r.pods.took())
				ready := meta.FindStatusCondition(r.cleaner().Status.Conditions, v1alpha1.ConditionReady)
				if ready == nil || ready.Status != step.ready || !strings.HasPrefix(ready.Message, step.says) {
					t.Errorf("ready is %+v, want %s, %q", ready, step.ready, step.says)
				}
			}
			if got := r.did(); len(got) != 3 {
				t.Errorf("the status shows %q", got)
			}
		})
	}
}

// What a Cleaner that cleans once would do is read live and asked about once, and again when there is more.
func TestADryRunIsRehearsedOnce(t *testing.T) {
	c := once()
	c.Spec.Mode = v1alpha1.ModeDryRun
	r := newRig(t, c, aPod("a", "Succeeded"))
	staying := func(r *rig) {
		r.pods.mu.Lock()
		defer r.pods.mu.Unlock()
		r.pods.objects["shop"].SetDeletionTimestamp(nil)
	}
	lists := 0
	r.pods.listed = func() { lists++ }
	for _, step := range []struct {
		what  string
		do    func(r *rig)
		looks bool
		sent  []string
		says  string
	}{
		{"at first", nothing, true, []string{"delete a dry run"}, v1alpha1.ReasonDryRun},
		{"later", after(time.Minute), false, nil, v1alpha1.ReasonDryRun},
		{"with another object", all(after(time.Minute), putting("b", "Succeeded")), true, []string{"delete b dry run"}, v1alpha1.ReasonDryRun},
		{"later again", after(time.Minute), false, nil, v1alpha1.ReasonDryRun},
		{"while it may not act", all(after(time.Minute), putting("c", "Succeeded"), leaving), true, nil, v1alpha1.ReasonNamespaceTerminating},
		{"when it may", all(after(time.Hour), gone("c"), staying), true, nil, v1alpha1.ReasonDryRun},
		{"later still", after(time.Minute), false, nil, v1alpha1.ReasonDryRun},
	} {
		lists = 0
		step.do(r)
		r.pass()
		if lists > 0 != step.looks {
			t.Errorf("%s: all Pods are read live %d times", step.what, lists)
		}
		same(t, step.what+": requests", step.sent, r.pods.took())
		if got := r.cleaner().Status.LastEvaluation.Reason; got != step.says {
			t.Errorf("%s: it says %s, want %s", step.what, got, step.says)
		}
	}
}
