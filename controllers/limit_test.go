// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// onKnown has a function called whenever the Cleaner is looked up as the watch knows it: before each evaluation, and before each request.
func (r *rig) onKnown(do func()) {
	r.client = interceptor.NewClient(r.store, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if slices.ContainsFunc(opts, func(opt client.GetOption) bool { return opt == client.UnsafeDisableDeepCopy }) {
				do()
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
}

// A pass ends with the evaluation that is under way when its time is over. What was not confirmed by then waits, longer each time.
func TestAPassEndsInTime(t *testing.T) {
	report := v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}
	for name, tc := range map[string]struct {
		c *v1alpha1.Cleaner
		// takes is how long an evaluation takes, and read how long a live read of an object.
		takes, read time.Duration
	}{
		"Evaluations":   {c: confirming(done(report)), takes: 3 * time.Second},
		"Reads":         {c: confirming(done(report)), read: 2 * time.Second},
		"TheFirstOne":   {c: confirming(done(report)), takes: passLimit},
		"CleaningOnce":  {c: once(), takes: passLimit},
		"CleansByRules": {c: confirming(done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})), takes: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.c, aPod("a", "Succeeded"))
			slow := true
			step := func(d time.Duration) {
				if slow {
					r.clock.Step(d)
				}
			}
			r.onKnown(func() { step(tc.takes) })
			live := r.own.Live
			r.own.Live = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
				if q.Name != "" && q.Kind == "Pod" {
					step(tc.read)
				}
				return live.Read(ctx, q)
			})
			waits := time.Duration(0)
			for range 3 {
				began := r.clock.Now()
				again := r.pass().RequeueAfter
				if took := r.clock.Since(began); took >= passLimit+max(tc.takes, tc.read)+time.Second {
					t.Errorf("the pass took %s", took)
				}
				if again <= waits {
					t.Errorf("it comes back in %s, after %s before", again, waits)
				}
				waits = again
				if e := r.cleaner().Status.LastEvaluation; e == nil || e.Reason != v1alpha1.ReasonUnconfirmed {
					t.Errorf("its status says %+v", e)
				}
				r.clock.Step(again)
			}
			same(t, "requests", nil, r.pods.took())
			slow = false
			r.pass()
			if e := r.cleaner(); e != nil && e.Status.LastEvaluation.Reason == v1alpha1.ReasonUnconfirmed {
				t.Errorf("with time enough its status says %+v", e.Status.LastEvaluation)
			}
		})
	}
}

// confirming has a Cleaner read Pods live, one after the other.
func confirming(c *v1alpha1.Cleaner) *v1alpha1.Cleaner {
	for i := range 16 {
		c.Spec.Rules[0].Confirm = append(c.Spec.Rules[0].Confirm, v1alpha1.Confirm{Target: "pods", Name: fmt.Sprintf(`"n%d"`, i)})
	}
	return c
}

// However many names confirm gives, few objects are read live for a batch, and what is beyond waits for the next one.
func TestFewObjectsAreReadForABatch(t *testing.T) {
	const items, names = 12, 500
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	for i := range 2 {
		c.Spec.Rules[0].Confirm = append(c.Spec.Rules[0].Confirm, v1alpha1.Confirm{
			Target: "pods", Name: fmt.Sprintf(`lists.range(%d).map(i, "%d-" + item.metadata.name + "-" + string(i))`, names, i),
		})
	}
	var pods []*unstructured.Unstructured
	for i := range items {
		pods = append(pods, aPod(fmt.Sprintf("p%02d", i), "Succeeded"))
	}
	r := newRig(t, c, pods...)
	var batch, most, all atomic.Int64
	live, watched := r.own.Live, r.own.Watched
	r.own.Watched = reads(func(ctx context.Context, q snapshot.Query) observed.Target { // before each batch
		batch.Store(0)
		return watched.Read(ctx, q)
	})
	r.own.Live = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
		if q.Name != "" && q.Kind == "Pod" {
			all.Add(1)
			if n := batch.Add(1); n > most.Load() {
				most.Store(n)
			}
		}
		return live.Read(ctx, q)
	})
	r.pass()
	if is := most.Load(); is > plan.MaxReads || is == 0 {
		t.Errorf("%d objects were read for a batch", is)
	}
	if left := len(r.pods.names()); left > 0 {
		t.Errorf("%d objects are left, after %d reads: %+v", left, all.Load(), r.cleaner().Status.LastEvaluation)
	}
}

// An item that rests on too many objects is left alone, and its Cleaner says what to write instead; another item is acted on.
func TestAnItemRestsOnFewObjects(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	for i := range 3 {
		c.Spec.Rules[0].Confirm = append(c.Spec.Rules[0].Confirm, v1alpha1.Confirm{
			Target: "pods", Name: fmt.Sprintf(`item.metadata.name == "a" ? lists.range(1000).map(i, "%d-" + string(i)) : []`, i),
		})
	}
	r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	r.pass()
	same(t, "requests", []string{"delete b"}, r.pods.took())
	after(time.Minute)(r)
	r.pass()
	e := r.cleaner().Status.LastEvaluation
	if len(e.Errors) != 1 || e.Errors[0].Field != "rules[0].confirm" || !strings.Contains(e.Errors[0].Message, "give fewer names") {
		t.Errorf("its status says %+v", e)
	}
	same(t, "requests", nil, r.pods.took())
}

// Whatever a pass waits for while it has its turn, it ends when others wait, and says nothing of it at once.
func TestATurnEndsWhateverIsWaitedFor(t *testing.T) {
	r := newRig(t, confirming(greedy(8_000, "")))
	var called []types.NamespacedName
	r.turns = memoryquota.NewTurns(r.clock, func(key types.NamespacedName) { called = append(called, key) })
	began, ended := make(chan struct{}), make(chan ctrl.Result)
	var once sync.Once
	live := r.own.Live
	r.own.Live = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
		if q.Kind != "Namespace" {
			return live.Read(ctx, q)
		}
		once.Do(func() { close(began) })
		<-ctx.Done() // an API server that does not answer
		return observed.Target{State: observed.Failed, Detail: ctx.Err().Error()}
	})
	go func() {
		result, err := r.Reconcile(t.Context(), r.request())
		if err != nil {
			t.Error(err)
		}
		ended <- result
	}()
	<-began
	key := types.NamespacedName{Namespace: "other", Name: "c"}
	other := r.turns.BeginPass(key)
	for range 3 {
		if other.HoldBytes(2 * memoryquota.Small) {
			t.Fatal("two have their turn")
		}
		other.EndPass()
		r.clock.Step(memoryRetry)
		other = r.turns.BeginPass(key)
	}
	if result := <-ended; result.RequeueAfter != memoryRetry {
		t.Errorf("it comes back in %s", result.RequeueAfter)
	}
	if len(called) != 1 || called[0] != key || !other.HoldBytes(2*memoryquota.Small) {
		t.Errorf("%v was called, and another has no turn", called)
	}
	if e := r.cleaner().Status.LastEvaluation; e != nil {
		t.Errorf("its status says %+v", e)
	}
}

// sharing is a Cleaner of which the Pods a-N and b-N each share the Pod s-N, once they are patched; and its Pods. Those named b are refused.
func sharing(t *testing.T, n int) *rig {
	t.Helper()
	patch := &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"annotations": {"x": "y"}}}`}
	c := done(v1alpha1.RuleAction{Patch: patch}, v1alpha1.RuleAction{
		Object: `pods.items.filter(s, s.metadata.name == "s-" + item.metadata.name.substring(2))[0]`, Patch: patch,
	})
	c.Spec.Rules[0].ForEach = `pods.items.filter(p, !p.metadata.name.startsWith("s-") && !has(p.metadata.annotations))`
	var pods []*unstructured.Unstructured
	for i := range n {
		for _, kind := range []string{"a", "b", "s"} {
			pods = append(pods, aPod(fmt.Sprintf("%s-%d", kind, i), "Succeeded"))
		}
	}
	return newRig(t, c, pods...)
}

func refuseB(name string) *apierrors.StatusError {
	if strings.HasPrefix(name, "b-") {
		return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("X").GroupKind(), name, nil)
	}
	return nil
}

// However many steps are made anew for some of their items, one evaluation says how.
func TestStepsAreMadeAnewByOneEvaluation(t *testing.T) {
	const n = 20
	r := sharing(t, n)
	var known atomic.Int32
	r.onKnown(func() { known.Add(1) })
	r.pods.answer = func(_, name string) *apierrors.StatusError { return refuseB(name) }
	r.pass()
	sent := r.pods.took()
	if !slices.Contains(sent, "patch s-0") {
		t.Errorf("it has sent %v", sent)
	}
	if evaluations := int(known.Load()) - len(sent); evaluations > n/2 {
		t.Errorf("it has evaluated %d times", evaluations)
	}
}

// A step that has to be made anew when no time is left is not taken.
func TestNoStepIsMadeAnewTooLate(t *testing.T) {
	r := sharing(t, 1)
	r.pods.answer = func(_, name string) *apierrors.StatusError {
		if strings.HasPrefix(name, "b-") {
			r.clock.Step(passLimit)
		}
		return refuseB(name)
	}
	r.pass()
	first := r.pods.took() // a is sent beside b, or is too late as well
	if slices.Contains(first, "patch s-0") {
		t.Errorf("it has sent %v", first)
	}
	r.pods.answer = nil
	r.clock.Step(time.Minute)
	r.pass()
	same(t, "requests of both passes", []string{"patch a-0", "patch b-0", "patch b-0", "patch s-0"}, slices.Sorted(slices.Values(append(first, r.pods.took()...))))
}
