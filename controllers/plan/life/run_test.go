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
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// A run records each object once, whatever is done with it, and nothing of what is only reported.
func TestCommitOfRules(t *testing.T) {
	work := cluster(
		rule(func(r *v1alpha1.Rule) { r.Actions = []v1alpha1.RuleAction{patches("{}"), deletes()} }),
		rule(func(r *v1alpha1.Rule) {
			r.Name, r.ForEach, r.Actions = "look", "nodes.items", []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
		}),
	)
	work.Lifecycle = v1alpha1.LifecycleOnce
	in := over(t, work, p("a"), p("b"), p("c", v1alpha1.ProtectKey+"=true"))
	run, m, todo := CommitRun(&v1alpha1.CleanerStatus{}, in, "d", plan.ComputePlan(t.Context(), in))
	want := []string{"r pods/v1 shop/a uid-a 7", "r pods/v1 shop/b uid-b 7"}
	if diff := cmp.Diff(want, run.Rows); diff != "" || len(m.Rows) != 2 {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := stepsOf(todo); len(got) != 4 {
		t.Errorf("it is to do %v", got)
	}
	if m.Rows[0].Was == nil || m.Rows[0].Was[0].Object.Name != "a" {
		t.Errorf("how an object was is not remembered: %+v", m.Rows[0])
	}
	others := run.DeepCopy()
	others.Rows[1] = "r pods/v1 shop/d uid-d 7"
	if known, left := m.UnknownRows(run), m.UnknownRows(others); len(known) != 0 || len(left) != 2 {
		t.Errorf("of its rows %v are unknown, and of as many others %v", known, left)
	}
	if len(run.Withheld) != 1 || run.Withheld[0].Object != "Pod shop/c" {
		t.Errorf("withheld: %+v", run.Withheld)
	}
	row, err := runrow.ParseRow(run.Rows[0])
	if err != nil || row.Rule != "r" || row.FindTarget(work) != -1 {
		t.Errorf("got %+v, %v", row, err)
	}
}

// What was evaluated at the decision is recorded with the run, and stays there when it is finished.
func TestDataIsRecorded(t *testing.T) {
	run, m, _ := CommitRun(&v1alpha1.CleanerStatus{}, plan.Input{Spec: &v1alpha1.Work{}, Now: born}, "v1:0", plan.Plan{Data: `{"a":1}`})
	if run.Data != `{"a":1}` {
		t.Errorf("the run has %q", run.Data)
	}
	if done := FinishRun(run, m, v1alpha1.ResultCompleted, "", born); done.Data != run.Data {
		t.Errorf("the finished run has %q", done.Data)
	}
}

// TestAConfirmationDoesNotOutliveASleep shows that live reads from before the machine was suspended justify nothing.
func TestAConfirmationDoesNotOutliveASleep(t *testing.T) {
	now := time.Now()
	m := NewMemory(1, nil, now)
	if !m.IsConfirmed(now.Add(time.Second)) {
		t.Error("a confirmation of a second ago does not serve")
	}
	if m.IsConfirmed(asleep(now, time.Hour)) {
		t.Error("a confirmation of an hour ago serves")
	}
}

// What failed is tried again when the author asks for it, and then waits as after a first failure.
func TestEndWaits(t *testing.T) {
	m := NewMemory(1, make([]observed.Seen, 2), born)
	fail := func() (row, release time.Duration) {
		m.RecordAnswer(1, RowAnswer{Failed: "not yet", RetryAfter: time.Minute}, born)
		m.RecordFailure("not yet", born)
		return m.Rows[1].backoff, m.Due.Sub(born)
	}
	firstRow, first := fail()
	if row, release := fail(); row <= firstRow || release <= first {
		t.Fatalf("after another failure they wait for %s and %s", row, release)
	}
	m.EndWaits()
	if !m.Rows[1].Due.IsZero() || !m.Due.IsZero() || m.Rows[1].Failed == "" || m.Failed == "" {
		t.Errorf("they wait until %s and %s, and say %q and %q", m.Rows[1].Due, m.Due, m.Rows[1].Failed, m.Failed)
	}
	if row, release := fail(); row != firstRow || release != first {
		t.Errorf("the next time they wait for %s and %s, want %s and %s", row, release, firstRow, first)
	}
}
