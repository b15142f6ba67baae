// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/itemerrors"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// JudgeOutcome is what the conditions of an open run say on live reads.
type JudgeOutcome int

const (
	// JudgeFailed means that nothing can be said: a read, a condition or a rule failed.
	JudgeFailed JudgeOutcome = iota
	// JudgeTrue means that the conditions still hold.
	JudgeTrue
	// JudgeFalse means that one does not.
	JudgeFalse
	// JudgeUndecidable means that no condition is false, but some could not be evaluated because objects of this run that they read
	// are missing.
	JudgeUndecidable
)

// Judgement is what the spec wants of an open run now.
type Judgement struct {
	Outcome JudgeOutcome
	// Why says it in words, unless the conditions hold.
	Why string
	// Plan has the steps on the objects of rows, also of rows that are done, in order. It has no step that comes after one outside the
	// run, or after one that will not be carried out.
	Plan plan.Plan
	// Rows says what is to become of each open row.
	Rows map[int]RowVerdict

	seen map[int]observed.Seen // how conditions and rules saw the objects of rows
}

// RowVerdict is what is to become of one open row.
type RowVerdict struct {
	// Version is the version of its object, if there are steps on it; empty otherwise.
	Version string
	// Kept says why it is left alone, unless a live read shows that its object is gone; empty if it is not.
	Kept string
	// Unread says why it cannot be determined what is wanted of it now.
	Unread string
	// Reason is the reason of conditions for that.
	Reason string
	// Until is when something may be wanted of it; zero if that is not what it waits for.
	Until time.Time
}

// JudgeRun decides again, on live reads, what the spec wants of an open run: conditions, rules and targets. A run must be judged by the
// world without its own actions: so an object that this process has changed for the run counts as it was before, unless another client
// has changed it since, or another object has its name.
func JudgeRun(ctx context.Context, in plan.Input, run *v1alpha1.Run, m *Memory) Judgement {
	j := judge{Input: in, m: m, rows: make([]runrow.Row, len(run.Rows)), live: in.Snapshot, at: make(map[types.UID]int, len(run.Rows))}
	for i, text := range run.Rows {
		if row, err := runrow.ParseRow(text); err == nil { // one that cannot be read was left alone when it was looked at
			j.rows[i] = row
			j.at[row.UID] = i
		}
	}
	j.OpenRun, j.Backoff, j.Idle, j.Recreations = true, nil, nil, nil // each row has a back-off of its own
	j.Protection = in.Protection.ForSpec(in.Spec)
	j.Snapshot = j.restoreSnapshot()
	j.Confirmed, j.Unreadable, j.Batch = j.Snapshot.LiveReads(), map[observed.Read]string{}, math.MaxInt
	return j.judgeRun(ctx)
}

// judge is one judgement in the making.
type judge struct {
	plan.Input
	m    *Memory
	rows []runrow.Row
	at   map[types.UID]int // the rows of objects
	live observed.Snapshot // with the actions of the run
	// unread says of targets that no expression sees why they could not be read.
	unread map[int]string
}

func (j *judge) judgeRun(ctx context.Context) (out Judgement) {
	if out.Why = j.findMissing(); out.Why != "" {
		return out
	}
	see, err := j.BuildEvaluationInput()
	if err != nil {
		out.Why = err.Error()
		return out
	}
	e, problem := j.Programs.BeginEvaluation(ctx, see)
	if problem != nil {
		out.Why = problem.Error()
		return out
	}
	defer e.Close()
	if out.Outcome, out.Why = j.judgeConditions(e); out.Outcome == JudgeFailed || out.Outcome == JudgeFalse {
		return out
	}
	out.Plan = plan.Plan{Verdict: v1alpha1.VerdictAct}
	var done []types.UID // no target has to delete it, and nothing comes after what targets do
	for i := range j.rows {
		if j.m.Rows[i].isDone() {
			done = append(done, j.rows[i].UID)
		}
	}
	j.DecideSteps(e, &out.Plan, done)
	switch problem := e.AbortReason(); {
	case problem != nil:
		return Judgement{Why: "spec." + problem.Error()}
	case ctx.Err() != nil:
		return Judgement{Why: "the evaluation was interrupted"}
	}
	out.seen = j.seenRows()
	j.keepDeletesAgain(&out.Plan)
	dropped := keepRowSteps(&out.Plan, j.at, j.m)
	out.Rows = j.judgeRows(&out, dropped)
	return out
}

// judgeRows says what is to become of the open rows, by the steps that a plan has left on their objects.
func (j *judge) judgeRows(out *Judgement, dropped map[int]bool) map[int]RowVerdict {
	steps, withheld := map[types.UID]*plan.Step{}, map[types.UID]string{}
	for n := range out.Plan.Steps {
		steps[out.Plan.Steps[n].Object.UID] = &out.Plan.Steps[n]
	}
	for _, w := range out.Plan.Withheld {
		withheld[w.Step.Object.UID] = w.Because
	}
	verdicts := map[int]RowVerdict{}
	for i := range j.rows {
		if j.m.Rows[i].State != RowOpen {
			continue
		}
		switch s := steps[j.rows[i].UID]; {
		case s != nil:
			verdicts[i] = j.judgeWanted(i, s.Object.ResourceVersion, out)
		case withheld[j.rows[i].UID] != "":
			verdicts[i] = RowVerdict{Kept: withheld[j.rows[i].UID]}
		case dropped[i]:
			verdicts[i] = RowVerdict{Kept: "an earlier action on it can no longer be performed"}
		default:
			verdicts[i] = j.judgeUnwanted(i, out)
		}
	}
	return verdicts
}

// findMissing notes which targets are lost: missing only because the run had their objects. It says why nothing can be decided, if
// another target that expressions see is not known well enough.
func (j *judge) findMissing() string {
	j.Lost, j.unread = map[string]bool{}, map[int]string{}
	for i := range j.Spec.Targets {
		t := &j.Spec.Targets[i]
		reason, problem := observed.FindProblem(t, &j.Snapshot[i], j.Owner.Namespace)
		switch {
		case reason == "":
		case !t.IsIncluded():
			j.unread[i] = problem
		case reason == v1alpha1.ReasonTargetMissing && slices.ContainsFunc(j.rows, func(r runrow.Row) bool { return j.namesObject(i, &r) }):
			j.Lost[t.Name] = true
		default:
			return problem
		}
	}
	return ""
}

// namesObject says that the object of a row is the one that a target names.
func (j *judge) namesObject(target int, r *runrow.Row) bool {
	ref, seen := &j.Spec.Targets[target].Reference, &j.Snapshot[target]
	namespace := ref.Namespace
	if namespace == "" && seen.Namespaced {
		namespace = j.Owner.Namespace
	}
	return r.Name == ref.Name && r.Namespace == namespace && r.Resource.GroupResource() == seen.Resource.GroupResource()
}

// judgeConditions returns the result of the conditions. It does not evaluate those that read what is lost.
func (j *judge) judgeConditions(e *celenv.Evaluation) (outcome JudgeOutcome, why string) {
	outcome = JudgeTrue
	if len(j.Lost) > 0 {
		outcome, why = JudgeUndecidable, "objects of this run that the conditions or rules read no longer exist"
	}
	for i, r := range e.EvaluateConditions() {
		switch {
		case j.ReadsLost(j.Programs.ListConditionTargets(i)):
		case r.Err != nil:
			if outcome != JudgeFalse {
				outcome, why = JudgeFailed, "spec."+r.Err.Error()
			}
		case !r.Value:
			outcome, why = JudgeFalse, fmt.Sprintf("spec.conditions[%d] is no longer true: %s", i, expr.ShortenSource(j.Spec.Conditions[i]))
		}
	}
	return outcome, why
}

// judgeWanted says what is to become of an open row on whose object there are steps, at a version.
func (j *judge) judgeWanted(i int, version string, out *Judgement) RowVerdict {
	if out.Outcome == JudgeUndecidable && out.seen[i] != nil && version != j.m.DecidedVersion(i, j.rows[i]) {
		return RowVerdict{Kept: "it changed, and the conditions can no longer be evaluated"}
	}
	return RowVerdict{Version: version}
}

// judgeUnwanted says what is to become of an open row on whose object there are no steps.
func (j *judge) judgeUnwanted(i int, out *Judgement) RowVerdict {
	row := j.rows[i]
	t, rule := row.FindTarget(j.Spec), slices.IndexFunc(j.Spec.Rules, func(r v1alpha1.Rule) bool { return r.Name == row.Rule })
	switch {
	case j.unread[t] != "":
		return RowVerdict{Unread: j.unread[t], Reason: v1alpha1.ReasonReadFailed}
	case t >= 0:
		return RowVerdict{Kept: fmt.Sprintf("target %q no longer selects it", j.Spec.Targets[t].Name)}
	case rule >= 0 && j.ReadsLost(j.Programs.ListRuleTargets(rule)):
		return RowVerdict{Kept: "objects of this run that its rule reads no longer exist"}
	case len(out.Plan.Errors) > 0:
		return RowVerdict{Unread: itemerrors.DescribeRow(findRowError(out.Plan.Errors, &row, &j.m.Rows[i])), Reason: v1alpha1.ReasonEvaluationFailed}
	case len(out.Plan.Pending) > 0: // its hold may have started again
		return RowVerdict{Until: out.Plan.Pending[0].Until}
	}
	return RowVerdict{Kept: "no rule selects it now"}
}

// findRowError finds the error that best says why a row cannot be judged: one of its own object, or else of its rule, or else the first.
func findRowError(errs []v1alpha1.ItemError, row *runrow.Row, e *Entry) *v1alpha1.ItemError {
	ref := row.Ref
	ref.Kind = cmp.Or(ref.Kind, e.Kind)
	best, rank := 0, 0
	for i := range errs {
		switch ofRule := errs[i].Rule == row.Rule; {
		case ofRule && errs[i].Key == ref.String():
			return &errs[i]
		case ofRule && rank == 0:
			best, rank = i, 1
		}
	}
	return &errs[best]
}

// seenRows returns the objects of rows as conditions and rules see them, with the actions of the run.
func (j *judge) seenRows() map[int]observed.Seen {
	in := plan.Input{Spec: j.Spec, Snapshot: j.live}
	out, seen := map[int]observed.Seen{}, in.ListSeenObjects()
	for i, row := range j.rows {
		if s := seen[row.UID]; row.UID != "" && s != nil {
			out[i] = s
		}
	}
	return out
}

// restoreSnapshot returns the live snapshot with the actions of this process undone.
func (j *judge) restoreSnapshot() observed.Snapshot {
	out, were, again := slices.Clone(j.live), make([][]observed.Object, len(j.live)), map[types.UID]bool{}
	for i, row := range j.rows {
		r := &j.m.Rows[i]
		if r.isOpenAgain() {
			again[row.UID] = true
			continue
		}
		if !r.hasActed() || len(r.Was) == 0 || r.Was[0].Object.UID != row.UID {
			continue
		}
		for _, was := range r.Was {
			if t := was.Target; t < len(out) && out[t].State == observed.Complete {
				was.Object.ResourceVersion, was.Object.Assembled = r.Left, true
				were[t] = append(were[t], was.Object)
			}
		}
	}
	for t := range out {
		if len(were[t]) > 0 {
			out[t].Objects = withObjects(out[t].Objects, were[t])
		}
	}
	if len(again) > 0 {
		for t := range out {
			out[t].Objects = withoutDeletion(out[t].Objects, again)
		}
	}
	return out
}

// withObjects returns a list with objects as they were, unless others have their names, or another client has changed them since this
// process left them at their version. An object without a version was deleted by this process. It sorts were, so that one pass over both
// is enough.
func withObjects(objects, were []observed.Object) []observed.Object {
	slices.SortFunc(were, byName)
	out := make([]observed.Object, 0, len(objects)+len(were))
	for _, was := range were {
		for len(objects) > 0 && byName(objects[0], was) < 0 {
			out, objects = append(out, objects[0]), objects[1:]
		}
		there := len(objects) > 0 && byName(objects[0], was) == 0
		switch {
		case there && (objects[0].UID != was.UID || was.ResourceVersion != "" && was.ResourceVersion != objects[0].ResourceVersion):
			continue
		case there:
			objects = objects[1:]
		case was.ResourceVersion != "": // another client has deleted it
			continue
		}
		out = append(out, was)
	}
	return append(out, objects...)
}

// byName is the order of the objects of a target.
func byName(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) }

// RecordJudgement records a judgement. at is when its reads began.
func (m *Memory) RecordJudgement(j Judgement, at time.Time) {
	if rows := m.rowsWhere((*Entry).isOpenAgain); len(rows) > 0 {
		m.recordJudgementAgain(rows, j, at)
		return
	}
	switch {
	case j.Outcome == JudgeFailed:
		m.RecordFailure(j.Why, at)
		return
	case j.Outcome == JudgeFalse, j.Outcome == JudgeUndecidable && m.AllAnswered:
		m.Stop = j.Why
		return
	}
	m.forgetFailures()
	m.ConfirmedAt = at
	for i, v := range j.Rows {
		r := &m.Rows[i]
		if s := j.seen[i]; s != nil && (r.Left == "" || s[0].Object.ResourceVersion != r.Left) {
			r.Was, r.Left = s, ""
		}
		r.Unwanted = v.Kept
		switch {
		case v.Kept != "": // unless it is gone
			r.Checked = false
		case v.Unread != "":
			r.recordFailure(v.Reason, v.Unread, at)
		case !v.Until.IsZero():
			r.Due = v.Until
		default:
			r.Now = v.Version
		}
	}
}
