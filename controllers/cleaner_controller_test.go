// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/plan"
)

// Who asks for an evaluation is answered by the first one that has seen the targets.
func TestLastRequestedAt(t *testing.T) {
	for reason, want := range map[string]string{
		v1alpha1.ReasonNotSynced: "before", v1alpha1.ReasonNothingToDo: "now", v1alpha1.ReasonReadFailed: "now", v1alpha1.ReasonWaitingForTTL: "now",
	} {
		t.Run(reason, func(t *testing.T) {
			o := ordered(t, 0, unchanged)
			o.executor.pass.store.Draft.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: "now"})
			o.executor.pass.store.Draft.State().LastRequestedAt = "before"
			o.executor.pass.reportEvaluated(plan.Input{Now: time.Now()}, reportedPlan{plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: reason}})
			if got := o.executor.pass.store.Draft.State().LastRequestedAt; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Ready is False, and Stalled there, while somebody has to do something, wherever in a pass that was found.
func TestReady(t *testing.T) {
	for reason, want := range map[string]metav1.ConditionStatus{
		v1alpha1.ReasonAccessDenied: metav1.ConditionFalse, v1alpha1.ReasonAuthorLacksRights: metav1.ConditionFalse,
		v1alpha1.ReasonAuthorMissing: metav1.ConditionFalse, v1alpha1.ReasonNothingToDo: metav1.ConditionTrue, v1alpha1.ReasonWaitingForTTL: metav1.ConditionTrue,
	} {
		t.Run(reason, func(t *testing.T) {
			o := ordered(t, 0, unchanged)
			o.executor.pass.reportEvaluated(plan.Input{Now: time.Now()}, reportedPlan{plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: reason, Message: "m"}})
			conditions := o.executor.pass.store.Draft.State().Conditions
			if !meta.IsStatusConditionPresentAndEqual(conditions, v1alpha1.ConditionReady, want) {
				t.Errorf("Ready is not %s: %+v", want, conditions)
			}
			if stalled := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled); stalled != (want == metav1.ConditionFalse) {
				t.Errorf("Stalled is %t", stalled)
			}
		})
	}
}

// It comes back when an item may be due. A decision that is said again has had its look: nobody looks again and again for it.
func TestAskAgain(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct{ look, tick, want time.Duration }{
		"AtNext":      {want: time.Hour},
		"AtLook":      {look: time.Minute, want: time.Minute},
		"AtOldLook":   {look: -time.Minute, want: time.Hour},
		"AtTick":      {tick: time.Minute, look: time.Hour, want: time.Minute},
		"BeforeATick": {tick: time.Minute, look: time.Second, want: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, clock := &v1alpha1.Cleaner{}, clocktesting.NewFakeClock(now)
			if tc.tick != 0 {
				c.Spec.Schedule = now.Add(tc.tick).Format("4 15 2 1 *")
			}
			p := newPass(&CleanerReconciler{clock: clock, opts: Options{Skew: skew.New(skew.Options{Clock: clock})}}, c, types.NamespacedName{}, resolvedspec.Assignment{Work: c.Work()}, newMemory("uid", mine))
			p.triggers.WaitsForSchedule()
			p.mem.evaluated = now
			d := plan.Plan{Next: now.Add(time.Hour)}
			if tc.look != 0 {
				d.NextCheck = now.Add(tc.look)
			}
			if got := p.evaluator.askAgain(reportedPlan{d}).Sub(now); got != tc.want {
				t.Errorf("it comes back after %s, want %s", got, tc.want)
			}
		})
	}
}

// TestAtRestACleanerComesBackHourly shows that a Cleaner of which nothing is due for long has a pass within an hour all the same, which
// reviews what its author may do.
func TestAtRestACleanerComesBackHourly(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c, clock := &v1alpha1.Cleaner{}, clocktesting.NewFakeClock(now)
	c.Spec.Retry = &v1alpha1.Retry{Period: "30d"}
	p := newPass(&CleanerReconciler{clock: clock, opts: Options{Skew: skew.New(skew.Options{Clock: clock})}}, c, types.NamespacedName{}, resolvedspec.Assignment{Work: c.Work()}, newMemory("uid", mine))
	for what, until := range map[string]time.Time{"Nothing is due": {}, "Something is due in a month": now.Add(30 * 24 * time.Hour)} {
		if got := p.wakeTime(until, now).Sub(now); got != time.Hour {
			t.Errorf("%s: it comes back after %s", what, got)
		}
	}
	if got := p.wakeTime(now.Add(time.Minute), now).Sub(now); got != time.Minute {
		t.Errorf("what is due in a minute is looked at after %s", got)
	}
}

// TestAPanicIsAnErrorOfItsCleaner shows that a panic in a pass is said in the status, and that what the pass may have left
// half done is found out by looking.
func TestAPanicIsAnErrorOfItsCleaner(t *testing.T) {
	var reported string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if reported = string(text); r.Method != http.MethodPatch {
			t.Errorf("it sends a %s", r.Method)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"Cleaner","metadata":{"namespace":"shop","name":"c","uid":"uid"}}`)
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Cleaner"), meta.RESTScopeNamespace)
	o := ordered(t, 1, unchanged)
	to, err := client.New(&rest.Config{Host: server.URL}, client.Options{
		Scheme: scheme, Mapper: mapper, Cache: &client.CacheOptions{Reader: o.executor.pass.r.client},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.executor.pass.r.client = to
	*o.executor.pass.r.memories.memoryOf(o.executor.pass.store.Key) = *o.executor.pass.mem // the sender is missing: who hands something over to it panics
	_, err = o.executor.pass.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: o.executor.pass.store.Key})
	var p *contain.Panic
	if !errors.As(err, &p) || !strings.Contains(p.Stack, "queueDelivery") {
		t.Errorf("it returns %v", err)
	}
	if !strings.Contains(reported, `"reason":"Failed"`) || !strings.Contains(reported, "panic: ") {
		t.Errorf("the status says %s", reported)
	}
	if got := o.executor.pass.r.memories.memoryOf(o.executor.pass.store.Key).run; got.Number != 0 {
		t.Errorf("it remembers %+v", got)
	}
}

// notServed is an API server that does not serve Cleaners for a moment: while their definition is changed.
type notServed struct{ client.Reader }

func (notServed) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", v1alpha1.ResourceOf(v1alpha1.NewOwner(key.Namespace)), key.Name, "404 page not found", 0, true)
}

// TestACleanerThatIsNotServedIsNotGone shows that only the API server's word about this Cleaner makes the operator forget it.
func TestACleanerThatIsNotServedIsNotGone(t *testing.T) {
	o := ordered(t, 1, unchanged)
	mem := o.executor.pass.r.memories.memoryOf(o.executor.pass.store.Key)
	mem.uid, mem.persisted.Written = o.executor.pass.store.Stored.GetUID(), "8" // the cache does not have the last write yet
	o.executor.pass.r.live = notServed{}
	if c, err := o.executor.pass.r.readCleaner(t.Context(), o.executor.pass.store.Key, mem); c != nil || err == nil {
		t.Errorf("got %v and the error %v, want an error, which has it tried again", c, err)
	}
	if o.executor.pass.r.memories.memoryOf(o.executor.pass.store.Key) != mem {
		t.Error("what is known of the Cleaner is forgotten")
	}
}

// A Cleaner that is deleted, and that somebody's finalizer keeps, watches nothing any more: no change wakes it.
func TestADeletedCleanerWatchesNothing(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Finalizers = []string{"example.com/kept"}
	r := newRig(t, c, aPod("a", "Running"))
	r.pass()
	mem := r.memories.memoryOf(r.key())
	if mem.listening.IsZero() {
		t.Fatal("it watches nothing before it is deleted")
	}
	must(t, r.store.Delete(t.Context(), r.cleaner()))
	r.pass()
	if !mem.listening.IsZero() {
		t.Error("it watches what it selects after it was deleted")
	}
}

// cutOff is an API server whose answer to a read of a Cleaner does not come.
type cutOff struct {
	client.Reader
	meanwhile func()
}

// Get fails.
func (c cutOff) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	c.meanwhile()
	return context.Canceled
}

// A pass that ends because the operator stops has no error: controller-runtime would log it as one, with a stack trace.
func TestAStopIsNoError(t *testing.T) {
	for name, stops := range map[string]bool{"Stops": true, "Fails": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}), aPod("a", "Succeeded"))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			r.live = cutOff{r.live, func() {
				if stops {
					stop()
				}
			}}
			if _, err := r.Reconcile(ctx, r.request()); (err != nil) == stops {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
