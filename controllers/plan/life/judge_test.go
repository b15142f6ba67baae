// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// A run that has done a part is judged by the world as it was before: by what its rules, and its conditions, saw then.
func TestARunIsJudgedWithoutItsOwnDeeds(t *testing.T) {
	two := func(r *v1alpha1.Rule) { r.When = "pods.items.size() == 2" }
	unmarked := func(r *v1alpha1.Rule) {
		r.When = `!("marked" in item.spec)`
		r.Actions = []v1alpha1.RuleAction{patches(`{"spec": {"marked": "yes"}}`), deletes()}
	}
	at := func(o observed.Object, version string) observed.Object {
		o.ResourceVersion = version
		return o
	}
	deleted := RowAnswer{Did: v1alpha1.OutcomeDeleted}
	marked := RowAnswer{Did: v1alpha1.OutcomePatched, Left: "8", Failed: "forbidden"}
	again := map[int]RowVerdict{1: {Version: "7"}}
	for name, tc := range map[string]struct {
		reason     string
		conditions []string
		rule       v1alpha1.Rule
		did        RowAnswer // to a
		whole      bool
		now        []observed.Object
		outcome    JudgeOutcome
		want       map[int]RowVerdict
	}{
		"Condition":     {"a condition sees what was deleted", []string{"pods.items.size() == 2"}, rule(), deleted, true, []observed.Object{p("b")}, JudgeTrue, again},
		"Rule":          {"and so does a rule", nil, rule(two), deleted, true, []observed.Object{p("b")}, JudgeTrue, again},
		"TakenByOthers": {"but not what somebody else has deleted", []string{"pods.items.size() == 2"}, rule(), RowAnswer{Did: v1alpha1.OutcomeGone}, true, []observed.Object{p("b")}, JudgeFalse, nil},
		"MadeAnew":      {"an object that has its name now is seen", []string{"pods.items.size() == 2"}, rule(), deleted, true, []observed.Object{at(p("a", "x:y"), "9"), p("b")}, JudgeTrue, again},
		"Patched":       {"what was patched stands as it was, and is acted on as it is", []string{`pods.items.all(p, !("marked" in p.spec))`}, rule(unmarked), marked, true, []observed.Object{at(p("a", "marked:yes"), "8"), p("b")}, JudgeTrue, map[int]RowVerdict{0: {Version: "8"}, 1: {Version: "7"}}},
		"PatchedSince":  {"until somebody changes it", nil, rule(unmarked), marked, true, []observed.Object{at(p("a", "marked:yes"), "9"), p("b")}, JudgeTrue, map[int]RowVerdict{0: {Kept: "no rule selects it now"}, 1: {Version: "7"}}},
		"PatchedGone":   {"or deletes it", nil, rule(unmarked), marked, true, []observed.Object{p("b")}, JudgeTrue, map[int]RowVerdict{0: {Kept: "no rule selects it now"}, 1: {Version: "7"}}},
	} {
		t.Run(name, func(t *testing.T) {
			work := cluster(tc.rule)
			work.Lifecycle, work.Conditions = v1alpha1.LifecycleOnce, tc.conditions
			before := over(t, work, p("a"), p("b"))
			if name == "MadeAnew" {
				tc.now[0].UID = "another"
			}
			run, m, _ := CommitRun(&v1alpha1.CleanerStatus{}, before, "v1:x", plan.ComputePlan(t.Context(), before))
			m.RecordAnswer(0, tc.did, born)
			got := JudgeRun(t.Context(), over(t, work, tc.now...), run, m)
			if got.Outcome != tc.outcome {
				t.Fatalf("%s: outcome %d (%s), want %d", tc.reason, got.Outcome, got.Why, tc.outcome)
			}
			if diff := cmp.Diff(tc.want, got.Rows); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// What is missing only because the run had it is not asked about. Who has taken it is known to the process that did all of the run;
// another one leaves alone what it cannot judge, so that the run ends.
func TestWhatARunHasTakenFromItself(t *testing.T) {
	work := cluster(
		rule(func(r *v1alpha1.Rule) { r.Name, r.ForEach = "doors", "[door]" }),
		rule(func(r *v1alpha1.Rule) {
			r.Name, r.When = "by-door", `door.spec.open == "yes" && item.metadata.name == "a"`
		}),
		rule(func(r *v1alpha1.Rule) { r.Name, r.When = "rest", `item.metadata.name == "b"` }),
	)
	work.Lifecycle = v1alpha1.LifecycleOnce
	door := target("door", "Pod")
	door.Reference.Name, door.Reference.Namespace, door.Reference.MatchLabels = "door", "shop", nil
	work.Targets = append(work.Targets, door)
	world := func(doors ...observed.Object) plan.Input {
		in := input(t, work, seen(p("a"), p("b")), nodesSeen("n1"), poolsSeen(), seen(doors...))
		in.Owner = plan.Owner{Name: "c", UID: "cleaner", Created: born}
		return in
	}
	before := world(p("door", "open:yes"))
	decided := plan.ComputePlan(t.Context(), before)
	run, _, _ := CommitRun(&v1alpha1.CleanerStatus{}, before, "v1:x", decided)
	if len(run.Rows) != 3 {
		t.Fatalf("the run has %v: %s", run.Rows, decided.Message)
	}
	for name, tc := range map[string]struct {
		did  []RowAnswer
		want JudgeOutcome
		pod  RowVerdict
	}{
		"Own":    {[]RowAnswer{{Did: v1alpha1.OutcomeDeleted}}, JudgeTrue, RowVerdict{Version: "7"}},
		"Others": {[]RowAnswer{{Did: v1alpha1.OutcomeGone}}, JudgeUndecidable, RowVerdict{Kept: "objects of this run that its rule reads no longer exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, m, _ := CommitRun(&v1alpha1.CleanerStatus{}, before, "v1:x", decided)
			for i, a := range tc.did {
				m.RecordAnswer(i, a, born)
			}
			got := JudgeRun(t.Context(), world(), run, m)
			if got.Outcome != tc.want {
				t.Fatalf("outcome %d (%s), want %d", got.Outcome, got.Why, tc.want)
			}
			if diff := cmp.Diff(map[int]RowVerdict{1: tc.pod, 2: {Version: "7"}}, got.Rows); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			m.RecordJudgement(got, born)
			if stops := m.Stop != ""; stops != (tc.want == JudgeUndecidable) {
				t.Errorf("it stops with %q", m.Stop)
			}
		})
	}
	if got := JudgeRun(t.Context(), func() plan.Input { in := world(); in.Snapshot[0].State = observed.Forbidden; return in }(), run, NewMemory(1, make([]observed.Seen, 3), born)); got.Outcome != JudgeFailed {
		t.Errorf("a target that cannot be read gives outcome %d", got.Outcome)
	}
}

// A target that names an object is lost with that object, and with no other of the run.
func TestATargetIsLostWithItsOwnObject(t *testing.T) {
	shop := observed.Ref{Resource: pods, Namespace: "shop", Name: "door", UID: "u"}
	at := func(change func(*observed.Ref)) observed.Ref {
		ref := shop
		change(&ref)
		return ref
	}
	for name, tc := range map[string]struct {
		namespace string // that the target names
		owner     string
		of        observed.Target
		row       observed.Ref
		lost      bool
	}{
		"Same":             {"shop", "", seen(), shop, true},
		"InTheOwn":         {"", "shop", seen(), shop, true},
		"AnotherVersion":   {"shop", "", seen(), at(func(r *observed.Ref) { r.Resource.Version = "v2" }), true},
		"AnotherName":      {"shop", "", seen(), at(func(r *observed.Ref) { r.Name = "window" }), false},
		"AnotherNamespace": {"shop", "", seen(), at(func(r *observed.Ref) { r.Namespace = "other" }), false},
		"NotTheOwn":        {"", "shop", seen(), at(func(r *observed.Ref) { r.Namespace = "other" }), false},
		"AnotherKind":      {"shop", "", seen(), at(func(r *observed.Ref) { r.Resource.Resource = "jobs" }), false},
		"AnotherGroup":     {"shop", "", seen(), at(func(r *observed.Ref) { r.Resource.Group = "example.com" }), false},
		"InNone":           {"", "shop", nodesSeen(), observed.Ref{Resource: nodes, Name: "door", UID: "u"}, true},
		"Unreadable":       {"shop", "", seen(), observed.Ref{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			door := target("door", "Any", named("door"))
			door.Reference.Namespace = tc.namespace
			j := judge{
				Input: plan.Input{Owner: plan.Owner{Namespace: tc.owner}, Spec: &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{door}}, Snapshot: observed.Snapshot{tc.of}},
				rows:  []runrow.Row{{Rule: "r"}, {Rule: "r", Ref: tc.row}},
			}
			why := j.findMissing()
			if lost := j.Lost["door"]; lost != tc.lost || (why == "") != tc.lost {
				t.Errorf("it is lost: %t, want %t; it says %q", lost, tc.lost, why)
			}
		})
	}
}

// Of a row that nothing wants any more it is known why, unless its target could not be read, or its rule could not be asked.
func TestWhyARowIsNotWanted(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) { r.When = "pools.items.size() == 1" }), rule(func(r *v1alpha1.Rule) { r.Name = "other" }))
	work.Targets[0].Delete, work.Targets[1].Delete = true, true
	quiet(&work.Targets[1])
	row := func(rule string) runrow.Row { return runrow.Row{Rule: rule, Ref: p("a").Ref} }
	wrong := []v1alpha1.ItemError{{Rule: "other", Message: "no such key"}}
	wrongItems := []v1alpha1.ItemError{
		{Rule: "r", Key: "Pod shop/a", Field: "rules[0].when", Message: "no such key"}, {Rule: "other", Key: "Pod shop/b", Field: "rules[1].when", Message: "no such key"},
		{Rule: "other", Key: "Pod shop/a", Field: "rules[1].when", Message: "no such key"},
	}
	waiting := []plan.Pending{{Rule: "other", Until: born}}
	for name, tc := range map[string]struct {
		row  runrow.Row
		plan plan.Plan
		want RowVerdict
	}{
		"Target":         {row: row("targets.pods"), want: RowVerdict{Kept: `target "pods" no longer selects it`}},
		"UnreadTarget":   {row: row("targets.nodes"), want: RowVerdict{Unread: "no answer", Reason: v1alpha1.ReasonReadFailed}},
		"TargetOfErrors": {row: row("targets.pods"), plan: plan.Plan{Errors: wrong}, want: RowVerdict{Kept: `target "pods" no longer selects it`}},
		"NoSuchTarget":   {row: row("targets.pools"), want: RowVerdict{Kept: "no rule selects it now"}},
		"NoSuchRule":     {row: row("another"), want: RowVerdict{Kept: "no rule selects it now"}},
		"Rule":           {row: row("other"), want: RowVerdict{Kept: "no rule selects it now"}},
		"RuleOfTheLost":  {row: row("r"), plan: plan.Plan{Errors: wrong}, want: RowVerdict{Kept: "objects of this run that its rule reads no longer exist"}},
		"RuleThatFails":  {row: row("other"), plan: plan.Plan{Errors: wrong, Pending: waiting}, want: RowVerdict{Unread: `rule "other": spec.: no such key`, Reason: v1alpha1.ReasonEvaluationFailed}},
		"ItemThatFails": {row: row("other"), plan: plan.Plan{Errors: wrongItems}, want: RowVerdict{
			Unread: `rule "other", item "Pod shop/a": spec.rules[1].when: no such key`, Reason: v1alpha1.ReasonEvaluationFailed,
		}},
		"OtherItemsFail": {row: row("other"), plan: plan.Plan{Errors: wrongItems[:2]}, want: RowVerdict{
			Unread: `rule "other", item "Pod shop/b": spec.rules[1].when: no such key`, Reason: v1alpha1.ReasonEvaluationFailed,
		}},
		"RuleThatWaits": {row: row("other"), plan: plan.Plan{Pending: waiting}, want: RowVerdict{Until: born}},
	} {
		t.Run(name, func(t *testing.T) {
			j := judge{Input: over(t, work), m: NewMemory(1, make([]observed.Seen, 1), born), rows: []runrow.Row{tc.row}, unread: map[int]string{1: "no answer"}}
			j.Lost = map[string]bool{"pools": true}
			if diff := cmp.Diff(tc.want, j.judgeUnwanted(0, &Judgement{Plan: tc.plan})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A step is taken only when all that it comes after was: what comes after something that is no part of the run, or that is left alone,
// is left alone too, with all else that is to be done to its object.
func TestADependencyIsNeverCut(t *testing.T) {
	says := plan.Step{Rule: "orphans", Object: pod("y"), Verb: plan.VerbReport}
	steps := []plan.Step{onPod("y"), onPod("z", 0), says, onPod("y", 0, 1, 2), onPod("x", 3)}
	at := map[types.UID]int{"uid-x": 0, "uid-y": 1, "uid-z": 2}
	for name, tc := range map[string]struct {
		reason  string
		states  [3]RowState
		foreign bool // z is no part of the run
		want    []string
		dropped map[int]bool
	}{
		"Open":     {reason: "all is to be done, and a report holds nothing up", want: []string{"delete y[]", "delete z[0]", "delete y[0 1]", "delete x[2]"}, dropped: map[int]bool{}},
		"Done":     {reason: "what is done holds nothing up", states: [3]RowState{0, 0, RowGone}, want: []string{"delete y[]", "delete z[0]", "delete y[0 1]", "delete x[2]"}, dropped: map[int]bool{}},
		"Replaced": {reason: "nothing is done after what is left alone", states: [3]RowState{0, 0, RowReplaced}, dropped: map[int]bool{0: true, 1: true, 2: true}},
		"Foreign":  {reason: "nor after what is no part of the run", foreign: true, dropped: map[int]bool{0: true, 1: true}},
		"First":    {reason: "what comes before goes on", states: [3]RowState{RowKept, 0, 0}, want: []string{"delete y[]", "delete z[0]", "delete y[0 1]"}, dropped: map[int]bool{0: true}},
	} {
		t.Run(name, func(t *testing.T) {
			rows := at
			if tc.foreign {
				rows = map[types.UID]int{"uid-x": 0, "uid-y": 1}
			}
			m := NewMemory(1, make([]observed.Seen, 3), born)
			for i, s := range tc.states {
				m.Rows[i].State = s
			}
			p := plan.Plan{Steps: steps}
			dropped := keepRowSteps(&p, rows, m)
			if diff := cmp.Diff(tc.want, stepsOf(p)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.dropped, dropped); diff != "" {
				t.Errorf("%s: rows -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// Steps that are left out take others with them, of which each takes the next: what that takes goes with the number of steps. Gone
// through over and over, these would take a minute.
func TestStepsAreLeftOutOnce(t *testing.T) {
	const rows = 50_000
	p, at, m := plan.Plan{}, map[types.UID]int{}, NewMemory(1, make([]observed.Seen, rows), born)
	for i := range rows {
		o := onPod(strconv.Itoa(i))
		at[o.Object.UID], p.Steps = i, append(p.Steps, o)
	}
	for i := rows - 1; i > 0; i-- { // the last step of each object comes after the first of the one before it
		p.Steps = append(p.Steps, onPod(strconv.Itoa(i), i-1))
	}
	m.Rows[0].State = RowKept
	done := make(chan map[int]bool, 1)
	go func() { done <- keepRowSteps(&p, at, m) }()
	select {
	case dropped := <-done:
		if len(dropped) != rows || len(p.Steps) != 0 {
			t.Errorf("%d of %d rows are left alone, and %d steps are left", len(dropped), rows, len(p.Steps))
		}
	case <-time.After(15 * time.Second):
		t.Fatal("it takes far more than once through the steps")
	}
}

// A course goes on with a step when all that it comes after has succeeded, and an object is finished when its last step is.
func TestCourse(t *testing.T) {
	c := NewCourse(plan.Plan{Steps: []plan.Step{onPod("y"), onPod("z", 0), onPod("y", 0, 1), onPod("x", 2)}})
	turn := func(want []int, broken ...int) {
		t.Helper()
		got, failed := c.NextSteps()
		if diff := cmp.Diff(want, got); diff != "" || len(failed) != len(broken) || len(broken) > 0 && !failed[broken[0]] {
			t.Errorf("-want +got\n%s, and %v come after a failure", diff, failed)
		}
	}
	turn([]int{0})
	c.MarkSucceeded(0)
	if c.IsObjectDone("uid-y") || c.IsOver() || !c.ChangeFollows(1) || c.ChangeFollows(3) || !c.IsAbout("uid-x") || c.IsAbout("uid-w") {
		t.Error("one step of two is all of them")
	}
	turn([]int{1})
	c.MarkFailed(1)
	turn([]int{2}, 2)
	c.MarkFailed(2)
	turn([]int{3}, 3)
	c.MarkFailed(3)
	turn(nil)
	if c.IsObjectDone("uid-y") || !c.IsOver() {
		t.Error("an object is finished of which a step has failed")
	}
}

// A batch takes the steps of rows that are due. One that waits holds up what comes after it, and one that is done does not.
func TestCourseOfRows(t *testing.T) {
	todo := plan.Plan{Steps: []plan.Step{onPod("y"), onPod("z", 0), onPod("y", 0, 1)}}
	todo.Steps[1].Rule, todo.Steps[1].Keys = "orphans", []string{"k"}
	rows := map[types.UID]int{"uid-y": 0, "uid-z": 1}
	for name, tc := range map[string]struct {
		due   []types.UID
		done  []int
		turns []int
		item  bool // the item of z has failed
	}{
		"Both":    {due: []types.UID{"uid-y", "uid-z"}, turns: []int{0}},
		"OneDone": {due: []types.UID{"uid-y"}, done: []int{1}, turns: []int{0}},
		"NotDue":  {due: []types.UID{"uid-y"}, turns: []int{0}, item: true},
		"Other":   {due: []types.UID{"uid-z"}, done: []int{0}, turns: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMemory(1, make([]observed.Seen, 2), born)
			for _, i := range tc.done {
				m.Rows[i].State = RowDeleted
			}
			due := map[types.UID]bool{}
			for _, uid := range tc.due {
				due[uid] = true
			}
			c := m.CourseOfRows(todo, rows, due)
			if got, _ := c.NextSteps(); !cmp.Equal(got, tc.turns) {
				t.Errorf("the turn is that of %v, want %v", got, tc.turns)
			}
			if got := c.FailedItems()[plan.ItemKey{Rule: "orphans", Key: "k"}]; got != tc.item {
				t.Errorf("the item has failed: %t", got)
			}
		})
	}
}

// TestConditionsSeeTheOtherGroup shows that an object which conditions see by another group only is still one that they see:
// a change of it has them asked again, and once it is deleted they see it as they saw it.
func TestConditionsSeeTheOtherGroup(t *testing.T) {
	spec := &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`other.items.exists(e, e.regarding.kind == "Pod")`}},
		Targets:    []v1alpha1.ClusterTarget{eventTarget("other", groupEvents), eventTarget("doomed", coreEvents, deleted, quiet)},
	}
	in := input(t, spec, eventsSeen(groupEvents, event(groupEvents)), eventsSeen(coreEvents, event(coreEvents)))
	c, _ := committed()
	run, m, _ := CommitRun(&c.Status, in, "v1:x", plan.ComputePlan(t.Context(), in))
	newer, marked := func(o *observed.Object) { o.ResourceVersion = "8" }, func(o *observed.Object) { o.Protected = true }
	now := input(t, spec, eventsSeen(groupEvents, event(groupEvents, newer)), eventsSeen(coreEvents, event(coreEvents, newer)))
	protected := input(t, spec, eventsSeen(groupEvents, event(groupEvents, newer, marked)), eventsSeen(coreEvents, event(coreEvents, newer)))
	if got := JudgeRun(t.Context(), protected, run, m); got.Rows[0].Kept == "" {
		t.Errorf("what is marked as protected by now is not: %+v", got)
	}
	got := JudgeRun(t.Context(), now, run, m)
	if got.Outcome != JudgeTrue || got.Rows[0].Version != "8" {
		t.Errorf("it is deleted at another version: %+v", got)
	}
	m.RecordJudgement(got, born)
	m.RecordAnswer(0, RowAnswer{Did: v1alpha1.OutcomeDeleted}, born)
	gone := input(t, spec, eventsSeen(groupEvents), eventsSeen(coreEvents))
	if got := JudgeRun(t.Context(), gone, run, m); got.Outcome != JudgeTrue {
		t.Errorf("what was deleted does not stand as it was: %+v", got)
	}
}
