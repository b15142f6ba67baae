// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/evaluating"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/findings"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/jobs"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/ration"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/signing"
)

// CleanerReconciler carries each Cleaner through its life.
type CleanerReconciler struct {
	client   client.Client // reads Cleaners from the cache, writes them
	live     client.Reader // reads Cleaners from the API server
	compiler *celenv.Cache
	watches  *watches.Engine
	resolver *served.Resolver
	clients  *clients.Factory
	keys     signing.Keys
	authors  *identity.Authors
	own      *clients.Set // the operator's
	pool     *jobs.Pool   // of uninstalls
	sender   *outbox.Sender
	recorder interface{ RecordEvent(e events.Event) }
	clock    clock.Clock
	memories memories
	// turns are for passes that take much memory.
	turns *ration.Turns
	// evaluations are those under way, and slots those that they have.
	evaluations evaluating.Evaluations
	slots       *fair.Slots
	// readings are slots in which records of releases are read.
	readings *fair.Slots
	wake     *fair.Waker
	metrics  *metrics.Metrics
	opts     Options
}

// Reconcile runs one pass over a Cleaner. A panic is reported as an error of that Cleaner and does not affect others.
func (r *CleanerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	mem := r.memories.memoryOf(req.NamespacedName)
	if until, calm := r.findRest(ctx, req.NamespacedName, mem); calm {
		return ctrl.Result{RequeueAfter: until.Sub(r.clock.Now())}, nil
	}
	defer r.memories.settleMemory(req.NamespacedName, mem)
	panicked := contain.CatchPanic(func() { result, err = r.reconcileOne(ctx, req, mem) })
	if mem.clients != nil && r.clients.AreMany() {
		mem.clients = nil
	}
	if panicked == nil {
		return result, err
	}
	mem.dropUnfinished()
	if again := contain.CatchPanic(func() { result, err = r.reportFailure(ctx, req, mem, panicked) }); again != nil {
		return ctrl.Result{}, panicked
	}
	return result, err
}

// reportFailure writes an error to the status after a pass has panicked.
func (r *CleanerReconciler) reportFailure(ctx context.Context, req ctrl.Request, mem *memory, why error) (ctrl.Result, error) {
	p, err := r.beginPass(ctx, req, mem)
	if err != nil || p == nil {
		return ctrl.Result{}, errors.Join(why, err)
	}
	return p.sleepUntil(ctx, time.Time{}, why)
}

// beginPass reads the Cleaner; nil when it is gone.
func (r *CleanerReconciler) beginPass(ctx context.Context, req ctrl.Request, mem *memory) (*pass, error) {
	c, err := r.readCleaner(ctx, req.NamespacedName, mem)
	if err != nil || c == nil {
		return nil, err
	}
	return r.openPass(ctx, c, req.NamespacedName, mem)
}

func (r *CleanerReconciler) reconcileOne(ctx context.Context, req ctrl.Request, mem *memory) (ctrl.Result, error) {
	// 1. Read.
	p, err := r.beginPass(ctx, req, mem)
	if err != nil || p == nil {
		return ctrl.Result{}, err
	}
	defer p.endPass()
	ctx = p.share.BindContext(ctx)
	if ok, err := p.checkRecordAndRequest(ctx); !ok {
		return p.sleepUntil(ctx, r.clock.Now().Add(keyRetry), err)
	}

	// 2. An open run, a report that is owed and a deletion come first: they need no expression to end.
	wait, err := p.openRun.carryOn(ctx)
	if wait.Kind != life.Evaluate && p.store.Cleaner.GetDeletionTimestamp() != nil { // its author's finalizers may keep it for ever
		p.evaluator.dropInterests()
	}
	if err != nil || wait.Kind != life.Evaluate {
		return p.restUntil(ctx, wait.Until, err)
	}
	if p.clients, err = r.clientsBySpec(p.store.Cleaner, &p.assignment, mem); err != nil {
		return p.sleepUntil(ctx, time.Time{}, err)
	}
	if at := mem.evaluated.Add(r.opts.MinInterval); r.clock.Now().Before(at) {
		p.looked = true
		p.share.KeepPlace()
		return p.restUntil(ctx, at, nil)
	}

	// 3. Compile.
	programs, until, err := p.mayEvaluate(ctx)
	if programs == nil {
		return p.sleepUntil(ctx, until, err)
	}
	return p.evaluateAndAct(ctx, programs)
}

// endPass ends a pass, however it has ended.
func (p *pass) endPass() {
	defer p.journal.RecordEvents()
	defer p.share.EndPass()
	if p.share.CountRead() > keptReads {
		p.mem.judged = judged{}
	}
	if !p.looked {
		p.evaluator.skipLook(p.r.clock.Now())
	}
	if !p.inLine {
		p.r.pool.LeaveSlot(p.store.Key)
	}
}

// checkRecordAndRequest verifies the signed record and handles the requestedAt annotation. If ok is false, the pass must not evaluate or act.
func (p *pass) checkRecordAndRequest(ctx context.Context) (ok bool, err error) {
	if err := p.triggers.SeeRequest(p.assignment.Version); err != nil {
		return false, err
	}
	refusal, err := p.authority.checkOwnership(ctx)
	if refusal.IsRefusal() {
		p.newReport().SetRefused(refusal)
	}
	if err != nil || refusal.IsRefusal() {
		return false, err
	}
	p.mem.resumeReads(p.assignment.Version, p.store.Cleaner)
	p.triggers.JudgeRequest(ctx)
	p.triggers.ReportRequest(p.newReport())
	return true, nil
}

// mayEvaluate returns the compiled programs of the spec, or nil and the time of the next attempt if the Cleaner must not be evaluated now.
func (p *pass) mayEvaluate(ctx context.Context) (programs *celenv.Programs, until time.Time, err error) {
	p.waits = p.triggers.WaitsForSchedule()
	if p.waits && !p.triggers.HasTimers() {
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
		p.r.watches.DropInterests(p.store.Key)
		p.newReport().SetRefused(refusal)
		p.triggers.PassOverRequest()
		return nil, p.r.clock.Now().Add(authorRetry), nil
	}
	if p.triggers.RefuseAsker(ctx, p.authority.findAskerLacks) { // the schedule continues without it
		p.triggers.ReportRequest(p.newReport())
		return nil, p.r.clock.Now(), nil
	}
	return programs, time.Time{}, nil
}

// evaluateAndAct looks, decides, and does what is decided.
func (p *pass) evaluateAndAct(ctx context.Context, programs *celenv.Programs) (ctrl.Result, error) {
	// 4. Listen, before looking: nothing may change unseen in between. 5. Look. 6. Decide.
	p.evaluator.declareInterests()
	in := p.evaluator.observeInput(ctx, programs)
	decision := p.evaluator.decideAndRemember(ctx, in)
	if since, refused := p.share.FindWait(); refused { // the pass waits for its turn; a short wait is not worth a write
		if since >= turnShown {
			p.newReport().SetTurn(decision)
		}
		return p.sleepUntil(ctx, p.r.clock.Now().Add(turnRetry), nil)
	}
	if p.waits { // what rules wait for was looked at; nothing is done
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
	st.Findings = findings.UpdateFindings(st.Findings, p.assignment.Work.Rules, findReported(p), wrong)
}

// findReported returns the items of the decision that were reported.
func findReported(p *pass) findings.Reported {
	now, out, seen := p.r.clock.Now(), findings.Reported{}, map[plan.ItemKey]bool{}
	for i := range p.wanted.Steps {
		s := &p.wanted.Steps[i]
		if s.IsDeed() {
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
