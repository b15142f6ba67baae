// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// same compares, and says what differs.
func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func forbidden(verb, name string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name, errors.New("you may not "+verb))
}

func unavailable(string, string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusServiceUnavailable, Message: "later"}}
}

// step is a change of the world, and what a pass makes of it.
type step struct {
	do   func(r *rig)
	want string
}

func nothing(*rig) {}

func after(d time.Duration) func(r *rig) { return func(r *rig) { r.clock.Step(d) } }

func editing(change func(c *v1alpha1.Cleaner)) func(r *rig) { return func(r *rig) { r.edit(change) } }

// deleting deletes the Cleaner at the time of the rig.
func deleting(r *rig) {
	c := r.cleaner()
	if len(c.Finalizers) == 0 {
		must(r.t, r.store.Delete(r.t.Context(), c))
		return
	}
	c.DeletionTimestamp = &metav1.Time{Time: r.clock.Now()}
	version, err := strconv.Atoi(c.ResourceVersion)
	must(r.t, err)
	c.ResourceVersion = strconv.Itoa(version + 1)
	r.keepCleaner(c)
}

func leaving(r *rig) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	r.pods.objects["shop"].SetDeletionTimestamp(&metav1.Time{Time: epoch})
}

func gone(name string) func(r *rig) {
	return func(r *rig) {
		r.pods.mu.Lock()
		defer r.pods.mu.Unlock()
		delete(r.pods.objects, name)
	}
}

func refusing(answer func(verb, name string) *apierrors.StatusError) func(r *rig) {
	return func(r *rig) {
		r.pods.mu.Lock()
		defer r.pods.mu.Unlock()
		r.pods.answer = answer
	}
}

// freezing has the watches know what there is now, until they are told otherwise.
func freezing(r *rig) { r.pods.freeze() }

func putting(name, phase string) func(r *rig) { return func(r *rig) { r.pods.put(aPod(name, phase)) } }

func all(do ...func(r *rig)) func(r *rig) {
	return func(r *rig) {
		for _, d := range do {
			d(r)
		}
	}
}

func held(name string) func(r *rig) {
	return func(r *rig) {
		p := aPod(name, "Succeeded")
		p.SetFinalizers([]string{"example.com/hold"})
		r.pods.put(p)
	}
}

// slow has the answers to two requests, which were sent at a time, take longer than a pass may.
func slow(answer func(verb, name string) *apierrors.StatusError) func(r *rig) {
	return func(r *rig) {
		answered := 0
		refusing(func(verb, name string) *apierrors.StatusError {
			if answered++; answered == 2 {
				r.clock.Step(passLimit + time.Second)
			}
			return answer(verb, name)
		})(r)
	}
}

func accepted(string, string) *apierrors.StatusError { return nil }

func unreadable(r *rig) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	r.pods.trouble = observed.Target{State: observed.Forbidden, Detail: "is not allowed to get pods"}
}

func readable(r *rig) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	r.pods.trouble = observed.Target{}
}

// TestLifeOfOneThatStays carries Cleaners that stay from pass to pass.
func TestLifeOfOneThatStays(t *testing.T) {
	deletes := v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}
	sink := func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "http://127.0.0.1:1" }
	byPhase := func(c *v1alpha1.Cleaner) {
		rule := &c.Spec.Rules[0]
		rule.ForEach = `pods.items.groupBy(p, p.status.phase).transformList(phase, all, {"phase": phase, "pods": all.size()})`
		rule.When, rule.Key, rule.Reason = "true", "item.phase", `string(item.pods) + " Pods"`
		rule.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
	}
	first := func(verb, name string) *apierrors.StatusError {
		if name == "a" {
			return forbidden(verb, name)
		}
		return nil
	}
	for name, tc := range map[string]struct {
		reason  string
		actions []v1alpha1.RuleAction // deletes if nil
		spec    func(c *v1alpha1.Cleaner)
		steps   []step
	}{
		"Deletes": {
			reason: "what the rule wants is deleted, once", steps: []step{
				{nothing, `again in 1h0m0s; sent delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{after(time.Minute), `again in 1h0m0s; left b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 1; counted 2 acted, 0 failed`},
				{putting("d", "Succeeded"), `again in 1s; left b, d; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 1; counted 2 acted, 0 failed`},
				{after(time.Second), `again in 1h0m0s; sent delete d; left b; said Normal Deleted done: deleted 1: Pod shop/d (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; counted 3 acted, 0 failed`},
			},
		},
		"Restarted": {
			reason: "an object that is not wanted any more is not deleted at a version that nobody has judged", steps: []step{
				{all(freezing, putting("a", "Running")), `again in 1s; sent delete a, delete a, delete c; left a, b; said Normal Deleted done: deleted 1: Pod shop/c (it is done); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 1 acted, 0 failed`},
				{after(time.Second), `again in 1s; sent delete a; left a, b; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 2; counted 1 acted, 0 failed`},
			},
		},
		"Labelled": {
			reason: "one that is wanted still is deleted at its new version", steps: []step{
				{all(freezing, putting("a", "Succeeded")), `again in 1h0m0s; sent delete a, delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/c, Pod shop/a (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
			},
		},
		"Gone": {
			reason: "one that has gone is gone", steps: []step{
				{all(freezing, gone("a")), `again in 1h0m0s; sent delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 1 acted, 0 failed`},
				{after(time.Second), `again in 1h0m0s; left b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 1; counted 1 acted, 0 failed`},
			},
		},
		"Held": {
			reason: "one that a finalizer holds is deleted once", steps: []step{
				{held("a"), `again in 1h0m0s; sent delete a, delete c; left a, b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{after(time.Minute), `again in 1h0m0s; left a, b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed`},
			},
		},
		"Leaves": {
			reason: "nothing is begun in a namespace that is deleted", steps: []step{
				{leaving, `again in 1s; left a, b, c; Ready True NamespaceTerminating; TargetsResolved True Resolved; resolved 3`},
				{after(time.Second), `again in 2s; left a, b, c; Ready True NamespaceTerminating; TargetsResolved True Resolved; resolved 3`},
			},
		},
		"NotOwned": {
			reason: "nothing is done, and nothing said, by a process that no longer owns the Cleaner", steps: []step{
				{func(r *rig) { r.lease = false }, `again in 200ms; left a, b, c`},
			},
		},
		"Suspended": {
			reason: "nothing is done until it goes on", steps: []step{
				{editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }), `again in 1h0m0s; left a, b, c; Ready True Suspended`},
				{editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false }), `again in 1s; left a, b, c; Ready True Suspended`},
				{after(time.Second), `again in 1h0m0s; sent delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
			},
		},
		"Refused": {
			reason: "what was refused waits, longer each time, and then succeeds", steps: []step{
				{refusing(first), `again in 1s; sent delete a, delete c; left a, b; said Normal Deleted done: deleted 1: Pod shop/c (it is done); Ready False DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 3; counted 1 acted, 1 failed`},
				{nothing, `again in 1s; left a, b; Ready False DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 3; counted 1 acted, 1 failed`},
				{after(time.Second), `again in 1s; sent delete a; left a, b; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 2; counted 1 acted, 2 failed`},
				{after(time.Second), `again in 1s; left a, b; Ready False DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 1 acted, 2 failed`},
				{after(2 * time.Second), `again in 1s; sent delete a; left a, b; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 2; counted 1 acted, 3 failed`},
				{all(after(time.Minute), refusing(nil)), `again in 1h0m0s; sent delete a; left b; said Normal Deleted done: deleted 1: Pod shop/a (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; counted 2 acted, 3 failed`},
				{after(time.Second), `again in 1h0m0s; left b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 1; counted 2 acted, 3 failed`},
			},
		},
		"Lost": {
			reason: "nobody knows what became of a request without an answer", steps: []step{
				{refusing(unavailable), `again in 1s; sent delete a, delete c; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 0 acted, 2 failed`},
				{all(after(time.Minute), refusing(nil)), `again in 1h0m0s; sent delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 2 failed`},
			},
		},
		"Evicts": {
			reason: "an eviction is one deed", actions: []v1alpha1.RuleAction{{Evict: &v1alpha1.EvictAction{}}}, steps: []step{
				{nothing, `again in 1h0m0s; sent evict a, evict c; left b; said Normal Evicted done: evicted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{after(time.Minute), `again in 1h0m0s; left b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 1; counted 2 acted, 0 failed`},
			},
		},
		"Reports": {
			reason: "a report is made once a version", actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}},
			steps: []step{
				{nothing, `again in 1s; left a, b, c; said Normal Reported done: reported 2: Pod shop/a, Pod shop/c (it is done); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 2: Pod shop/a Pod shop/c (it is done); counted 2 acted, 0 failed`},
				{after(time.Minute), `again in 1h0m0s; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 2: Pod shop/a Pod shop/c (it is done); counted 2 acted, 0 failed`},
				{putting("a", "Succeeded"), `again in 1s; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 2: Pod shop/a Pod shop/c (it is done); counted 2 acted, 0 failed`},
				{all(putting("a", "Running"), after(time.Minute)), `again in 1h0m0s; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 1: Pod shop/c (it is done); counted 2 acted, 0 failed`},
				{all(putting("a", "Succeeded"), after(time.Minute)), `again in 1s; left a, b, c; said Normal Reported done: reported 1: Pod shop/a (it is done); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 2: Pod shop/a Pod shop/c (it is done); counted 3 acted, 0 failed`},
			},
		},
		"ReportsOfNoObjects": {
			reason: "what is no object is reported by its key", spec: byPhase, steps: []step{
				{nothing, `again in 1s; left a, b, c; said Normal Reported done: reported 2: Succeeded, Running (2 Pods); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 2: Running Succeeded (1 Pods); counted 2 acted, 0 failed`},
				{all(putting("a", "Succeeded"), after(time.Minute)), `again in 1h0m0s; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 2: Running Succeeded (1 Pods); counted 2 acted, 0 failed`},
				{all(putting("b", "Succeeded"), after(time.Minute)), `again in 1s; left a, b, c; said Normal Reported done: reported 1: Succeeded (3 Pods); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 1: Succeeded (3 Pods); counted 3 acted, 0 failed`},
			},
		},
		"ReportsInADryRun": {
			reason: "a report changes nothing, and is made in a dry run too", spec: func(c *v1alpha1.Cleaner) {
				byPhase(c)
				c.Spec.Mode = v1alpha1.ModeDryRun
			}, steps: []step{
				{nothing, `again in 1h0m0s; left a, b, c; said Normal Reported done: reported 2: Succeeded, Running (2 Pods); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 2: Running Succeeded (1 Pods); counted 2 acted, 0 failed`},
				{after(time.Minute), `again in 1h0m0s; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; found done 2: Running Succeeded (1 Pods); counted 2 acted, 0 failed`},
			},
		},
		"ReportsBesideADryRun": {
			reason: "a report is made, what comes after a deed is not, and the deed is tried", spec: func(c *v1alpha1.Cleaner) {
				c.Spec.Mode = v1alpha1.ModeDryRun
			}, actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}, {Delete: &v1alpha1.DeleteAction{}}, {Report: &v1alpha1.ReportAction{}}}, steps: []step{
				{nothing, `again in 1h0m0s; sent delete a dry run, delete c dry run; left a, b, c; said Normal DryRun done: would delete 2: Pod shop/a, Pod shop/c (it is done), Normal DryRun done: would report 2: Pod shop/a, Pod shop/c (it is done), Normal Reported done: reported 2: Pod shop/a, Pod shop/c (it is done); Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 3; found done 2: Pod shop/a Pod shop/c (it is done); counted 2 acted, 0 failed`},
				{after(time.Minute), `again in 1h0m0s; left a, b, c; Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 3; found done 2: Pod shop/a Pod shop/c (it is done); counted 2 acted, 0 failed`},
			},
		},
		"EvictsHeld": {
			reason: "that a Pod is evicted says not that it is gone", actions: []v1alpha1.RuleAction{{Evict: &v1alpha1.EvictAction{}}}, steps: []step{
				{all(held("a"), freezing), `again in 1s; sent evict a, evict c; left a, b; said Normal Evicted done: evicted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{after(time.Second), `again in 1s; sent evict a, evict a, evict c; left a, b; said Normal Evicted done: evicted 1: Pod shop/c (it is done); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
			},
		},
		"SinkOfVerbs": {
			reason: "the record says what was done", spec: sink, actions: []v1alpha1.RuleAction{
				{When: `object.metadata.name == "a"`, Evict: &v1alpha1.EvictAction{}},
				{When: `object.metadata.name == "c" && !has(object.metadata.labels)`, Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"labels": {"seen": "yes"}}}`}},
			}, steps: []step{
				{nothing, `again in 1h0m0s; sent evict a, patch c; left b, c; said Normal Completed run 1: 1 pods/v1 evicted, 1 pods/v1 patched, Normal Evicted done: evicted 1: Pod shop/a (it is done), Normal Patched done: patched 1: Pod shop/c (it is done); Delivered False Delivering; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; owed 1, 1 pods/v1 evicted, 1 pods/v1 patched, Completed`},
			},
		},
		"Patches": {
			reason: "a patch that was made is not asked for again", actions: []v1alpha1.RuleAction{{
				When: "!has(object.metadata.labels)", Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"labels": {"seen": "yes"}}}`},
			}}, steps: []step{
				{nothing, `again in 1h0m0s; sent patch a, patch c; left a, b, c; said Normal Patched done: patched 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{after(time.Minute), `again in 1h0m0s; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
			},
		},
		"PatchesAgain": {
			reason: "a rule that calls for itself is not let run as fast as it can", actions: []v1alpha1.RuleAction{{
				Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"labels": {"seen": string(object.metadata.resourceVersion)}}}`},
			}}, steps: []step{
				{nothing, `again in 1s; sent patch a, patch c; left a, b, c; said Normal Patched done: patched 2: Pod shop/a, Pod shop/c (it is done); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{after(time.Second / 2), `again in 500ms; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{after(time.Second / 2), `again in 1s; sent patch a, patch c; left a, b, c; said Normal Patched done: patched 2: Pod shop/a, Pod shop/c (it is done); Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 4 acted, 0 failed`},
			},
		},
		"RefusedAndAskedAgain": {
			reason: "an edit, a resume and a request each end the wait after a refusal", steps: []step{
				{refusing(forbidden), `again in 1s; sent delete a, delete c; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 0 acted, 2 failed`},
				{after(time.Second), `again in 1s; sent delete a, delete c; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 0 acted, 2 failed`},
				{after(2 * time.Second), `again in 1s; sent delete a, delete c; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 0 acted, 2 failed`},
				{all(after(time.Second), editing(func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].Reason = `"another"` })), `again in 1s; sent delete a, delete c; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 0 acted, 8 failed`},
				{all(after(time.Second), editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true })), `again in 1h0m0s; left a, b, c; Ready True Suspended; resolved 3; counted 0 acted, 8 failed`},
				{all(after(time.Second), editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false })), `again in 1s; sent delete a, delete c; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 0 acted, 10 failed`},
				{after(time.Second), `again in 1s; sent delete a, delete c; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 0 acted, 10 failed`},
				{all(after(time.Second), refusing(nil), asking("1")), `again in 1h0m0s; sent delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (another); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; requested 1; counted 2 acted, 12 failed`},
			},
		},
		"PatchesForNothing": {
			reason: "a patch that changes nothing is sent once for each version of its object, less and less often, and counts for nothing", actions: []v1alpha1.RuleAction{{
				Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"status": {"phase": "Succeeded"}}`},
			}}, steps: []step{
				{nothing, `again in 1h0m0s; sent patch a, patch c; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
				{after(time.Minute), `again in 1h0m0s; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
				{all(after(time.Minute), putting("a", "Succeeded")), `again in 1h0m0s; sent patch a; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
				{all(after(time.Second), putting("a", "Succeeded")), `again in 1s; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
				{after(time.Second), `again in 1h0m0s; sent patch a; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
				{after(time.Hour), `again in 1h0m0s; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
				{all(after(time.Minute), func(r *rig) { r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].Reason = `"another"` }) }), `again in 1h0m0s; sent patch a, patch c; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
				{after(time.Minute), `again in 1h0m0s; left a, b, c; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
			},
		},
		"PatchesAndDeletes": {
			reason: "a step goes on with the version that the one before has made", actions: []v1alpha1.RuleAction{
				{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"labels": {"seen": "yes"}}}`}}, deletes,
			}, steps: []step{
				{nothing, `again in 1h0m0s; sent delete a, delete c, patch a, patch c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done), Normal Patched done: patched 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 4 acted, 0 failed`},
			},
		},
		"OnePatchRefused": {
			reason: "a refused patch is called so", actions: []v1alpha1.RuleAction{
				{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"labels": {"seen": "yes"}}}`}}, deletes,
			}, steps: []step{
				{refusing(func(verb, name string) *apierrors.StatusError {
					if verb == "patch" && name == "a" {
						return forbidden(verb, name)
					}
					return nil
				}), `again in 1s; sent delete c, patch a, patch c; left a, b; said Normal Deleted done: deleted 1: Pod shop/c (it is done), Normal Patched done: patched 1: Pod shop/c (it is done); Ready False PatchRefused; Stalled True PatchRefused; TargetsResolved True Resolved; resolved 3; counted 2 acted, 1 failed`},
			},
		},
		"PatchRefused": {
			reason: "and does not go on without it", actions: []v1alpha1.RuleAction{
				{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"labels": {"seen": "yes"}}}`}}, deletes,
			}, steps: []step{
				{refusing(func(verb, name string) *apierrors.StatusError {
					if verb == "patch" {
						return forbidden(verb, name)
					}
					return nil
				}), `again in 1s; sent patch a, patch c; left a, b, c; Evaluated True ConditionsMet; Ready True ConditionsMet; TargetsResolved True Resolved; resolved 3; counted 0 acted, 2 failed`},
				{all(refusing(nil), after(time.Minute)), `again in 1h0m0s; sent delete a, delete c, patch a, patch c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done), Normal Patched done: patched 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 4 acted, 2 failed`},
			},
		},
		"DryRun": {
			reason: "a dry run asks once a version, and does nothing", spec: func(c *v1alpha1.Cleaner) { c.Spec.Mode = v1alpha1.ModeDryRun },
			steps: []step{
				{nothing, `again in 1h0m0s; sent delete a dry run, delete c dry run; left a, b, c; said Normal DryRun done: would delete 2: Pod shop/a, Pod shop/c (it is done); Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 3`},
				{after(time.Minute), `again in 1h0m0s; left a, b, c; Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 3`},
				{all(putting("a", "Succeeded"), after(time.Minute)), `again in 1h0m0s; sent delete a dry run; left a, b, c; said Normal DryRun done: would delete 1: Pod shop/a (it is done); Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 3`},
				{all(refusing(forbidden), putting("a", "Succeeded"), after(time.Minute)), `again in 1s; sent delete a dry run; left a, b, c; Evaluated True DryRun; Ready False DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 3`},
				{after(time.Second), `again in 2s; sent delete a dry run; left a, b, c; Evaluated True DryRun; Ready False DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 3`},
				{all(refusing(nil), after(2*time.Second)), `again in 1h0m0s; sent delete a dry run; left a, b, c; said Normal DryRun done: would delete 1: Pod shop/a (it is done); Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 3`},
			},
		},
		"ConfirmedAbsent": {
			reason: "what is absent is read live", spec: absent, steps: []step{
				{freezing, `again in 1h0m0s; sent delete a; left b, c; said Normal Deleted done: deleted 1: Pod shop/a (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 1 acted, 0 failed`},
			},
		},
		"ThereAfterAll": {
			reason: "what is there after all proves that the watches are behind", spec: absent, steps: []step{
				{all(freezing, putting("x", "Running")), `again in 1s; left a, b, c, x; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
				{after(time.Second), `again in 2s; left a, b, c, x; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3`},
			},
		},
		"Unreadable": {
			reason: "what cannot be read proves nothing", spec: absent, steps: []step{
				{all(freezing, unreadable), `again in 1s; left a, b, c; Evaluated False EvaluationFailed; Ready False EvaluationFailed; TargetsResolved True Resolved; resolved 3`},
				{after(time.Second), `again in 2s; left a, b, c; Evaluated False EvaluationFailed; Ready False EvaluationFailed; TargetsResolved True Resolved; resolved 3`},
			},
		},
		"AllUnreadable": {
			reason: "nor does a target that cannot be read as a whole", spec: func(c *v1alpha1.Cleaner) {
				absent(c)
				c.Spec.Rules[0].Confirm[0].Name = ""
			}, steps: []step{
				{all(freezing, unreadable), `again in 1s; left a, b, c; Evaluated False EvaluationFailed; Ready False EvaluationFailed; TargetsResolved True Resolved; resolved 3`},
				{all(readable, after(time.Second)), `again in 1h0m0s; sent delete a; left b, c; said Normal Deleted done: deleted 1: Pod shop/a (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 1 acted, 0 failed`},
			},
		},
		"For": {
			reason: "what has to hold for a while is announced, and then done", spec: func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].For = "10m" },
			steps: []step{
				{nothing, `again in 10m0s; left a, b, c; Evaluated True Holding; Ready True Holding; TargetsResolved True Resolved; resolved 3; pending Pod shop/a at 01:10:00; pending Pod shop/c at 01:10:00; next 01:10:00`},
				{after(10*time.Minute - time.Second), `again in 1s; left a, b, c; Evaluated True Holding; Ready True Holding; TargetsResolved True Resolved; resolved 3; pending Pod shop/a at 01:10:00; pending Pod shop/c at 01:10:00; next 01:10:00`},
				{after(time.Second), `again in 1h0m0s; sent delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
			},
		},
		"Limit": {
			reason: "more than a limit allows is not begun", spec: func(c *v1alpha1.Cleaner) { c.Spec.Limits = &v1alpha1.Limits{MaxActions: 1} },
			steps: []step{
				{nothing, `again in 1h0m0s; left a, b, c; Evaluated True LimitExceeded; Ready False LimitExceeded; Stalled True LimitExceeded; TargetsResolved True Resolved; Tripped True LimitExceeded; resolved 3`},
				{all(gone("a"), after(time.Minute)), `again in 1h0m0s; sent delete c; left b; said Normal Deleted done: deleted 1: Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; counted 1 acted, 0 failed`},
				{all(putting("d", "Succeeded"), after(time.Minute)), `again in 59m0s; left b, d; Evaluated True LimitExceeded; Ready False LimitExceeded; Stalled True LimitExceeded; TargetsResolved True Resolved; Tripped True LimitExceeded; resolved 2; counted 1 acted, 0 failed`},
				{after(58 * time.Minute), `again in 1m0s; left b, d; Evaluated True LimitExceeded; Ready False LimitExceeded; Stalled True LimitExceeded; TargetsResolved True Resolved; Tripped True LimitExceeded; resolved 2; counted 1 acted, 0 failed`},
				{after(time.Minute), `again in 1h0m0s; sent delete d; left b; said Normal Deleted done: deleted 1: Pod shop/d (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed`},
			},
		},
		"Invalid": {
			reason: "a wrong spec is reported, and nothing done", spec: func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = "nobody" },
			steps: []step{
				{nothing, `again in 1h0m0s; left a, b, c; Ready False InvalidSpec; Stalled True InvalidSpec; Valid False InvalidSpec`},
				{editing(func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = "true" }), `again in 1s; sent delete a, delete b, delete c; said Normal Deleted done: deleted 3: Pod shop/a, Pod shop/b, Pod shop/c (it is done); Ready False InvalidSpec; Stalled True InvalidSpec; Valid False InvalidSpec`},
			},
		},
		"Fails": {
			reason: "an error never deletes", spec: func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = "item.spec.nobody" }, steps: []step{
				{nothing, `again in 1h0m0s; left a, b, c; Evaluated False EvaluationFailed; Ready False EvaluationFailed; TargetsResolved True Resolved; resolved 3`},
			},
		},
		"Scheduled": {
			reason: "nothing is done before the schedule is due, nor after it", spec: func(c *v1alpha1.Cleaner) { c.Spec.Schedule = "30 1 * * *" },
			steps: []step{
				{nothing, `again in 30m0s; left a, b, c; Ready True WaitingForSchedule; next 01:30:00`},
				{after(29 * time.Minute), `again in 1m0s; left a, b, c; Ready True WaitingForSchedule; next 01:30:00`},
				{after(time.Minute), `again in 1h0m0s; sent delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; next 01:30:00; scheduled 01:30:00; counted 2 acted, 0 failed`},
				{all(putting("a", "Succeeded"), after(time.Minute)), `again in 1h0m0s; left a, b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; next 01:30:00; scheduled 01:30:00; counted 2 acted, 0 failed`},
				{editing(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now\n"} }), `again in 1h0m0s; sent delete a; left b; said Normal Deleted done: deleted 1: Pod shop/a (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; next 01:30:00; scheduled 01:30:00; requested now ; counted 3 acted, 0 failed`},
				{all(putting("a", "Succeeded"), after(time.Minute)), `again in 1h0m0s; left a, b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; next 01:30:00; scheduled 01:30:00; requested now ; counted 3 acted, 0 failed`},
			},
		},
		"Syncing": {
			reason: "that watches begin is no news for a while", steps: []step{
				{gone("x"), `again in 1h0m0s; sent delete a, delete c; left b; said Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{all(after(warmUp-time.Second), func(r *rig) { r.pods.syncing = true }), `again in 1s; left b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed`},
				{after(time.Second), `again in 1h0m0s; left b; Ready True NotSynced; TargetsResolved False NotSynced; counted 2 acted, 0 failed`},
				{func(r *rig) { r.pods.syncing = false }, `again in 1s; left b; Ready True NotSynced; TargetsResolved False NotSynced; counted 2 acted, 0 failed`},
				{after(time.Second), `again in 1h0m0s; left b; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 1; counted 2 acted, 0 failed`},
			},
		},
		"SyncingAtFirst": {
			reason: "but is, where nothing was said before", steps: []step{
				{func(r *rig) { r.pods.syncing = true }, `again in 1h0m0s; left a, b, c; Ready True NotSynced; TargetsResolved False NotSynced`},
			},
		},
		"Protected": {
			reason: "nothing is done in a protected namespace", steps: []step{
				{func(r *rig) { r.opts.ProtectedNamespaces = []string{"shop"} }, `again in 1h0m0s; left a, b, c; Ready False Protected; Stalled True Protected; TargetsResolved True Resolved; resolved 3`},
			},
		},
		"Own": {
			reason: "nor in the operator's own", steps: []step{
				{func(r *rig) { r.opts.Namespace = "shop" }, `again in 1h0m0s; left a, b, c; Ready False Protected; Stalled True Protected; TargetsResolved True Resolved; resolved 3`},
			},
		},
		"Sink": {
			reason: "a run is recorded before it is done, and owed to the sink", spec: sink, steps: []step{
				{nothing, `again in 1h0m0s; sent delete a, delete c; left b; said Normal Completed run 1: 2 pods/v1 deleted, Normal Deleted done: deleted 2: Pod shop/a, Pod shop/c (it is done); Delivered False Delivering; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 3; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; owed 1, 2 pods/v1 deleted, Completed`},
				{all(after(time.Minute), putting("d", "Succeeded")), `again in 1h0m0s; sent delete d; left b; said Normal Deleted done: deleted 1: Pod shop/d (it is done); Delivered False Delivering; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; counted 3 acted, 0 failed; held by cleaner.vtex.dev/run; run 2, shop/d, ; owed 1, 2 pods/v1 deleted, Completed`},
				{editing(func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "" }), `again in 1s; left b; Delivered False Delivering; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; counted 3 acted, 0 failed`},
			},
		},
		"SinkAndRefusal": {
			reason: "an open run counts until nothing is left", spec: sink, steps: []step{
				{refusing(first), `again in 1s; sent delete a, delete c; left a, b; said Normal Completed run 1: 1 pods/v1 deleted, Normal Deleted done: deleted 1: Pod shop/c (it is done); Delivered False Delivering; Ready False DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 3; counted 1 acted, 1 failed; held by cleaner.vtex.dev/run; owed 1, 1 pods/v1 deleted, Completed`},
				{all(after(time.Minute), refusing(nil)), `again in 1h0m0s; sent delete a; left b; said Normal Deleted done: deleted 1: Pod shop/a (it is done); Delivered False Delivering; Evaluated True NothingToDo; Ready True NothingToDo; TargetsResolved True Resolved; resolved 2; counted 2 acted, 1 failed; held by cleaner.vtex.dev/run; run 2, shop/a, ; owed 1, 1 pods/v1 deleted, Completed`},
			},
		},
		"SinkAndDeleted": {
			reason: "a deleted Cleaner is held for its event, and then goes", spec: sink, steps: []step{
				{refusing(first), `again in 1s; sent delete a, delete c; left a, b; said Normal Completed run 1: 1 pods/v1 deleted, Normal Deleted done: deleted 1: Pod shop/c (it is done); Delivered False Delivering; Ready False DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 3; counted 1 acted, 1 failed; held by cleaner.vtex.dev/run; owed 1, 1 pods/v1 deleted, Completed`},
				{deleting, `again in 1s; left a, b; Delivered False Delivering; Ready False DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 3; counted 1 acted, 1 failed; held by cleaner.vtex.dev/run; owed 1, 1 pods/v1 deleted, Completed`},
				{after(29 * time.Second), `again in 1s; left a, b; Delivered False Delivering; Ready Unknown Delivering; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 3; counted 1 acted, 1 failed; held by cleaner.vtex.dev/run; owed 1, 1 pods/v1 deleted, Completed`},
				{after(time.Second), `again in 1h0m0s; left a, b; said Warning NotDelivered the event of run 1 was not delivered before the Cleaner was deleted: 1 pods/v1 deleted; the Cleaner is gone`},
			},
		},
		"Deleted": {
			reason: "without one it goes at once", steps: []step{
				{deleting, `again in 0s; left a, b, c; the Cleaner is gone`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			actions := tc.actions
			if actions == nil {
				actions = []v1alpha1.RuleAction{deletes}
			}
			c := done(actions...)
			if tc.spec != nil {
				tc.spec(c)
			}
			live(t, tc.reason, newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Running"), aPod("c", "Succeeded")), tc.steps)
		})
	}
}

// absent has a rule that wants what another Pod is absent for.
func absent(c *v1alpha1.Cleaner) {
	r := &c.Spec.Rules[0]
	r.When = `item.metadata.name == "a" && !pods.items.exists(p, p.metadata.name == "x")`
	r.Confirm = []v1alpha1.Confirm{{Target: "pods", Name: `"x"`}}
}

// TestLifeOfOneThatCleansOnce carries Cleaners that clean once from pass to pass.
func TestLifeOfOneThatCleansOnce(t *testing.T) {
	sink := func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "http://127.0.0.1:1" }
	for name, tc := range map[string]struct {
		reason string
		spec   func(c *v1alpha1.Cleaner)
		steps  []step
	}{
		"Deletes": {
			reason: "what is recorded is deleted, and then the Cleaner", steps: []step{
				{nothing, `again in 1h0m0s; sent delete a, delete b; said Normal Completed run 1: 2 pods/v1 deleted, Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; the Cleaner is gone`},
				{after(time.Second), `again in 0s; the Cleaner is gone`},
			},
		},
		"NotMet": {
			reason: "nothing is done before the conditions are true", steps: []step{
				{putting("c", "Running"), `again in 1h0m0s; left a, b, c; Evaluated True ConditionsNotMet; Ready True ConditionsNotMet; TargetsResolved True Resolved; resolved 3; next 02:00:00`},
				{all(after(time.Minute), putting("c", "Succeeded")), `again in 1h0m0s; sent delete a, delete b, delete c; said Normal Completed run 1: 3 pods/v1 deleted, Normal Deleted targets.pods: deleted 3: Pod shop/a, Pod shop/b, Pod shop/c; the Cleaner is gone`},
			},
		},
		"Changed": {
			reason: "the conditions are asked on live reads", steps: []step{
				{all(freezing, putting("a", "Running")), `again in 1s; left a, b; Evaluated True ConditionsNotMet; Ready True ConditionsNotMet; TargetsResolved True Resolved; resolved 2; next 01:00:01`},
				{after(time.Second), `again in 1s; left a, b; Evaluated True ConditionsNotMet; Ready True ConditionsNotMet; TargetsResolved True Resolved; resolved 2; next 01:00:02`},
				{after(time.Second / 2), `again in 500ms; left a, b; Evaluated True ConditionsNotMet; Ready True ConditionsNotMet; TargetsResolved True Resolved; resolved 2; next 01:00:02`},
			},
		},
		"Newer": {
			reason: "what live reads show besides is not agreed on yet", steps: []step{
				{all(freezing, putting("d", "Succeeded")), `again in 1s; left a, b, d; Evaluated True Unconfirmed; Ready True Unconfirmed; TargetsResolved True Resolved; resolved 2; next 01:00:01`},
				{after(time.Second), `again in 1s; left a, b, d; Evaluated True Unconfirmed; Ready True Unconfirmed; TargetsResolved True Resolved; resolved 2; next 01:00:02`},
			},
		},
		"Leaves": {
			reason: "nothing is begun in a namespace that is deleted", steps: []step{
				{leaving, `again in 1s; left a, b; Evaluated True NamespaceTerminating; Ready True NamespaceTerminating; TargetsResolved True Resolved; resolved 2; next 01:00:01`},
			},
		},
		"Unreadable": {
			reason: "what cannot be read proves nothing", steps: []step{
				{all(freezing, unreadable), `again in 1s; left a, b; Ready False AccessDenied; Stalled True AccessDenied; TargetsResolved True Resolved; resolved 2; next 01:00:01`},
				{after(time.Second), `again in 2s; left a, b; Ready False AccessDenied; Stalled True AccessDenied; TargetsResolved True Resolved; resolved 2; next 01:00:03`},
			},
		},
		"NotOwned": {
			reason: "nothing is done by a process that no longer owns the Cleaner", steps: []step{
				{func(r *rig) { r.lease = false }, `again in 200ms; left a, b`},
			},
		},
		"TTL": {
			reason: "nothing is done before the ttl", spec: func(c *v1alpha1.Cleaner) { c.Spec.TTL = "2h" }, steps: []step{
				{nothing, `again in 1h0m0s; left a, b; Ready True WaitingForTTL; next 02:00:00`},
				{after(time.Hour - time.Second), `again in 1s; left a, b; Ready True WaitingForTTL; next 02:00:00`},
				{after(time.Second), `again in 1h0m0s; sent delete a, delete b; said Normal Completed run 1: 2 pods/v1 deleted, Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; the Cleaner is gone`},
			},
		},
		"DryRun": {
			reason: "a dry run asks once a version", spec: func(c *v1alpha1.Cleaner) { c.Spec.Mode = v1alpha1.ModeDryRun }, steps: []step{
				{nothing, `again in 1h0m0s; sent delete a dry run, delete b dry run; left a, b; said Normal DryRun targets.pods: would delete 2: Pod shop/a, Pod shop/b; Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 2; next 02:00:00`},
				{after(time.Minute), `again in 59m0s; left a, b; Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 2; next 02:00:00`},
				{all(putting("a", "Succeeded"), after(time.Minute)), `again in 58m0s; sent delete a dry run; left a, b; said Normal DryRun targets.pods: would delete 1: Pod shop/a; Evaluated True DryRun; Ready True DryRun; TargetsResolved True Resolved; resolved 2; next 02:00:00`},
			},
		},
		"Refused": {
			reason: "what was refused is tried again, and the run is open meanwhile", steps: []step{
				{refusing(forbidden), `again in 1s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{after(time.Second), `again in 2s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(refusing(nil), after(time.Minute)), `again in 1h0m0s; sent delete a, delete b; said Normal Completed run 1: 2 pods/v1 deleted, Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; the Cleaner is gone`},
			},
		},
		"Lost": {
			reason: "as what nobody knows of", steps: []step{
				{refusing(unavailable), `again in 1s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(refusing(nil), after(time.Minute)), `again in 1h0m0s; sent delete a, delete b; said Normal Completed run 1: 2 pods/v1 deleted, Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; the Cleaner is gone`},
			},
		},
		"Replaced": {
			reason: "another object of the name stays, and the next run has a pause before it", steps: []step{
				{refusing(forbidden), `again in 1s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(refusing(nil), gone("a"), func(r *rig) { p := aPod("a", "Running"); p.SetUID("other"); r.pods.put(p) }, after(time.Minute)), `again in 1h0m0s; left a, b; said Warning Partial run 1: 1 pods/v1 kept, 1 pods/v1 replaced (spec.conditions[0] is no longer true: pods.items.all(p, p.status.phase == "Succeeded")); Evaluated True ConditionsNotMet; Ready True ConditionsNotMet; TargetsResolved True Resolved; resolved 2; next 02:01:00; counted 0 acted, 2 failed`},
				{after(time.Second), `again in 59m59s; left a, b; Evaluated True ConditionsNotMet; Ready True ConditionsNotMet; TargetsResolved True Resolved; resolved 2; next 02:01:00; counted 0 acted, 2 failed`},
			},
		},
		"Edited": {
			reason: "an edit stops a run", steps: []step{
				{refusing(forbidden), `again in 1s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(refusing(nil), editing(func(c *v1alpha1.Cleaner) { c.Spec.TTL = "3h" })), `again in 1s; left a, b; said Warning Partial run 1: 2 pods/v1 kept (the spec was edited); Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed`},
				{after(time.Second), `again in 1h0m0s; left a, b; Ready True WaitingForTTL; resolved 2; next 03:00:00; counted 0 acted, 2 failed`},
			},
		},
		"EditedAndGone": {
			reason: "and says what has gone meanwhile", steps: []step{
				{refusing(forbidden), `again in 1s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(refusing(nil), gone("a"), editing(func(c *v1alpha1.Cleaner) { c.Spec.TTL = "3h" })), `again in 1s; left b; said Warning Partial run 1: 1 pods/v1 gone, 1 pods/v1 kept (the spec was edited); Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed`},
			},
		},
		"Suspended": {
			reason: "suspend holds a run", steps: []step{
				{refusing(forbidden), `again in 1s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(refusing(nil), editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true })), `again in 1s; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false }), after(time.Minute)), `again in 1h0m0s; sent delete a, delete b; said Normal Completed run 1: 2 pods/v1 deleted, Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; the Cleaner is gone`},
			},
		},
		"Deleted": {
			reason: "a deletion of the Cleaner abandons its run", steps: []step{
				{refusing(forbidden), `again in 1s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{deleting, `again in 1h0m0s; left a, b; said Warning Abandoned run 1: 2 pods/v1 kept (the Cleaner was deleted); the Cleaner is gone`},
				{after(time.Second), `again in 0s; left a, b; the Cleaner is gone`},
			},
		},
		"Held": {
			reason: "what finalizers hold is waited for, but not for ever", steps: []step{
				{held("a"), `again in 1s; sent delete a, delete b; left a; said Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; Evaluated True ConditionsMet; Ready Unknown Terminating; Reconciling True Terminating; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{after(time.Minute), `again in 2s; left a; Evaluated True ConditionsMet; Ready Unknown Terminating; Reconciling True Terminating; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{after(10 * time.Minute), `again in 1h0m0s; left a; said Normal Completed run 1: 1 pods/v1 deleted, 1 pods/v1 terminating, Warning StillTerminating Pod shop/a still has finalizers: example.com/hold; the Cleaner is gone`},
				{after(time.Second), `again in 0s; left a; the Cleaner is gone`},
			},
		},
		"HeldThenGone": {
			reason: "what has gone is settled", steps: []step{
				{held("a"), `again in 1s; sent delete a, delete b; left a; said Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; Evaluated True ConditionsMet; Ready Unknown Terminating; Reconciling True Terminating; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(gone("a"), after(time.Second)), `again in 1h0m0s; said Normal Completed run 1: 2 pods/v1 deleted; the Cleaner is gone`},
			},
		},
		"SlowAndRefused": {
			reason: "what waits anyway does not wait for the next pass", steps: []step{
				{refusing(forbidden), `again in 1s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{all(after(time.Minute), slow(forbidden)), `again in 2s; sent delete a, delete b; left a, b; Evaluated True ConditionsMet; Ready False DeletionRefused; Reconciling True DeletionRefused; Stalled True DeletionRefused; TargetsResolved True Resolved; resolved 2; counted 0 acted, 2 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
			},
		},
		"Sink": {
			reason: "a finished run stays until the sink has taken its event", spec: sink, steps: []step{
				{nothing, `again in 1h0m0s; sent delete a, delete b; said Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; Delivered False Delivering; Evaluated True ConditionsMet; Ready Unknown Delivering; Reconciling True Delivering; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, 2 pods/v1 deleted, Completed`},
				{after(time.Minute), `again in 1h0m0s; Delivered False Delivering; Evaluated True ConditionsMet; Ready Unknown Delivering; Reconciling True Delivering; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, 2 pods/v1 deleted, Completed`},
			},
		},
		"SinkAndDeleted": {
			reason: "of a deleted Cleaner for as long as its grace", spec: sink, steps: []step{
				{nothing, `again in 1h0m0s; sent delete a, delete b; said Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; Delivered False Delivering; Evaluated True ConditionsMet; Ready Unknown Delivering; Reconciling True Delivering; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, 2 pods/v1 deleted, Completed`},
				{deleting, `again in 30s; Delivered False Delivering; Evaluated True ConditionsMet; Ready Unknown Delivering; Reconciling True Delivering; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, 2 pods/v1 deleted, Completed`},
				{after(29 * time.Second), `again in 1s; Delivered False Delivering; Evaluated True ConditionsMet; Ready Unknown Delivering; Reconciling True Delivering; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, 2 pods/v1 deleted, Completed`},
				{after(time.Second), `again in 1h0m0s; said Warning NotDelivered the event of run 1 was not delivered before the Cleaner was deleted: 2 pods/v1 deleted; the Cleaner is gone`},
			},
		},
		"OutOfTime": {
			reason: "a pass that has lasted long enough leaves the rest to the next one", steps: []step{
				{slow(accepted), `again in 1ms; sent delete a, delete b; said Normal Deleted targets.pods: deleted 2: Pod shop/a, Pod shop/b; Evaluated True ConditionsMet; Ready Unknown Cleaning; Reconciling True Cleaning; TargetsResolved True Resolved; resolved 2; counted 2 acted, 0 failed; held by cleaner.vtex.dev/run; run 1, shop/a, shop/b, `},
				{nothing, `again in 1h0m0s; said Normal Completed run 1: 2 pods/v1 deleted; the Cleaner is gone`},
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

// live carries out steps.
func live(t *testing.T, reason string, r *rig, steps []step) {
	t.Helper()
	for i, s := range steps {
		s.do(r)
		if got := r.line(); got != s.want {
			t.Errorf("%s: pass %d\n got: %s\nwant: %s", reason, i, got, s.want)
		}
	}
}
