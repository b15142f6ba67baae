// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/plan"
)

func reporting(names ...string) plan.Plan {
	d := plan.Plan{Verdict: v1alpha1.VerdictAct, Asked: true}
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
		"AllGone":  {"nothing is", plan.Plan{Verdict: v1alpha1.VerdictWait, Asked: true}, nil},
		"Wrong":    {"nobody knows what the rule wants", wrong, []plan.ItemKey{a, b}},
		"Deferred": {"b waits for something else", deferred, []plan.ItemKey{a, b}},
		"NotAsked": {"nobody was asked", plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNotSynced}, []plan.ItemKey{a, b}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPass(&CleanerReconciler{clock: clocktesting.NewFakeClock(epoch)}, &v1alpha1.Cleaner{}, types.NamespacedName{}, assignment{}, newMemory("uid"))
			p.mem.told.NoteReport(a, "7 ", epoch, time.Hour)
			p.mem.told.NoteReport(b, "7 ", epoch, time.Hour)
			p.forgetReports(tc.d)
			var got []plan.ItemKey
			for _, item := range []plan.ItemKey{a, b} {
				if p.mem.told.HasReport(item, "7 ", epoch) {
					got = append(got, item)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: kept are %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// What Ready says is what a person has to know first, in the order that foremost gives.
func TestForemost(t *testing.T) {
	refused := func(d plan.Plan) plan.Plan {
		d.Stuck, d.Refused = v1alpha1.ReasonDeletionRefused, "a: forbidden"
		return d
	}
	wrong := func(d plan.Plan) plan.Plan {
		d.Errors = []v1alpha1.ItemError{{Rule: "r", Message: "no such key"}}
		return d
	}
	says := func(verdict v1alpha1.Verdict, reason string) plan.Plan {
		return plan.Plan{Verdict: verdict, Reason: reason, Message: "m"}
	}
	act, wait := v1alpha1.VerdictAct, v1alpha1.VerdictWait
	cases := map[string]struct {
		d    plan.Plan
		want string
	}{
		"Acts":                {says(act, v1alpha1.ReasonConditionsMet), v1alpha1.ReasonConditionsMet},
		"ActsThoughRefused":   {wrong(refused(says(act, v1alpha1.ReasonConditionsMet))), v1alpha1.ReasonDeletionRefused},
		"ActsThoughWrong":     {wrong(says(act, v1alpha1.ReasonConditionsMet)), v1alpha1.ReasonEvaluationFailed},
		"Holds":               {refused(says(wait, v1alpha1.ReasonHolding)), v1alpha1.ReasonDeletionRefused},
		"Unconfirmed":         {refused(says(wait, v1alpha1.ReasonUnconfirmed)), v1alpha1.ReasonDeletionRefused},
		"UnconfirmedAndWrong": {refused(wrong(says(wait, v1alpha1.ReasonEvaluationFailed))), v1alpha1.ReasonDeletionRefused},
		"ALimit":              {refused(wrong(says(v1alpha1.VerdictBlocked, v1alpha1.ReasonLimitExceeded))), v1alpha1.ReasonLimitExceeded},
		"ADryRun":             {wrong(says(act, v1alpha1.ReasonDryRun)), v1alpha1.ReasonDryRun},
		"ARight":              {refused(says(wait, v1alpha1.ReasonAccessDenied)), v1alpha1.ReasonAccessDenied},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, message := foremostTrouble(&tc.d); got != tc.want || message == "" {
				t.Errorf("it says %s (%s), want %s", got, message, tc.want)
			}
		})
	}
}

// A schedule by a clock that goes on, stands still while no process runs, and is asked out of turn.
func TestASchedule(t *testing.T) {
	at := func(text string) time.Time {
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	cases := map[string]struct {
		reason  string
		change  func(c *v1alpha1.Cleaner)
		last    string
		now     string
		waits   bool
		tick    string
		comesTo string
	}{
		"NotYet":        {reason: "the first time after the creation has not come", now: "2026-03-27T23:59:59Z", waits: true, comesTo: "2026-03-28T01:30:00Z"},
		"Due":           {reason: "it has", now: "2026-03-28T01:30:00Z", tick: "2026-03-28T01:30:00Z", comesTo: "2026-03-30T00:30:00Z"},
		"Over":          {reason: "it is over", last: "2026-03-28T01:30:00Z", now: "2026-03-28T01:30:01Z", waits: true, comesTo: "2026-03-30T00:30:00Z"},
		"SummerTime":    {reason: "half past two does not come on the day on which the clocks change", last: "2026-03-28T01:30:00Z", now: "2026-03-29T01:30:00Z", waits: true, comesTo: "2026-03-30T00:30:00Z"},
		"DownForMinute": {reason: "no process ran when it was due", now: "2026-03-28T02:00:00Z", tick: "2026-03-28T01:30:00Z", comesTo: "2026-03-30T00:30:00Z"},
		"DownForDays":   {reason: "no process ran for so long that it is too late", now: "2026-04-02T12:00:00Z", waits: true, comesTo: "2026-04-03T00:30:00Z"},
		"Patient": {reason: "unless the author has more patience", now: "2026-04-02T12:00:00Z", tick: "2026-04-02T00:30:00Z", comesTo: "2026-04-03T00:30:00Z",
			change: func(c *v1alpha1.Cleaner) { c.Spec.StartingDeadline = "1d" }},
		"Asked": {reason: "the author asks", now: "2026-03-27T23:59:59Z", comesTo: "2026-03-28T01:30:00Z",
			change: func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now"} }},
		"Suspended": {reason: "its evaluation says so", now: "2026-03-27T23:59:59Z", change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", CreationTimestamp: metav1.NewTime(at("2026-03-27T12:00:00Z"))}}
			c.Spec.Lifecycle, c.Spec.Schedule, c.Spec.TimeZone = v1alpha1.LifecycleRecurring, "30 2 * * *", "Europe/Berlin"
			if tc.last != "" {
				c.Status.LastScheduleTime = &metav1.Time{Time: at(tc.last)}
			}
			if tc.change != nil {
				tc.change(c)
			}
			clock := clocktesting.NewFakeClock(at(tc.now))
			r := &CleanerReconciler{clock: clock, opts: Options{Skew: skew.New(skew.Options{Clock: clock}), ActWithoutAuthor: true}}
			p := newPass(r, c, types.NamespacedName{}, assignment{work: c.Work()}, newMemory("uid"))
			must(t, p.seeRequest(""))
			p.judgeRequest(t.Context())
			if got := p.waitsForSchedule(); got != tc.waits {
				t.Errorf("%s: it waits: %t", tc.reason, got)
			}
			want := time.Time{}
			if tc.tick != "" {
				want = at(tc.tick)
			}
			if !p.tick.Equal(want) {
				t.Errorf("%s: what is due is that of %s, want %s", tc.reason, p.tick, want)
			}
			if tc.comesTo != "" && !p.nextTick.Equal(at(tc.comesTo)) {
				t.Errorf("%s: the next one is %s, want %s", tc.reason, p.nextTick, tc.comesTo)
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
		if got := r.names(); !slices.Equal(got, step.left) {
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

// What a rule waits for has to be seen: while nobody may look, somebody could use the object and leave it again.
func TestNothingHoldsWhileNobodyLooks(t *testing.T) {
	for name, tc := range map[string]struct {
		away time.Duration
		left []string
	}{
		"ForLong":    {time.Minute, []string{"a"}},
		"ForAMoment": {5 * time.Second, nil},
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
			r.clock.Step(tc.away)
			r.pass()
			r.keys = keys
			r.pass()
			r.clock.Step(time.Minute)
			r.pass()
			if got := r.names(); !slices.Equal(got, tc.left) {
				t.Errorf("left %v, want %v", got, tc.left)
			}
			r.clock.Step(4 * time.Minute)
			r.pass()
			if got := r.names(); len(got) > 0 {
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
		if got := r.names(); !slices.Equal(got, step.left) {
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
	if got := r.names(); !slices.Equal(got, []string{"b"}) || r.cleaner().Status.LastScheduleTime != nil {
		t.Fatalf("left %v, recorded %v", got, r.cleaner().Status.LastScheduleTime)
	}
	ends = true
	after(time.Minute)(r)
	r.pass()
	if st := r.cleaner().Status; st.LastScheduleTime == nil || st.Unsent == nil && (st.Run == nil || st.Run.Result == "") {
		t.Errorf("recorded %v; run %+v, unsent %+v", st.LastScheduleTime, st.Run, st.Unsent)
	}
	if got := r.names(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("left %v", got)
	}
}
