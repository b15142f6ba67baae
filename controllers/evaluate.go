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
	"github.com/vtex/cleaner/controllers/internal/staleness"
	"github.com/vtex/cleaner/controllers/internal/statusfindings"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
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
	// 4. Listen, before observing: nothing may change unseen in between. 5. Observe. 6. Decide.
	p.evaluator.declareInterests()
	in, decision := p.evaluator.observeAndDecide(ctx, programs)
	if since, refused := p.share.FindWait(); refused { // it waits for its turn to take much memory; a short wait is not worth a write
		if since >= memoryWaitShown {
			p.newReport().SetWaitingForMemory(decision)
		}
		return p.sleepUntil(ctx, p.r.clock.Now().Add(memoryRetry), nil)
	}
	if p.waits { // what rules wait for was checked; nothing is done
		p.reportScheduled()
		return p.sleepUntil(ctx, p.evaluator.askAgain(reportedPlan{decision}), p.recurrence.recordTick(ctx))
	}

	// 7. Confirm. 8. Commit, and carry out what is committed; a Recurring Cleaner does both for each batch.
	result, err := reportedPlan{decision}, error(nil)
	switch {
	case p.store.Cleaner.Common().Recurs():
		result, err = p.recurrence.doBatches(ctx, in, decision)
	case decision.Verdict == v1alpha1.VerdictAct:
		result, err = p.committer.confirmAndCommit(ctx, in, decision)
	default:
		p.mem.forgetUnconfirmed()
		err = p.recurrence.endTick(ctx, decision)
	}
	if p.committed {
		wait, err := p.openRun.carryOn(ctx)
		return p.restUntil(ctx, wait.Until, err)
	}

	// 9. Report. 10. Sleep: every exit re-arms.
	if at, silent := p.evaluator.warmingUp(result); silent {
		return p.sleepUntil(ctx, at, err)
	}
	p.reportEvaluated(in, result)
	measureFindings(p)
	return p.sleepUntil(ctx, p.evaluator.askAgain(result), err)
}

// evaluator reads the targets and computes plans.
type evaluator struct{ *pass }

// compileSpec checks the spec and compiles its expressions. It is an error if the context ends first.
func (p *evaluator) compileSpec(ctx context.Context) (*celenv.Programs, validation.Findings, error) {
	if len(p.assignment.Wrong) > 0 {
		return nil, validation.FromFieldErrors(p.assignment.Wrong), nil
	}
	programs, errs := p.r.compiler.Get(ctx, p.store.Cleaner.GetNamespace(), p.store.Cleaner.GetUID(), p.assignment.Version, p.assignment.Work)
	if programs == nil && len(errs) == 0 {
		return nil, nil, fmt.Errorf("cannot compile the expressions: %w", context.Cause(ctx))
	}
	options := validation.Options{
		AllowProtectedKinds:   p.r.opts.AllowProtectedKinds,
		Compiled:              errs,
		RequireServiceAccount: p.r.opts.RequireServiceAccount,
		DefaultServiceAccount: p.r.opts.DefaultServiceAccount,
		Namespace:             p.store.Cleaner.GetNamespace(),
		OperatorNamespace:     p.r.opts.Namespace,
	}
	if ref := p.store.Cleaner.Common().TemplateRef; ref != nil {
		options.Template = ref.Name
	}
	return programs, validation.Validate(p.assignment.Work, options).Errors(), nil
}

// declareInterests registers the watches of the Cleaner: none before its ttl, and none while it is suspended.
func (p *evaluator) declareInterests() {
	ttl, err := p.store.Cleaner.Common().TTL.Parse(0)
	if err != nil || p.store.Cleaner.Common().Suspend || p.r.clock.Now().Add(-p.r.opts.Skew.ClockAhead()).Before(p.store.CreatedAt().Add(ttl)) {
		p.dropInterests()
		return
	}
	if p.mem.listening.IsZero() {
		p.mem.listening = p.r.clock.Now()
	}
	queries := p.mem.makeQueries(p.assignment.Version, p.store.Cleaner.GetNamespace(), p.assignment.Work)
	interests := make([]watches.Interest, 0, len(p.assignment.Work.Targets))
	for i := range p.assignment.Work.Targets {
		t, q := &p.assignment.Work.Targets[i], &queries[i]
		if q.Err != nil { // validation has refused it
			continue
		}
		interests = append(interests, watches.Interest{Query: q.Query, Quiet: !t.Included() || p.triggers.IgnoresChanges()})
	}
	p.r.watches.SetInterests(p.store.Key, interests)
}

// dropInterests declares that the Cleaner wants to hear of nothing.
func (p *evaluator) dropInterests() {
	p.r.watches.DropInterests(p.store.Key)
	p.mem.listening, p.mem.queried = time.Time{}, queried{}
}

// observeAndDecide takes a slot, looks and decides: it may be long until there is a slot, and what was seen before would be old.
func (p *evaluator) observeAndDecide(ctx context.Context, programs *celenv.Programs) (plan.Input, plan.Plan) {
	defer p.acquireSlot(ctx)()
	in := p.observeInput(ctx, programs)
	return in, p.decideAndRemember(ctx, in)
}

// observeInput is what a decision depends on now, as the watches know it and as this process has changed it since.
func (p *evaluator) observeInput(ctx context.Context, programs *celenv.Programs) plan.Input {
	now := p.r.clock.Now()                                            // not after the snapshot
	p.mem.checks.NoteChange(p.r.watches.News.TakeChange(p.store.Key)) // before it: what comes in between is checked twice
	if since := p.mem.checks.UnseenSince(now, 2*p.r.opts.MinInterval+p.mem.took); !since.IsZero() {
		p.mem.Holds = p.mem.Holds.BlindAll(since)
	}
	queries := p.mem.makeQueries(p.assignment.Version, p.store.Cleaner.GetNamespace(), p.assignment.Work)
	watched := p.reads.meterWatched(p.clients.Watched)
	seen := watched.chargeSeen(p.assignment.Work, queries.Read(ctx, watched))
	in := p.inputAt(programs, now, p.mem.Overlay.OverlaySnapshot(seen))
	in.Lagging, in.Unseen = p.mem.Lagging.ListItems(in.Snapshot, now), p.mem.Overlay.ListUnseen()
	return in
}

// inputAt is what a decision depends on, at a moment that is not after the snapshot was taken.
func (p *evaluator) inputAt(programs *celenv.Programs, now time.Time, s plan.Snapshot) plan.Input {
	return plan.Input{
		Owner:       p.planOwner(),
		Spec:        p.assignment.Work,
		Programs:    programs,
		Snapshot:    s,
		Protection:  p.r.opts.newProtection(),
		Now:         now,
		Expected:    p.mem.expected,
		Clock:       p.r.clockTrust(),
		Holds:       p.mem.Holds,
		Done:        p.mem.Done,
		Backoff:     p.mem.Backoff,
		Recreations: p.mem.Recreations,
		Room:        p.findRoom(),
		Memory:      p.share,
	}
}

// findRoom returns how much the next decision may remember of items; nil if that is unknown.
func (p *evaluator) findRoom() *plan.Room {
	free, known := p.r.memories.FindRoom(p.store.Key, p.mem)
	if !known {
		return nil
	}
	return p.mem.MakeRoom(free)
}

// decideAndRemember decides, and remembers what the next decision has to know.
func (p *evaluator) decideAndRemember(ctx context.Context, in plan.Input) plan.Plan {
	began := p.r.clock.Now()
	d := p.computePlan(ctx, in)
	p.mem.evaluated, p.mem.expected = in.Now, d.Next
	stopped := d.Reason == v1alpha1.ReasonEvaluationFailed && !d.RulesEvaluated
	if p.holdsChecked = checkMemory(p.share) == nil && !stopped; p.holdsChecked {
		p.mem.Holds, p.mem.checks = d.Holds, staleness.Checks{Steady: d.Steady, Again: d.NextCheck}
	} else {
		p.skipCheck(in.Now)
	}
	p.r.metrics.ObserveEvaluation(string(d.Verdict), p.r.clock.Since(began))
	failing := int64(0)
	for i := range d.Errors {
		failing += max(1, d.Errors[i].Count)
	}
	p.r.metrics.SetItems(p.store.Key, len(d.Pending), int(failing))
	return d
}

// computePlan makes a plan. It ends early when the Cleaner is changed or deleted meanwhile.
func (p *evaluator) computePlan(ctx context.Context, in plan.Input) plan.Plan {
	ctx, end := p.beginEvaluation(ctx)
	defer end()
	return plan.ComputePlan(ctx, in)
}

// beginEvaluation waits for a slot, and gives a context that ends when the Cleaner is changed or deleted, before or after. The time of the
// evaluation begins with the slot. Each evaluation has one, because how long the last one took does not bound it.
func (p *evaluator) beginEvaluation(ctx context.Context) (_ context.Context, end func()) {
	evaluating, stop := followCleaner(ctx, p.pass)
	giveBack := func() {}
	if p.reserved == nil {
		slot, err := p.takeSlot(evaluating)
		if err != nil { // what is evaluated then says so
			return evaluating, stop
		}
		giveBack = slot.GiveBack
	}
	began := p.r.clock.Now()
	return evaluating, func() {
		p.mem.took = p.r.clock.Since(began)
		giveBack()
		stop()
	}
}

// takeSlot waits for a slot.
func (p *evaluator) takeSlot(ctx context.Context) (*fair.Slot, error) {
	asked := p.r.clock.Now()
	slot, err := p.r.workers.TakeSlot(ctx, p.r.slots, p.store.Key)
	p.mem.slotWait = p.r.clock.Since(asked)
	p.waited += p.mem.slotWait
	return slot, err
}

// reserveSlot takes a slot before live reads that evaluations are to confirm, if the last wait for one was long: else the reads could be too
// old each time when their slot is there. The evaluations up to the release share the slot.
func (p *evaluator) reserveSlot(ctx context.Context) (release func()) {
	if p.mem.slotWait < life.ConfirmationServes/2 {
		return func() {}
	}
	return p.acquireSlot(ctx)
}

// acquireSlot takes a slot for the evaluations up to the release.
func (p *evaluator) acquireSlot(ctx context.Context) (release func()) {
	following, stop := followCleaner(ctx, p.pass)
	defer stop()
	slot, err := p.takeSlot(following)
	if err != nil { // the evaluations say so
		return func() {}
	}
	p.reserved = slot
	return func() {
		p.reserved = nil
		slot.GiveBack()
	}
}

// followCleaner gives a context that ends when the Cleaner is changed or deleted, before or after.
func followCleaner(ctx context.Context, p *pass) (_ context.Context, end func()) {
	following, end := p.r.evaluations.BeginEvaluation(ctx, p.store.Key, p.store.Cleaner)
	if now, err := p.r.knownCleaner(ctx, p.store.Key); err == nil { // it may have been changed since it was read
		p.r.evaluations.CancelOutdated(now)
	}
	return following, end
}

// skipCheck records that this pass ends without a check whether the items that wait for `for` still match.
func (p *evaluator) skipCheck(now time.Time) {
	p.mem.checks.NoteChange(p.r.watches.News.TakeChange(p.store.Key))
	p.mem.checks.Skipped = true
	p.mem.Holds = p.mem.Holds.BlindAll(p.mem.checks.BlindSince(now))
}

// checkMemory returns errNoMemory if the pass was refused memory; its decisions must then be discarded.
func checkMemory(share *memoryquota.Share) error {
	if _, refused := share.FindWait(); refused {
		return errNoMemory
	}
	return nil
}

// warmingUp reports whether the watches of this process are too young for NotSynced to be shown in the status, and until when.
func (p *evaluator) warmingUp(d reportedPlan) (until time.Time, silent bool) {
	reported := p.store.Read.State().LastEvaluation != nil && p.store.Read.State().ObservedGeneration == p.store.Cleaner.GetGeneration()
	until = p.mem.listening.Add(warmUp)
	return until, reported && d.Reason == v1alpha1.ReasonNotSynced && p.r.clock.Now().Before(until)
}

// askAgain returns when to reconcile again after a decision. No event announces that a ServiceAccount was granted a right, so it polls.
func (p *evaluator) askAgain(d reportedPlan) time.Time {
	if !d.NextCheck.After(p.mem.evaluated) { // of a decision that is said again: that check was made
		d.NextCheck = time.Time{}
	}
	again := d.NextEvaluation()
	if len(p.mem.Holds) > 0 { // also while a decision is said again
		for _, at := range []time.Time{p.mem.checks.Steady, p.mem.checks.Again} {
			if at.After(p.mem.evaluated) {
				again = monotime.ChooseEarlier(again, at)
			}
		}
	}
	again = monotime.ChooseEarlier(again, p.triggers.NextTick())
	soon := p.r.clock.Now().Add(rights.RetryAfter)
	unknown := d.Reason == v1alpha1.ReasonAccessDenied || d.Reason == v1alpha1.ReasonReadFailed
	if unknown && !p.clients.Account.IsOperator() && (again.IsZero() || soon.Before(again)) {
		return soon
	}
	return again
}

// reportEvaluated drafts what an evaluation came to, and answers a request for it.
func (p *pass) reportEvaluated(in plan.Input, d reportedPlan) {
	p.newReport().SetEvaluated(in, d.Plan)
	reportFindings(p)
	if d.Reason != v1alpha1.ReasonNotSynced { // else who asked has yet to be answered
		p.triggers.AnswerRequest()
	}
}

// reportScheduled drafts that the schedule is waited for.
func (p *pass) reportScheduled() {
	p.newReport().SetScheduled()
	p.triggers.RepeatAnswer()
}

// reportFindings writes what each rule reports now, if that report was made. If a rule gives nothing but errors, or no rule is evaluated,
// its earlier findings stay.
func reportFindings(p *pass) {
	st := p.store.Cleaner.State()
	switch {
	case !p.store.Cleaner.Common().Recurs(): // its rules report as a part of its run
		st.Findings = nil
		return
	case p.wanted == nil:
		return
	}
	wrong := map[string]bool{}
	for i := range p.wanted.Errors {
		wrong[p.wanted.Errors[i].Rule] = true
	}
	st.Findings = statusfindings.UpdateFindings(st.Findings, p.assignment.Work.Rules, findReported(p), wrong)
}

// findReported returns the items of the decision that were reported.
func findReported(p *pass) statusfindings.Reported {
	now, out, seen := p.r.clock.Now(), statusfindings.Reported{}, map[plan.ItemKey]bool{}
	for i := range p.wanted.Steps {
		s := &p.wanted.Steps[i]
		if s.IsChange() {
			continue
		}
		for _, item := range s.ListItems() {
			if !seen[item] && (p.mem.Rehearsed.HasItem(item) || p.mem.Told.HasItem(item, now)) {
				out.AddItem(item.Rule, s.Shown(p.store.Cleaner.GetNamespace()), s.Reason)
				seen[item] = true
			}
		}
	}
	return out
}

// measureFindings has the metrics say what the status is to say.
func measureFindings(p *pass) {
	counts := map[string]int{}
	for _, f := range p.store.Cleaner.State().Findings {
		counts[f.Rule] = int(f.Count)
	}
	p.r.metrics.SetFindings(p.store.Key, counts)
}
