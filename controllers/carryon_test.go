// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// onceBy is a Cleaner that does this to Pods that have succeeded, and goes when that is done.
func onceBy(actions ...v1alpha1.RuleAction) *v1alpha1.Cleaner {
	c := done(actions...)
	c.Spec.Lifecycle = v1alpha1.LifecycleOnce
	return c
}

func deletes() v1alpha1.RuleAction { return v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}} }

func patching(expression string) v1alpha1.RuleAction {
	return v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: expression}}
}

// An object that changes faster than all of them are read is read once more by itself, decided on and deleted.
func TestARowIsReadOnceMore(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Target": once(), "Rule": onceBy(deletes())} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"))
			r.pods.listed = func() {
				if p := r.pods.objects["a"]; p != nil {
					r.pods.keep(p.DeepCopy())
				}
			}
			r.pass()
			same(t, "requests", []string{"delete a", "delete a", "delete b"}, r.pods.took())
			if r.cleaner() != nil {
				t.Errorf("the Cleaner is there, and so are %v", r.pods.names())
			}
		})
	}
}

// What an object has become counts: one that is not to be deleted any more is left.
func TestARowThatHasChangedIsDecidedOn(t *testing.T) {
	r := newRig(t, onceBy(deletes()), aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	r.pods.listed = func() {
		if r.pods.objects["a"].Object["status"].(map[string]any)["phase"] == "Succeeded" {
			r.pods.keep(aPod("a", "Running"))
		}
	}
	r.pass()
	same(t, "requests", []string{"delete a", "delete b"}, r.pods.took())
	same(t, "left", []string{"a"}, r.pods.names())
	same(t, "said", []string{
		"Normal Deleted done: deleted 1: Pod shop/b (it is done)",
		"Warning Partial run 1: 1 pods/v1 deleted, 1 pods/v1 kept (1 of 2 objects were not deleted)",
	}, r.said())
}

// One that changes each time waits, and it is said which one it is.
func TestARowThatChangesEachTime(t *testing.T) {
	r := newRig(t, onceBy(deletes()), aPod("a", "Succeeded"))
	refusing(func(string, string) *apierrors.StatusError {
		r.pods.keep(r.pods.objects["a"].DeepCopy())
		return nil
	})(r)
	same(t, "the pass", "again in 1s; sent delete a, delete a, delete a, delete a; left a; Evaluated True ConditionsMet; Ready False TargetUnstable; Reconciling True TargetUnstable; Stalled True TargetUnstable; TargetsResolved True Resolved; resolved 1; held by cleaner.vtex.dev/run; run 1, shop/a, ", r.line())
	refusing(nil)(r)
	r.clock.Step(time.Second)
	r.pass()
	if r.cleaner() != nil {
		t.Errorf("the Cleaner is there, and so are %v", r.pods.names())
	}
}

// What an action has done is not done again when the next one was refused, and what its rule sees of it is what it was.
func TestARowGoesOnWithItsNextAction(t *testing.T) {
	c := onceBy(patching(`{"status": {"phase": "Failed"}}`), deletes())
	r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	refusing(func(verb, name string) *apierrors.StatusError {
		if verb == "delete" && name == "a" {
			return forbidden(verb, name)
		}
		return nil
	})(r)
	r.pass()
	same(t, "requests", []string{"delete a", "delete b", "patch a", "patch b"}, r.pods.took())
	for range 4 { // beyond what a confirmation serves
		r.clock.Step(8 * time.Second)
		r.pass()
	}
	if sent := r.pods.took(); slices.Contains(sent, "patch a") || !slices.Contains(sent, "delete a") {
		t.Errorf("it has sent %v", sent)
	}
	refusing(nil)(r)
	r.clock.Step(time.Minute)
	r.pass()
	same(t, "requests", []string{"delete a"}, r.pods.took())
	if r.cleaner() != nil {
		t.Errorf("the Cleaner is there, and so are %v", r.pods.names())
	}
}

// What comes after an action that is refused waits for it, even if somebody else restarts the object meanwhile.
func TestARowWaitsForAnEarlierAction(t *testing.T) {
	second := patching(`{"metadata": {"labels": {"step": "2"}}}`)
	second.Object = "pods.items.filter(p, p.metadata.name == 'z')[0]"
	c := onceBy(second, deletes())
	c.Spec.Rules[0].When = `item.metadata.name == "y"`
	r := newRig(t, c, aPod("y", "Succeeded"), aPod("z", "Succeeded"))
	refusing(func(verb, name string) *apierrors.StatusError {
		if name == "z" {
			return forbidden(verb, name)
		}
		return nil
	})(r)
	for range 5 {
		r.pass()
		r.clock.Step(time.Minute)
	}
	same(t, "requests", []string{"patch z", "patch z", "patch z", "patch z", "patch z"}, r.pods.took())
	t.Run("ItIsDone", func(t *testing.T) {
		refusing(nil)(r)
		r.pass()
		same(t, "requests", []string{"delete y", "patch z"}, r.pods.took())
		same(t, "left", []string{"z"}, r.pods.names())
	})
}

// Another object of the name of one that an action was about leaves what comes after it alone, and the run is Partial.
func TestARowAfterAnObjectThatWasMadeAnew(t *testing.T) {
	second := patching(`{"metadata": {"labels": {"step": "2"}}}`)
	second.Object = "pods.items.filter(p, p.metadata.name == 'z')[0]"
	c := onceBy(second, deletes())
	c.Spec.Rules[0].When = `item.metadata.name == "y"`
	r := newRig(t, c, aPod("y", "Succeeded"), aPod("z", "Succeeded"))
	made := false
	refusing(func(_, name string) *apierrors.StatusError {
		if name == "z" && !made {
			made = true
			another := aPod("z", "Succeeded")
			another.SetUID("another")
			r.pods.keep(another)
		}
		return nil
	})(r)
	r.pass()
	r.clock.Step(time.Minute)
	r.pass()
	same(t, "requests", []string{"patch z"}, r.pods.took())
	same(t, "left", []string{"y", "z"}, r.pods.names())
	said := r.said()
	want := "Warning Partial run 1: 1 pods/v1 kept, 1 pods/v1 replaced (2 of 2 objects were not deleted)"
	if !slices.Contains(said, want) {
		t.Errorf("it says %v, want %q", said, want)
	}
}

// A patch for several items of which one has failed is made again for all when that one is done.
func TestAPatchForSomeItemsIsNotAllOfIt(t *testing.T) {
	pool := patching(`{"metadata": {"annotations": {"freed": items.map(i, i.metadata.name).join(" ")}}}`)
	pool.Object = "pods.items.filter(p, p.metadata.name == 'pool')[0]"
	c := onceBy(deletes(), pool)
	c.Spec.Rules[0].When, c.Spec.Rules[0].Reason = `item.metadata.name != "pool"`, ""
	r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"), aPod("pool", "Running"))
	refusing(func(verb, name string) *apierrors.StatusError {
		if name == "b" {
			return forbidden(verb, name)
		}
		return nil
	})(r)
	freed := func() string { return r.pods.objects["pool"].GetAnnotations()["freed"] }
	r.pass()
	same(t, "requests", []string{"delete a", "delete b", "patch pool"}, r.pods.took())
	same(t, "freed", "a", freed())
	refusing(nil)(r)
	r.clock.Step(time.Minute)
	r.pass()
	same(t, "requests", []string{"delete b", "patch pool"}, r.pods.took())
	same(t, "freed", "a b", freed())
	if r.cleaner() != nil {
		t.Errorf("the Cleaner is there, and so are %v", r.pods.names())
	}
}

// An event is of no interest for a Cleaner whose run waits: its watches are dropped once it is committed, and until it is due, or
// for as long as two evaluations lie apart, it is not even copied. Its own changes are of interest at once.
func TestARunThatWaitsIsNotLookedAt(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Open": once(), "Delivering": once()} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c, aPod("a", "Succeeded"))
			if name == "Delivering" {
				r.edit(func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "http://127.0.0.1:1" })
			} else {
				refusing(forbidden)(r)
			}
			r.opts.MinInterval = 500 * time.Millisecond
			r.pass()
			if mem := r.memories.memoryOf(r.key()); !mem.listening.IsZero() {
				t.Error("it still listens")
			}
			copied := 0
			r.client = interceptor.NewClient(r.store, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if !slices.Contains(opts, client.GetOption(client.UnsafeDisableDeepCopy)) {
					copied++
				}
				return c.Get(ctx, key, o, opts...)
			}})
			for range 100 {
				r.clock.Step(time.Millisecond)
				if again := r.pass().RequeueAfter; again <= 0 || again > 500*time.Millisecond {
					t.Fatalf("it comes back in %s", again)
				}
			}
			if copied > 0 {
				t.Errorf("it was copied %d times for 100 events", copied)
			}
			r.clock.Step(time.Second)
			r.pass()
			if copied == 0 {
				t.Error("it was not looked at when it was due")
			}
			copied = 0
			r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true })
			r.pass()
			if copied == 0 {
				t.Error("an edit was not looked at")
			}
		})
	}
}

// What was read live to judge a run is kept for as long as it may be acted on, and no longer.
func TestWhatWasReadForARunIsDropped(t *testing.T) {
	r := newRig(t, once(), aPod("a", "Succeeded"))
	refusing(forbidden)(r)
	for tries, kept := range []bool{true, true, true, false, false} { // it waits 1 s, 2 s, 4 s, 8 s
		r.clock.Step(r.pass().RequeueAfter)
		if mem := r.memories.memoryOf(r.key()); (mem.judged != nil) != kept {
			t.Errorf("after %d tries it is kept: %t", tries+1, !kept)
		}
	}
	refusing(nil)(r)
	r.clock.Step(time.Minute)
	r.pass()
	if r.cleaner() != nil {
		t.Errorf("the Cleaner is there, and so are %v", r.pods.names())
	}
}

// A row of which nobody can say what its rule wants, or whose hold begins anew, waits: it is asked about again when it is due, and
// holds up no other.
func TestARowThatCannotBeDecidedWaits(t *testing.T) {
	r := newRig(t, onceBy(deletes()), aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	refusing(forbidden)(r)
	r.pass()
	broken := aPod("b", "Succeeded")
	delete(broken.Object, "status")
	r.pods.put(broken)
	r.pods.took()
	r.clock.Step(time.Minute) // what was decided does not serve any more
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		again := r.pass().RequeueAfter
		if again != want {
			t.Errorf("it comes back in %s, want %s", again, want)
		}
		r.clock.Step(again)
	}
	if c := r.cleaner(); c == nil || c.Status.Run == nil || c.Status.Run.Result != "" {
		t.Errorf("the run has ended: %+v", c)
	}
	refusing(nil)(r)
	r.clock.Step(time.Minute)
	r.pass()
	same(t, "left", []string{"b"}, r.pods.names())
	r.pods.put(aPod("b", "Succeeded"))
	r.clock.Step(10 * time.Minute)
	r.pass()
	if r.cleaner() != nil {
		t.Errorf("the Cleaner is there, and so are %v", r.pods.names())
	}
}

// What was decided on a run counts no longer once it was asked again and nobody could say.
func TestAJudgementThatFailsLeavesNone(t *testing.T) {
	for name, tc := range map[string]struct {
		age       time.Duration // of what was read
		confirmed bool
	}{
		"InTime":  {0, true},
		"TooSlow": {life.ConfirmationServes, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, once(), aPod("a", "Succeeded"))
			refusing(forbidden)(r)
			r.pass()
			mem := r.memories.memoryOf(r.key())
			p, err := r.beginPass(t.Context(), r.request(), mem)
			must(t, err)
			defer p.endPass()
			if !mem.run.IsConfirmed(r.clock.Now()) {
				t.Fatal("it is not confirmed before")
			}
			p.clients = r.own
			in := mem.judged.in
			in.Now = r.clock.Now().Add(-tc.age)
			p.openRun.judgeRun(t.Context(), in)
			if got := mem.run.IsConfirmed(r.clock.Now()); got != tc.confirmed {
				t.Errorf("it is confirmed: %t", got)
			}
		})
	}
}
