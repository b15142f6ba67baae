// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func reporting(names ...string) plan.Plan {
	d := plan.Plan{Verdict: v1alpha1.VerdictAct, RulesEvaluated: true}
	for _, name := range names {
		d.Steps = append(d.Steps, plan.Step{Rule: "r", Keys: []string{name}, Verb: plan.VerbReport})
	}
	return d
}

func TestReportsOfWhatIsGoneAreForgotten(t *testing.T) {
	a, b := plan.ItemKey{Rule: "r", Key: "a"}, plan.ItemKey{Rule: "r", Key: "b"}
	wrong := reporting("a")
	wrong.Errors = []v1alpha1.ItemError{{Rule: "r"}}
	deferred := reporting("a")
	deferred.Deferred = []plan.ItemKey{b}
	cases := map[string]struct {
		reason string
		d      plan.Plan
		want   []plan.ItemKey
	}{
		"Wanted":   {"both are reported still", reporting("a", "b"), []plan.ItemKey{a, b}},
		"Gone":     {"b is there no more", reporting("a"), []plan.ItemKey{a}},
		"AllGone":  {"nothing is", plan.Plan{Verdict: v1alpha1.VerdictWait, RulesEvaluated: true}, nil},
		"Wrong":    {"nobody knows what the rule wants", wrong, []plan.ItemKey{a, b}},
		"Deferred": {"b waits for something else", deferred, []plan.ItemKey{a, b}},
		"NotAsked": {"nobody was asked", plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNotSynced}, []plan.ItemKey{a, b}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPass(&CleanerReconciler{clock: clocktesting.NewFakeClock(epoch)}, &v1alpha1.Cleaner{}, types.NamespacedName{}, resolvedspec.Assignment{}, newMemory("uid", mine))
			p.mem.Told.NoteReport(a, "7 ", epoch, time.Hour)
			p.mem.Told.NoteReport(b, "7 ", epoch, time.Hour)
			p.recurrence.forgetReports(tc.d)
			var got []plan.ItemKey
			for _, item := range []plan.ItemKey{a, b} {
				if p.mem.Told.HasReport(item, "7 ", epoch) {
					got = append(got, item)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: kept are %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// A time of the schedule is over when what it stands for is done, even if a Cleaner was made so large that this cannot be
// recorded: else it would act whenever something changes. On a request nothing is done before it is recorded as answered: else
// it would act again after each restart.
func TestWhatCannotBeRecordedIsOver(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Schedule = "30 1 * * *"
	r := newRig(t, c, aPod("a", "Succeeded"))
	tooLarge := true
	r.client = interceptor.NewClient(r.store, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if tooLarge {
				return apierrors.NewInternalError(errors.New("etcdserver: request is too large"))
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	for _, step := range []struct {
		what string
		do   func(r *rig)
		left []string
	}{
		{"not due", after(0), []string{"a"}},
		{"due", after(time.Hour), nil},
		{"later", all(putting("b", "Succeeded"), after(time.Minute)), []string{"b"}},
		{"asked", editing(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"} }), []string{"b"}},
		{"asked, later", all(putting("d", "Succeeded"), after(time.Minute)), []string{"b", "d"}},
	} {
		step.do(r)
		for range 3 {
			_, _ = r.Reconcile(t.Context(), r.request()) // it fails, and says so
		}
		if got := r.pods.names(); !slices.Equal(got, step.left) {
			t.Fatalf("%s: left %v, want %v", step.what, got, step.left)
		}
	}
	tooLarge = false
	after(time.Minute)(r)
	r.pass()
	if st := r.cleaner().Status; st.LastScheduleTime == nil || st.LastRequestedAt != "1" {
		t.Errorf("recorded are %v and %q", st.LastScheduleTime, st.LastRequestedAt)
	}
}

// What a rule waits for has to be seen: while nobody may look, somebody could use the object and leave it again. If the watches show
// that nobody has, nothing is lost.
func TestNothingHoldsWhileNobodyLooks(t *testing.T) {
	for name, tc := range map[string]struct {
		away time.Duration
		used bool
		left []string
	}{
		"ForLong":         {time.Minute, true, []string{"a"}},
		"ForAMoment":      {5 * time.Second, true, nil},
		"NothingHappened": {time.Minute, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Rules[0].For = "5m"
			r := newRig(t, c, aPod("a", "Succeeded"))
			r.pass()
			r.clock.Step(4 * time.Minute)
			keys := r.keys
			r.keys = noKeys{}
			r.pass()
			if tc.used {
				r.watches.News.NoteChange(r.key())
			}
			r.clock.Step(tc.away)
			r.pass()
			r.keys = keys
			r.pass()
			r.clock.Step(time.Minute)
			r.pass()
			if got := r.pods.names(); !slices.Equal(got, tc.left) {
				t.Errorf("left %v, want %v", got, tc.left)
			}
			r.clock.Step(4 * time.Minute)
			r.pass()
			if got := r.pods.names(); len(got) > 0 {
				t.Errorf("left %v in the end", got)
			}
		})
	}
}

// What a rule of a Cleaner with a schedule waits for is looked at between the times, too: what was used meanwhile stays.
func TestForIsSeenBetweenTheTimes(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Schedule, c.Spec.Rules[0].For = "30 1 * * *", "1h"
	r := newRig(t, c, aPod("idle", "Succeeded"), aPod("used", "Succeeded"))
	for _, step := range []struct {
		do   func(r *rig)
		left []string
	}{
		{nothing, []string{"idle", "used"}},
		{all(after(10*time.Minute), putting("used", "Running")), []string{"idle", "used"}},
		{all(after(15*time.Minute), putting("used", "Succeeded")), []string{"idle", "used"}},
		{after(5 * time.Minute), []string{"idle", "used"}},                        // it is time, and neither has been idle for an hour
		{after(30 * time.Minute), []string{"used"}},                               // it is still time, until nothing is waited for
		{after(25 * time.Minute), nil},                                            // and now
		{all(after(time.Minute), putting("late", "Succeeded")), []string{"late"}}, // the time is over
		{after(20 * time.Hour), []string{"late"}},                                 // it has been idle for long enough, and it is not time
		{all(after(time.Minute), putting("late", "Running")), []string{"late"}},
		{all(after(2*time.Hour+58*time.Minute), putting("late", "Succeeded")), []string{"late"}},
		{after(5 * time.Minute), []string{"late"}}, // it is time, and it has been idle for five minutes
		{after(55 * time.Minute), nil},
	} {
		step.do(r)
		r.pass()
		if got := r.pods.names(); !slices.Equal(got, step.left) {
			t.Fatalf("at %s: left %v, want %v", r.clock.Now().Format(time.TimeOnly), got, step.left)
		}
	}
}

// The end of a run that cannot be recorded, such as because somebody writes to the Cleaner all the time, does not keep a time of the
// schedule open either, and is recorded when it can be.
func TestATickIsOverBeforeItsRunIs(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Schedule, c.Spec.CloudEventSink = "30 1 * * *", "http://127.0.0.1:1"
	r := newRig(t, c, aPod("a", "Succeeded"))
	ends := false // whether the end of a run can be recorded
	r.client = interceptor.NewClient(r.store, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if text, err := p.Data(o); !ends && err == nil && strings.Contains(string(text), "finishedAt") {
				return apierrors.NewConflict(schema.GroupResource{}, "c", errors.New("somebody has written to it"))
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	r.pass()
	for _, step := range []func(r *rig){after(30 * time.Minute), nothing, nothing, all(putting("b", "Succeeded"), after(time.Minute)), after(time.Minute)} {
		step(r)
		r.pass()
	}
	if got := r.pods.names(); !slices.Equal(got, []string{"b"}) || r.cleaner().Status.LastScheduleTime != nil {
		t.Fatalf("left %v, recorded %v", got, r.cleaner().Status.LastScheduleTime)
	}
	ends = true
	after(time.Minute)(r)
	r.pass()
	if st := r.cleaner().Status; st.LastScheduleTime == nil || st.Unsent == nil && (st.Run == nil || st.Run.Result == "") {
		t.Errorf("recorded %v; run %+v, unsent %+v", st.LastScheduleTime, st.Run, st.Unsent)
	}
	if got := r.pods.names(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("left %v", got)
	}
}

// All is decided again between two batches, so batches grow. One that records rows is no larger than the first, and how long few items took says
// nothing of many.
func TestBatchesGrow(t *testing.T) {
	const objects = 3*life.MaxBatch + 1
	for name, tc := range map[string]struct {
		sink  string
		first int // so many objects are there before the first batch, and the others come after it
		batch []int
	}{
		"Growing":     {first: objects, batch: []int{life.MaxBatch, 2*life.MaxBatch + 1}},
		"AfterFew":    {first: 5, batch: []int{5, life.MaxBatch, 2*life.MaxBatch - 4}},
		"WithRecords": {first: objects, sink: "http://127.0.0.1:1", batch: []int{life.MaxBatch, life.MaxBatch, life.MaxBatch, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.CloudEventSink = tc.sink
			c.Spec.Rules[0].Confirm = []v1alpha1.Confirm{{Target: "pods", Name: "item.metadata.name"}}
			r := newRig(t, c)
			made := 0
			makePods := func(n int) {
				for ; made < n; made++ {
					r.pods.put(aPod(fmt.Sprintf("p-%04d", made), "Succeeded"))
				}
			}
			makePods(tc.first)
			var batches []int
			watched, sent := r.own.Watched, 0
			r.own.Watched = reads(func(ctx context.Context, q snapshot.Query) observed.Target { // before each decision
				if n := len(r.pods.took()); n > 0 {
					batches, sent = append(batches, n), sent+n
					makePods(objects)
				}
				return watched.Read(ctx, q)
			})
			for range 2 * len(tc.batch) {
				r.pass()
				r.clock.Step(time.Minute)
			}
			if n := len(r.pods.names()); n > 0 || sent != objects {
				t.Errorf("%d objects are left after %d requests", n, sent)
			}
			same(t, "batches", tc.batch, batches)
		})
	}
}

// Where each item takes nothing but a DELETE, a pass begins with a batch as large as the one before has shown to be quick enough, of whichever Cleaner.
func TestBatchesOfDeletesBeginAsLargeAsTheLastOne(t *testing.T) {
	const objects = 6 * life.MaxBatch
	for name, tc := range map[string]struct {
		each  time.Duration // how long a DELETE takes
		batch []int
	}{
		"Quick": {2 * time.Millisecond, []int{life.MaxBatch, 2000, 500, 2000, 1000}}, // that is 2,000 in 4 s
		"Slow":  {16 * time.Millisecond, []int{500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500}},
	} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Rules[0].Keep = new(intstr.FromString("0"))
			r := newRig(t, c)
			refusing(func(string, string) *apierrors.StatusError { r.clock.Step(tc.each); return nil })(r)
			var batches []int
			watched := r.own.Watched
			r.own.Watched = reads(func(ctx context.Context, q snapshot.Query) observed.Target { // before each decision
				if n := len(r.pods.took()); n > 0 {
					batches = append(batches, n)
				}
				return watched.Read(ctx, q)
			})
			for round := range 2 {
				for i := range objects {
					r.pods.put(aPod(fmt.Sprintf("p-%d-%04d", round, i), "Succeeded"))
				}
				for range 20 {
					r.pass()
					r.clock.Step(time.Minute)
				}
			}
			same(t, "batches", tc.batch, batches)
		})
	}
}
