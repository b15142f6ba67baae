// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
)

// workersAtOnce is how many Cleaners are worked on at a time.
const workersAtOnce = DefaultWorkers

// watchHeap says how many bytes were in use at most since it was called: of each collection of garbage, what that has left.
func watchHeap() (most func() int64) {
	var high atomic.Int64
	var over atomic.Bool
	look := func() {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		if is := int64(sample[0].Value.Uint64()); is > high.Load() {
			high.Store(is)
		}
	}
	type sentinel struct{ _ [16]byte }
	var arm func(*sentinel)
	arm = func(*sentinel) { // it is called once a collection
		if look(); !over.Load() {
			runtime.SetFinalizer(&sentinel{}, arm)
		}
	}
	runtime.SetFinalizer(&sentinel{}, arm)
	return func() int64 {
		over.Store(true)
		look()
		return high.Load()
	}
}

// costly has variables that build as much as one evaluation may, and conditions that look at all of it for long.
func costly() *v1alpha1.Cleaner {
	c := done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}})
	sum := "0"
	for i := range 5 {
		c.Spec.Variables = append(c.Spec.Variables, v1alpha1.Variable{Name: fmt.Sprintf("v%d", i), Expression: "lists.range(120000).map(x, [dyn(x)])"})
		sum += fmt.Sprintf(" + variables.v%d.size()", i)
	}
	c.Spec.Conditions = []string{sum + " < 0 || lists.range(500).all(a, lists.range(500).all(b, a + b >= 0)) && " + sum + " < 0"}
	return c
}

// However much the evaluations want that run at the same time, they take a bounded amount of memory together, and each has its turn.
func TestEvaluationsShareMemory(t *testing.T) {
	for name, newCleaner := range map[string]func() *v1alpha1.Cleaner{
		"ReportsOfItems": func() *v1alpha1.Cleaner { return greedy(12_000, "") },
		"Variables":      costly,
	} {
		t.Run(name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(50)) // so that what is in use is known often
			rigs, called := make([]*rig, workersAtOnce), map[string]chan struct{}{}
			turns := memoryquota.NewTurns(clock.RealClock{}, func(key types.NamespacedName) { called[key.Name] <- struct{}{} })
			for i := range rigs {
				rigs[i] = newRig(t, newCleaner())
				c := rigs[i].cleaner()
				rigs[i].name = fmt.Sprint("c-", i)
				c.Name, c.ResourceVersion = rigs[i].name, ""
				rigs[i].keepCleaner(c)
				rigs[i].turns = turns
				called[rigs[i].name] = make(chan struct{}, 1000)
			}
			runtime.GC()
			before := heap()
			most := watchHeap()
			var all sync.WaitGroup
			for _, r := range rigs {
				all.Go(func() {
					for range 20 {
						result := r.pass()
						if c := r.cleaner(); c.Status.LastEvaluation != nil && c.Status.LastEvaluation.Reason != v1alpha1.ReasonEvaluationFailed {
							return
						}
						r.clock.Step(DefaultMinInterval)
						if result.RequeueAfter == memoryRetry {
							select {
							case <-called[r.name]:
							case <-time.After(time.Minute):
							}
						}
					}
					t.Errorf("%s: it has had no turn: %+v", r.name, r.cleaner().Status.LastEvaluation)
				})
			}
			all.Wait()
			if taken := most() - before; taken > 256<<20 {
				t.Errorf("the evaluations took %d MiB", taken>>20)
			} else {
				t.Logf("the evaluations took %d MiB", taken>>20)
			}
		})
	}
}

// While others take much memory a Cleaner that needs much says so after a while, does nothing, and leaves a request unanswered; when they
// end it is called, and goes on.
func TestWaitsForItsTurn(t *testing.T) {
	c := greedy(8_000, "")
	c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now"}
	r := newRig(t, c)
	var called []types.NamespacedName
	r.turns = memoryquota.NewTurns(r.clock, func(key types.NamespacedName) { called = append(called, key) })
	other := r.turns.BeginPass(types.NamespacedName{Namespace: "other", Name: "c"})
	if !other.HoldBytes(2 * memoryquota.Small) {
		t.Fatal("nobody may take much")
	}
	if result := r.pass(); result.RequeueAfter != memoryRetry || len(r.cleaner().Status.Conditions) > 0 {
		t.Errorf("at once it comes back in %s, and says %+v", result.RequeueAfter, r.cleaner().Status.Conditions)
	}
	r.clock.Step(memoryWaitShown)
	r.pass()
	ready := meta.FindStatusCondition(r.cleaner().Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason != v1alpha1.ReasonEvaluationFailed || !strings.Contains(ready.Message, "waits for its turn") {
		t.Errorf("after a while it says %+v", ready)
	}
	if s := r.cleaner().Status; s.LastRequestedAt != "" || len(s.LastActions) > 0 || len(called) > 0 {
		t.Errorf("it has answered %q, done %v, and was called %v", s.LastRequestedAt, s.LastActions, called)
	}
	other.EndPass()
	if len(called) != 1 || called[0] != r.key() {
		t.Errorf("%v was called", called)
	}
	after(DefaultMinInterval)(r)
	r.pass()
	if s := r.cleaner().Status; s.LastRequestedAt != "now" || len(s.LastActions) == 0 {
		t.Errorf("it has answered %q, and done %v", s.LastRequestedAt, s.LastActions)
	}
	late := r.turns.BeginPass(types.NamespacedName{Namespace: "other", Name: "c"})
	if !late.HoldBytes(2 * memoryquota.Small) {
		t.Error("it keeps its turn after the pass")
	}
}

// Cleaners that stand in line for much memory, and are suspended before their turn, keep nobody waiting.
func TestSuspendedCleanersLeaveTheLine(t *testing.T) {
	fake := clocktesting.NewFakeClock(epoch.Add(time.Hour))
	var called []types.NamespacedName
	turns := memoryquota.NewTurns(fake, func(key types.NamespacedName) { called = append(called, key) })
	holder := turns.BeginPass(types.NamespacedName{Namespace: "shop", Name: "holder"})
	if !holder.HoldBytes(2 * memoryquota.Small) {
		t.Fatal("nobody may take much")
	}
	rigs := map[types.NamespacedName]*rig{}
	for i := range 10 {
		r := newRig(t, greedy(12_000, ""))
		c := r.cleaner()
		r.name, r.turns = fmt.Sprint("c-", i), turns
		c.Name, c.ResourceVersion = r.name, ""
		r.keepCleaner(c)
		r.pass()
		after(DefaultMinInterval)(r)
		rigs[r.key()] = r
	}
	fake.Step(time.Second)
	holder.EndPass()
	other := types.NamespacedName{Name: "of-the-cluster"}
	waiting := turns.BeginPass(other)
	if waiting.HoldBytes(2 * memoryquota.Small) {
		t.Fatal("two take much")
	}
	waiting.EndPass()
	for _, r := range rigs {
		c := r.cleaner()
		c.Spec.Suspend = true
		c.Generation++
		must(t, r.store.Update(t.Context(), c))
	}
	for n := 0; n < len(called) && called[n] != other; n++ { // who is called has a pass
		rigs[called[n]].pass()
	}
	again := turns.BeginPass(other)
	if !slices.Contains(called, other) || !again.HoldBytes(2*memoryquota.Small) {
		t.Errorf("%v were called, and no turn is left for another", called)
	}
	if len(called) > 3 {
		t.Errorf("%d were called before it", len(called))
	}
}
