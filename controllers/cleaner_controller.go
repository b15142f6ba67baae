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
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/evaluating"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/ration"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/signing"
)

// CleanerReconciler carries each Cleaner through its life.
type CleanerReconciler struct {
	client   client.Client // reads Cleaners from the cache, writes them
	live     client.Reader // reads Cleaners from the API server
	compiler *celenv.Cache
	watches  *watches.Engine
	resolver *watches.Resolver
	hands    *handsMaker
	keys     signing.Keys
	authors  *identity.Authors
	own      *hands // the operator's
	pool     *pool
	sender   *outbox.Sender
	recorder interface{ RecordEvent(e events.Event) }
	clock    clock.Clock
	memories memories
	// turns are for passes that take much memory.
	turns *ration.Turns
	// evaluations are those under way.
	evaluations evaluating.Evaluations
	wake        *waker
	metrics     *metrics.Metrics
	opts        Options
}

// Reconcile brings one Cleaner as far as it can go now. A panic is an error of that Cleaner, and of no other.
func (r *CleanerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	mem := r.memories.memoryOf(req.NamespacedName)
	if until, calm := r.findRest(ctx, req.NamespacedName, mem); calm {
		return ctrl.Result{RequeueAfter: until.Sub(r.clock.Now()), Priority: new(0)}, nil
	}
	defer r.memories.settleMemory(req.NamespacedName, mem)
	panicked := contain.CatchPanic(func() { result, err = r.reconcileOne(ctx, req, mem) })
	if mem.hands != nil && r.hands.areMany() {
		mem.hands = nil
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

// reportFailure reports an error that a pass could not.
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
	return r.newPass(ctx, c, req.NamespacedName, mem)
}

func (r *CleanerReconciler) reconcileOne(ctx context.Context, req ctrl.Request, mem *memory) (ctrl.Result, error) {
	// 1. Read.
	p, err := r.beginPass(ctx, req, mem)
	if err != nil || p == nil {
		return ctrl.Result{}, err
	}
	defer p.recordEvents()
	defer p.share.EndPass()
	defer p.blindHolds()
	if err := p.seeRequest(p.version); err != nil {
		return p.sleepUntil(ctx, time.Time{}, err)
	}
	refusal, err := p.checkOwnership(ctx)
	if refusal.isRefusal() {
		p.newReport().setRefused(refusal)
	}
	if err != nil || refusal.isRefusal() {
		return p.sleepUntil(ctx, r.clock.Now().Add(keyRetry), err)
	}
	mem.resumeReads(p.version, p.c)
	p.judgeRequest(ctx)
	p.newReport().setRequest()

	// 2. An open run, a report that is owed and a deletion come first: they need no expression to end.
	wait, err := p.carryOn(ctx)
	if err != nil || wait.Kind != plan.Evaluate {
		return p.restUntil(ctx, wait.Until, err)
	}
	if p.hands, err = r.handsBySpec(p.c, &p.assignment, mem); err != nil {
		return p.sleepUntil(ctx, time.Time{}, err)
	}
	if at := mem.evaluated.Add(r.opts.MinInterval); r.clock.Now().Before(at) {
		p.looked = true
		p.share.KeepPlace()
		return p.restUntil(ctx, at, nil)
	}
	waits := p.waitsForSchedule()
	if waits && !p.waitsFor() {
		p.newReport().setScheduled()
		return p.sleepUntil(ctx, p.nextTick, p.recordTick(ctx))
	}

	// 3. Compile. The author's mistake is reported; only an edit can mend it.
	programs, ok, err := p.preparePrograms(ctx)
	if !ok {
		return p.sleepUntil(ctx, time.Time{}, err)
	}

	// Nothing is looked at for an author who may not look.
	if refusal = p.authorRefused(ctx, nil); refusal.isRefusal() {
		r.watches.DropInterests(p.key)
		p.newReport().setRefused(refusal)
		p.newReport().passedOver()
		return p.sleepUntil(ctx, r.clock.Now().Add(authorRetry), nil)
	}

	// 4. Listen, before looking: nothing may change unseen in between. 5. Look. 6. Decide.
	p.declareInterests()
	in := p.observeInput(ctx, programs)
	decision := p.decideAndRemember(ctx, in)
	if since, refused := p.share.FindWait(); refused { // until it is called, and that is no news at once
		if since >= turnShown {
			reportTurn(p.newReport(), decision)
		}
		return p.sleepUntil(ctx, r.clock.Now().Add(turnRetry), nil)
	}
	if waits { // what rules wait for was looked at; nothing is done
		p.newReport().setScheduled()
		return p.sleepUntil(ctx, p.askAgain(decision), p.recordTick(ctx))
	}

	// 7. Confirm. 8. Commit, and go on with what is committed; or, for one that stays, do it batch by batch.
	switch {
	case p.c.Common().Recurs():
		decision, err = p.doBatches(ctx, in, decision)
	case decision.Verdict == v1alpha1.VerdictAct:
		decision, err = p.confirmAndCommit(ctx, in, decision)
	default:
		mem.forgetUnconfirmed()
		err = p.endTick(ctx, decision)
	}
	if p.committed {
		wait, err = p.carryOn(ctx)
		return p.restUntil(ctx, wait.Until, err)
	}

	// 9. Report. 10. Sleep: every exit re-arms.
	if at, silent := p.warmingUp(decision); silent {
		return p.sleepUntil(ctx, at, err)
	}
	p.newReport().setEvaluated(in, decision)
	measureFindings(p.sight)
	return p.sleepUntil(ctx, p.askAgain(decision), err)
}
