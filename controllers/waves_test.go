// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// executing is an executor of a pass over a Cleaner that stays, or of the run of one that cleans once.
func executing(t *testing.T, r *rig, ofRun bool) *executor {
	t.Helper()
	p, err := r.beginPass(t.Context(), r.request(), r.memories.memoryOf(r.key()))
	must(t, err)
	t.Cleanup(p.endPass)
	b := &executor{
		pass: p, in: p.evaluator.inputAt(nil, r.clock.Now(), nil), seen: life.Acted{}, answers: map[types.UID]*life.RowAnswer{}, partly: map[types.UID]bool{},
		watched: map[types.UID]observed.Object{}, versions: map[types.UID]string{},
	}
	if ofRun {
		p.store.Draft.State().Run = &v1alpha1.Run{Number: 1}
		b.run = &p.mem.run
	}
	return b
}

// stepOn is a step on a Pod of the name a.
func stepOn(verb plan.Verb, uid types.UID) *plan.Step {
	ref := observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "a", UID: uid, ResourceVersion: "1"}
	return &plan.Step{Rule: "done", Verb: verb, Keys: []string{"a"}, Object: observed.Object{Ref: ref}}
}

// What may have been done counts for limits, as what was done does, and nothing that was surely not done.
func TestWhatMayHaveBeenDoneCounts(t *testing.T) {
	for _, tc := range []struct {
		kind                          life.AnswerKind
		done, lost, waits, cut, deeds bool
	}{
		{kind: life.AnswerDone, done: true, deeds: true},
		{kind: life.AnswerNotFound, done: true},
		{kind: life.AnswerLost, lost: true, waits: true, deeds: true},
		{kind: life.AnswerUnknown, lost: true, waits: true, deeds: true},
		{kind: life.AnswerRefused, waits: true},
		{kind: life.AnswerConflict},
		{kind: life.AnswerUnsent, cut: true},
	} {
		for _, ofRun := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.kind, " ", ofRun), func(t *testing.T) {
				c := done(deletes())
				c.Spec.Limits = &v1alpha1.Limits{MaxActions: 10}
				b := executing(t, newRig(t, c), ofRun)
				out := actuate.Outcome{Answer: life.Answer{Kind: tc.kind, Why: "why", RetryAfter: time.Minute}}
				if got := b.recordOutcome(stepOn(plan.VerbDelete, "uid-a"), out); got != tc.done {
					t.Errorf("it is done: %t", got)
				}
				if deeds := len(b.pass.mem.Done) == 1; deeds != tc.deeds {
					t.Errorf("%d deeds count", len(b.pass.mem.Done))
				}
				a := b.answerOf("uid-a")
				if a.Lost != tc.lost || a.Cut != tc.cut || b.unsent != tc.cut {
					t.Errorf("the answer is %+v, and something is not sent: %t", a, b.unsent)
				}
				if waits := a.Failed == "why" && a.RetryAfter == time.Minute; waits != tc.waits {
					t.Errorf("it waits: %t: %+v", waits, a)
				}
				if _, waits := b.pass.mem.Backoff["uid-a"]; waits != (tc.waits && !ofRun) { // a run knows itself how long
					t.Errorf("a Cleaner that stays waits: %t", waits)
				}
			})
		}
	}
}

// An object that comes back each time that it is deleted or evicted is told of, once.
func TestWhatComesBackEachTimeIsToldOf(t *testing.T) {
	for _, tc := range []struct {
		verb plan.Verb
		kind life.AnswerKind
		loop bool
	}{
		{plan.VerbDelete, life.AnswerDone, true},
		{plan.VerbEvict, life.AnswerDone, true},
		{plan.VerbHelmUninstall, life.AnswerDone, true},
		{plan.VerbDelete, life.AnswerNotFound, false}, // somebody else deletes it
		{plan.VerbPatch, life.AnswerDone, false},
		{plan.VerbRemoveFinalizer, life.AnswerDone, false},
	} {
		t.Run(fmt.Sprint(tc.verb, " ", tc.kind), func(t *testing.T) {
			r := newRig(t, done(deletes()))
			b := executing(t, r, false)
			for n := range 5 {
				b.recordDone(stepOn(tc.verb, types.UID(fmt.Sprint("uid-", n))), actuate.Outcome{Answer: life.Answer{Kind: tc.kind}}, r.clock.Now())
			}
			b.pass.journal.RecordEvents()
			told := 0
			for _, e := range r.events.list {
				if e.Reason == v1alpha1.ReasonRecreationLoop {
					told++
				}
			}
			if told > 1 || (told == 1) != tc.loop {
				t.Errorf("it is told %d times: %v", told, r.said())
			}
		})
	}
}

// What a live read shows to be gone, or to be another object now, is not acted on again while the watches show it.
func TestWhatWasFoundGoneIsRemembered(t *testing.T) {
	row := stepOn(plan.VerbDelete, "uid-a").MakeRow().String()
	run := &v1alpha1.Run{Rows: []string{row, "unreadable"}}
	for name, tc := range map[string]struct {
		at    int
		sight life.Sight
		gone  bool
	}{
		"Missing":    {0, life.Sight{Missing: true}, true},
		"Another":    {0, life.Sight{UID: "another", ResourceVersion: "7"}, true},
		"There":      {0, life.Sight{UID: "uid-a", ResourceVersion: "7"}, false},
		"Unknown":    {0, life.Sight{Failed: "the API server is busy"}, false},
		"Unreadable": {1, life.Sight{Missing: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := executing(t, newRig(t, done(deletes())), false)
			b.pass.openRun.rememberGone(run, map[int]life.Sight{tc.at: tc.sight})
			e, known := b.pass.mem.Overlay["uid-a"]
			if known != tc.gone || known && (!e.Gone || !slices.Equal(e.Before, []string{"1"})) || len(b.pass.mem.Overlay) > 1 {
				t.Errorf("remembered is %+v", b.pass.mem.Overlay)
			}
		})
	}
}

// An object that changes before its deletion (409) is decided again in the same batch: with its new group, and with what the batch has deleted
// since. A request that the API server refused counts for no limit.
func TestLimitsPerGroupAfterAConflict(t *testing.T) {
	ofGroup := func(name, phase, group string) *unstructured.Unstructured {
		p := aPod(name, phase)
		p.SetLabels(map[string]string{"group": group})
		return p
	}
	replaced := ofGroup("a", "Succeeded", "x")
	replaced.SetUID("second")
	for name, tc := range map[string]struct {
		reason   string
		perGroup int64
		pods     []*unstructured.Unstructured
		// changed is what a Pod has become when its deletion arrives, and later are those that are there in the next pass.
		changed *unstructured.Unstructured
		later   []*unstructured.Unstructured
		// first and last are the Pods that are left after the first pass and the last.
		first, last []string
		ready       string
	}{
		"OverTheLimit": {
			reason: "its new group has no room left", perGroup: 1, pods: []*unstructured.Unstructured{ofGroup("a", "Succeeded", "x"), ofGroup("b", "Succeeded", "y")},
			changed: ofGroup("b", "Succeeded", "x"), first: []string{"b"}, last: []string{"b"}, ready: v1alpha1.ReasonLimitExceeded,
		},
		"RoomInTheOther": {
			reason: "its new group has room", perGroup: 1, pods: []*unstructured.Unstructured{ofGroup("a", "Succeeded", "x"), ofGroup("b", "Succeeded", "y")},
			changed: ofGroup("b", "Succeeded", "z"), ready: v1alpha1.ReasonNothingToDo,
		},
		"Again": {
			reason: "it counts once", perGroup: 2, pods: []*unstructured.Unstructured{ofGroup("a", "Succeeded", "x"), ofGroup("b", "Succeeded", "x")},
			changed: ofGroup("a", "Succeeded", "x"), ready: v1alpha1.ReasonNothingToDo,
		},
		"Replaced": {
			reason: "only the one that was deleted counts", perGroup: 2, pods: []*unstructured.Unstructured{ofGroup("a", "Succeeded", "x"), ofGroup("b", "Succeeded", "x")},
			changed: replaced, ready: v1alpha1.ReasonNothingToDo,
		},
		"Spared": {
			reason: "one that is no longer wanted counts for none", perGroup: 3, pods: []*unstructured.Unstructured{ofGroup("a", "Succeeded", "x"), ofGroup("b", "Succeeded", "x")},
			changed: ofGroup("a", "Running", "x"), later: []*unstructured.Unstructured{ofGroup("c", "Succeeded", "x"), ofGroup("d", "Succeeded", "x")},
			first: []string{"a"}, last: []string{"a"}, ready: v1alpha1.ReasonNothingToDo,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := done(deletes())
			c.Spec.Rules[0].GroupBy = "item.metadata.labels.group"
			c.Spec.Limits = &v1alpha1.Limits{PerGroup: tc.perGroup}
			r := newRig(t, c, tc.pods...)
			conflicts := 0
			r.pods.answer = func(_, name string) *apierrors.StatusError {
				if name == tc.changed.GetName() && conflicts == 0 {
					conflicts++
					r.pods.keep(tc.changed)
				}
				return nil // the precondition of the request fails
			}
			r.pass()
			if got := r.pods.names(); conflicts != 1 || !slices.Equal(got, tc.first) {
				t.Errorf("%s: after %d conflicts there are %v, want %v", tc.reason, conflicts, got, tc.first)
			}
			for _, p := range tc.later {
				r.pods.put(p)
			}
			r.try(3, time.Minute)
			if got := r.pods.names(); !slices.Equal(got, tc.last) {
				t.Errorf("%s: in the end there are %v, want %v", tc.reason, got, tc.last)
			}
			if ready := meta.FindStatusCondition(r.cleaner().Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != tc.ready {
				t.Errorf("%s: it says %+v, want %s", tc.reason, ready, tc.ready)
			}
		})
	}
}
