// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// newEvaluator is the evaluator of a Cleaner in a namespace of its own, whose last evaluation took so long.
func (r *rig) newEvaluator(namespace string, took time.Duration) *evaluator {
	mem := newMemory("uid", mine)
	mem.took = took
	c := r.cleaner()
	c.Namespace = namespace
	return newPass(r.CleanerReconciler, c, types.NamespacedName{Namespace: namespace, Name: r.name}, resolvedspec.Assignment{Work: c.Work()}, mem).evaluator
}

// Every evaluation has a slot, however quick the last one of its Cleaner was: so no more compute than there are slots.
func TestEveryEvaluationHasASlot(t *testing.T) {
	const places, evaluations = 2, 12
	r := newRig(t, done())
	r.slots = fair.NewSlots(places, r.clock)
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int64
		leave := make(chan struct{})
		for n := range evaluations {
			p := r.newEvaluator(fmt.Sprint("namespace-", n), time.Duration(n)*20*time.Millisecond)
			go func() {
				_, end := p.beginEvaluation(t.Context())
				defer end()
				inside.Add(1)
				defer inside.Add(-1)
				<-leave
			}()
		}
		for left := evaluations; left > 0; left-- {
			synctest.Wait()
			if n := inside.Load(); n != int64(min(left, places)) {
				t.Errorf("%d compute, %d are left, and there are %d slots", n, left, places)
			}
			leave <- struct{}{}
		}
	})
}

// The time of an evaluation begins when it has its slot: it may wait for as long as others take.
func TestAWaitIsNoTimeOfAnEvaluation(t *testing.T) {
	r := newRig(t, done())
	r.slots = fair.NewSlots(1, r.clock)
	work := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"lists.range(1000).all(x, x >= 0)"}}}
	synctest.Test(t, func(t *testing.T) {
		compiler, err := celenv.NewCompiler(celenv.Options{})
		must(t, err)
		programs, errs := compiler.Compile(t.Context(), work)
		must(t, errs.ToAggregate())
		_, end := r.newEvaluator("first", 0).beginEvaluation(t.Context())
		answers := make(chan []celenv.Result)
		waits := r.newEvaluator("second", time.Millisecond)
		go func() {
			ctx, end := waits.beginEvaluation(t.Context())
			defer end()
			answers <- programs.EvaluateConditions(ctx, celenv.Input{})
		}()
		synctest.Wait()
		<-time.After(time.Hour) // of the clock of the test
		r.clock.Step(time.Hour)
		end()
		if got := <-answers; got[0].Err != nil || !got[0].Value {
			t.Errorf("after a wait it gives %+v", got[0])
		}
		if synctest.Wait(); waits.pass.waited != time.Hour || waits.pass.mem.took >= time.Minute {
			t.Errorf("it has waited for %s, and evaluated for %s", waits.pass.waited, waits.pass.mem.took)
		}
	})
}

// One that does not get its slot, because its Cleaner is changed, computes nothing.
func TestWithoutASlotNothingIsComputed(t *testing.T) {
	r := newRig(t, done())
	r.slots = fair.NewSlots(1, r.clock)
	_, end := r.newEvaluator("first", 0).beginEvaluation(t.Context())
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	evaluating, over := r.newEvaluator("second", time.Millisecond).beginEvaluation(ctx)
	defer over()
	if evaluating.Err() == nil {
		t.Error("it goes on without a slot")
	}
}

// An evaluation that is under way ends when its Cleaner is suspended, edited or deleted, and so does one that begins afterwards.
func TestAnEvaluationEndsWithItsCleaner(t *testing.T) {
	deleted := metav1.NewTime(epoch)
	loops := "lists.range(2000).all(a, lists.range(2000).all(b, a + b >= 0))"
	work := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{loops}}}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	must(t, err)
	programs, errs := compiler.Compile(t.Context(), work)
	must(t, errs.ToAggregate())
	for name, change := range map[string]func(c *v1alpha1.Cleaner){
		"Suspended": func(c *v1alpha1.Cleaner) { c.Spec.Suspend, c.Generation = true, c.Generation+1 },
		"Edited":    func(c *v1alpha1.Cleaner) { c.Spec.TTL, c.Generation = "1d", c.Generation+1 },
		"Deleted":   func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &deleted },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, done())
			r.slots = fair.NewSlots(1, r.clock)
			c := r.cleaner()
			p := r.newEvaluator(c.Namespace, 0)
			ctx, end := p.beginEvaluation(t.Context())
			change(c)
			r.evaluations.CancelOutdated(c)
			if got := programs.EvaluateConditions(ctx, celenv.Input{}); ctx.Err() == nil || got[0].Err == nil {
				t.Errorf("it goes on, and gives %+v", got[0])
			}
			end()
			r.onKnown(func() { r.evaluations.CancelOutdated(c) }) // the watch shows the change before the slot is asked for
			ctx, end = p.beginEvaluation(t.Context())
			defer end()
			if ctx.Err() == nil {
				t.Error("one begins for a Cleaner that was changed")
			}
		})
	}
}

// There are no more slots than processors, nor than memory for evaluations.
func TestCountEvaluationSlots(t *testing.T) {
	if n := countEvaluationSlots(); n < 1 || n > runtime.GOMAXPROCS(0) || n > mostEvaluations {
		t.Errorf("%d processors have %d slots", runtime.GOMAXPROCS(0), n)
	}
}

// What a decision rests on is read live after a long wait for a slot, and not before it: else each wait that is longer than reads serve
// would make it start again.
func TestLongWaitsForSlotsDelayNoConfirmation(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Once": once(), "Recurring": done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})} {
		for _, wait := range []time.Duration{0, 2 * life.ConfirmationServes} {
			t.Run(fmt.Sprint(name, wait), func(t *testing.T) {
				r := newRig(t, c.DeepCopy(), aPod("a", "Succeeded"))
				asked := &readings{PassiveClock: r.clock}
				r.slots = fair.NewSlots(1, asked)
				neighbour := types.NamespacedName{Namespace: "other", Name: "c"}
				first, err := r.slots.TakeSlot(t.Context(), neighbour)
				must(t, err)
				passed := make(chan struct{})
				go func() {
					defer close(passed)
					r.pass()
				}()
				asked.await(t, 2)
				r.clock.Step(wait)
				next := r.slots.AskSlot(neighbour, func() {}) // it comes next, as soon as the evaluation is over
				first.GiveBack()
				asked.await(t, 6)
				r.clock.Step(wait)
				next.GiveBack()
				<-passed
				if c := r.cleaner(); c != nil && c.Status.Run == nil && len(r.did()) == 0 {
					t.Errorf("nothing is done: %s", r.line())
				}
			})
		}
	}
}

// waitAPass has a pass wait so long for each of its first n slots.
func waitAPass(r *rig, asked *readings, wait time.Duration) (err error) {
	r.t.Helper()
	neighbour := types.NamespacedName{Namespace: "other", Name: "c"}
	before := asked.asked.Load()
	first, e := r.slots.TakeSlot(r.t.Context(), neighbour)
	must(r.t, e)
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		_, err = r.Reconcile(r.t.Context(), r.request())
	}()
	asked.await(r.t, before+2)
	r.clock.Step(wait)
	first.GiveBack()
	<-passed
	return err
}

// A pass that panics while it confirms, after a long wait for its slot, keeps no slot.
func TestAPanicKeepsNoSlot(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Once": once(), "Recurring": done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c, aPod("a", "Succeeded"))
			asked := &readings{PassiveClock: r.clock}
			r.slots = fair.NewSlots(1, asked)
			live := r.own.Live
			r.own.Live = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
				if q.Kind == "Namespace" {
					r.opts.Skew = nil // what is asked next, in this pass, panics
				}
				return live.Read(ctx, q)
			})
			_ = waitAPass(r, asked, 2*life.ConfirmationServes) // so long that it takes the slot before the live reads
			if r.opts.Skew != nil {
				t.Fatal("it has not come to the live reads")
			}
			slot := r.slots.AskSlot(types.NamespacedName{Namespace: "other", Name: "c"}, func() {})
			defer slot.GiveBack()
			if !slot.IsHeld() {
				t.Error("the slot is lost for ever: no other evaluation begins")
			}
		})
	}
}
