// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package statusreport

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/cachetrim"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// newTestReport drafts the status of a Cleaner that no sender knows.
func newTestReport(t *testing.T, c *v1alpha1.Cleaner) Report {
	t.Helper()
	c.Namespace, c.Name, c.UID, c.Generation = "shop", "c", "uid", 7
	clock := clocktesting.NewFakeClock(now)
	sender, err := outbox.NewSender(outbox.Options{Clock: clock, Policy: outbox.Policy{AllowLoopback: true}, DeliveryChanged: func(types.NamespacedName) {}})
	if err != nil {
		t.Fatal(err)
	}
	return Report{
		Of:   cleanerstore.New(&cleanerstore.API{Clock: clock}, types.NamespacedName{Namespace: "shop", Name: "c"}, c, &cleanerstore.Memory{}),
		Work: c.Work(), Clock: clock, Run: &life.Memory{}, Sender: sender, SuspectClock: func() string { return "" },
	}
}

// staying is a Cleaner that stays, with one target.
func staying() *v1alpha1.Cleaner {
	return &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{
		CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring},
		Targets:    []v1alpha1.Target{{Name: "pods", Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}},
	}}
}

// summarize lists the conditions of a draft: their types, states and reasons.
func summarize(r Report) string {
	var out []string
	for _, kind := range []string{
		v1alpha1.ConditionValid, v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated, v1alpha1.ConditionTripped, v1alpha1.ConditionDelivered,
		v1alpha1.ConditionReconciling, v1alpha1.ConditionReady, v1alpha1.ConditionStalled,
	} {
		if c := meta.FindStatusCondition(r.draftStatus().Conditions, kind); c != nil {
			out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
		}
	}
	return strings.Join(out, " ")
}

// TestConditionsOfAnEvaluation shows which conditions follow from a decision.
func TestConditionsOfAnEvaluation(t *testing.T) {
	wrong := []v1alpha1.ItemError{{Rule: "done", Key: "a", Message: "no such field"}}
	for name, tc := range map[string]struct {
		d    plan.Plan
		want string
	}{
		"Acts": {
			plan.Plan{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet},
			"Valid=True/Valid TargetsResolved=True/Resolved Evaluated=True/ConditionsMet Ready=True/ConditionsMet",
		},
		"NothingToDo": {
			plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNothingToDo},
			"Valid=True/Valid TargetsResolved=True/Resolved Evaluated=True/NothingToDo Ready=True/NothingToDo",
		},
		"WaitsForTTL": {
			plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonWaitingForTTL},
			"Valid=True/Valid Ready=True/WaitingForTTL",
		},
		"Invalid": {
			plan.Plan{Verdict: v1alpha1.VerdictInvalid, Reason: v1alpha1.ReasonInvalidSpec},
			"Valid=False/InvalidSpec TargetsResolved=True/Resolved Ready=False/InvalidSpec Stalled=True/InvalidSpec",
		},
		"Fails": {
			plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonEvaluationFailed},
			"Valid=True/Valid TargetsResolved=True/Resolved Evaluated=False/EvaluationFailed Ready=False/EvaluationFailed",
		},
		"SomeItemsFail": {
			plan.Plan{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Errors: wrong},
			"Valid=True/Valid TargetsResolved=True/Resolved Evaluated=False/EvaluationFailed Ready=False/EvaluationFailed",
		},
		"LimitExceeded": {
			plan.Plan{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded},
			"Valid=True/Valid TargetsResolved=True/Resolved Evaluated=True/LimitExceeded Tripped=True/LimitExceeded Ready=False/LimitExceeded Stalled=True/LimitExceeded",
		},
		"NoMemory": {
			plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonTooLarge},
			"Valid=True/Valid TargetsResolved=True/Resolved Ready=False/TooLarge Stalled=True/TooLarge",
		},
		"MayNotRead": {
			plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonAccessDenied},
			"Valid=True/Valid TargetsResolved=True/Resolved Ready=False/AccessDenied Stalled=True/AccessDenied",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestReport(t, staying())
			tc.d.Message = "why\nso"
			in := plan.Input{Now: now, Snapshot: observed.Snapshot{{State: observed.Complete, Objects: []observed.Object{{Ref: observed.Ref{
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Namespace: "shop", Name: "a",
			}}}}}}
			r.SetEvaluated(in, tc.d)
			if got := summarize(r); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if e := r.draftStatus().LastEvaluation; e.Verdict != tc.d.Verdict || e.Message != "why so" || !e.Time.Time.Equal(now) {
				t.Errorf("the last evaluation is %+v", e)
			}
			if tc.d.Reason != v1alpha1.ReasonWaitingForTTL && fmt.Sprint(r.draftStatus().ResolvedTargets) != "[Pod shop/a]" {
				t.Errorf("the targets are %v", r.draftStatus().ResolvedTargets)
			}
		})
	}
}

// A condition that no longer holds goes, whatever was said before.
func TestConditionsGo(t *testing.T) {
	r := newTestReport(t, staying())
	r.SetEvaluated(plan.Input{Now: now}, plan.Plan{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonLimitExceeded})
	r.SetWaiting(life.Request{Kind: life.Idle, Reason: v1alpha1.ReasonDelivering})
	r.SetEvaluated(plan.Input{Now: now}, plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonSuspended})
	if got, want := summarize(r), "Valid=True/Valid Ready=True/Suspended"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestConditionsWithoutAnEvaluation shows what is said where nothing is evaluated.
func TestConditionsWithoutAnEvaluation(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(r Report)
		want string
		says string
	}{
		"Invalid": {func(r Report) {
			r.SetInvalid(validation.Findings{{Path: "spec.ttl", Message: "is\nwrong"}, {Path: "spec.rules"}})
		}, "Valid=False/InvalidSpec Ready=False/InvalidSpec Stalled=True/InvalidSpec", "(and 1 more)"},
		"Refused": {func(r Report) {
			r.SetRefused(identity.Refusal{Reason: v1alpha1.ReasonAuthorMissing, Message: "nobody"})
		}, "Ready=False/AuthorMissing Stalled=True/AuthorMissing", "nobody"},
		"TemplateMissing": {func(r Report) { r.TemplateMissing("podgc") }, "Valid=False/TemplateMissing Ready=False/TemplateMissing", `CleanerTemplate "podgc" does not exist.`},
		"Scheduled":       {func(r Report) { r.SetScheduled(Uninstalls{}) }, "Valid=True/Valid Ready=True/WaitingForSchedule", "Waiting for the next scheduled time."},
		"Uninstalling":    {func(r Report) { r.SetScheduled(Uninstalls{Reason: v1alpha1.ReasonUninstalling, Message: "x"}) }, "Valid=True/Valid Ready=True/Uninstalling", "x"},
		"UninstallFails":  {func(r Report) { r.SetScheduled(Uninstalls{Reason: v1alpha1.ReasonUninstallFailed, Message: "x"}) }, "Valid=True/Valid Ready=False/UninstallFailed Stalled=True/UninstallFailed", "x"},
		"UninstallingBesides": {func(r Report) {
			r.SetRefused(identity.Refusal{Reason: v1alpha1.ReasonAuthorMissing, Message: "nobody"})
			r.draftStatus().LastEvaluation = &v1alpha1.Evaluation{}
			r.SetScheduled(Uninstalls{Reason: v1alpha1.ReasonUninstalling, Message: "x"})
		}, "Ready=False/AuthorMissing Stalled=True/AuthorMissing", "nobody"},
		"AnotherFails": {func(r Report) {
			r.SetEvaluated(plan.Input{}, plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonUninstallFailed, Message: "An action failed and will be retried: Secret shop/a: it is protected"})
			r.SetScheduled(Uninstalls{Reason: v1alpha1.ReasonUninstalling, Message: "x", Failing: "release shop/b"})
		}, "Valid=True/Valid Ready=False/UninstallFailed Stalled=True/UninstallFailed", "Secret shop/a: it is protected"},
		"FailsNoMore": {func(r Report) {
			r.SetScheduled(Uninstalls{Reason: v1alpha1.ReasonUninstallFailed, Message: "An action failed and will be retried: release shop/b: it hangs"})
			r.SetScheduled(Uninstalls{Reason: v1alpha1.ReasonUninstalling, Message: "x", Failing: "release shop/b"})
		}, "Valid=True/Valid Ready=True/Uninstalling", "x"},
		"Uninstalled": {func(r Report) {
			r.SetScheduled(Uninstalls{Reason: v1alpha1.ReasonUninstalling, Message: "x"})
			r.SetScheduled(Uninstalls{})
		}, "Valid=True/Valid Ready=True/WaitingForSchedule", "Waiting for the next scheduled time."},
		"Failed": {func(r Report) { r.SetFailed(errors.New("no answer")) }, "Ready=False/Failed", "The operator hit an error and will retry: no answer"},
		"WaitingForMemory": {func(r Report) {
			r.SetWaitingForMemory(plan.Plan{Reason: v1alpha1.ReasonNotSynced, Message: "others take much memory"})
		}, "Evaluated=False/NotSynced Ready=False/NotSynced", "others take much memory"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestReport(t, staying())
			tc.set(r)
			if got := summarize(r); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if c := meta.FindStatusCondition(r.draftStatus().Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, tc.says) || strings.Contains(c.Message, "\n") || c.ObservedGeneration != 7 {
				t.Errorf("Ready says %+v", c)
			}
		})
	}
}

// The schedule is waited for in silence: what the last evaluation found stays said, and what was said of a run goes.
func TestWaitingForAScheduleKeepsWhatWasFound(t *testing.T) {
	r := newTestReport(t, staying())
	r.SetEvaluated(plan.Input{Now: now}, plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNothingToDo})
	r.SetScheduled(Uninstalls{})
	if got, want := summarize(r), "Valid=True/Valid Evaluated=True/NothingToDo Ready=True/NothingToDo"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.SetCondition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonCleaning, "Run 1 is in progress.")
	r.SetScheduled(Uninstalls{})
	if got, want := summarize(r), "Valid=True/Valid Evaluated=True/NothingToDo Ready=True/WaitingForSchedule"; got != want {
		t.Errorf("after a run: got  %s\nwant %s", got, want)
	}
}

// TestWaitingForARun shows what is said while a run is carried on, and while its event is sent.
func TestWaitingForARun(t *testing.T) {
	once, open := &v1alpha1.Cleaner{}, &v1alpha1.Run{Number: 2, Rows: []string{"a"}}
	once.Status.Run = open
	for name, tc := range map[string]struct {
		c      *v1alpha1.Cleaner
		reason string
		want   string
	}{
		"Cleaning":   {once.DeepCopy(), v1alpha1.ReasonCleaning, "Reconciling=True/Cleaning Ready=Unknown/Cleaning"},
		"Refused":    {once.DeepCopy(), v1alpha1.ReasonAuthorMissing, "Reconciling=True/AuthorMissing Ready=False/AuthorMissing Stalled=True/AuthorMissing"},
		"Delivering": {staying(), v1alpha1.ReasonDelivering, "Ready=Unknown/Delivering"},
		"NoRun":      {&v1alpha1.Cleaner{}, v1alpha1.ReasonCleaning, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestReport(t, tc.c)
			r.SetWaiting(life.Request{Kind: life.Idle, Reason: tc.reason})
			if got := summarize(r); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestDelivered shows what is said of the sink.
func TestDelivered(t *testing.T) {
	sink := httptest.NewServer(http.NotFoundHandler())
	defer sink.Close()
	finished := &v1alpha1.Run{Number: 2, Result: v1alpha1.ResultCompleted, FinishedAt: new(metav1.NewTime(now))}
	for name, tc := range map[string]struct {
		sink   string
		status v1alpha1.CleanerStatus
		want   string
	}{
		"NoSink":    {"", v1alpha1.CleanerStatus{Runs: 2, Run: finished}, ""},
		"NoRuns":    {sink.URL, v1alpha1.CleanerStatus{}, ""},
		"Owed":      {sink.URL, v1alpha1.CleanerStatus{Runs: 2, Run: finished}, "Delivered=False/Delivering"},
		"Delivered": {sink.URL, v1alpha1.CleanerStatus{Runs: 2}, "Delivered=True/Delivered"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{Status: tc.status}
			c.Spec.CloudEventSink = tc.sink
			r := newTestReport(t, c)
			r.setDelivered()
			if got := summarize(r); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestAnnouncedTimes shows that a time is announced in whole seconds, not before it comes, and not written anew while it lies ahead.
func TestAnnouncedTimes(t *testing.T) {
	r := newTestReport(t, staying())
	soon := now.Add(time.Minute + time.Millisecond)
	r.setNext(soon)
	if at := r.draftStatus().NextScheduledEvaluation; !at.Time.Equal(now.Add(time.Minute + time.Second)) {
		t.Errorf("it announces %s", at)
	}
	r.setNext(soon.Add(time.Hour))
	if at := r.draftStatus().NextScheduledEvaluation; !at.Time.Equal(now.Add(time.Minute + time.Second)) {
		t.Errorf("it announces another time: %s", at)
	}
	r.setNext(now.Add(time.Second))
	if at := r.draftStatus().NextScheduledEvaluation; !at.Time.Equal(now.Add(time.Second)) {
		t.Errorf("it does not announce an earlier one: %s", at)
	}
	if r.setNext(time.Time{}); r.draftStatus().NextScheduledEvaluation != nil {
		t.Error("it announces a time that there is not")
	}
}

// TestAnnouncedLook shows which look is news: a period and a schedule are not.
func TestAnnouncedLook(t *testing.T) {
	next, flip, pending := now.Add(time.Minute), now.Add(time.Hour), now.Add(2*time.Hour)
	d := plan.Plan{Next: next, FlipsAt: flip}
	if at := newTestReport(t, &v1alpha1.Cleaner{}).announcedEvaluation(d); !at.Equal(next) {
		t.Errorf("one that cleans once announces %s", at)
	}
	r := newTestReport(t, staying())
	if at := r.announcedEvaluation(d); !at.Equal(flip) {
		t.Errorf("one that stays announces %s", at)
	}
	d.Pending = []plan.Pending{{Until: pending}}
	if at := r.announcedEvaluation(d); !at.Equal(pending) {
		t.Errorf("one that waits announces %s", at)
	}
	d.Pending, r.Work.Schedule = nil, "0 * * * *"
	if at := r.announcedEvaluation(d); !at.IsZero() {
		t.Errorf("one with a schedule announces %s", at)
	}
}

// However much there is to be said, a status lists little of it.
func TestReportsAreBounded(t *testing.T) {
	r := newTestReport(t, staying())
	var d plan.Plan
	objects := make([]observed.Object, 10*cachetrim.MaxResolved)
	for i := range 10 * cachetrim.MaxListed {
		d.Pending = append(d.Pending, plan.Pending{Rule: "done", Key: fmt.Sprint(i) + "\n", Until: now})
		d.Withheld = append(d.Withheld, plan.Withheld{Object: fmt.Sprint(i), Because: "protected"})
	}
	r.SetEvaluated(plan.Input{Now: now, Snapshot: observed.Snapshot{{State: observed.Complete, Objects: objects}}}, d)
	s := r.draftStatus()
	if len(s.Pending) != cachetrim.MaxListed || s.Pending[0].Key != "0" && s.Pending[0].Key != "0 " {
		t.Errorf("%d of what waits, of which the first is %+v", len(s.Pending), s.Pending[0])
	}
	if len(s.LastEvaluation.Withheld) > cachetrim.MaxListed || len(s.ResolvedTargets) != cachetrim.MaxResolved || s.ResolvedTargetCount != int64(len(objects)) {
		t.Errorf("%d withheld, %d of %d targets", len(s.LastEvaluation.Withheld), len(s.ResolvedTargets), s.ResolvedTargetCount)
	}
}

// TestRuleCounts shows what a status tells of the items of each rule: it ends with the rules no longer being evaluated.
func TestRuleCounts(t *testing.T) {
	r := newTestReport(t, staying())
	in := plan.Input{Now: now, Snapshot: observed.Snapshot{{State: observed.Complete}}}
	r.SetEvaluated(in, plan.Plan{
		Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, RulesEvaluated: true,
		Counts: []plan.RuleCount{{Rule: "old", Items: 9, Matched: 5, Spared: 1, Acted: 2}, {Rule: "idle", Items: 9}},
		Errors: []v1alpha1.ItemError{{Rule: "old", Message: "no such key", Count: 2}},
	})
	want := []v1alpha1.RuleCounts{{Rule: "old", Items: 9, Matched: 5, Spared: 1, Errors: 2, Acted: 2}, {Rule: "idle", Items: 9}}
	if got := r.draftStatus().RuleCounts; !slices.Equal(got, want) {
		t.Errorf("counts are %v", got)
	}
	r.SetEvaluated(in, plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonConditionsNotMet})
	if got := r.draftStatus().RuleCounts; len(got) > 0 {
		t.Errorf("without an evaluation of the rules, counts are %v", got)
	}
}

// TestProgress shows what is said of a run that is under way.
func TestProgress(t *testing.T) {
	const row = "targets.pods pods/v1 shop/a uid-a 1"
	for name, tc := range map[string]struct {
		reason string
		memory func(m *life.Memory)
		want   string
		failed bool
	}{
		"Refused": {v1alpha1.ReasonDeletionRefused, func(m *life.Memory) {
			m.Rows[1].Failed, m.Rows[1].FailedReason = "no\nno", v1alpha1.ReasonDeletionRefused
		}, "Run 3: a deletion was refused and will be retried: no no", true},
		"RefusedEviction": {v1alpha1.ReasonEvictionRefused, func(m *life.Memory) { m.Rows[1].Failed, m.Rows[1].FailedReason = "no", v1alpha1.ReasonEvictionRefused }, "Run 3: an eviction was refused and will be retried: no", true},
		"RefusedPatch": {v1alpha1.ReasonPatchRefused, func(m *life.Memory) {
			m.Rows[0].Failed, m.Rows[0].FailedReason = "gone", v1alpha1.ReasonReadFailed
			m.Rows[1].Failed, m.Rows[1].FailedReason = "no", v1alpha1.ReasonPatchRefused
		}, "Run 3: a patch was refused and will be retried: no", true},
		"Unread":      {v1alpha1.ReasonReadFailed, func(m *life.Memory) { m.Rows[1].Failed, m.Rows[1].FailedReason = "no", v1alpha1.ReasonReadFailed }, "Run 3: an object cannot be read, and the operator will retry: no", true},
		"RefusedOver": {v1alpha1.ReasonDeletionRefused, func(m *life.Memory) { m.Rows[1].Failed, m.Rows[1].State = "no", life.RowGone }, "Run 3 is in progress: 2 objects.", false},
		"Unstable": {v1alpha1.ReasonTargetUnstable, func(m *life.Memory) { m.Rows[0].Kind, m.Rows[0].Unstable = "Pod", true },
			"Run 3: Pod shop/a keeps changing before the operator can act on it, because another client keeps writing to it; the operator will retry.", true},
		"UnstableOver":   {v1alpha1.ReasonTargetUnstable, func(m *life.Memory) { m.Rows[0].Unstable, m.Rows[0].State = true, life.RowGone }, "Run 3 is in progress: 2 objects.", false},
		"Unconfirmed":    {v1alpha1.ReasonUnconfirmed, func(m *life.Memory) { m.Failed = "why" }, "Run 3 will be retried: why", true},
		"NotYet":         {v1alpha1.ReasonUnconfirmed, func(*life.Memory) {}, "Run 3 is in progress: 2 objects.", false},
		"Uninstall":      {v1alpha1.ReasonUninstallFailed, func(m *life.Memory) { m.Failed = "why" }, "Run 3 will be retried: why", true},
		"Rights":         {v1alpha1.ReasonAuthorLacksRights, func(m *life.Memory) { m.Failed = "Why." }, `Run 3: release "r" is waiting to be uninstalled. Why.`, true},
		"AuthorMissing":  {v1alpha1.ReasonAuthorMissing, func(m *life.Memory) { m.Failed = "Why." }, `Run 3: release "r" is waiting to be uninstalled. Why.`, true},
		"AccountMissing": {v1alpha1.ReasonAccessDenied, func(m *life.Memory) { m.Failed = "Why." }, `Run 3: release "r" is waiting to be uninstalled. Why.`, true},
		"Half": {v1alpha1.ReasonAuthorLacksRights, func(m *life.Memory) { m.Failed, m.PartlyUninstalled = "Why.", true },
			`Run 3: release "r" is partly uninstalled, and the rest is waiting. Why. If you delete the Cleaner, the rest of the release stays.`, true},
		"Terminating": {v1alpha1.ReasonTerminating, func(m *life.Memory) { m.Rows[1].Finalizers = []string{"a/b", "c/d"} },
			"Run 3 is waiting for the finalizers of deleted objects: a/b, c/d", false},
		"Settled": {v1alpha1.ReasonTerminating, func(m *life.Memory) { m.Rows[1].Finalizers, m.Rows[1].Settled = []string{"a/b"}, true },
			"Run 3 is in progress: 2 objects.", false},
		"Skew":         {v1alpha1.ReasonClockSkewSuspected, func(*life.Memory) {}, "Run 3 is paused. ", true},
		"Pending":      {v1alpha1.ReasonReleasePending, func(*life.Memory) {}, `Run 3 is waiting: release "r" is being installed, upgraded or rolled back.`, false},
		"Delivering":   {v1alpha1.ReasonDelivering, func(*life.Memory) {}, "Run 3 is finished; its event is being sent.", false},
		"Suspended":    {v1alpha1.ReasonSuspended, func(*life.Memory) {}, "Run 3 is suspended.", false},
		"Uninstalling": {v1alpha1.ReasonUninstalling, func(*life.Memory) {}, `Run 3 is uninstalling release "r".`, false},
		"Other":        {v1alpha1.ReasonCleaning, func(*life.Memory) {}, "Run 3 is in progress: 2 objects.", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestReport(t, &v1alpha1.Cleaner{})
			r.Run = life.NewMemory(3, make([]observed.Seen, 2), now)
			tc.memory(r.Run)
			run := &v1alpha1.Run{Number: 3, Rows: []string{row, row}, Helm: &v1alpha1.HelmRelease{Name: "r"}}
			if got, failed := (runReport{r}).describeProgress(run, life.Request{Reason: tc.reason}); got != tc.want || failed != tc.failed {
				t.Errorf("got %q, failed: %t\nwant %q, failed: %t", got, failed, tc.want, tc.failed)
			}
		})
	}
}

// What Ready says is what a person has to know first, in the order that foremost gives.
func TestForemost(t *testing.T) {
	refused := func(d plan.Plan) plan.Plan {
		d.DeferReason, d.DeferDetail = v1alpha1.ReasonDeletionRefused, "a: forbidden"
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

// TestFirstError shows what is said of items with errors.
func TestFirstError(t *testing.T) {
	for name, tc := range map[string]struct {
		err  v1alpha1.ItemError
		want string
	}{
		"Item": {v1alpha1.ItemError{Rule: "done", Key: "a", Field: "rules[0].when", Message: "no such\nfield"}, `Items with errors are skipped: rule "done", item "a": spec.rules[0].when: no such field`},
		"Rule": {v1alpha1.ItemError{Rule: "done", Field: "rules[0].when", Message: "no such field"}, `Items with errors are skipped: rule "done": spec.rules[0].when: no such field`},
	} {
		if got := firstError([]v1alpha1.ItemError{tc.err}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A status names the first kinds that targets of all kinds skip, counts all, and keeps them while a target is being read again.
func TestSkippedKinds(t *testing.T) {
	r := newTestReport(t, staying())
	seen := observed.Snapshot{{State: observed.Complete, Kinds: []observed.KindState{{State: observed.Complete}}}}
	for n := range 30 {
		seen[0].Kinds = append(seen[0].Kinds, observed.KindState{Resource: schema.GroupVersionResource{Group: "example.com", Resource: fmt.Sprint("r", n)}, State: observed.Forbidden, Detail: strings.Repeat("no ", 200)})
	}
	setSkippedKinds(r, seen)
	got := r.Of.Draft.State().SkippedKinds
	if got == nil || got.Count != 30 || len(got.Kinds) != cachetrim.MaxListed || got.Kinds[0].Kind != "r0.example.com" || got.Kinds[0].Target != "pods" || len(got.Kinds[0].Reason) > maxReason {
		t.Fatalf("it says %+v", got)
	}
	setSkippedKinds(r, observed.Snapshot{{State: observed.Unsynced, Kinds: seen[0].Kinds}})
	if r.Of.Draft.State().SkippedKinds != got {
		t.Error("it forgets them while the target is read")
	}
	r.Work.Targets[0].Reference.Kind = v1alpha1.AnyKind
	setSkippedKinds(r, observed.Snapshot{{State: observed.Failed}})
	if r.Of.Draft.State().SkippedKinds != got {
		t.Error("it forgets them while the kinds are not known")
	}
	setSkippedKinds(r, observed.Snapshot{{State: observed.Complete, Kinds: seen[0].Kinds[:1]}})
	if r.Of.Draft.State().SkippedKinds != nil {
		t.Errorf("without any it says %+v", r.Of.Draft.State().SkippedKinds)
	}
}

// Mistakes are a warning: they change nothing else, stay in place while they are the same, and go when there are none.
func TestSetMistakes(t *testing.T) {
	r := newTestReport(t, staying())
	r.draftStatus().ObservedGeneration = 6
	SetMistakes(r, "")
	if len(r.draftStatus().Conditions) > 0 {
		t.Errorf("without mistakes: %v", r.draftStatus().Conditions)
	}
	SetMistakes(r, "spec.rules[0].when: Widget has no field spec.ttl\u202e"+strings.Repeat("x", 2000))
	c := meta.FindStatusCondition(r.draftStatus().Conditions, v1alpha1.ConditionSchemaMismatch)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNotInSchema || c.ObservedGeneration != 7 || !c.LastTransitionTime.Time.Equal(now) {
		t.Fatalf("got %+v", c)
	}
	if len(c.Message) > 1024 || !strings.HasPrefix(c.Message, "spec.rules[0].when: Widget has no field spec.ttl") || strings.Contains(c.Message, "\u202e") {
		t.Errorf("it says %q", c.Message)
	}
	if r.draftStatus().ObservedGeneration != 6 || len(r.draftStatus().Conditions) != 1 {
		t.Errorf("it says more: %+v", r.draftStatus())
	}
	SetMistakes(r, "")
	if len(r.draftStatus().Conditions) > 0 {
		t.Errorf("corrected: %v", r.draftStatus().Conditions)
	}
}
