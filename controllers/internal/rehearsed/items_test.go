// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package rehearsed

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func pod(name string) observed.Object {
	return observed.Object{Ref: observed.Ref{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"}}
}

// An item has another mark when something else is to be done for it, or to another version of an object.
func TestMarkItems(t *testing.T) {
	step := func(change ...func(*plan.Step)) plan.Step {
		s := plan.Step{Rule: "r", Keys: []string{"k"}, Object: pod("a"), Verb: plan.VerbPatch, Patch: &plan.Patch{Body: []byte(`{"a":1}`)}}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	mark := func(steps ...plan.Step) Item {
		return MarkItems(plan.Plan{Steps: steps})[plan.ItemKey{Rule: "r", Key: "k"}.Sum()]
	}
	same := mark(step())
	for name, tc := range map[string]struct {
		steps []plan.Step
		same  bool
	}{
		"Same":    {[]plan.Step{step()}, true},
		"Reason":  {[]plan.Step{step(func(s *plan.Step) { s.Reason = "why" })}, true},
		"Version": {[]plan.Step{step(func(s *plan.Step) { s.Object.ResourceVersion = "8" })}, false},
		"Object":  {[]plan.Step{step(func(s *plan.Step) { s.Object = pod("b") })}, false},
		"Verb":    {[]plan.Step{step(func(s *plan.Step) { s.Verb = plan.VerbDelete })}, false},
		"Patch":   {[]plan.Step{step(func(s *plan.Step) { s.Patch = &plan.Patch{Body: []byte(`{"a":2}`)} })}, false},
		"More":    {[]plan.Step{step(), step(func(s *plan.Step) { s.Verb = plan.VerbDelete })}, false},
		"None":    {nil, false},
	} {
		if got := mark(tc.steps...); (got == same) != tc.same {
			t.Errorf("%s: it has the same mark: %t", name, got == same)
		}
	}
	report := func(reason string, after ...int) plan.Step {
		return step(func(s *plan.Step) { s.Verb, s.Patch, s.Reason, s.After = plan.VerbReport, nil, reason, after })
	}
	if mark(report("one")) == mark(report("another")) {
		t.Error("a report has the mark of one with another reason")
	}
	if mark(step(), report("one", 0)) != mark(step(), report("another", 0)) {
		t.Error("a report that comes after a deed has another mark for its reason")
	}
	both := func(body string) plan.Step {
		return step(func(s *plan.Step) { s.Keys, s.Patch = []string{"k", "l"}, &plan.Patch{Body: []byte(body)} })
	}
	if mark(both("1")) != mark(both("2")) {
		t.Error("another item changes the mark of one that shares a patch with it")
	}
}

func TestItems(t *testing.T) {
	step := func(name string, keys ...string) plan.Step {
		return plan.Step{Rule: "r", Keys: keys, Object: pod(name), Verb: plan.VerbDelete}
	}
	decision := plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: []plan.Step{step("a", "1", "2"), step("b", "3")}}
	marks, done := MarkItems(decision), Items{}
	if len(marks) != 3 || done.HasItem(plan.ItemKey{Rule: "r", Key: "1"}) {
		t.Fatalf("marks %v, done %v", marks, done)
	}
	done.AddStep(&decision.Steps[0], marks)
	for key, want := range map[plan.ItemKey]bool{{Rule: "r", Key: "1"}: true, {Rule: "r", Key: "2"}: true, {Rule: "r", Key: "3"}: false, {Rule: "s", Key: "1"}: false} {
		if done.HasItem(key) != want {
			t.Errorf("%v was rehearsed: %t", key, !want)
		}
	}
	if n := done.CountBytes(); n != 2*itemBytes {
		t.Errorf("they take %d bytes", n)
	}
	if left := done.LeaveOut(decision, time.Time{}).Steps; len(left) != 1 || left[0].Object.Name != "b" || len(decision.Steps) != 2 {
		t.Errorf("what was not rehearsed: %+v", left)
	}
	changed := step("a", "1")
	changed.Object.ResourceVersion = "8"
	done.ForgetOthers(MarkItems(plan.Plan{Steps: []plan.Step{step("a", "2"), changed}}))
	if done.HasItem(plan.ItemKey{Rule: "r", Key: "1"}) || !done.HasItem(plan.ItemKey{Rule: "r", Key: "2"}) {
		t.Errorf("after a change of the first item's object: %v", done)
	}
	if done.ForgetOthers(Items{}); len(done) != 0 {
		t.Errorf("of what is not wanted any more %v is remembered", done)
	}
}

// What would be refused is asked again, longer each time, until something else would be done.
func TestRefusedItems(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	steps := []plan.Step{
		{Rule: "r", Keys: []string{"1"}, Object: pod("a"), Verb: plan.VerbPatch, Patch: &plan.Patch{Body: []byte(`{}`)}},
		{Rule: "r", Keys: []string{"1"}, Object: pod("a"), Verb: plan.VerbDelete},
		{Rule: "r", Keys: []string{"2"}, Object: pod("b"), Verb: plan.VerbDelete},
	}
	decision := plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: steps}
	marks, done := MarkItems(decision), Items{}
	refused, fine := plan.ItemKey{Rule: "r", Key: "1"}, plan.ItemKey{Rule: "r", Key: "2"}
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		for i := range steps {
			done.AddStep(&steps[i], marks)
		}
		if done.IsRefused(refused) || !done.NextAttempt().IsZero() {
			t.Error("what is asked again counts as refused before the answer")
		}
		done.NoteRefused(&steps[0], now)
		done.NoteRefused(&steps[1], now)
		if !done.IsRefused(refused) || done.IsRefused(fine) || !done.NextAttempt().Equal(now.Add(wait)) {
			t.Errorf("it is refused: %t, and another one: %t; it is asked again at %s, want after %s", done.IsRefused(refused), done.IsRefused(fine), done.NextAttempt(), wait)
		}
		if left := done.LeaveOut(decision, now.Add(wait-1)).Steps; len(left) != 0 {
			t.Errorf("%d steps are asked about again too early", len(left))
		}
		now = now.Add(wait)
		if left := done.LeaveOut(decision, now).Steps; len(left) != 2 {
			t.Errorf("%d steps are asked about again", len(left))
		}
	}
	steps[0].Object.ResourceVersion = "8"
	if done.ForgetOthers(MarkItems(decision)); done.IsRefused(refused) || !done.HasItem(fine) {
		t.Errorf("after a change of the object: %v", done)
	}
}

// TestDescribeIn shows what is reported of a plan whose actions were rehearsed: how many objects would be acted on, how many requests would be
// refused, and why the last one.
func TestDescribeIn(t *testing.T) {
	step := func(name string, verb plan.Verb) plan.Step {
		return plan.Step{Rule: "r", Keys: []string{name}, Object: pod(name), Verb: verb}
	}
	p := plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: []plan.Step{step("a", plan.VerbDelete), step("b", plan.VerbDelete), step("c", plan.VerbReport), step("d", plan.VerbDelete)}}
	now, last := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Refusal{Reason: v1alpha1.ReasonDeletionRefused, Why: "Pod shop/b: no"}
	m, marks := Items{}, MarkItems(p)
	for i := range p.Steps[:3] { // of the last one it was not asked
		m.AddStep(&p.Steps[i], marks)
	}
	if got := m.DescribeIn(p, last); got.Reason != v1alpha1.ReasonDryRun || got.Refused != 0 || got.RefusedReason != "" || got.Message != "Mode is DryRun: 2 objects would be acted on; nothing was changed." {
		t.Errorf("got %+v", got)
	}
	m.NoteRefused(&p.Steps[1], now)
	p.Release = &observed.Release{Name: "web"}
	got := m.DescribeIn(p, last)
	if got.Refused != 1 || got.RefusedReason != v1alpha1.ReasonDeletionRefused || got.Next.IsZero() ||
		got.Message != `Mode is DryRun: requests for 1 object would be refused, and 1 object would be acted on and release "web" uninstalled; nothing was changed. Pod shop/b: no` {
		t.Errorf("got %+v", got)
	}
}
