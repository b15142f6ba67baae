// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/internal/statusfindings"
	"github.com/vtex/cleaner/controllers/internal/statusreport"
	"github.com/vtex/cleaner/controllers/internal/timergaps"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
)

// prepareEvaluation returns the compiled programs of the spec, or nil and the time of the next attempt if the Cleaner must not be evaluated now.
func (p *pass) prepareEvaluation(ctx context.Context) (programs *celenv.Programs, until time.Time, err error) {
	p.waits = p.triggers.WaitsForSchedule()
	if p.waits && p.triggers.IgnoresChanges() {
		p.reportScheduled()
		return nil, p.triggers.NextTick(), p.recurrence.recordTick(ctx)
	}
	// The author's mistake is reported; only an edit can mend it.
	programs, ok, err := p.preparePrograms(ctx)
	if !ok {
		return nil, time.Time{}, err
	}
	// Do not read targets on behalf of an author who may not read them.
	if refusal := p.authority.authorRefused(ctx, nil); refusal.IsRefusal() {
		p.evaluator.dropInterests()
		p.newReport().SetRefused(refusal)
		p.triggers.PassOverRequest()
		return nil, p.r.clock.Now().Add(rights.RetryAfter), nil
	}
	if p.triggers.RefuseAsker(ctx, p.authority.findAskerLacks) { // the schedule continues without it
		p.triggers.ReportRequest(p.newReport())
		return nil, p.r.clock.Now(), nil
	}
	return programs, time.Time{}, nil
}

// preparePrograms returns the compiled expressions of the spec, or reports why there are none.
func (p *pass) preparePrograms(ctx context.Context) (programs *celenv.Programs, ok bool, err error) {
	if p.assignment.Missing != "" {
		p.evaluator.dropInterests()
		p.newReport().TemplateMissing(p.assignment.Missing)
		p.triggers.PassOverRequest()
		return nil, false, nil
	}
	programs, findings, err := p.evaluator.compileSpec(ctx)
	if err != nil {
		return nil, false, err
	}
	if len(findings) > 0 {
		p.evaluator.dropInterests()
		p.newReport().SetInvalid(findings)
		p.triggers.PassOverRequest()
		return nil, false, nil
	}
	return programs, true, nil
}

// evaluateAndAct reads the watches, decides, and does what is decided.
func (p *pass) evaluateAndAct(ctx context.Context, programs *celenv.Programs) (ctrl.Result, error) {
	// D. Listen, before observing: nothing may change unseen in between. E. Observe. F. Decide.
	p.evaluator.programs = programs
	p.evaluator.declareInterests(ctx)
	in, decision := p.evaluator.decideOnWatched(ctx, programs)
	if since, refused := p.share.FindWait(); refused { // it waits for its turn to take much memory; a short wait is not worth a write
		if since >= memoryWaitShown {
			p.newReport().SetWaitingForMemory(decision)
		}
		return p.sleepUntil(ctx, p.r.clock.Now().Add(memoryRetry), nil)
	}
	if p.waits { // what rules wait for was checked; nothing is done
		p.mem.due.NoteDone()
		p.reportScheduled()
		return p.sleepUntil(ctx, p.evaluator.askAgain(reportedPlan{decision}), p.recurrence.recordTick(ctx))
	}

	// G. Confirm. H. Commit, and carry out what is committed; a Recurring Cleaner does both for each batch.
	result, err := reportedPlan{decision}, error(nil)
	switch {
	case p.store.Draft.Common().IsRecurring():
		result, err = p.recurrence.doBatches(ctx, in, decision)
	case decision.Verdict == v1alpha1.VerdictAct:
		result, err = p.committer.confirmAndCommit(ctx, in, decision)
	default:
		p.mem.forgetUnconfirmed()
		err = p.recurrence.endTick(ctx, decision)
	}
	if !p.isWorkLeft(decision) {
		p.mem.due.NoteDone()
	}
	if p.committed {
		wait, err := p.openRun.carryOn(ctx)
		return p.restUntil(ctx, wait.Until, err)
	}

	// I. Report. J. Sleep: every exit re-arms.
	if at, silent := p.evaluator.warmingUp(result); silent {
		return p.sleepUntil(ctx, at, err)
	}
	p.reportEvaluated(in, result)
	measureFindings(p)
	return p.sleepUntil(ctx, p.evaluator.askAgain(result), err)
}

// isWorkLeft reports whether the pass leaves something undone that is due. What a rule wants of objects because of its own actions on them is
// due when it is evaluated next.
func (p *pass) isWorkLeft(first plan.Plan) bool {
	switch {
	case p.isDryRun(), p.callsItself:
		return false
	case p.store.Draft.Common().IsRecurring():
		return p.wanted != nil && p.recurrence.hasStepsLeft(*p.wanted)
	default:
		return first.Verdict == v1alpha1.VerdictAct
	}
}

// evaluator reads the targets and computes plans.
type evaluator struct {
	pass *pass
	// programs are those of the spec, once they are compiled.
	programs *celenv.Programs
}

// compileSpec checks the spec and compiles its expressions. It is an error if the context ends first.
func (e *evaluator) compileSpec(ctx context.Context) (*celenv.Programs, validation.Findings, error) {
	if len(e.pass.assignment.Wrong) > 0 {
		return nil, validation.FromFieldErrors(e.pass.assignment.Wrong), nil
	}
	programs, errs := e.pass.r.compiler.Get(ctx, e.pass.store.Draft.GetNamespace(), e.pass.store.Draft.GetUID(), e.pass.assignment.Version, e.pass.assignment.Work)
	if programs == nil && len(errs) == 0 {
		return nil, nil, fmt.Errorf("cannot compile the expressions: %w", context.Cause(ctx))
	}
	options := validation.Options{
		AllowProtectedKinds:   e.pass.r.opts.AllowProtectedKinds,
		Compiled:              errs,
		RequireServiceAccount: e.pass.r.opts.RequireServiceAccount,
		DefaultServiceAccount: e.pass.r.opts.DefaultServiceAccount,
		Namespace:             e.pass.store.Draft.GetNamespace(),
		OperatorNamespace:     e.pass.r.opts.Namespace,
	}
	if ref := e.pass.store.Draft.Common().TemplateRef; ref != nil {
		options.Template = ref.Name
	}
	return programs, validation.Validate(e.pass.assignment.Work, options).Errors(), nil
}

// declareInterests registers the watches of the Cleaner: none before its ttl, and none while it is suspended.
func (e *evaluator) declareInterests(ctx context.Context) {
	ttl, err := e.pass.store.Draft.Common().TTL.Parse(0)
	if err != nil || e.pass.store.Draft.Common().Suspend || e.pass.r.clock.Now().Add(-e.pass.r.opts.Skew.ClockAhead()).Before(e.pass.store.CreatedAt().Add(ttl)) {
		e.dropInterests()
		return
	}
	if e.pass.mem.listening.IsZero() {
		e.pass.mem.listening = e.pass.r.clock.Now()
	}
	queries := e.pass.mem.makeQueries(e.pass.assignment.Version, e.pass.store.Draft.GetNamespace(), e.pass.assignment.Work, e.programs)
	interests := make([]watches.Interest, 0, len(e.pass.assignment.Work.Targets))
	for i := range e.pass.assignment.Work.Targets {
		t, q := &e.pass.assignment.Work.Targets[i], &queries[i]
		if q.Err != nil { // validation has refused it
			continue
		}
		for _, one := range e.pass.kinds.ExpandQuery(ctx, &q.Query) {
			interests = append(interests, watches.Interest{Query: one, Quiet: !t.IsIncluded() || e.pass.triggers.IgnoresChanges()})
		}
	}
	e.pass.r.watches.SetInterests(e.pass.store.Key, interests)
}

// dropInterests declares that the Cleaner wants to hear of nothing.
func (e *evaluator) dropInterests() {
	e.pass.r.watches.DropInterests(e.pass.store.Key)
	e.pass.mem.listening, e.pass.mem.queried = time.Time{}, queried{}
	e.pass.mem.ForgetResults()
}

// observeInput is what a decision depends on now, as the watches know it and as this process has changed it since; or what of it has changed since
// some moments, where the watches know that.
func (e *evaluator) observeInput(ctx context.Context, programs *celenv.Programs, since []any) plan.Input {
	now := e.pass.r.clock.Now() // not after the snapshot
	e.takeChange()              // before it: what comes in between is checked twice
	if since := e.pass.mem.checks.UnseenSince(now, 2*e.pass.r.opts.MinInterval+e.pass.mem.took); !since.IsZero() {
		e.pass.mem.Holds = e.pass.mem.Holds.BlindAll(since)
	}
	queries := e.pass.mem.makeQueries(e.pass.assignment.Version, e.pass.store.Draft.GetNamespace(), e.pass.assignment.Work, programs)
	watched := e.pass.reads.MeterWatched(e.pass.clients.Watched)
	seen := watched.ChargeSeen(e.pass.assignment.Work, queries.ReadSince(ctx, watched, since))
	in := e.inputAt(programs, now, e.pass.mem.Overlay.OverlaySnapshot(seen))
	in.Lagging, in.Unseen = e.pass.mem.Lagging.ListItems(in.Snapshot, now), e.pass.mem.Overlay.ListUnseen()
	in.Results, in.Earlier, in.Values = e.pass.mem.ResultsOf(e.pass.assignment.Version), e.pass.mem.BaseOf(e.pass.assignment.Version), plan.NewValues(plan.FewValueBytes) // confirmations decide again
	return in
}

// inputAt is what a decision depends on, at a moment that is not after the snapshot was taken.
func (e *evaluator) inputAt(programs *celenv.Programs, now time.Time, s observed.Snapshot) plan.Input {
	return plan.Input{
		Owner:       e.pass.planOwner(),
		Spec:        e.pass.assignment.Work,
		Programs:    programs,
		Snapshot:    s,
		Protection:  e.pass.r.opts.newProtection(),
		Now:         now,
		Expected:    e.pass.mem.expected,
		Clock:       e.pass.r.clockTrust(),
		Holds:       e.pass.mem.Holds,
		Done:        e.pass.mem.Done,
		Backoff:     e.pass.mem.Backoff,
		Idle:        e.pass.mem.Idle,
		Recreations: e.pass.mem.Recreations, Uninstalling: e.pass.mem.underWay.ListRecords(), UninstallsFull: e.pass.mem.underWay.IsFull,
		Room:   e.findRoom(),
		Memory: e.pass.share,
	}
}

// findRoom returns how much the next decision may remember of items; nil if that is unknown.
func (e *evaluator) findRoom() *plan.Room {
	return e.pass.mem.MakeRoom(e.pass.r.memories.FindRoom(e.pass.store.Key, e.pass.mem))
}

// decideOnWatched decides on what the watches show, and remembers what the next decision has to know. It looks at all only if what has changed is not
// enough.
func (e *evaluator) decideOnWatched(ctx context.Context, programs *celenv.Programs) (plan.Input, plan.Plan) {
	base := e.pass.mem.FindBase(e.pass.assignment.Version)
	in := e.observeInput(ctx, programs, base.ListMoments())
	began := e.pass.r.clock.Now()
	d, ok := e.computeChange(ctx, &in, base)
	if !ok {
		if in.Snapshot.IsChange() {
			in = e.observeInput(ctx, programs, nil)
		}
		d = e.computePlan(ctx, in)
	}
	e.pass.mem.Results, e.pass.mem.Base, e.pass.mem.ResultsVersion = d.Results, d.Base, e.pass.assignment.Version
	e.pass.mem.evaluated, e.pass.mem.expected = in.Now, d.Next
	stopped := d.Reason == v1alpha1.ReasonEvaluationFailed && !d.RulesEvaluated
	if e.pass.holdsChecked = checkMemory(e.pass.share) == nil && !stopped; e.pass.holdsChecked {
		e.pass.mem.Holds, e.pass.mem.checks = d.Holds, timergaps.Checks{Steady: d.Steady, Again: d.NextCheck}
	} else {
		e.skipCheck(in.Now)
	}
	e.pass.r.metrics.ObserveEvaluation(string(d.Verdict), e.pass.r.clock.Since(began), d.Evaluated, d.Reused)
	e.pass.r.metrics.SetItems(e.pass.store.Key, len(d.Pending), d.CountFailing())
	return in, d
}

// computeChange makes a plan of what has changed since another one. It is not ok if all must be looked at.
func (e *evaluator) computeChange(ctx context.Context, in *plan.Input, base *plan.Base) (p plan.Plan, ok bool) {
	if !in.Snapshot.IsChange() {
		return p, false
	}
	ctx, end := e.beginEvaluation(ctx)
	defer end()
	return plan.ComputeChange(ctx, in, base)
}

// computePlan makes a plan. It ends early when the Cleaner is changed or deleted meanwhile.
func (e *evaluator) computePlan(ctx context.Context, in plan.Input) plan.Plan {
	ctx, end := e.beginEvaluation(ctx)
	defer end()
	p := plan.ComputePlan(ctx, in)
	if p.Reason == v1alpha1.ReasonEvaluationFailed { // also of a confirmation: the next decision has to say so, and evaluates all items
		e.pass.mem.ForgetResults()
	}
	return p
}

// beginEvaluation waits for a slot, and gives a context that ends when the Cleaner is changed or deleted, as followCleaner says. The time of the
// evaluation begins with the slot. Each evaluation has one, because how long the last one took does not bound it.
func (e *evaluator) beginEvaluation(ctx context.Context) (_ context.Context, end func()) {
	evaluating, stop := followCleaner(ctx, e.pass)
	giveBack := func() {}
	if e.pass.reserved == nil {
		slot, err := e.takeSlot(evaluating)
		if err != nil { // what is evaluated then says so
			return evaluating, stop
		}
		giveBack = slot.GiveBack
	}
	began := e.pass.r.clock.Now()
	return evaluating, func() {
		e.pass.mem.took = e.pass.r.clock.Since(began)
		giveBack()
		stop()
	}
}

// takeSlot waits for a slot.
func (e *evaluator) takeSlot(ctx context.Context) (*fair.Slot, error) {
	asked := e.pass.r.clock.Now()
	slot, err := e.pass.r.slots.TakeSlot(ctx, e.pass.store.Key)
	e.pass.mem.slotWait = e.pass.r.clock.Since(asked)
	e.pass.waited += e.pass.mem.slotWait
	return slot, err
}

// reserveSlot takes a slot before live reads that evaluations are to confirm, if the last wait for one was long: else the reads could be too
// old each time when their slot is there. The evaluations up to the release share the slot.
func (e *evaluator) reserveSlot(ctx context.Context) (release func()) {
	if e.pass.mem.slotWait < life.ConfirmationServes/2 {
		return func() {}
	}
	following, stop := followCleaner(ctx, e.pass)
	defer stop()
	slot, err := e.takeSlot(following)
	if err != nil { // the evaluations say so
		return func() {}
	}
	e.pass.reserved = slot
	return func() {
		e.pass.reserved = nil
		slot.GiveBack()
	}
}

// followCleaner gives a context that ends when the Cleaner is changed or deleted, also if that happened after the pass has read it.
func followCleaner(ctx context.Context, p *pass) (_ context.Context, end func()) {
	following, end := p.r.evaluations.BeginEvaluation(ctx, p.store.Key, p.store.Draft)
	if now, err := p.r.knownCleaner(ctx, p.store.Key); err == nil { // it may have been changed since it was read
		p.r.evaluations.CancelOutdated(now)
	}
	return following, end
}

// takeChange records when something changed first that was not seen yet.
func (e *evaluator) takeChange() {
	at := e.pass.r.watches.News.TakeChange(e.pass.store.Key)
	e.pass.mem.checks.NoteChange(at)
	e.pass.mem.due.NoteChange(at)
}

// skipCheck records that this pass ends without a check whether the items that wait for `for` still match.
func (e *evaluator) skipCheck(now time.Time) {
	e.takeChange()
	e.pass.mem.checks.Skipped = true
	e.pass.mem.Holds = e.pass.mem.Holds.BlindAll(e.pass.mem.checks.BlindSince(now))
}

// checkMemory returns errNoMemory if the pass was refused memory; its decisions must then be discarded.
func checkMemory(share *memoryquota.Share) error {
	if _, refused := share.FindWait(); refused {
		return errNoMemory
	}
	return nil
}

// warmingUp reports whether the watches of this process are too young for NotSynced to be shown in the status, and until when.
func (e *evaluator) warmingUp(d reportedPlan) (until time.Time, silent bool) {
	reported := e.pass.store.Stored.State().LastEvaluation != nil && e.pass.store.Stored.State().ObservedGeneration == e.pass.store.Draft.GetGeneration()
	until = e.pass.mem.listening.Add(warmUp)
	return until, reported && d.Reason == v1alpha1.ReasonNotSynced && e.pass.r.clock.Now().Before(until)
}

// askAgain returns when to reconcile again after a decision. No event announces that a ServiceAccount was granted a right, so it polls.
func (e *evaluator) askAgain(d reportedPlan) time.Time {
	if !d.NextCheck.After(e.pass.mem.evaluated) { // of a decision that is said again: that check was made
		d.NextCheck = time.Time{}
	}
	again := d.NextEvaluation()
	if len(e.pass.mem.Holds) > 0 { // also while a decision is said again
		for _, at := range []time.Time{e.pass.mem.checks.Steady, e.pass.mem.checks.Again} {
			if at.After(e.pass.mem.evaluated) {
				again = monotime.ChooseEarlier(again, at)
			}
		}
	}
	again = monotime.ChooseEarlier(monotime.ChooseEarlier(again, e.pass.triggers.NextTick()), e.pass.kinds.NextCheck())
	soon := e.pass.r.clock.Now().Add(rights.RetryAfter)
	unknown := d.Reason == v1alpha1.ReasonAccessDenied || d.Reason == v1alpha1.ReasonReadFailed
	if unknown && !e.pass.clients.Account.IsOperator() && (again.IsZero() || soon.Before(again)) {
		return soon
	}
	return again
}

// reportEvaluated drafts what an evaluation came to, and answers a request for it.
func (p *pass) reportEvaluated(in plan.Input, d reportedPlan) {
	p.newReport().SetEvaluated(in, p.mem.underWay.DescribeIn(d.Plan, life.IsPaused(p.store.Draft.Common())))
	if d.Reason != v1alpha1.ReasonSuspended && d.Reason != v1alpha1.ReasonWaitingForTTL {
		p.announceTick()
	}
	reportFindings(p)
	if d.Reason != v1alpha1.ReasonNotSynced { // else who asked has yet to be answered
		p.triggers.AnswerRequest()
	}
}

// reportScheduled drafts that the schedule is waited for.
func (p *pass) reportScheduled() {
	p.newReport().SetScheduled(statusreport.Uninstalls(p.mem.underWay.DescribeScheduled(life.IsPaused(p.store.Draft.Common()))))
	p.announceTick()
	p.triggers.RepeatAnswer()
}

// announceTick drafts the next time of the schedule, if there is one.
func (p *pass) announceTick() {
	if at := p.triggers.NextTick(); !at.IsZero() {
		p.newReport().AnnounceTick(at)
	}
}

// reportFindings writes what each rule reports now, if that report was made. If a rule gives nothing but errors, or no rule is evaluated,
// its earlier findings stay.
func reportFindings(p *pass) {
	st := p.store.Draft.State()
	switch {
	case !p.store.Draft.Common().IsRecurring(): // its rules report as a part of its run
		st.Findings = nil
		return
	case p.wanted == nil:
		return
	}
	now := p.r.clock.Now()
	st.Findings = statusfindings.FindWanted(st.Findings, p.assignment.Work.Rules, p.wanted, func(item plan.ItemKey) bool {
		return p.mem.Rehearsed.HasItem(item) || p.mem.Told.HasItem(item, now)
	})
}

// measureFindings has the metrics say what the status is to say.
func measureFindings(p *pass) {
	p.r.metrics.SetFindings(p.store.Key, statusfindings.CountItems(p.store.Draft.State().Findings))
}

// keptReads is how many bytes a pass may have read, at most, for the next one to begin with what it has read.
const keptReads = 1 << 20
