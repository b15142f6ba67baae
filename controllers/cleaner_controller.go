// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/speccache"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/anykinds"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/evalcancel"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/fieldchecks"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/passreads"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/internal/statusreport"
	"github.com/vtex/cleaner/controllers/internal/triggers"
	"github.com/vtex/cleaner/controllers/internal/uninstallpool"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/signing"
)

// CleanerReconciler carries each Cleaner through its life.
type CleanerReconciler struct {
	client   client.Client // reads Cleaners from the cache, writes them
	live     client.Reader // reads Cleaners from the API server
	compiler *speccache.Cache
	watches  *watches.Engine
	resolver *served.Resolver
	clients  *clients.Factory
	keys     signing.Keys
	authors  *identity.Authors
	own      *clients.Set        // the operator's
	pool     *uninstallpool.Pool // of uninstalls
	sender   *outbox.Sender
	recorder interface{ RecordEvent(e events.Event) }
	kinds    *anykinds.Finder
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
	// fields checks the fields that expressions read, beside the passes.
	fields  *fieldchecks.Checker
	metrics *metrics.Metrics
	opts    Options
	// quickBatch is the size to which the last batch of deletions led.
	quickBatch atomic.Int64
}

// Reconcile runs one pass over a Cleaner. A panic is reported as an error of that Cleaner and does not affect others.
func (r *CleanerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	mem, owned := r.memoryInTenure(req.NamespacedName)
	if !owned {
		return ctrl.Result{}, nil
	}
	if until, rests := r.findRest(ctx, req.NamespacedName, mem); rests {
		return ctrl.Result{RequeueAfter: until.Sub(r.clock.Now())}, nil
	}
	defer r.memories.settleMemory(req.NamespacedName, mem)
	panicked := contain.CatchPanic(func() { result, err = r.reconcileOne(ctx, req, mem) })
	if mem.clients != nil && r.clients.AreMany() {
		mem.clients = nil
	}
	switch {
	case panicked == nil && err != nil && ctx.Err() != nil: // the process stops, which is no trouble: another one continues
		logf.FromContext(ctx).Info("A pass was cut short because the operator stops", "why", err.Error())
		return ctrl.Result{}, nil
	case panicked == nil:
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
	mem.due.NoteWake(r.clock.Now())
	ctx = p.share.BindContext(ctx)
	if ok, err := p.checkRecordAndRequest(ctx); !ok {
		return p.sleepUntil(ctx, r.clock.Now().Add(keyRetry), err)
	}

	// B. An open run, an undelivered event and a deletion come first: they need no expression to end.
	wait, err := p.openRun.carryOn(ctx)
	if wait.Kind != life.Evaluate && p.store.Draft.GetDeletionTimestamp() != nil { // its author's finalizers may keep it for ever
		p.evaluator.dropInterests()
	}
	if err != nil || wait.Kind != life.Evaluate {
		if p.store.Draft.State().Run == nil || life.IsPaused(p.store.Draft.Common()) {
			mem.due.NoteDone()
		}
		return p.restUntil(ctx, wait.Until, err)
	}
	if err := p.useClients(r.clientsBySpec(p.store.Draft, &p.assignment, mem)); err != nil {
		return p.sleepUntil(ctx, time.Time{}, err)
	}
	ruleUninstalls{p}.carryOn(ctx)
	if at := mem.evaluated.Add(r.opts.MinInterval); r.clock.Now().Before(at) {
		p.holdsChecked = true
		p.share.KeepPlace()
		return p.restUntil(ctx, at, nil)
	}

	// C. Compile.
	programs, until, err := p.prepareEvaluation(ctx)
	if programs == nil {
		mem.due.NoteDone() // nothing is due while it may not be evaluated
		return p.sleepUntil(ctx, until, err)
	}
	return p.evaluateAndAct(ctx, programs)
}

// endPass ends a pass, however it has ended.
func (p *pass) endPass() {
	defer p.journal.RecordEvents()
	defer p.share.EndPass()
	if p.share.CountRead() > keptReads {
		p.mem.judged = nil
	}
	if !p.holdsChecked {
		p.evaluator.skipCheck(p.r.clock.Now())
	}
	if !p.inLine {
		p.r.pool.LeaveSlot(p.store.Key)
	}
}

const (
	// passLimit is how long one pass over a Cleaner may take before its worker is for other Cleaners.
	passLimit = 10 * time.Second
	// conflictRetry is how long after a conflict the Cleaner is read again.
	conflictRetry = 200 * time.Millisecond
	// warmUp is how long watches may take to begin before a status says that they have not.
	warmUp = 30 * time.Second
	// memoryRetry is when a pass that was refused memory tries again without being called, and memoryWaitShown is after how long its status says
	// that it waits.
	memoryRetry, memoryWaitShown = 10 * time.Second, 30 * time.Second
)

// takesNoAction begins a message that says why the Cleaner does not start what it has decided on.
const takesNoAction = "The Cleaner takes no action: "

// errNoMemory ends a pass that may not take the memory that it needs. It is called when its turn comes.
var errNoMemory = errors.New("another Cleaner is using the shared memory budget")

// pass is one Reconcile of one Cleaner. Each part has the functions of one task, and finds the Cleaner and the other parts in its field pass.
type pass struct {
	r *CleanerReconciler
	// store is the Cleaner as it is stored, triggers say when it is evaluated, and journal reports what was done for it.
	store    *cleanerstore.Store
	triggers *triggers.Triggers
	journal  *actionlog.Journal
	// assignment is what the Cleaner is to do.
	assignment resolvedspec.Assignment
	mem        *memory
	clients    *clients.Set
	// kinds are those that targets of all kinds stand for; nil if there are no such targets.
	kinds *anykinds.Kinds
	// share is what the pass takes of the memory that all passes share.
	share *memoryquota.Share
	// reads are those of the pass.
	reads *passreads.Reads
	// wanted is the last decision for which rules were asked; nil if there was none.
	wanted *plan.Plan
	// holdsChecked says that what rules wait for was checked as often as it should be.
	holdsChecked bool
	// waited is how long it has waited for slots, of evaluations and of readings: that is not its own time.
	waited time.Duration
	// reserved is the slot that evaluations share whose live reads come after it; nil if each takes its own.
	reserved *fair.Slot
	// ends is when the pass has had its time, without what it has waited.
	ends time.Time
	// starting is held while an uninstall begins.
	starting sync.Mutex
	// asksUninstalls says that the pass has asked which uninstalls for rules are due.
	asksUninstalls bool
	// inLine says that a slot is waited for.
	inLine bool
	// committed says that this pass has committed a run.
	committed bool
	// callsItself says that a rule wants more of the objects that it has just changed, and of no others.
	callsItself bool
	// waits says that the schedule is not due: the pass decides, but does nothing.
	waits bool

	evaluator  *evaluator
	authority  *authority
	openRun    *openRun
	committer  *committer
	recurrence *recurrence
}

// newMedia returns where the operator reports what it does for a Cleaner.
func (r *CleanerReconciler) newMedia() *actionlog.Media {
	m := &actionlog.Media{Recorder: r.recorder, Metrics: r.metrics, Clock: r.clock}
	if r.opts.ObjectEvents {
		m.Kinds = r.resolver
	}
	return m
}

// newPass begins a pass over a Cleaner as it was read.
func newPass(r *CleanerReconciler, c v1alpha1.Owner, key types.NamespacedName, a resolvedspec.Assignment, mem *memory) *pass {
	s := cleanerstore.New(&cleanerstore.API{Client: r.client, Live: r.live, Lease: mem.tenure, Clock: r.clock}, key, c, &mem.persisted)
	p := &pass{
		r: r, store: s, triggers: triggers.New(s, a.Work, r.opts.newTriggerPolicy(), &mem.triggers), assignment: a, mem: mem,
		journal: actionlog.New(s, r.newMedia(), &mem.journal),
		share:   r.turns.BeginPass(key), ends: r.clock.Now().Add(passLimit),
	}
	p.reads = passreads.New(p.share, r.clock)
	p.evaluator, p.authority, p.openRun, p.committer, p.recurrence = &evaluator{pass: p}, &authority{p}, &openRun{p}, &committer{p}, &recurrence{p}
	return p
}

// newReport returns a draft of the status.
func (p *pass) newReport() statusreport.Report {
	return statusreport.Report{Of: p.store, Work: p.assignment.Work, Clock: p.r.clock, Run: &p.mem.run, Sender: p.r.sender, SuspectClock: p.r.opts.Skew.DescribeSuspect}
}

// isOver reports whether the time limit of the pass has passed. It must not evaluate anything more.
func (p *pass) isOver() bool { return !p.r.clock.Now().Before(endOfPass(p)) }

// endOfPass is when a pass has had its time, unless it waits for more slots.
func endOfPass(p *pass) time.Time { return p.ends.Add(p.waited) }

// readCleaner reads the Cleaner: from the cache, unless this process has written it since. Nil when it is gone.
func (r *CleanerReconciler) readCleaner(ctx context.Context, key types.NamespacedName, mem *memory) (v1alpha1.Owner, error) {
	c := v1alpha1.NewOwner(key.Namespace)
	err := r.client.Get(ctx, key, c)
	if err == nil && mem.persisted.Written != "" && mem.persisted.Written != c.GetResourceVersion() {
		cached := c.GetResourceVersion()
		err = r.live.Get(ctx, key, c)
		if err == nil && c.GetResourceVersion() == cached {
			mem.persisted.Written = ""
		}
	}
	if notfound.IsObjectMissing(err, v1alpha1.ResourceOf(c), v1alpha1.KindOf(c), key.Name) {
		r.forgetCleaner(key, mem.uid)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read Cleaner %q: %w", key, err)
	}
	if mem.uid != c.GetUID() {
		if mem.uid != "" { // another one of the same name
			r.watches.DropInterests(key)
			r.compiler.Forget(mem.uid)
			r.sender.CancelDeliveries(key)
		}
		*mem = *newMemory(c.GetUID(), mem.tenure)
	}
	return c, nil
}

// knownCleaner returns the Cleaner as the watch shows it, for the check before each deletion. It is no copy, since its run may have
// thousands of rows: never change it.
func (r *CleanerReconciler) knownCleaner(ctx context.Context, key types.NamespacedName) (v1alpha1.Owner, error) {
	c := v1alpha1.NewOwner(key.Namespace)
	if err := r.client.Get(ctx, key, c, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot read Cleaner %q: %w", key, err)
	}
	return c, nil
}

// forgetCleaner drops what is kept for a Cleaner that is gone.
func (r *CleanerReconciler) forgetCleaner(key types.NamespacedName, uid types.UID) {
	r.watches.DropInterests(key)
	r.watches.News.TakeChange(key)
	r.compiler.Forget(uid)
	r.sender.CancelDeliveries(key)
	r.memories.ForgetCleaner(key)
	r.turns.LeaveLine(key)
	r.pool.LeaveSlot(key)
	r.metrics.ForgetCleaner(key)
	r.fields.ForgetCleaner(key)
}

func (r *CleanerReconciler) openPass(ctx context.Context, c v1alpha1.Owner, key types.NamespacedName, mem *memory) (*pass, error) {
	a, err := r.assignments().ReadAssignment(ctx, c)
	if err != nil {
		return nil, err
	}
	p := newPass(r, c, key, a, mem)
	if mem.journal.Unwritable {
		*p.store.Draft.State() = signedrecords.CopyRecord(p.store.Stored.State())
	}
	return p, nil
}

// clockTrust is how far the clock can be trusted.
func (r *CleanerReconciler) clockTrust() plan.Clock {
	return plan.Clock{Suspect: r.opts.Skew.DescribeSuspect(), Ahead: r.opts.Skew.ClockAhead()}
}

// planOwner is the Cleaner as plan sees it.
func (p *pass) planOwner() plan.Owner {
	return plan.Owner{Namespace: p.store.Draft.GetNamespace(), Name: p.store.Draft.GetName(), UID: p.store.Draft.GetUID(), Created: p.store.CreatedAt()}
}

// restUntil sleeps where only the Cleaner itself matters: until that time, and at least for the interval between two evaluations, other
// events do not wake it.
func (p *pass) restUntil(ctx context.Context, until time.Time, err error) (ctrl.Result, error) {
	result, err := p.sleepUntil(ctx, until, err)
	if j := p.mem.judged; j != nil && monotime.ElapsedTime(j.at, p.r.clock.Now().Add(result.RequeueAfter)) >= life.ConfirmationServes {
		p.mem.judged = nil // it keeps all that was read live, and is no longer of use
	}
	if err != nil || result.RequeueAfter <= conflictRetry {
		return result, err
	}
	now := p.r.clock.Now()
	p.mem.resting = resting{version: cmp.Or(p.mem.persisted.Written, p.store.Stored.GetResourceVersion()), until: monotime.ChooseEarlier(now.Add(p.r.opts.MinInterval), now.Add(result.RequeueAfter))}
	return result, nil
}

// findRest returns until when this Cleaner can ignore events, because a pass has just run and nothing that its run waits for has changed.
// It runs before the Cleaner is copied, because status.run can have thousands of rows.
func (r *CleanerReconciler) findRest(ctx context.Context, key types.NamespacedName, mem *memory) (until time.Time, _ bool) {
	if until = mem.resting.until; !r.clock.Now().Before(until) || len(mem.ended) > 0 || mem.underWay.HasAttempts() {
		return until, false
	}
	c, err := r.knownCleaner(ctx, key)
	if err != nil || c.GetUID() != mem.uid || c.GetResourceVersion() != mem.resting.version {
		return until, false
	}
	undelivered := life.UndeliveredRun(c.State())
	return until, undelivered == nil || !c.Common().HasSink() || !r.sender.GetDelivery(key, mem.uid, undelivered.Number).Delivered
}

// wakeTime returns when to reconcile again, at the latest at until; if until is zero, after retry.period.
func (p *pass) wakeTime(until, now time.Time) time.Time {
	if until.IsZero() {
		until = now.Add(p.retryPeriod())
		if p.r.opts.Skew.IsSuspect() {
			until = now.Add(life.ClockRetry)
		}
	}
	if at := p.store.Draft.State().NextScheduledEvaluation; at != nil && at.After(now) && at.Time.Before(until) {
		until = at.Time // what the status announces is kept
	}
	until = monotime.ChooseEarlier(until, p.triggers.NextCheck(now))
	if p.asksUninstalls {
		until = monotime.ChooseEarlier(until, p.mem.underWay.NextAttempt())
	}
	if latest := now.Add(reviewAtRest); until.After(latest) {
		until = latest // what its author may do is asked again
	}
	return until
}

// retryPeriod is retry.period.
func (p *pass) retryPeriod() time.Duration {
	period, err := p.assignment.Work.RetryPeriod()
	if err != nil {
		return v1alpha1.DefaultRetryPeriod
	}
	return period
}

// sleepUntil reports, and says when to come back. After a conflict, or when this process may no longer lead, it reports nothing.
func (p *pass) sleepUntil(ctx context.Context, until time.Time, err error) (ctrl.Result, error) {
	now := p.r.clock.Now()
	switch {
	case apierrors.IsConflict(err), errors.Is(err, cleanerstore.ErrNotOwner), errors.Is(err, cleanerstore.ErrOutdated):
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	case errors.Is(err, errNoMemory), errors.Is(context.Cause(ctx), memoryquota.ErrTurnOver):
		return ctrl.Result{RequeueAfter: memoryRetry}, nil
	case apierrors.IsNotFound(err): // it went while this pass was about it
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	case err != nil:
		p.newReport().SetFailed(err)
		_, reportErr := p.journal.SendReport(ctx, now)
		return ctrl.Result{}, errors.Join(err, client.IgnoreNotFound(reportErr))
	}
	until = p.wakeTime(until, now)
	reportMistakes(p)
	due, err := p.journal.SendReport(ctx, now)
	switch {
	case apierrors.IsConflict(err), errors.Is(err, cleanerstore.ErrNotOwner), errors.Is(err, cleanerstore.ErrOutdated):
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if due.After(now) && due.Before(until) {
		until = due
	}
	p.mem.due.ExpectAt(until)
	// A timer that fires early only causes one more evaluation. At least 1 ms, because RequeueAfter 0 means no requeue.
	return ctrl.Result{RequeueAfter: max(until.Sub(now), time.Millisecond)}, nil
}
