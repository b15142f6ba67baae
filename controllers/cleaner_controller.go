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

	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/evalcancel"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/jobs"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/watches"
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
	turns *memoryquota.Turns
	// evaluations are those under way, and slots those that they have.
	evaluations evalcancel.Evaluations
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
	if until, rests := r.findRest(ctx, req.NamespacedName, mem); rests {
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
	// A. Read.
	p, err := r.beginPass(ctx, req, mem)
	if err != nil || p == nil {
		return ctrl.Result{}, err
	}
	defer p.endPass()
	ctx = p.share.BindContext(ctx)
	if ok, err := p.checkRecordAndRequest(ctx); !ok {
		return p.sleepUntil(ctx, r.clock.Now().Add(keyRetry), err)
	}

	// B. An open run, an undelivered event and a deletion come first: they need no expression to end.
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
		p.holdsChecked = true
		p.share.KeepPlace()
		return p.restUntil(ctx, at, nil)
	}

	// C. Compile.
	programs, until, err := p.prepareEvaluation(ctx)
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
	if !p.holdsChecked {
		p.evaluator.skipCheck(p.r.clock.Now())
	}
	if !p.inLine {
		p.r.pool.LeaveSlot(p.store.Key)
	}
}
