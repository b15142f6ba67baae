// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/rowreader"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/internal/uninstalls"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// openRun continues an open run, and delivers the event of a finished one.
type openRun struct{ *pass }

// carryOn does what life.Next says, one request after the other, until there is nothing to do but to wait, or to
// evaluate. It returns that last request.
func (p *openRun) carryOn(ctx context.Context) (req life.Request, err error) {
	defer func() { p.inLine = req.InLine }()
	p.mem.run.NewPass()
	p.receiveUninstall(ctx)
	if p.mem.run.Busy && p.store.Cleaner.GetDeletionTimestamp() != nil && !p.r.clock.Now().Before(p.store.Cleaner.GetDeletionTimestamp().Add(p.r.opts.FinishGrace)) {
		p.mem.stopUninstall()
	}
	for {
		v, err := p.viewOfRun()
		if err != nil {
			return life.Request{}, err
		}
		v.Delivered = p.queueDelivery()
		req = life.Next(v, &p.mem.run)
		if req.Kind != life.Idle && req.Kind != life.Evaluate && p.isOver() {
			req = life.Request{Kind: life.Idle, Until: v.Now, Reason: v1alpha1.ReasonCleaning}
		}
		switch req.Kind {
		case life.Evaluate:
			return req, nil
		case life.Idle:
			p.newReport().SetWaiting(req)
			return req, nil
		}
		logf.FromContext(ctx).V(4).Info("Next", "request", req.Kind.String(), "rows", len(req.Rows))
		faults.PassBefore(req.Kind)
		if err := p.doRequest(ctx, req); err != nil {
			return req, err
		}
		faults.PassAfter(req.Kind)
	}
}

// viewOfRun is the Cleaner as life.Next sees it, without whether its event was delivered.
func (p *openRun) viewOfRun() (life.View, error) {
	decides, err := p.mem.fingerprintWork(&p.assignment, &p.r.opts)
	if err != nil {
		return life.View{}, err
	}
	return life.View{
		Cleaner: p.store.Cleaner, Helm: p.assignment.Work.Helm, Decides: decides, Now: p.r.clock.Now(),
		SettleFor: p.r.opts.Settle, FinishGrace: p.r.opts.FinishGrace, ClockSuspect: p.r.opts.Skew.IsSuspect(), Slot: p.r.pool.FindSlot(p.store.Key),
	}, nil
}

// queueDelivery hands the event of the undelivered run to the sender, if there is one, and reports whether the sink has accepted it.
func (p *openRun) queueDelivery() (delivered bool) {
	if p.store.Cleaner.Common().CloudEventSink == "" {
		p.r.sender.CancelDeliveries(p.store.Key)
		return false
	}
	run := life.UndeliveredRun(p.store.Cleaner.State())
	if run == nil {
		return false
	}
	p.r.sender.QueueDelivery(p.store.Key, outbox.RefOf(p.store.Cleaner), outbox.SinkOf(p.store.Cleaner), run)
	return p.r.sender.GetDelivery(p.store.Key, p.store.Cleaner.GetUID(), run.Number).Delivered
}

// doRequest carries out one request of life.Next and records its result in the memory of the run.
func (p *openRun) doRequest(ctx context.Context, req life.Request) error {
	switch req.Kind {
	case life.LookRows, life.Settle:
		return p.updateRows(ctx, req)
	case life.LookRelease:
		return releaseOf(p.pass).lookAtRelease(ctx)
	case life.Recheck:
		return p.recheckRun(ctx)
	case life.ReviewAuthor:
		p.authority.reviewUninstall(ctx)
		return nil
	case life.Act:
		return p.actOnRows(ctx, req.Rows)
	case life.AskSlot:
		p.r.pool.AskSlot(p.store.Key)
		return nil
	case life.StartUninstall, life.FinishUninstall:
		return p.startUninstall(ctx, req.Kind == life.StartUninstall)
	default:
		return p.endRun(ctx, req)
	}
}

// endRun carries out the requests after the last action of a run: they record its result, and decide whether the Cleaner stays.
func (p *openRun) endRun(ctx context.Context, req life.Request) error {
	run := p.store.Cleaner.State().Run
	switch req.Kind {
	case life.WriteResult:
		return p.recordResult(ctx, req)
	case life.MoveToUnsent:
		return p.moveToUnsent(ctx, run)
	case life.ClearUnsent:
		return p.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Unsent = nil })
	case life.ClearRecord:
		return p.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run, s.Unsent = nil, nil })
	case life.DeleteSelf:
		return p.deleteSelf(ctx)
	case life.GiveUp:
		p.journal.GiveUp(ctx)
		return p.store.RemoveFinalizer(ctx)
	case life.RemoveFinalizer:
		if run != nil && run.Result == v1alpha1.ResultAbandoned {
			p.journal.TellFinished(run)
		}
		return p.store.RemoveFinalizer(ctx)
	default:
		return fmt.Errorf("cannot carry out %s", req.Kind)
	}
}

// updateRows records what became of the objects of rows.
func (p *openRun) updateRows(ctx context.Context, req life.Request) error {
	m, run := &p.mem.run, p.store.Cleaner.State().Run
	if run.Lifecycle == v1alpha1.LifecycleRecurring {
		return p.lookUnknown(ctx)
	}
	sights := p.lookRows(ctx, req.Rows)
	m.RecordSights(run, sights, p.r.clock.Now())
	if req.Kind == life.Settle {
		m.RecordSettleLook(p.r.clock.Now())
	}
	return nil
}

// lookRows reads the objects of rows live.
func (p *openRun) lookRows(ctx context.Context, which []int) map[int]life.Sight {
	reader := &rowreader.Reader{
		Live: p.clients.Live, Resolver: p.r.resolver, Owner: p.planOwner(), Work: p.assignment.Work, Protection: p.r.opts.newProtection(),
	}
	return reader.LookRows(ctx, p.store.Cleaner.State().Run.Rows, which)
}

// moveToUnsent makes room for another run: only the event of this one is left. This is the end of a Recurring run. After a Once run, the
// next one begins after a pause.
func (p *openRun) moveToUnsent(ctx context.Context, run *v1alpha1.Run) error {
	counts := run.Lifecycle == v1alpha1.LifecycleRecurring
	finished := life.FinishRun(run, &p.mem.run, "", "", p.r.clock.Now())
	err := p.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) {
		s.Unsent, s.Run = nil, nil
		if p.store.Cleaner.Common().CloudEventSink != "" {
			s.Unsent = finished
		}
	})
	if err != nil {
		return err
	}
	if counts {
		p.mem.run = life.Memory{}
		p.journal.TellRun(ctx, finished)
		p.queueDelivery() // nothing else may happen for long
		return nil
	}
	p.journal.TellFinished(finished)
	p.mem.backOffReads(plan.Plan{
		Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPartial,
		Message: fmt.Sprintf("Run %d left objects behind; another run starts after a pause if the conditions are still true.", run.Number),
	}, &p.mem.afterPartial, p.retryPeriod(), p.r.clock.Now())
	return nil
}

// recordResult records the result of the run.
func (p *openRun) recordResult(ctx context.Context, req life.Request) error {
	finished := life.FinishRun(p.store.Cleaner.State().Run, &p.mem.run, req.Result, req.Message, p.r.clock.Now())
	if err := p.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run = finished }); err != nil {
		return err
	}
	if finished.Lifecycle == v1alpha1.LifecycleRecurring {
		p.journal.TellRun(ctx, finished)
		return nil
	}
	logf.FromContext(ctx).Info("Finished", "run", finished.Number, "result", finished.Result, "message", finished.Message)
	p.r.metrics.CountRun(string(finished.Result))
	p.journal.TellTerminating(finished, p.mem.run.Rows)
	p.mem.run, p.mem.judged = life.Memory{}, judged{}
	return nil
}

// deleteSelf deletes the Cleaner, at the version that was read.
func (p *openRun) deleteSelf(ctx context.Context) error {
	if !p.r.opts.Lease.Fresh() {
		return cleanerstore.ErrNotLeader
	}
	finished := p.store.Cleaner.State().Run
	uid, version := p.store.Read.GetUID(), p.store.Read.GetResourceVersion()
	err := p.r.client.Delete(ctx, p.store.ReadMetadata(), client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return err
	}
	p.journal.TellFinished(finished)
	return p.store.RereadCleaner(ctx)
}

// startUninstall hands the release of the run to the pool.
func (p *openRun) startUninstall(ctx context.Context, start bool) error {
	m, run, spec := &p.mem.run, p.store.Cleaner.State().Run, p.assignment.Work.Helm
	mark, err := signedrecords.SignMark(p.store.Ring, p.store.Cleaner, run)
	if err != nil {
		return err
	}
	want := helm.UninstallRequest{
		Namespace: p.store.Cleaner.GetNamespace(), Name: run.Helm.Name, Revision: run.Helm.Revision, UID: types.UID(run.Helm.UID),
		FirstDeployed: run.Helm.FirstDeployed.Time, Digest: run.Helm.Digest, Mark: mark,
		Self: plan.Ref{Resource: v1alpha1.GroupVersion.WithResource("cleaners"), Namespace: p.store.Cleaner.GetNamespace(), Name: p.store.Cleaner.GetName(), UID: p.store.Cleaner.GetUID()},
	}
	if m.Release.Begun {
		want.Begun = m.Release.Mark
	}
	want.DisableHooks, want.Rights = p.authority.disablesHooks(), m.Reviewed
	uninstalls.SetTimeouts(&want, spec, !start && m.Failed != "")
	who, _ := author.Read(p.store.Ring, p.store.Read) // the zero value if no author is known
	m.Busy = true
	job := &uninstalls.Job{
		Environment: p.r.newEnvironment(), Clients: p.clients, Key: p.store.Key, UID: p.store.Cleaner.GetUID(), Run: run.Number, Decides: run.Decides, Want: want, ReadSlot: p.r.readings.TurnOf(p.store.Key), Start: start,
		ConfirmedAt: m.ConfirmedAt, ReviewedAt: m.ReviewedAt, Author: who.Author, Ring: p.store.Ring, Ended: p.mem.ended, Log: logf.FromContext(ctx),
	}
	p.mem.stopUninstall = p.r.pool.RunJob(ctx, p.store.Key, job.Do)
	return nil
}

// newEnvironment is what uninstalls ask about and tell.
func (r *CleanerReconciler) newEnvironment() uninstalls.Environment {
	return uninstalls.Environment{
		Own: r.own, Clock: r.clock, Lease: r.opts.Lease, FinishGrace: r.opts.FinishGrace, FindCleaner: r.knownCleaner, SuspectClock: r.opts.Skew.DescribeSuspect, Wake: r.wake.Wake,
		Fingerprint: r.fingerprintOf,
	}
}

// receiveUninstall records the end of an uninstall in the pool.
func (p *openRun) receiveUninstall(ctx context.Context) {
	select {
	case end := <-p.mem.ended:
		if end.Run != p.mem.run.Number {
			return
		}
		p.mem.run.RecordUninstall(end.Why, p.r.clock.Now())
		p.mem.run.Uninstalled = end.Swept
		p.journal.RememberActions(end.Actions...)
		if end.Why != "" {
			logf.FromContext(ctx).Info("Uninstall did not end", "run", end.Run, "why", end.Why)
		}
	default:
	}
}
