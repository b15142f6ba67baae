// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statusreport drafts what a status tells people: conditions, the last evaluation, what is waited for. It decides nothing, and writes
// nothing.
package statusreport

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/cachetrim"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/itemerrors"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Report drafts the part of a status that is there for people. What decides, the run, is written elsewhere, by
// resourceVersion.
type Report struct {
	Of    *cleanerstore.Store
	Work  *v1alpha1.Work
	Clock clock.PassiveClock
	// Run is what is known of the open run.
	Run    *life.Memory
	Sender *outbox.Sender
	// SuspectClock says that the clock is not trusted; empty if it is.
	SuspectClock func() string
}

// SetInvalid says that the spec cannot work.
func (r Report) SetInvalid(findings validation.Findings) {
	text, _, _ := strings.Cut(findings[0].String(), "\n") // a caret below an expression needs lines of their own
	message := sanitize.CleanText(text)
	if n := len(findings); n > 1 {
		message += fmt.Sprintf(" (and %d more)", n-1)
	}
	r.SetCondition(v1alpha1.ConditionValid, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, message)
	r.RemoveConditions(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated)
	r.setOutcome(plan.Plan{Verdict: v1alpha1.VerdictInvalid, Reason: v1alpha1.ReasonInvalidSpec, Message: message}, r.Clock.Now())
	r.setReady(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, message)
	r.setStalled(v1alpha1.ReasonInvalidSpec, message)
	r.RemoveConditions(v1alpha1.ConditionReconciling)
	r.setNext(time.Time{})
}

// SetEvaluated says what an evaluation came to.
func (r Report) SetEvaluated(in plan.Input, d plan.Plan) {
	if d.Verdict == v1alpha1.VerdictInvalid {
		r.SetCondition(v1alpha1.ConditionValid, metav1.ConditionFalse, d.Reason, d.Message)
	} else {
		r.SetCondition(v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonValid, "The spec is valid.")
	}
	r.setTargets(in, d)
	setSkippedKinds(r, in.Snapshot)
	switch {
	case d.Reason == v1alpha1.ReasonEvaluationFailed:
		r.SetCondition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, d.Reason, d.Message)
	case len(d.Errors) > 0:
		r.SetCondition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, v1alpha1.ReasonEvaluationFailed, firstError(d.Errors))
	case d.Conditions != nil || d.Verdict == v1alpha1.VerdictAct || slices.Contains([]string{v1alpha1.ReasonNothingToDo, v1alpha1.ReasonHolding, v1alpha1.ReasonLimitExceeded}, d.Reason):
		r.SetCondition(v1alpha1.ConditionEvaluated, metav1.ConditionTrue, d.Reason, d.Message)
	default:
		r.RemoveConditions(v1alpha1.ConditionEvaluated)
	}
	r.setOutcome(d, in.Now)
	r.setPending(d.Pending)
	if d.Reason == v1alpha1.ReasonLimitExceeded {
		r.SetCondition(v1alpha1.ConditionTripped, metav1.ConditionTrue, d.Reason, d.Message)
	} else {
		r.RemoveConditions(v1alpha1.ConditionTripped)
	}
	stuck := []string{v1alpha1.ReasonAccessDenied, v1alpha1.ReasonAuthorLacksRights, v1alpha1.ReasonAuthorMissing, v1alpha1.ReasonClockSkewSuspected, v1alpha1.ReasonTargetUnstable, v1alpha1.ReasonRecreationLoop, v1alpha1.ReasonTooLarge}
	reason, message := foremostTrouble(&d)
	switch {
	case d.Verdict == v1alpha1.VerdictBlocked, d.Verdict == v1alpha1.VerdictInvalid, slices.Contains(stuck, reason), plan.IsRefusal(reason):
		r.setReady(metav1.ConditionFalse, reason, message)
		r.setStalled(reason, message)
	case d.Reason == v1alpha1.ReasonDryRun && d.Refused > 0:
		r.setReady(metav1.ConditionFalse, d.RefusedReason, message)
		r.setStalled(d.RefusedReason, message)
	case slices.Contains([]string{v1alpha1.ReasonEvaluationFailed, v1alpha1.ReasonKindNotServed, v1alpha1.ReasonReadFailed}, reason):
		r.setReady(metav1.ConditionFalse, reason, message)
		r.RemoveConditions(v1alpha1.ConditionStalled)
	default:
		r.setReady(metav1.ConditionTrue, reason, message)
		r.RemoveConditions(v1alpha1.ConditionStalled)
	}
	r.RemoveConditions(v1alpha1.ConditionReconciling)
	r.setDelivered()
	r.setNext(r.announcedEvaluation(d))
}

// SetWaitingForMemory says that nothing could be decided, since others take much memory. A request for an evaluation is not answered by it.
func (r Report) SetWaitingForMemory(d plan.Plan) {
	r.SetCondition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, d.Reason, d.Message)
	r.setReady(metav1.ConditionFalse, d.Reason, d.Message)
	r.RemoveConditions(v1alpha1.ConditionStalled)
}

// foremostTrouble returns what condition Ready says of a decision: of all problems, the one that a user must know first. In this order:
//
// 1. What concerns the Cleaner as a whole: its spec, a target that cannot be read, the clock, a limit; or its mode. 2. Something was
// refused, is recreated each time, or changes too fast: it is left, and should not be. 3. Expressions of rules give errors: what they
// leave is unknown. 4. It waits by itself, or has something or nothing to do.
//
// If the plan wants nothing, it has already put 2 before 3, and both before what it waits for. Here they also win over what it wants.
func foremostTrouble(d *plan.Plan) (reason, message string) {
	whole := !slices.Contains([]string{
		v1alpha1.ReasonConditionsMet, v1alpha1.ReasonNothingToDo, v1alpha1.ReasonHolding, v1alpha1.ReasonUnconfirmed, v1alpha1.ReasonEvaluationFailed,
	}, d.Reason)
	if trouble, said := d.FindTrouble(); trouble != "" && !whole {
		return trouble, said
	}
	return d.Reason, d.Message
}

// SetRefused says why nothing is done, and nothing is looked at.
func (r Report) SetRefused(f identity.Refusal) {
	r.RemoveConditions(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated, v1alpha1.ConditionReconciling)
	r.setOutcome(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: f.Reason, Message: f.Message}, r.Clock.Now())
	r.setReady(metav1.ConditionFalse, f.Reason, f.Message)
	r.setStalled(f.Reason, f.Message)
	r.setNext(time.Time{})
}

// SetFailed says that the operator itself met an error.
func (r Report) SetFailed(err error) {
	r.setReady(metav1.ConditionFalse, v1alpha1.ReasonFailed, "The operator hit an error and will retry: "+err.Error())
}

// SetWaiting says what a Cleaner waits for, when it evaluates nothing.
func (r Report) SetWaiting(req life.Request) { runReport{r}.setWaiting(req) }

// runReport drafts what is said of a run.
type runReport struct{ Report }

// setWaiting drafts what a run, or a Recurring Cleaner, waits for.
func (r runReport) setWaiting(req life.Request) {
	if run := r.draftStatus().Run; run == nil && r.Of.Draft.Common().IsRecurring() || run != nil && run.Lifecycle == v1alpha1.LifecycleRecurring {
		r.setRecurring(req)
	} else {
		r.setRunning(req)
	}
}

// setRunning says what an open or finished run waits for.
func (r runReport) setRunning(req life.Request) {
	r.setDelivered()
	run := r.draftStatus().Run
	if run == nil {
		return
	}
	message, failed := r.describeProgress(run, req)
	r.SetCondition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, req.Reason, message)
	if failed {
		r.setReady(metav1.ConditionFalse, req.Reason, message)
		r.setStalled(req.Reason, message)
	} else {
		r.setReady(metav1.ConditionUnknown, req.Reason, message)
		r.RemoveConditions(v1alpha1.ConditionStalled)
	}
	r.setNext(time.Time{})
}

// describeProgress describes how far a run is, and reports whether something in it fails.
func (r runReport) describeProgress(run *v1alpha1.Run, req life.Request) (message string, failed bool) {
	if message, failed = r.describeRows(run, req.Reason); message != "" {
		return message, failed
	}
	if message, failed = r.describeRelease(run, req.Reason); message != "" {
		return message, failed
	}
	switch req.Reason {
	case v1alpha1.ReasonClockSkewSuspected:
		return fmt.Sprintf("Run %d is paused. %s", run.Number, r.SuspectClock()), true
	case v1alpha1.ReasonDelivering:
		return fmt.Sprintf("Run %d is finished; its event is being sent.", run.Number), false
	case v1alpha1.ReasonSuspended:
		return fmt.Sprintf("Run %d is suspended.", run.Number), false
	}
	return fmt.Sprintf("Run %d is in progress: %s.", run.Number, sanitize.CountOf(len(run.Rows), "object")), false
}

// describeRows says what the objects of a run wait for; empty if the reason no longer concerns any object.
func (r runReport) describeRows(run *v1alpha1.Run, reason string) (message string, failed bool) {
	for i := range r.Run.Rows {
		e := &r.Run.Rows[i]
		open := e.State == life.RowOpen
		switch {
		case open && e.Failed != "" && !e.Unstable && reason == e.FailedReason:
			return fmt.Sprintf("Run %d: %s: %s", run.Number, describeFailure(reason), sanitize.CleanText(e.Failed)), true
		case reason == v1alpha1.ReasonTargetUnstable && open && e.Unstable:
			return fmt.Sprintf("Run %d: %s keeps changing before the operator can act on it, because another client keeps writing to it; the operator will retry.", run.Number, e.NameObject(run.Rows[i])), true
		case reason == v1alpha1.ReasonTerminating && len(e.Finalizers) > 0 && !e.Settled:
			return fmt.Sprintf("Run %d is waiting for the finalizers of deleted objects: %s", run.Number, strings.Join(e.Finalizers, ", ")), false
		}
	}
	return "", false
}

// describeFailure says what failed, of an object of a run.
func describeFailure(reason string) string {
	switch reason {
	case v1alpha1.ReasonDeletionRefused:
		return "a deletion was refused and will be retried"
	case v1alpha1.ReasonEvictionRefused:
		return "an eviction was refused and will be retried"
	case v1alpha1.ReasonPatchRefused:
		return "a patch was refused and will be retried"
	case v1alpha1.ReasonEvaluationFailed:
		return "an expression failed, and the operator will retry"
	default:
		return "an object cannot be read, and the operator will retry"
	}
}

// describeRelease says what the release of a run waits for; empty if that is not the reason.
func (r runReport) describeRelease(run *v1alpha1.Run, reason string) (message string, failed bool) {
	name, why := ReleaseName(run), r.Run.Failed
	switch reason {
	case v1alpha1.ReasonUnconfirmed, v1alpha1.ReasonUninstallFailed:
		if why != "" {
			return fmt.Sprintf("Run %d will be retried: %s", run.Number, why), true
		}
	case v1alpha1.ReasonAuthorLacksRights, v1alpha1.ReasonAuthorMissing, v1alpha1.ReasonAccessDenied:
		if r.Run.PartlyUninstalled {
			return fmt.Sprintf("Run %d: release %q is partly uninstalled, and the rest is waiting. %s If you delete the Cleaner, the rest of the release stays.", run.Number, name, why), true
		}
		return fmt.Sprintf("Run %d: release %q is waiting to be uninstalled. %s", run.Number, name, why), true
	case v1alpha1.ReasonReleasePending:
		return fmt.Sprintf("Run %d is waiting: release %q is being installed, upgraded or rolled back.", run.Number, name), false
	case v1alpha1.ReasonUninstalling:
		return fmt.Sprintf("Run %d is uninstalling release %q.", run.Number, name), false
	}
	return "", false
}

// setTargets says what the targets stand for.
func (r Report) setTargets(in plan.Input, d plan.Plan) {
	if slices.Contains([]string{v1alpha1.ReasonWaitingForTTL, v1alpha1.ReasonSuspended, v1alpha1.ReasonClockSkewSuspected}, d.Reason) || len(in.Snapshot) != len(r.Work.Targets) {
		r.RemoveConditions(v1alpha1.ConditionTargetsResolved)
		return
	}
	st := r.draftStatus()
	st.ResolvedTargets, st.ResolvedTargetCount = nil, 0
	var reason string
	var problems []string
	for i := range in.Snapshot {
		st.ResolvedTargetCount += int64(in.Snapshot[i].More)
		for n := range in.Snapshot[i].Objects {
			st.ResolvedTargetCount++
			if len(st.ResolvedTargets) < cachetrim.MaxResolved {
				st.ResolvedTargets = append(st.ResolvedTargets, sanitize.CleanText(in.Snapshot[i].Objects[n].String()))
			}
		}
		if why, problem := observed.FindProblem(&r.Work.Targets[i], &in.Snapshot[i], r.Of.Draft.GetNamespace()); why != "" {
			if reason == "" {
				reason = why
			}
			problems = append(problems, problem)
		}
	}
	if reason != "" {
		r.SetCondition(v1alpha1.ConditionTargetsResolved, metav1.ConditionFalse, reason, strings.Join(problems, " "))
		return
	}
	r.SetCondition(v1alpha1.ConditionTargetsResolved, metav1.ConditionTrue, v1alpha1.ReasonResolved, "The operator can read all targets.")
}

// announcedEvaluation returns when a Cleaner evaluates next, if that is worth a write: a Recurring Cleaner does not announce its period, because
// each evaluation would then write its status. AnnounceTick adds the schedule: each of its times is recorded anyway.
func (r Report) announcedEvaluation(d plan.Plan) time.Time {
	switch {
	case !r.Of.Draft.Common().IsRecurring(), d.Reason == v1alpha1.ReasonWaitingForTTL:
		return d.Next
	case len(d.Pending) > 0:
		return d.Pending[0].Until
	case r.Work.Schedule == "":
		return d.FlipsAt
	default:
		return time.Time{}
	}
}

// firstError says in words what went wrong with items.
func firstError(errs []v1alpha1.ItemError) string {
	return sanitize.CleanText("Items with errors are skipped: " + itemerrors.DescribeRow(&errs[0]))
}

// setPending says what rules wait for. A moment is announced in whole seconds, and not before it comes.
func (r Report) setPending(all []plan.Pending) {
	st := r.draftStatus()
	st.Pending = nil
	for _, p := range all[:min(len(all), cachetrim.MaxListed)] {
		st.Pending = append(st.Pending, v1alpha1.Pending{Rule: p.Rule, Key: sanitize.CleanText(p.Key), Until: metav1.Time{Time: p.Until.Add(time.Second - time.Nanosecond).Truncate(time.Second)}})
	}
}

// TemplateMissing says that there is no template of this name, yet.
func (r Report) TemplateMissing(name string) {
	message := fmt.Sprintf("CleanerTemplate %q does not exist.", sanitize.CleanText(name))
	r.RemoveConditions(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
	r.SetCondition(v1alpha1.ConditionValid, metav1.ConditionFalse, v1alpha1.ReasonTemplateMissing, message)
	r.setOutcome(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonTemplateMissing, Message: message}, r.Clock.Now())
	r.setReady(metav1.ConditionFalse, v1alpha1.ReasonTemplateMissing, message)
	r.setNext(time.Time{})
}

// Uninstalls is what is said of uninstalls under way between two times of a schedule.
type Uninstalls struct {
	// Reason and Message are for Ready; empty if it need not change.
	Reason, Message string
	// Failing names the release whose uninstall fails, as Ready says so far; empty if it says no such thing.
	Failing string
}

// SetScheduled drafts that the Cleaner waits for its schedule. It keeps the result of the last evaluation, and removes the conditions of a
// finished run. What is said of uninstalls that are under way replaces that result, unless it is worse.
func (r Report) SetScheduled(under Uninstalls) {
	ran := meta.IsStatusConditionTrue(r.draftStatus().Conditions, v1alpha1.ConditionReconciling)
	if r.draftStatus().LastEvaluation == nil || ran {
		r.SetCondition(v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonValid, "The spec is valid.")
		r.setReady(metav1.ConditionTrue, v1alpha1.ReasonWaitingForSchedule, "Waiting for the next scheduled time.")
	}
	if ran {
		r.RemoveConditions(v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
	}
	setUninstalls(r, under)
	r.setDelivered()
	r.setNext(time.Time{})
}

// setUninstalls says in Ready what uninstalls under way come to, unless Ready says that something else is wrong. An earlier process may have said that
// there are some.
func setUninstalls(r Report, under Uninstalls) {
	ready := meta.FindStatusCondition(r.draftStatus().Conditions, v1alpha1.ConditionReady)
	failing := ready != nil && ready.Status == metav1.ConditionFalse
	switch {
	case failing && (under.Failing == "" || !strings.Contains(ready.Message, under.Failing+": ")):
	case under.Reason == v1alpha1.ReasonUninstalling, under.Reason == v1alpha1.ReasonWaitingForSchedule:
		r.setReady(metav1.ConditionTrue, under.Reason, under.Message)
		r.RemoveConditions(v1alpha1.ConditionStalled)
	case under.Reason != "":
		r.setReady(metav1.ConditionFalse, under.Reason, under.Message)
		r.setStalled(under.Reason, under.Message)
	case ready != nil && ready.Reason == v1alpha1.ReasonUninstalling:
		r.setReady(metav1.ConditionTrue, v1alpha1.ReasonWaitingForSchedule, "Waiting for the next scheduled time.")
	}
}

// AnnounceTick announces the next time of the schedule, unless something is due earlier.
func (r Report) AnnounceTick(at time.Time) {
	if next := r.draftStatus().NextScheduledEvaluation; next == nil || at.Before(next.Time) {
		r.setNext(at)
	}
}

// setRecurring says what a Recurring Cleaner waits for while it evaluates nothing.
func (r runReport) setRecurring(req life.Request) {
	r.setDelivered()
	if req.Reason == v1alpha1.ReasonDelivering {
		r.setReady(metav1.ConditionUnknown, req.Reason, "The event of the last run is being sent.")
	}
	r.setNext(time.Time{})
}

// setOutcome keeps the time of an evaluation that said the same.
func (r Report) setOutcome(d plan.Plan, now time.Time) {
	e := &v1alpha1.Evaluation{Time: metav1.NewTime(now), Verdict: d.Verdict, Reason: d.Reason, Message: sanitize.CleanText(d.Message), Conditions: slices.Clone(d.Conditions)}
	for i := range e.Conditions {
		e.Conditions[i].Expression, e.Conditions[i].Error = sanitize.CleanText(e.Conditions[i].Expression), sanitize.CleanText(e.Conditions[i].Error)
	}
	e.Errors = slices.Clone(d.Errors[:min(len(d.Errors), cachetrim.MaxListed)])
	for i := range e.Errors {
		e.Errors[i].Key, e.Errors[i].Message = sanitize.CleanText(e.Errors[i].Key), sanitize.CleanText(e.Errors[i].Message)
	}
	if len(d.Withheld) > 0 && r.Of.Draft.Common().IsRecurring() { // for a Once Cleaner, the run says it
		forbidden := d.ListForbidden()
		e.Withheld = forbidden[:min(len(forbidden), cachetrim.MaxListed)]
		for i := range e.Withheld {
			e.Withheld[i].Object, e.Withheld[i].Because = sanitize.CleanText(e.Withheld[i].Object), sanitize.CleanText(e.Withheld[i].Because)
		}
	}
	r.draftStatus().RuleCounts = d.ListCounts()
	if old := r.draftStatus().LastEvaluation; old != nil {
		same := *e
		same.Time = old.Time
		if equality.Semantic.DeepEqual(&same, old) {
			e.Time = old.Time
		}
	}
	r.draftStatus().LastEvaluation = e
}

// setDelivered says whether the sink has what it is owed.
func (r Report) setDelivered() {
	owed := life.UndeliveredRun(r.Of.Draft.State())
	switch {
	case !r.Of.Draft.Common().HasSink() || r.draftStatus().Runs == 0:
		r.RemoveConditions(v1alpha1.ConditionDelivered)
		return
	case owed == nil:
		r.SetCondition(v1alpha1.ConditionDelivered, metav1.ConditionTrue, v1alpha1.ReasonDelivered, "The sink has received the event of every finished run.")
		return
	}
	st := r.Sender.GetDelivery(r.Of.Key, r.Of.Draft.GetUID(), owed.Number)
	if st.Attempts == 0 || st.Last.Class == "" {
		r.SetCondition(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonDelivering, fmt.Sprintf("The event of run %d is being sent.", owed.Number))
		return
	}
	did := "The sink did not accept the event of run %d"
	if st.Last.Class == outbox.ClassNoCredential {
		did = "The event of run %d was not sent"
	}
	r.SetCondition(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonDeliveryFailed, fmt.Sprintf(did+"; the operator will retry: %s.", owed.Number, st.Last))
}

// setNext keeps the announced moment while it lies ahead, so that it is not written at each evaluation.
func (r Report) setNext(at time.Time) {
	st := r.draftStatus()
	if at.IsZero() {
		st.NextScheduledEvaluation = nil
		return
	}
	if old := st.NextScheduledEvaluation; old != nil && old.After(r.Clock.Now()) && !old.After(at) {
		return
	}
	// The status has whole seconds: what it announces must not come before the moment itself.
	st.NextScheduledEvaluation = &metav1.Time{Time: at.Add(time.Second - time.Nanosecond).Truncate(time.Second)}
}

func (r Report) draftStatus() *v1alpha1.CleanerStatus { return r.Of.Draft.State() }

// SetCondition says something of the generation that was read.
func (r Report) SetCondition(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&r.draftStatus().Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: sanitize.CleanText(message), ObservedGeneration: r.Of.Draft.GetGeneration(),
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
	r.draftStatus().ObservedGeneration = r.Of.Draft.GetGeneration()
}

// SetMistakes warns that expressions read what the schemas of their kinds do not have; empty if nothing is known to be wrong. It says nothing else of
// the generation: what was evaluated may be an earlier one.
func SetMistakes(r Report, mistakes string) {
	if mistakes == "" {
		r.RemoveConditions(v1alpha1.ConditionSchemaMismatch)
		return
	}
	meta.SetStatusCondition(&r.draftStatus().Conditions, metav1.Condition{
		Type: v1alpha1.ConditionSchemaMismatch, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNotInSchema, Message: sanitize.CleanText(mistakes),
		ObservedGeneration: r.Of.Draft.GetGeneration(), LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
}

func (r Report) setReady(status metav1.ConditionStatus, reason, message string) {
	r.SetCondition(v1alpha1.ConditionReady, status, reason, message)
}

func (r Report) setStalled(reason, message string) {
	r.SetCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message)
}

// RemoveConditions removes conditions.
func (r Report) RemoveConditions(kinds ...string) {
	for _, k := range kinds {
		meta.RemoveStatusCondition(&r.draftStatus().Conditions, k)
	}
}

// ReleaseName returns the name of the release of a run; empty if it has none.
func ReleaseName(run *v1alpha1.Run) string {
	if run.Helm == nil {
		return ""
	}
	return run.Helm.Name
}
