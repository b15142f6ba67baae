// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// strand makes an object one whose DELETE was aborted half-way, at a later version.
func strand(o observed.Object) observed.Object {
	o.Terminating, o.OutOfGrace, o.ResourceVersion = true, true, "9"
	meta := o.Value["metadata"].(map[string]any)
	meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"], meta["resourceVersion"] = "2026-01-02T00:00:00Z", int64(0), "9"
	return o
}

// openedAgain is a run that deletes Pod a, whose DELETE was lost, and which is open for a second one.
func openedAgain(t *testing.T, work *v1alpha1.Work) (*v1alpha1.Run, *Memory) {
	t.Helper()
	before := over(t, work, p("a"))
	run, m, _ := CommitRun(&v1alpha1.CleanerStatus{}, before, "v1:x", plan.ComputePlan(t.Context(), before))
	m.RecordAnswer(0, RowAnswer{Failed: "timeout", Lost: true, Asked: true}, born)
	m.RecordSights(run, map[int]Sight{0: {UID: "uid-a", ResourceVersion: "9", Terminating: true, Stranded: true}}, born)
	m.OpenAgain([]int{0})
	return run, m
}

func TestWhichRowsAreOpenedAgain(t *testing.T) {
	const settle = time.Minute
	stranded := Sight{UID: "uid-a", ResourceVersion: "9", Terminating: true, Stranded: true}
	lost := RowAnswer{Failed: "timeout", Lost: true, Asked: true}
	for name, tc := range map[string]struct {
		reason string
		answer RowAnswer
		sight  Sight
		after  time.Duration
		change func(c *v1alpha1.Cleaner, m *Memory)
		want   RequestKind
	}{
		"Lost":      {"a DELETE that was lost has left it terminating", lost, stranded, settle, nil, OpenAgain},
		"Answered":  {"or one that was answered, whose grace period is over now", RowAnswer{Did: v1alpha1.OutcomeDeleted, Asked: true}, stranded, settle, nil, OpenAgain},
		"Early":     {"but no earlier than --settle", lost, stranded, settle - time.Second, nil, Settle},
		"Held":      {"not if something holds it", lost, Sight{UID: "uid-a", Terminating: true, Finalizers: []string{"example.test/hold"}}, settle, nil, WriteResult},
		"Anew":      {"not if it is another one", lost, Sight{UID: "another", Terminating: true, Stranded: true}, settle, nil, WriteResult},
		"OfOthers":  {"not if this process has not deleted it", RowAnswer{Did: v1alpha1.OutcomeGone, Terminating: true}, stranded, settle, nil, WriteResult},
		"Suspended": {"not while it is suspended", lost, stranded, settle, func(c *v1alpha1.Cleaner, _ *Memory) { c.Spec.Suspend = true }, Idle},
		"Once": {"and not twice", lost, stranded, settle, func(_ *v1alpha1.Cleaner, m *Memory) {
			m.OpenAgain([]int{0})
			m.RecordAnswer(0, lost, born.Add(-time.Hour))
		}, WriteResult},
	} {
		t.Run(name, func(t *testing.T) {
			c, m := committed("a")
			m.RecordAnswer(0, tc.answer, born)
			m.RecordSights(c.Status.Run, map[int]Sight{0: tc.sight}, born)
			if tc.change != nil {
				tc.change(c, m)
			}
			got := Next(View{Cleaner: c, Decides: "v1:x", Now: born.Add(tc.after), SettleFor: settle}, m)
			if got.Kind != tc.want {
				t.Errorf("%s: next is %s, want %s", tc.reason, got.Kind, tc.want)
			}
		})
	}
}

// What is open for a second DELETE is decided on again: as if nothing had deleted it, and for a DELETE only.
func TestASecondDeleteIsDecidedOnLiveReads(t *testing.T) {
	held := func(o *observed.Object) { o.Finalizers = []string{"example.test/hold"} }
	timed := func(o *observed.Object) { o.OutOfGrace = false }
	grace := int64(3)
	for name, tc := range map[string]struct {
		reason  string
		rule    v1alpha1.Rule
		now     func(o *observed.Object)
		outcome JudgeOutcome
		want    []string
	}{
		"Wanted":      {"the rule still wants it", rule(), nil, JudgeTrue, []string{"delete a[]"}},
		"Terminating": {"as it is written for what is not terminating", rule(func(r *v1alpha1.Rule) { r.When = "!has(item.metadata.deletionTimestamp)" }), nil, JudgeTrue, []string{"delete a[]"}},
		"Unwanted":    {"the rule does not want it now", rule(func(r *v1alpha1.Rule) { r.When = `!("kept" in item.spec)` }), func(o *observed.Object) { o.Value["spec"] = map[string]any{"kept": "yes"} }, JudgeTrue, nil},
		"Held":        {"a finalizer holds it now", rule(), held, JudgeTrue, nil},
		"Grace":       {"its time is not over", rule(), timed, JudgeTrue, nil},
		"Anew":        {"it is another one", rule(), func(o *observed.Object) { o.UID = "another" }, JudgeTrue, nil},
		"Protected":   {"it is protected now", rule(), func(o *observed.Object) { o.Protected = true }, JudgeTrue, nil},
		"DeleteOnly": {"the actions before the DELETE were carried out", rule(func(r *v1alpha1.Rule) {
			r.Actions = []v1alpha1.RuleAction{patches(`{"spec": {"marked": "yes"}}`), deletes(grace)}
		}), nil, JudgeTrue, []string{"delete a[]"}},
	} {
		t.Run(name, func(t *testing.T) {
			work := cluster(tc.rule)
			work.Lifecycle = v1alpha1.LifecycleOnce
			run, m := openedAgain(t, work)
			now := strand(p("a"))
			if tc.now != nil {
				tc.now(&now)
			}
			got := JudgeRun(t.Context(), over(t, work, now), run, m)
			if got.Outcome != tc.outcome {
				t.Fatalf("%s: outcome %d (%s), want %d", tc.reason, got.Outcome, got.Why, tc.outcome)
			}
			if diff := cmp.Diff(tc.want, stepsOf(got.Plan)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			for _, s := range got.Plan.Steps {
				if s.Object.ResourceVersion != "9" {
					t.Errorf("it is decided at version %s", s.Object.ResourceVersion)
				}
			}
			m.RecordJudgement(got, born)
			if open := m.IsOpenAgain(0); open != (len(tc.want) > 0) {
				t.Errorf("%s: it is open: %t", tc.reason, open)
			}
			if m.Stop != "" {
				t.Errorf("%s: the run stops: %s", tc.reason, m.Stop)
			}
		})
	}
}

// A second DELETE that cannot be decided on, or that a condition does not want, stops nothing, and is given up soon.
func TestAJudgementOnASecondDeleteStopsNothing(t *testing.T) {
	work := cluster(rule())
	work.Lifecycle = v1alpha1.LifecycleOnce
	for name, tc := range map[string]struct {
		judgement Judgement
		times     int
	}{
		"False":       {Judgement{Outcome: JudgeFalse, Why: "no"}, 1},
		"Undecidable": {Judgement{Outcome: JudgeUndecidable, Why: "?", Rows: map[int]RowVerdict{0: {Version: "9"}}}, 1},
		"Failed":      {Judgement{Why: "timeout"}, maxLooks},
	} {
		_, m := openedAgain(t, work)
		times := 0
		for ; m.IsOpenAgain(0); times++ {
			m.RecordJudgement(tc.judgement, born)
		}
		if times != tc.times || m.Stop != "" || m.Rows[0].State != RowGone || !m.ConfirmedAt.IsZero() {
			t.Errorf("%s: after %d times, stops with %q, and is in state %d", name, times, m.Stop, m.Rows[0].State)
		}
	}
}

// A row is settled by the answer to its second DELETE, whatever that is. A request that was not sent is none.
func TestTheAnswerToASecondDelete(t *testing.T) {
	work := cluster(rule())
	work.Lifecycle = v1alpha1.LifecycleOnce
	const told = "a second DELETE removed 1 of the objects, which were still terminating although nothing held them"
	for name, tc := range map[string]struct {
		answer  RowAnswer
		open    bool
		settled bool
		outcome v1alpha1.Outcome
		message string
	}{
		"Deleted":  {RowAnswer{Did: v1alpha1.OutcomeDeleted, Gone: true, Asked: true}, false, true, v1alpha1.OutcomeDeleted, told},
		"Gone":     {RowAnswer{Did: v1alpha1.OutcomeGone}, false, true, v1alpha1.OutcomeGone, ""},
		"Changed":  {RowAnswer{Did: v1alpha1.OutcomeGone, Terminating: true, Finalizers: []string{"x"}}, false, false, v1alpha1.OutcomeTerminating, ""},
		"Replaced": {RowAnswer{Replaced: true}, false, true, v1alpha1.OutcomeGone, ""},
		"Refused":  {RowAnswer{Failed: "forbidden"}, false, false, v1alpha1.OutcomeGone, ""},
		"Lost":     {RowAnswer{Failed: "timeout", Lost: true, Asked: true}, false, false, v1alpha1.OutcomeGone, ""},
		"Unsent":   {RowAnswer{Cut: true}, true, false, v1alpha1.OutcomeKept, ""},
	} {
		run, m := openedAgain(t, work)
		m.RecordAnswer(0, tc.answer, born)
		e := &m.Rows[0]
		if m.IsOpenAgain(0) != tc.open || e.Settled != tc.settled || e.onceOutcome() != tc.outcome {
			t.Errorf("%s: the row is %+v, with outcome %s", name, *e, e.onceOutcome())
		}
		if got := FinishRun(run, m, v1alpha1.ResultCompleted, "", born); got.Message != tc.message {
			t.Errorf("%s: the run says %q", name, got.Message)
		}
		if !tc.open && len(m.strandedRows()) > 0 {
			t.Errorf("%s: there would be a third one", name)
		}
	}
}

func TestASecondDeleteIsToldBesideTheRest(t *testing.T) {
	work := cluster(rule())
	work.Lifecycle = v1alpha1.LifecycleOnce
	_, m := openedAgain(t, work)
	m.RecordAnswer(0, RowAnswer{Did: v1alpha1.OutcomeDeleted, Gone: true, Asked: true}, born)
	const want = "why; a second DELETE removed 1 of the objects, which were still terminating although nothing held them"
	if got := m.describeAgain("why"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A run that is stopped leaves what is open for a second DELETE as it was before.
func TestALookClosesWhatIsOpenAgain(t *testing.T) {
	work := cluster(rule())
	work.Lifecycle = v1alpha1.LifecycleOnce
	for name, s := range map[string]Sight{"Seen": {UID: "uid-a", Terminating: true, Stranded: true}, "Unread": {Failed: "timeout"}, "Anew": {UID: "another"}} {
		run, m := openedAgain(t, work)
		m.RecordSights(run, map[int]Sight{0: s}, born)
		if e := &m.Rows[0]; e.State != RowGone || e.onceOutcome() != v1alpha1.OutcomeGone {
			t.Errorf("%s: the row is %+v", name, *e)
		}
	}
}
