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

func (p *sight) report() report { return report{p} }

// answered takes the request for an evaluation as answered.
func (r report) answered() {
	r.p.mem.answered = r.p.requestedAt()
	r.draft().LastRequestedAt = r.p.mem.answered
}

// passedOver takes a request as answered that nothing is evaluated for, where there is no schedule: whoever made it needed no rights then, and it
// must not have a schedule that is written later act at once.
func (r report) passedOver() {
	if r.p.c.Common().Schedule == "" {
		r.answered()
	}
}

// request says what became of a request for an evaluation that nothing more is begun on, until there is another one.
func (r report) request() {
	switch why, at := r.p.mem.dropped, r.p.requestedAt(); {
	case at != "" && at == why.request:
		r.set(v1alpha1.ConditionRequestDropped, metav1.ConditionTrue, why.reason, why.message)
		r.draft().LastRequestedAt = at
	case at == "", at == r.p.mem.asks, at != r.draft().LastRequestedAt:
		r.remove(v1alpha1.ConditionRequestDropped)
	}
}

// invalid says that the spec cannot work.
func (r report) invalid(findings validation.Findings) {
	text, _, _ := strings.Cut(findings[0].String(), "\n") // a caret below an expression needs lines of their own
	message := shown.CleanText(text)
	if n := len(findings); n > 1 {
		message += fmt.Sprintf(" (and %d more)", n-1)
	}
	r.set(v1alpha1.ConditionValid, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, message)
	r.remove(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated)
	r.outcome(plan.Plan{Verdict: v1alpha1.VerdictInvalid, Reason: v1alpha1.ReasonInvalidSpec, Message: message}, r.p.r.clock.Now())
	r.ready(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, message)
	r.stalled(v1alpha1.ReasonInvalidSpec, message)
	r.remove(v1alpha1.ConditionReconciling)
	r.next(time.Time{})
}

// evaluated says what an evaluation came to.
func (r report) evaluated(in plan.Input, d plan.Plan) {
	if d.Verdict == v1alpha1.VerdictInvalid {
		r.set(v1alpha1.ConditionValid, metav1.ConditionFalse, d.Reason, d.Message)
	} else {
		r.set(v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonValid, "The spec is valid.")
	}
	r.resolved(in, d)
	switch {
	case d.Reason == v1alpha1.ReasonEvaluationFailed:
		r.set(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, d.Reason, d.Message)
	case len(d.Errors) > 0:
		r.set(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, v1alpha1.ReasonEvaluationFailed, firstError(d.Errors))
	case d.Conditions != nil || d.Verdict == v1alpha1.VerdictAct || slices.Contains([]string{v1alpha1.ReasonNothingToDo, v1alpha1.ReasonHolding, v1alpha1.ReasonLimitExceeded}, d.Reason):
		r.set(v1alpha1.ConditionEvaluated, metav1.ConditionTrue, d.Reason, d.Message)
	default:
		r.remove(v1alpha1.ConditionEvaluated)
	}
	r.outcome(d, in.Now)
	r.pending(d.Pending)
	reportFindings(r.p)
	if d.Reason == v1alpha1.ReasonLimitExceeded {
		r.set(v1alpha1.ConditionTripped, metav1.ConditionTrue, d.Reason, d.Message)
	} else {
		r.remove(v1alpha1.ConditionTripped)
	}
	stuck := []string{v1alpha1.ReasonAccessDenied, v1alpha1.ReasonAuthorLacksRights, v1alpha1.ReasonAuthorMissing, v1alpha1.ReasonClockSkewSuspected, v1alpha1.ReasonDeletionRefused, v1alpha1.ReasonTargetUnstable, v1alpha1.ReasonRecreationLoop}
	reason, message := foremost(&d)
	switch {
	case d.Verdict == v1alpha1.VerdictBlocked, d.Verdict == v1alpha1.VerdictInvalid, slices.Contains(stuck, reason):
		r.ready(metav1.ConditionFalse, reason, message)
		r.stalled(reason, message)
	case slices.Contains([]string{v1alpha1.ReasonEvaluationFailed, v1alpha1.ReasonKindNotServed, v1alpha1.ReasonReadFailed}, reason):
		r.ready(metav1.ConditionFalse, reason, message)
		r.remove(v1alpha1.ConditionStalled)
	default:
		r.ready(metav1.ConditionTrue, reason, message)
		r.remove(v1alpha1.ConditionStalled)
	}
	r.remove(v1alpha1.ConditionReconciling)
	r.delivered()
	r.next(r.announced(d))
	if d.Reason != v1alpha1.ReasonNotSynced { // else who asked has yet to be answered
		r.answered()
	}
}

// reportTurn says that nothing could be decided, since others take much memory. A request for an evaluation is not answered by it.
func reportTurn(r report, d plan.Plan) {
	r.set(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, d.Reason, d.Message)
	r.ready(metav1.ConditionFalse, d.Reason, d.Message)
	r.remove(v1alpha1.ConditionStalled)
}

// foremost is what Ready says of a decision, of all that could be said what a person has to know first. In this order:
//
//  1. What concerns the Cleaner as a whole: its spec, a target that cannot be read, the clock, a limit; or its mode.
//  2. Something was refused, is made anew each time, or changes too fast: it is left, and should not be.
//  3. Expressions of rules give errors: nobody knows what they leave.
//  4. It waits by itself, or has something or nothing to do.
//
// The plan has put 2 before 3, and both before what it waits for, where it wants nothing; here they win over what it wants.
func foremost(d *plan.Plan) (reason, message string) {
	whole := !slices.Contains([]string{
		v1alpha1.ReasonConditionsMet, v1alpha1.ReasonNothingToDo, v1alpha1.ReasonHolding, v1alpha1.ReasonUnconfirmed, v1alpha1.ReasonEvaluationFailed,
	}, d.Reason)
	if trouble, said := d.Trouble(); trouble != "" && !whole {
		return trouble, said
	}
	return d.Reason, d.Message
}

// refused says why nothing is done, and nothing is looked at.
func (r report) refused(f refusal) {
	r.remove(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated, v1alpha1.ConditionReconciling)
	r.outcome(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: f.reason, Message: f.message}, r.p.r.clock.Now())
	r.ready(metav1.ConditionFalse, f.reason, f.message)
	r.stalled(f.reason, f.message)
	r.next(time.Time{})
}

// failed says that the operator itself met an error.
func (r report) failed(err error) {
	r.ready(metav1.ConditionFalse, v1alpha1.ReasonFailed, "Will retry: "+err.Error())
}

// runReport drafts what is said of a run.
type runReport struct{ report }

// waits says what a Cleaner waits for, when it evaluates nothing.
func (r runReport) waits(req plan.Request) {
	if run := r.draft().Run; run == nil && r.p.c.Common().Recurs() || run != nil && run.Lifecycle == v1alpha1.LifecycleRecurring {
		r.recurring(req)
	} else {
		r.running(req)
	}
}

// running says what an open or finished run waits for.
func (r runReport) running(req plan.Request) {
	r.delivered()
	run := r.draft().Run
	if run == nil {
		return
	}
	message, failed := r.progress(run, req)
	r.set(v1alpha1.ConditionReconciling, metav1.ConditionTrue, req.Reason, message)
	if failed {
		r.ready(metav1.ConditionFalse, req.Reason, message)
		r.stalled(req.Reason, message)
	} else {
		r.ready(metav1.ConditionUnknown, req.Reason, message)
		r.remove(v1alpha1.ConditionStalled)
	}
	r.next(time.Time{})
}

// progress says how far a run is, in words, and whether something refuses to go on.
func (r runReport) progress(run *v1alpha1.Run, req plan.Request) (message string, failed bool) {
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
		return fmt.Sprintf("Run %d is paused. %s", run.Number, r.p.r.suspect()), true
	case v1alpha1.ReasonReleasePending:
		return fmt.Sprintf("Run %d is waiting: release %q is being installed, upgraded or rolled back.", run.Number, releaseName(run)), false
	case v1alpha1.ReasonDelivering:
		return fmt.Sprintf("Run %d is finished; its event is being sent.", run.Number), false
	case v1alpha1.ReasonSuspended:
		return fmt.Sprintf("Run %d is suspended.", run.Number), false
	case v1alpha1.ReasonUninstalling:
		return fmt.Sprintf("Run %d is uninstalling release %q.", run.Number, releaseName(run)), false
	}
	return fmt.Sprintf("Run %d is in progress: %s.", run.Number, counted(len(run.Rows), "object")), false
}

// resolved says what the targets stand for.
func (r report) resolved(in plan.Input, d plan.Plan) {
	if slices.Contains([]string{v1alpha1.ReasonWaitingForTTL, v1alpha1.ReasonSuspended, v1alpha1.ReasonClockSkewSuspected}, d.Reason) || len(in.Snapshot) != len(r.p.work.Targets) {
		r.remove(v1alpha1.ConditionTargetsResolved)
		return
	}
	st := r.draft()
	st.ResolvedTargets, st.ResolvedTargetCount = nil, 0
	var reason string
	var problems []string
	for i := range in.Snapshot {
		for n := range in.Snapshot[i].Objects {
			st.ResolvedTargetCount++
			if len(st.ResolvedTargets) < trimmed.MaxResolved {
				st.ResolvedTargets = append(st.ResolvedTargets, shown.CleanText(in.Snapshot[i].Objects[n].Shown(r.p.c.GetNamespace())))
			}
		}
		if why, problem := plan.Problem(&r.p.work.Targets[i], &in.Snapshot[i]); why != "" {
			if reason == "" {
				reason = why
			}
			problems = append(problems, problem)
		}
	}
	if reason != "" {
		r.set(v1alpha1.ConditionTargetsResolved, metav1.ConditionFalse, reason, strings.Join(problems, " "))
		return
	}
	r.set(v1alpha1.ConditionTargetsResolved, metav1.ConditionTrue, v1alpha1.ReasonResolved, "Every target is readable.")
}

// announced is when a Cleaner looks again, as far as that is news: one that stays announces neither its period nor its
// schedule, which would be a write each time.
func (r report) announced(d plan.Plan) time.Time {
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

// pending says what rules wait for. A moment is announced in whole seconds, and not before it comes.
func (r report) pending(all []plan.Pending) {
	st := r.draft()
	st.Pending = nil
	for _, p := range all[:min(len(all), trimmed.MaxListed)] {
		st.Pending = append(st.Pending, v1alpha1.Pending{Rule: p.Rule, Key: shown.CleanText(p.Key), Until: metav1.Time{Time: p.Until.Add(time.Second - time.Nanosecond).Truncate(time.Second)}})
	}
}

// templateMissing says that there is no template of this name, yet.
func (r report) templateMissing(name string) {
	message := fmt.Sprintf("CleanerTemplate %q does not exist.", shown.CleanText(name))
	r.remove(v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionEvaluated, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
	r.set(v1alpha1.ConditionValid, metav1.ConditionFalse, v1alpha1.ReasonTemplateMissing, message)
	r.outcome(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonTemplateMissing, Message: message}, r.p.r.clock.Now())
	r.ready(metav1.ConditionFalse, v1alpha1.ReasonTemplateMissing, message)
	r.next(time.Time{})
}

// scheduled says that the schedule is waited for. What the last evaluation found stays said, and what was said of a run goes with it.
func (r report) scheduled() {
	ran := meta.IsStatusConditionTrue(r.draft().Conditions, v1alpha1.ConditionReconciling)
	if r.draft().LastEvaluation == nil || ran {
		r.set(v1alpha1.ConditionValid, metav1.ConditionTrue, v1alpha1.ReasonValid, "The spec is valid.")
		r.ready(metav1.ConditionTrue, v1alpha1.ReasonWaitingForSchedule, "The schedule is not due yet.")
	}
	if ran {
		r.remove(v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
	}
	if at := r.p.mem.answered; at != "" && at == r.p.requestedAt() {
		r.draft().LastRequestedAt = at
	}
	r.delivered()
	r.next(time.Time{})
}

// recurring says what a Cleaner that stays waits for, when it evaluates nothing.
func (r runReport) recurring(req plan.Request) {
	r.delivered()
	if req.Reason == v1alpha1.ReasonDelivering {
		r.ready(metav1.ConditionUnknown, req.Reason, "The event of the last run is being sent.")
	}
	r.next(time.Time{})
}

// outcome keeps the time of an evaluation that said the same.
func (r report) outcome(d plan.Plan, now time.Time) {
	e := &v1alpha1.Evaluation{Time: metav1.NewTime(now), Verdict: d.Verdict, Reason: d.Reason, Message: shown.CleanText(d.Message), Conditions: slices.Clone(d.Conditions)}
	for i := range e.Conditions {
		e.Conditions[i].Expression, e.Conditions[i].Error = shown.CleanText(e.Conditions[i].Expression), shown.CleanText(e.Conditions[i].Error)
	}
	e.Errors = slices.Clone(d.Errors[:min(len(d.Errors), trimmed.MaxListed)])
	for i := range e.Errors {
		e.Errors[i].Key, e.Errors[i].Message = shown.CleanText(e.Errors[i].Key), shown.CleanText(e.Errors[i].Message)
	}
	if len(d.Withheld) > 0 && r.p.c.Common().Recurs() { // for one that cleans once, the run says it
		forbidden := d.Forbidden()
		e.Withheld = forbidden[:min(len(forbidden), trimmed.MaxListed)]
		for i := range e.Withheld {
			e.Withheld[i].Object, e.Withheld[i].Because = shown.CleanText(e.Withheld[i].Object), shown.CleanText(e.Withheld[i].Because)
		}
	}
	if old := r.draft().LastEvaluation; old != nil {
		same := *e
		same.Time = old.Time
		if equality.Semantic.DeepEqual(&same, old) {
			e.Time = old.Time
		}
	}
	r.draft().LastEvaluation = e
}

// delivered says whether the sink has what it is owed.
func (r report) delivered() {
	owed := plan.Outstanding(r.p.c.State())
	switch {
	case r.p.c.Common().CloudEventSink == "" || r.draft().Runs == 0:
		r.remove(v1alpha1.ConditionDelivered)
		return
	case owed == nil:
		r.set(v1alpha1.ConditionDelivered, metav1.ConditionTrue, v1alpha1.ReasonDelivered, "The sink has received the event of every finished run.")
		return
	}
	st := r.p.r.sender.GetDelivery(r.p.key, r.p.c.GetUID(), owed.Number)
	if st.Attempts == 0 || st.Last.Class == "" {
		r.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonDelivering, fmt.Sprintf("The event of run %d is being sent.", owed.Number))
		return
	}
	did := "The sink did not accept the event of run %d"
	if st.Last.Class == outbox.ClassNoCredential {
		did = "The event of run %d was not sent"
	}
	r.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonDeliveryFailed, fmt.Sprintf(did+" and will be retried: %s.", owed.Number, st.Last))
}

// next keeps the announced moment while it lies ahead, so that it is not written at each evaluation.
func (r report) next(at time.Time) {
	st := r.draft()
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

func (r report) draft() *v1alpha1.CleanerStatus { return r.p.c.State() }

func (r report) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&r.draft().Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: shown.CleanText(message), ObservedGeneration: r.p.c.GetGeneration(),
		LastTransitionTime: metav1.NewTime(r.p.r.clock.Now()),
	})
	r.draft().ObservedGeneration = r.p.c.GetGeneration()
}

func (r report) ready(status metav1.ConditionStatus, reason, message string) {
	r.set(v1alpha1.ConditionReady, status, reason, message)
}

func (r report) stalled(reason, message string) {
	r.set(v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message)
}

func (r report) remove(kinds ...string) {
	for _, k := range kinds {
		meta.RemoveStatusCondition(&r.draft().Conditions, k)
	}
}

// send writes the draft if it differs from what was read, at most once a second; else it says when it may.
func (p *sight) send(ctx context.Context, now time.Time) (due time.Time, err error) {
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
	next := p.metadata()
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
		p.mem.remember(next.State())
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
	before, next := p.metadata(), p.metadata()
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
