// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/trimmed"
)

// report drafts the part of a status that is there for people. What decides, the run, is written elsewhere, by
// resourceVersion.
type report struct{ p *sight }

func (p *sight) newReport() report { return report{p} }

// setAnswered takes the request for an evaluation as answered.
func (r report) setAnswered() {
	r.p.mem.answered = r.p.requestedAt()
	r.draftStatus().LastRequestedAt = r.p.mem.answered
}

// passedOver takes a request as answered that nothing is evaluated for, where there is no schedule: whoever made it needed no rights then, and it
// must not have a schedule that is written later act at once.
func (r report) passedOver() {
	if r.p.c.Common().Schedule == "" {
		r.setAnswered()
	}
}

// setRequest says what became of a request for an evaluation that nothing more is begun on, until there is another one.
func (r report) setRequest() {
	switch why, at := r.p.mem.dropped, r.p.requestedAt(); {
	case at != "" && at == why.request:
		r.setCondition(v1alpha1.ConditionRequestDropped, metav1.ConditionTrue, why.reason, why.message)
		r.draftStatus().LastRequestedAt = at
	case at == "", at == r.p.mem.asks, at != r.draftStatus().LastRequestedAt:
		r.removeConditions(v1alpha1.ConditionRequestDropped)
	}
}

// setInvalid says that the spec cannot work.
func (r report) setInvalid(findings validation.Findings) {
	text, _, _ := strings.Cut(findings[0].String(), "\n") // a caret below an expression needs lines of their own
	message := shown.CleanText(text)
	if n := len(findings); n > 1 {
		message += fmt.Sprintf(" (and %d more)", n-1)
	}
	r.setCondition(v1alpha1.ConditionValid, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, message)
	r.removeConditions(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated)
	r.setOutcome(plan.Plan{Verdict: v1alpha1.VerdictInvalid, Reason: v1alpha1.ReasonInvalidSpec, Message: message}, r.p.r.clock.Now())
	r.setReady(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, message)
	r.setStalled(v1alpha1.ReasonInvalidSpec, message)
	r.removeConditions(v1alpha1.ConditionReconciling)
	r.setNext(time.Time{})
}

// setEvaluated says what an evaluation came to.
func (r report) setEvaluated(in plan.Input, d plan.Plan) {
	if d.Verdict == v1alpha1.VerdictInvalid {
		r.setCondition(v1alpha1.ConditionValid, metav1.ConditionFalse, d.Reason, d.Message)
	} else {
		r.setCondition(v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonValid, "The spec is valid.")
	}
	r.setTargets(in, d)
	switch {
	case d.Reason == v1alpha1.ReasonEvaluationFailed:
		r.setCondition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, d.Reason, d.Message)
	case len(d.Errors) > 0:
		r.setCondition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, v1alpha1.ReasonEvaluationFailed, firstError(d.Errors))
	case d.Conditions != nil || d.Verdict == v1alpha1.VerdictAct || slices.Contains([]string{v1alpha1.ReasonNothingToDo, v1alpha1.ReasonHolding, v1alpha1.ReasonLimitExceeded}, d.Reason):
		r.setCondition(v1alpha1.ConditionEvaluated, metav1.ConditionTrue, d.Reason, d.Message)
	default:
		r.removeConditions(v1alpha1.ConditionEvaluated)
	}
	r.setOutcome(d, in.Now)
	r.setPending(d.Pending)
	reportFindings(r.p)
	if d.Reason == v1alpha1.ReasonLimitExceeded {
		r.setCondition(v1alpha1.ConditionTripped, metav1.ConditionTrue, d.Reason, d.Message)
	} else {
		r.removeConditions(v1alpha1.ConditionTripped)
	}
	stuck := []string{v1alpha1.ReasonAccessDenied, v1alpha1.ReasonAuthorLacksRights, v1alpha1.ReasonAuthorMissing, v1alpha1.ReasonClockSkewSuspected, v1alpha1.ReasonDeletionRefused, v1alpha1.ReasonTargetUnstable, v1alpha1.ReasonRecreationLoop}
	reason, message := foremostTrouble(&d)
	switch {
	case d.Verdict == v1alpha1.VerdictBlocked, d.Verdict == v1alpha1.VerdictInvalid, slices.Contains(stuck, reason):
		r.setReady(metav1.ConditionFalse, reason, message)
		r.setStalled(reason, message)
	case slices.Contains([]string{v1alpha1.ReasonEvaluationFailed, v1alpha1.ReasonKindNotServed, v1alpha1.ReasonReadFailed}, reason):
		r.setReady(metav1.ConditionFalse, reason, message)
		r.removeConditions(v1alpha1.ConditionStalled)
	default:
		r.setReady(metav1.ConditionTrue, reason, message)
		r.removeConditions(v1alpha1.ConditionStalled)
	}
	r.removeConditions(v1alpha1.ConditionReconciling)
	r.setDelivered()
	r.setNext(r.announcedLook(d))
	if d.Reason != v1alpha1.ReasonNotSynced { // else who asked has yet to be answered
		r.setAnswered()
	}
}

// reportTurn says that nothing could be decided, since others take much memory. A request for an evaluation is not answered by it.
func reportTurn(r report, d plan.Plan) {
	r.setCondition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, d.Reason, d.Message)
	r.setReady(metav1.ConditionFalse, d.Reason, d.Message)
	r.removeConditions(v1alpha1.ConditionStalled)
}

// foremostTrouble is what Ready says of a decision, of all that could be said what a person has to know first. In this order:
//
//  1. What concerns the Cleaner as a whole: its spec, a target that cannot be read, the clock, a limit; or its mode.
//  2. Something was refused, is made anew each time, or changes too fast: it is left, and should not be.
//  3. Expressions of rules give errors: nobody knows what they leave.
//  4. It waits by itself, or has something or nothing to do.
//
// The plan has put 2 before 3, and both before what it waits for, where it wants nothing; here they win over what it wants.
func foremostTrouble(d *plan.Plan) (reason, message string) {
	whole := !slices.Contains([]string{
		v1alpha1.ReasonConditionsMet, v1alpha1.ReasonNothingToDo, v1alpha1.ReasonHolding, v1alpha1.ReasonUnconfirmed, v1alpha1.ReasonEvaluationFailed,
	}, d.Reason)
	if trouble, said := d.FindTrouble(); trouble != "" && !whole {
		return trouble, said
	}
	return d.Reason, d.Message
}

// setRefused says why nothing is done, and nothing is looked at.
func (r report) setRefused(f refusal) {
	r.removeConditions(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated, v1alpha1.ConditionReconciling)
	r.setOutcome(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: f.reason, Message: f.message}, r.p.r.clock.Now())
	r.setReady(metav1.ConditionFalse, f.reason, f.message)
	r.setStalled(f.reason, f.message)
	r.setNext(time.Time{})
}

// setFailed says that the operator itself met an error.
func (r report) setFailed(err error) {
	r.setReady(metav1.ConditionFalse, v1alpha1.ReasonFailed, "Will retry: "+err.Error())
}

// runReport drafts what is said of a run.
type runReport struct{ report }

// setWaiting says what a Cleaner waits for, when it evaluates nothing.
func (r runReport) setWaiting(req plan.Request) {
	if run := r.draftStatus().Run; run == nil && r.p.c.Common().Recurs() || run != nil && run.Lifecycle == v1alpha1.LifecycleRecurring {
		r.setRecurring(req)
	} else {
		r.setRunning(req)
	}
}

// setRunning says what an open or finished run waits for.
func (r runReport) setRunning(req plan.Request) {
	r.setDelivered()
	run := r.draftStatus().Run
	if run == nil {
		return
	}
	message, failed := r.describeProgress(run, req)
	r.setCondition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, req.Reason, message)
	if failed {
		r.setReady(metav1.ConditionFalse, req.Reason, message)
		r.setStalled(req.Reason, message)
	} else {
		r.setReady(metav1.ConditionUnknown, req.Reason, message)
		r.removeConditions(v1alpha1.ConditionStalled)
	}
	r.setNext(time.Time{})
}

// describeProgress says how far a run is, in words, and whether something refuses to go on.
func (r runReport) describeProgress(run *v1alpha1.Run, req plan.Request) (message string, failed bool) {
	m := &r.p.mem.run
	switch req.Reason {
	case v1alpha1.ReasonDeletionRefused:
		for i := range m.Rows {
			if f := m.Rows[i].Failed; f != "" && m.Rows[i].State == plan.RowOpen {
				return fmt.Sprintf("Run %d: a deletion was refused and will be retried: %s", run.Number, shown.CleanText(f)), true
			}
		}
	case v1alpha1.ReasonTargetUnstable:
		for i := range m.Rows {
			if row, err := plan.ParseRow(run.Rows[i]); err == nil && m.Rows[i].Unstable && m.Rows[i].State == plan.RowOpen {
				return fmt.Sprintf("Run %d: %s changes faster than it can be deleted and will be retried: another client keeps writing to it.", run.Number, row.Ref), true
			}
		}
	case v1alpha1.ReasonUnconfirmed, v1alpha1.ReasonUninstallFailed:
		if m.Failed != "" {
			return fmt.Sprintf("Run %d will be retried: %s", run.Number, m.Failed), true
		}
	case v1alpha1.ReasonAuthorLacksRights, v1alpha1.ReasonAuthorMissing, v1alpha1.ReasonAccessDenied:
		if m.Half {
			return fmt.Sprintf("Run %d: release %q is partly uninstalled, and the rest is waiting. %s If you delete the Cleaner, the rest stays.", run.Number, releaseName(run), m.Failed), true
		}
		return fmt.Sprintf("Run %d: release %q is waiting to be uninstalled. %s", run.Number, releaseName(run), m.Failed), true
	case v1alpha1.ReasonTerminating:
		for i := range m.Rows {
			if f := m.Rows[i].Finalizers; len(f) > 0 && !m.Rows[i].Settled {
				return fmt.Sprintf("Run %d is waiting for deleted objects to be gone; finalizers hold them: %s", run.Number, strings.Join(f, ", ")), false
			}
		}
	case v1alpha1.ReasonClockSkewSuspected:
		return fmt.Sprintf("Run %d is paused. %s", run.Number, r.p.r.suspectClock()), true
	case v1alpha1.ReasonReleasePending:
		return fmt.Sprintf("Run %d is waiting: release %q is being installed, upgraded or rolled back.", run.Number, releaseName(run)), false
	case v1alpha1.ReasonDelivering:
		return fmt.Sprintf("Run %d is finished; its event is being sent.", run.Number), false
	case v1alpha1.ReasonSuspended:
		return fmt.Sprintf("Run %d is suspended.", run.Number), false
	case v1alpha1.ReasonUninstalling:
		return fmt.Sprintf("Run %d is uninstalling release %q.", run.Number, releaseName(run)), false
	}
	return fmt.Sprintf("Run %d is in progress: %s.", run.Number, countOf(len(run.Rows), "object")), false
}

// setTargets says what the targets stand for.
func (r report) setTargets(in plan.Input, d plan.Plan) {
	if slices.Contains([]string{v1alpha1.ReasonWaitingForTTL, v1alpha1.ReasonSuspended, v1alpha1.ReasonClockSkewSuspected}, d.Reason) || len(in.Snapshot) != len(r.p.work.Targets) {
		r.removeConditions(v1alpha1.ConditionTargetsResolved)
		return
	}
	st := r.draftStatus()
	st.ResolvedTargets, st.ResolvedTargetCount = nil, 0
	var reason string
	var problems []string
	for i := range in.Snapshot {
		for n := range in.Snapshot[i].Objects {
			st.ResolvedTargetCount++
			if len(st.ResolvedTargets) < trimmed.MaxResolved {
				st.ResolvedTargets = append(st.ResolvedTargets, shown.CleanText(in.Snapshot[i].Objects[n].NameFor(r.p.c.GetNamespace())))
			}
		}
		if why, problem := plan.FindProblem(&r.p.work.Targets[i], &in.Snapshot[i]); why != "" {
			if reason == "" {
				reason = why
			}
			problems = append(problems, problem)
		}
	}
	if reason != "" {
		r.setCondition(v1alpha1.ConditionTargetsResolved, metav1.ConditionFalse, reason, strings.Join(problems, " "))
		return
	}
	r.setCondition(v1alpha1.ConditionTargetsResolved, metav1.ConditionTrue, v1alpha1.ReasonResolved, "Every target is readable.")
}

// announcedLook is when a Cleaner looks again, as far as that is news: one that stays announces neither its period nor its
// schedule, which would be a write each time.
func (r report) announcedLook(d plan.Plan) time.Time {
	switch {
	case !r.p.c.Common().Recurs(), d.Reason == v1alpha1.ReasonWaitingForTTL:
		return d.Next
	case len(d.Pending) > 0:
		return d.Pending[0].Until
	case r.p.work.Schedule == "":
		return d.Flip
	default:
		return time.Time{}
	}
}

// firstError says in words what went wrong with items.
func firstError(errs []v1alpha1.ItemError) string {
	e := errs[0]
	about := fmt.Sprintf("rule %q", e.Rule)
	if e.Key != "" {
		about += fmt.Sprintf(", item %q", e.Key)
	}
	return shown.CleanText(fmt.Sprintf("Items with errors are skipped: %s: %s", about, e.Message))
}

// setPending says what rules wait for. A moment is announced in whole seconds, and not before it comes.
func (r report) setPending(all []plan.Pending) {
	st := r.draftStatus()
	st.Pending = nil
	for _, p := range all[:min(len(all), trimmed.MaxListed)] {
		st.Pending = append(st.Pending, v1alpha1.Pending{Rule: p.Rule, Key: shown.CleanText(p.Key), Until: metav1.Time{Time: p.Until.Add(time.Second - time.Nanosecond).Truncate(time.Second)}})
	}
}

// templateMissing says that there is no template of this name, yet.
func (r report) templateMissing(name string) {
	message := fmt.Sprintf("CleanerTemplate %q does not exist.", shown.CleanText(name))
	r.removeConditions(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
	r.setCondition(v1alpha1.ConditionValid, metav1.ConditionFalse, v1alpha1.ReasonTemplateMissing, message)
	r.setOutcome(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonTemplateMissing, Message: message}, r.p.r.clock.Now())
	r.setReady(metav1.ConditionFalse, v1alpha1.ReasonTemplateMissing, message)
	r.setNext(time.Time{})
}

// setScheduled says that the schedule is waited for. What the last evaluation found stays said, and what was said of a run goes with it.
func (r report) setScheduled() {
	ran := meta.IsStatusConditionTrue(r.draftStatus().Conditions, v1alpha1.ConditionReconciling)
	if r.draftStatus().LastEvaluation == nil || ran {
		r.setCondition(v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonValid, "The spec is valid.")
		r.setReady(metav1.ConditionTrue, v1alpha1.ReasonWaitingForSchedule, "The schedule is not due yet.")
	}
	if ran {
		r.removeConditions(v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
	}
	if at := r.p.mem.answered; at != "" && at == r.p.requestedAt() {
		r.draftStatus().LastRequestedAt = at
	}
	r.setDelivered()
	r.setNext(time.Time{})
}

// setRecurring says what a Cleaner that stays waits for, when it evaluates nothing.
func (r runReport) setRecurring(req plan.Request) {
	r.setDelivered()
	if req.Reason == v1alpha1.ReasonDelivering {
		r.setReady(metav1.ConditionUnknown, req.Reason, "The event of the last run is being sent.")
	}
	r.setNext(time.Time{})
}

// setOutcome keeps the time of an evaluation that said the same.
func (r report) setOutcome(d plan.Plan, now time.Time) {
	e := &v1alpha1.Evaluation{Time: metav1.NewTime(now), Verdict: d.Verdict, Reason: d.Reason, Message: shown.CleanText(d.Message), Conditions: slices.Clone(d.Conditions)}
	for i := range e.Conditions {
		e.Conditions[i].Expression, e.Conditions[i].Error = shown.CleanText(e.Conditions[i].Expression), shown.CleanText(e.Conditions[i].Error)
	}
	e.Errors = slices.Clone(d.Errors[:min(len(d.Errors), trimmed.MaxListed)])
	for i := range e.Errors {
		e.Errors[i].Key, e.Errors[i].Message = shown.CleanText(e.Errors[i].Key), shown.CleanText(e.Errors[i].Message)
	}
	if len(d.Withheld) > 0 && r.p.c.Common().Recurs() { // for one that cleans once, the run says it
		forbidden := d.ListForbidden()
		e.Withheld = forbidden[:min(len(forbidden), trimmed.MaxListed)]
		for i := range e.Withheld {
			e.Withheld[i].Object, e.Withheld[i].Because = shown.CleanText(e.Withheld[i].Object), shown.CleanText(e.Withheld[i].Because)
		}
	}
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
func (r report) setDelivered() {
	owed := plan.UndeliveredRun(r.p.c.State())
	switch {
	case r.p.c.Common().CloudEventSink == "" || r.draftStatus().Runs == 0:
		r.removeConditions(v1alpha1.ConditionDelivered)
		return
	case owed == nil:
		r.setCondition(v1alpha1.ConditionDelivered, metav1.ConditionTrue, v1alpha1.ReasonDelivered, "The sink has received the event of every finished run.")
		return
	}
	st := r.p.r.sender.GetDelivery(r.p.key, r.p.c.GetUID(), owed.Number)
	if st.Attempts == 0 || st.Last.Class == "" {
		r.setCondition(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonDelivering, fmt.Sprintf("The event of run %d is being sent.", owed.Number))
		return
	}
	did := "The sink did not accept the event of run %d"
	if st.Last.Class == outbox.ClassNoCredential {
		did = "The event of run %d was not sent"
	}
	r.setCondition(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonDeliveryFailed, fmt.Sprintf(did+" and will be retried: %s.", owed.Number, st.Last))
}

// setNext keeps the announced moment while it lies ahead, so that it is not written at each evaluation.
func (r report) setNext(at time.Time) {
	st := r.draftStatus()
	if at.IsZero() {
		st.NextScheduledEvaluation = nil
		return
	}
	if old := st.NextScheduledEvaluation; old != nil && old.After(r.p.r.clock.Now()) && !old.After(at) {
		return
	}
	// The status has whole seconds: what it announces must not come before the moment itself.
	st.NextScheduledEvaluation = &metav1.Time{Time: at.Add(time.Second - time.Nanosecond).Truncate(time.Second)}
}

func (r report) draftStatus() *v1alpha1.CleanerStatus { return r.p.c.State() }

func (r report) setCondition(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&r.draftStatus().Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: shown.CleanText(message), ObservedGeneration: r.p.c.GetGeneration(),
		LastTransitionTime: metav1.NewTime(r.p.r.clock.Now()),
	})
	r.draftStatus().ObservedGeneration = r.p.c.GetGeneration()
}

func (r report) setReady(status metav1.ConditionStatus, reason, message string) {
	r.setCondition(v1alpha1.ConditionReady, status, reason, message)
}

func (r report) setStalled(reason, message string) {
	r.setCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message)
}

func (r report) removeConditions(kinds ...string) {
	for _, k := range kinds {
		meta.RemoveStatusCondition(&r.draftStatus().Conditions, k)
	}
}

// sendReport writes the draft if it differs from what was read, at most once a second; else it says when it may.
func (p *sight) sendReport(ctx context.Context, now time.Time) (due time.Time, err error) {
	if p.mem.actions != nil {
		p.c.State().LastActions = slices.Clone(p.mem.actions)
	}
	leaving := p.c.GetDeletionTimestamp() != nil && len(p.c.GetFinalizers()) == 0
	p.c.State().Counters = p.read.State().Counters // which alone are no reason to write
	if leaving || equality.Semantic.DeepEqual(p.c.State(), p.read.State()) {
		return time.Time{}, nil
	}
	if p.mem.counters != nil {
		counters := *p.mem.counters
		p.c.State().Counters = &counters
	}
	if due = p.mem.reported.Add(reportEvery); now.Before(due) {
		return due, nil
	}
	if !p.r.opts.Lease.Fresh() {
		return time.Time{}, errNotLeader
	}
	patch, err := p.reportPatch()
	if err != nil {
		return time.Time{}, err
	}
	next := p.readMetadata()
	faults.PassPoint("before a report")
	err = p.r.client.Status().Patch(ctx, next, patch)
	if apierrors.IsInvalid(err) && !p.mem.reportRefused() {
		return time.Time{}, errNotNow
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot write the status of Cleaner %q: %w", p.key, err)
	}
	faults.PassPoint("after a report")
	if p.c.State().LastRequestedAt != p.read.State().LastRequestedAt { // then it was written over the record that was read
		p.mem.rememberRecord(next.State())
	}
	p.mem.unwritable = false
	p.mem.reported = now
	p.mem.written = next.GetResourceVersion()
	return time.Time{}, nil
}

// reportPatch is the difference between the draft and what was read. It names the Cleaner's UID, so that it does not
// land on another one of the same name. The record, which may have thousands of rows, is no part of it: but for the request
// that was answered, with which the record is signed anew, if it still is the one that was read.
func (p *sight) reportPatch() (client.Patch, error) {
	before, next := p.readMetadata(), p.readMetadata()
	*before.State(), *next.State() = *p.read.State(), *p.c.State()
	answers := before.State().LastRequestedAt != next.State().LastRequestedAt
	if answers {
		if err := signRecord(p.ring, next, next.State(), p.r.clock.Now()); err != nil {
			return nil, err
		}
	}
	signature, recorded := next.State().Signature, next.State().RecordedAt
	for _, s := range []*v1alpha1.CleanerStatus{before.State(), next.State()} {
		s.Runs, s.Run, s.Unsent, s.LastScheduleTime, s.RecordedAt, s.Signature = 0, nil, nil, nil, nil, ""
	}
	if answers {
		before.State().Signature, next.State().Signature = p.read.State().Signature, signature
		before.State().RecordedAt, next.State().RecordedAt = p.read.State().RecordedAt, recorded
	}
	text, err := client.MergeFrom(before).Data(next)
	if err != nil {
		return nil, fmt.Errorf("cannot write the status of Cleaner %q: %w", p.key, err)
	}
	var patch map[string]any
	if err := json.Unmarshal(text, &patch); err != nil {
		return nil, fmt.Errorf("cannot write the status of Cleaner %q: %w", p.key, err)
	}
	metadata := map[string]any{"uid": p.c.GetUID()}
	if patch["metadata"] = metadata; answers {
		metadata["resourceVersion"] = p.read.GetResourceVersion()
	}
	if text, err = json.Marshal(patch); err != nil {
		return nil, fmt.Errorf("cannot write the status of Cleaner %q: %w", p.key, err)
	}
	return client.RawPatch(types.MergePatchType, text), nil
}
