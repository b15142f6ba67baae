// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/signing"
)

const (
	// defaultHelmTimeout is helm.timeout where a spec gives none.
	defaultHelmTimeout = 5 * time.Minute
	// maxHelmWait is how long a try may occupy a place of the pool to wait for hooks to end and objects to go: the next try
	// goes on, after the others that wait for a place. It only looks, for laterHelmWait: so what hangs hardly takes a place.
	maxHelmWait   = 30 * time.Second
	laterHelmWait = time.Second
	// reviewServes is how long an uninstall may go on before it is asked again what its author may do.
	reviewServes = time.Minute
)

// errStale ends an uninstall that has waited too long for its place, or gone on for so long that it is to be asked again what
// its author may do. It is no failure: what it rests on is asked again, and so is the place.
var errStale = errors.New("the confirmation is too old")

// pool runs uninstalls, which may take minutes, away from the workers that reconcile.
type pool struct {
	slots chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	closed bool
	jobs   sync.WaitGroup // none is added when it is closed
}

func newPool(size int) *pool {
	return &pool{slots: make(chan struct{}, size), done: make(chan struct{})}
}

// Start waits until the manager stops, then for the jobs under way, which stop at their next request.
func (p *pool) Start(ctx context.Context) error {
	<-ctx.Done()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.done)
	p.jobs.Wait()
	return nil
}

// runJob runs a job when a slot is free. The job outlives the pass that asked for it, and ends with the pool, or early when
// stop is called. It is called even then, so that it can say how it ended.
func (p *pool) runJob(ctx context.Context, job func(context.Context)) (stop context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.jobs.Go(func() {
		defer cancel()
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		case <-ctx.Done():
		case <-p.done:
			return
		}
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			select {
			case <-p.done:
				cancel()
			case <-stop:
			}
		}()
		job(ctx)
	})
	return cancel
}

// uninstallJob uninstalls the release of one run.
type uninstallJob struct {
	r           *CleanerReconciler
	hands       *hands
	key         types.NamespacedName
	uid         types.UID
	run         int64
	decides     string
	want        helm.Committed
	start       bool
	confirmedAt time.Time
	// reviewedAt is when the author was found to be allowed to do it. Ring verifies who it is now.
	reviewedAt time.Time
	author     author.Author
	ring       signing.Ring
	ended      chan<- uninstallEnd
	log        logr.Logger
}

func (j *uninstallJob) uninstallRelease(ctx context.Context) (helm.Outcome, error) {
	if missing := j.hands.accountMissing(ctx, j.r.own.live); missing != "" {
		return helm.Outcome{}, errors.New(missing)
	}
	return j.hands.helm.Uninstall(ctx, j.want, &uninstallGuard{uninstallJob: j, ctx: ctx})
}

// doJob uninstalls, and says how that ended, even by a panic: the Cleaner waits for it.
func (j *uninstallJob) doJob(ctx context.Context) {
	end := uninstallEnd{run: j.run}
	if p := contain.CatchPanic(func() { end = j.carryOut(ctx) }); p != nil {
		end.why = shown.CleanText(p.Error())
	}
	j.ended <- end
	j.r.wake.Wake(j.key)
}

// carryOut uninstalls, and puts in words what came of it.
func (j *uninstallJob) carryOut(ctx context.Context) uninstallEnd {
	out, err := j.uninstallRelease(ctx)
	end := uninstallEnd{run: j.run, swept: out.State == helm.Done}
	for _, ref := range out.Created {
		end.actions = append(end.actions, v1alpha1.Action{
			Object: ref.String(), UID: string(ref.UID), Rule: "helm", Action: "helmUninstall", Time: atSecond(j.r.clock), Result: "created for a hook",
		})
	}
	for _, ref := range out.Deleted {
		end.actions = append(end.actions, v1alpha1.Action{
			Object: ref.String(), UID: string(ref.UID), Rule: "helm", Action: "helmUninstall", Time: atSecond(j.r.clock), Result: "deleted",
		})
	}
	for _, k := range out.Kept {
		end.actions = append(end.actions, v1alpha1.Action{
			Object: k.Ref.String(), UID: string(k.Ref.UID), Rule: "helm", Action: "helmUninstall", Time: atSecond(j.r.clock), Result: "kept: " + shown.CleanText(k.Because),
		})
	}
	switch {
	case errors.Is(err, errStale):
	case err != nil:
		end.why = shown.CleanText(err.Error())
	case out.State == helm.Upgraded:
		end.why = "the release was upgraded, or its record was rewritten"
	case out.State == helm.Pending:
		end.why = "the release is being installed, upgraded or rolled back"
	case out.State == helm.HookRunning:
		end.why = shown.CleanText(out.Hook + " has not ended yet")
	case out.State == helm.Terminating && len(out.Remaining) > 0:
		end.why = shown.CleanText(fmt.Sprintf("%d objects of the release are not gone yet, such as %s", len(out.Remaining), out.Remaining[0]))
	}
	return end
}

// uninstallGuard is asked before each request that changes something.
type uninstallGuard struct {
	*uninstallJob
	ctx context.Context
}

// MayStart is asked before the release is marked as uninstalling.
func (j *uninstallGuard) MayStart() error {
	if !j.start {
		return errors.New("the release does not bear the mark of this uninstall any more")
	}
	if plan.ElapsedTime(j.confirmedAt, j.r.clock.Now()) >= plan.ConfirmationServes {
		return errStale
	}
	c, err := j.knownCleaner()
	if err != nil {
		return err
	}
	now, err := j.r.assignmentOf(j.ctx, c)
	if err != nil {
		return err
	}
	decides, err := j.r.opts.fingerprintWork(now.work)
	switch {
	case err != nil:
		return err
	case c.GetDeletionTimestamp() != nil:
		return errors.New("the Cleaner was deleted")
	case decides != j.decides:
		return errors.New("the spec was edited")
	}
	return nil
}

// MayDelete is asked before each deletion in a release that is uninstalling.
func (j *uninstallGuard) MayDelete(ref plan.Ref) error { return j.mayFinish("delete", ref) }

// MayRunHook is asked before what hooks of a release that is uninstalling need is created.
func (j *uninstallGuard) MayRunHook(ref plan.Ref) error { return j.mayFinish("runHook", ref) }

// MayNote is asked before something is noted in the record of a release that is uninstalling.
func (j *uninstallGuard) MayNote(ref plan.Ref) error { return j.mayFinish("note", ref) }

// mayFinish is asked before each request that changes something of a release whose uninstall was begun: it is finished
// whatever the spec says now, but for nobody who was not asked about, not against a suspend, and after a deletion only for as
// long as the Cleaner is held.
func (j *uninstallGuard) mayFinish(verb string, ref plan.Ref) error {
	c, err := j.knownCleaner()
	if err != nil {
		return err
	}
	now := j.r.clock.Now()
	switch {
	case c.GetDeletionTimestamp() != nil && !now.Before(c.GetDeletionTimestamp().Add(j.r.opts.FinishGrace)):
		return errors.New("the Cleaner was deleted")
	case plan.ElapsedTime(j.reviewedAt, now) >= reviewServes:
		return errStale
	}
	if who, _ := author.Read(j.ring, c); !reflect.DeepEqual(who.Author, j.author) {
		return errStale
	}
	j.log.Info("Intent", "run", j.run, "rule", "helm", "verb", verb, "object", ref.String(), "uid", ref.UID, "resourceVersion", ref.ResourceVersion, "decides", j.decides)
	return nil
}

// knownCleaner is the Cleaner as the watch knows it, if its run may go on.
func (j *uninstallGuard) knownCleaner() (v1alpha1.Owner, error) {
	if !j.r.opts.Lease.Fresh() {
		return nil, errNotLeader
	}
	c, err := j.r.knownCleaner(j.ctx, j.key)
	if err != nil {
		return nil, err
	}
	switch {
	case c.GetUID() != j.uid:
		return nil, errors.New("the Cleaner is gone")
	case plan.IsHeld(c.Common()):
		return nil, errors.New("the Cleaner is suspended")
	case j.r.opts.Skew.IsSuspect():
		return nil, errors.New(j.r.suspectClock())
	}
	return c, nil
}
