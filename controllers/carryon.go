// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// carryOn does what plan.Next says, one request after the other, until there is nothing to do but to wait, or to
// evaluate. It returns that last request.
func (p *openRun) carryOn(ctx context.Context) (plan.Request, error) {
	p.mem.run.NewPass()
	p.takeUninstall(ctx)
	if p.mem.run.Busy && p.c.GetDeletionTimestamp() != nil && !p.r.clock.Now().Before(p.c.GetDeletionTimestamp().Add(p.r.opts.FinishGrace)) {
		p.mem.stopUninstall()
	}
	for {
		v, err := p.viewOfRun()
		if err != nil {
			return plan.Request{}, err
		}
		req := plan.Next(v, &p.mem.run)
		if req.Kind != plan.Idle && req.Kind != plan.Evaluate && v.Now.After(p.ends) {
			req = plan.Request{Kind: plan.Idle, Until: v.Now, Reason: v1alpha1.ReasonCleaning}
		}
		switch req.Kind {
		case plan.Evaluate:
			return req, nil
		case plan.Idle:
			runReport{p.newReport()}.setWaiting(req)
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

// viewOfRun is the Cleaner as plan.Next sees it. What is owed to the sink is handed to the sender on the way.
func (p *openRun) viewOfRun() (plan.View, error) {
	decides, err := p.mem.fingerprintWork(&p.assignment, &p.r.opts)
	if err != nil {
		return plan.View{}, err
	}
	v := plan.View{
		Cleaner: p.c, Helm: p.work.Helm, Decides: decides, Now: p.r.clock.Now(),
		SettleFor: p.r.opts.Settle, FinishGrace: p.r.opts.FinishGrace, ClockSuspect: p.r.opts.Skew.IsSuspect(),
	}
	if owed := p.handOver(); owed != nil {
		v.Delivered = p.r.sender.GetDelivery(p.key, p.c.GetUID(), owed.Number).Delivered
	}
	return v, nil
}

// handOver hands what is owed to the sink to the sender, and says what that is; nil if nothing is.
func (p *openRun) handOver() *v1alpha1.Run {
	if p.c.Common().CloudEventSink == "" {
		p.r.sender.CancelDeliveries(p.key)
		return nil
	}
	owed := plan.UndeliveredRun(p.c.State())
	if owed != nil {
		p.r.sender.QueueDelivery(p.key, p.cleanerRef(), sinkOf(p.c), owed)
	}
	return owed
}

// doRequest carries out one request, and gives the answer to the memory of the run.
func (p *openRun) doRequest(ctx context.Context, req plan.Request) error {
	m, run, now := &p.mem.run, p.c.State().Run, p.r.clock.Now()
	switch req.Kind {
	case plan.LookRows, plan.Settle:
		if run.Lifecycle == v1alpha1.LifecycleRecurring {
			return p.lookUnknown(ctx)
		}
		sights := p.lookRows(ctx, req.Rows)
		m.TakeSights(run, sights, p.r.clock.Now())
		if req.Kind == plan.Settle {
			m.TakeSettled(p.r.clock.Now())
		}
		return nil
	case plan.LookRelease:
		rel, err := p.hands.helm.ReadRelease(ctx, p.c.GetNamespace(), run.Helm.Name)
		if err != nil {
			m.ReleaseUnread(shown.CleanText(err.Error()), p.r.clock.Now())
			return nil
		}
		rel.Begun = isMark(p.ring, p.c, run, rel.Mark)
		m.LookedAtRelease(run, rel.Release, p.r.clock.Now())
		return nil
	case plan.Recheck:
		return p.recheckRun(ctx)
	case plan.ReviewAuthor:
		p.reviewUninstall(ctx)
		return nil
	case plan.Act:
		return p.actOnRows(ctx, req.Rows)
	case plan.StartUninstall, plan.FinishUninstall:
		return p.startUninstall(ctx, req.Kind == plan.StartUninstall)
	case plan.WriteResult:
		return p.recordResult(ctx, req)
	case plan.MoveToUnsent:
		return p.moveToUnsent(ctx, run)
	case plan.ClearUnsent:
		return p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Unsent = nil })
	case plan.ClearRecord:
		return p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run, s.Unsent = nil, nil })
	case plan.DeleteSelf:
		return p.deleteSelf(ctx)
	case plan.GiveUp:
		p.giveUp(ctx)
		return p.removeFinalizer(ctx)
	case plan.RemoveFinalizer:
		if run != nil && run.Result == v1alpha1.ResultAbandoned {
			p.tellFinished(run)
		}
		return p.removeFinalizer(ctx)
	default:
		return fmt.Errorf("cannot carry out %s at %s", req.Kind, now)
	}
}

// lookRows reads the objects of rows live.
func (p *openRun) lookRows(ctx context.Context, rows []int) map[int]plan.Sight {
	seen := make([]plan.Sight, len(rows))
	actuate.RunParallel(len(rows), func(n int) {
		row, err := plan.ParseRow(p.c.State().Run.Rows[rows[n]])
		if err != nil {
			seen[n] = plan.Sight{Failed: err.Error()}
			return
		}
		seen[n] = p.readRow(ctx, row)
	})
	sights := make(map[int]plan.Sight, len(rows))
	for n, i := range rows {
		sights[i] = seen[n]
	}
	return sights
}

// moveToUnsent makes room for another run: what is left of this one is its event. A run that counts is finished by that; another run of a
// Cleaner that cleans once begins after a pause.
func (p *openRun) moveToUnsent(ctx context.Context, run *v1alpha1.Run) error {
	counts := run.Lifecycle == v1alpha1.LifecycleRecurring
	finished := plan.FinishRun(run, &p.mem.run, "", "", p.r.clock.Now())
	err := p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) {
		s.Unsent, s.Run = nil, nil
		if p.c.Common().CloudEventSink != "" {
			s.Unsent = finished
		}
	})
	if err != nil {
		return err
	}
	if counts {
		p.mem.run = plan.Memory{}
		p.tellRun(ctx, finished)
		p.handOver() // nothing else may happen for long
		return nil
	}
	p.tellFinished(finished)
	p.mem.pauseReads(plan.Plan{
		Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPartial,
		Message: fmt.Sprintf("Run %d left objects behind; another run starts after a pause if the conditions are still true.", run.Number),
	}, &p.mem.rested, p.retryPeriod(), p.r.clock.Now())
	return nil
}

// readRow reads the object of a row live, and holds it against the spec.
func (p *openRun) readRow(ctx context.Context, row plan.Row) plan.Sight {
	q := snapshot.Query{
		Group: row.Resource.Group, Version: row.Resource.Version, Kind: row.Resource.Resource,
		Namespace: row.Namespace, Name: row.Name, Labels: labels.Everything(), Fields: fields.Everything(), MetadataOnly: true,
	}
	t := row.FindTarget(p.work)
	if t >= 0 && p.work.Targets[t].Reference.FieldSelector != "" {
		q.MetadataOnly = false
	}
	seen := p.hands.live.Read(ctx, q)
	switch {
	case seen.State != plan.Complete:
		return plan.Sight{Failed: seen.Detail}
	case len(seen.Objects) == 0:
		return plan.Sight{Missing: true}
	}
	o := &seen.Objects[0]
	belongs, trouble := p.findBelonging(ctx, t, o)
	if trouble != "" {
		return plan.Sight{Failed: trouble}
	}
	return plan.Sight{
		UID: o.UID, ResourceVersion: o.ResourceVersion, Terminating: o.Terminating, Finalizers: o.Finalizers,
		Refused: plan.RefuseRow(p.planOwner(), p.work, row, o, belongs, p.r.opts.newProtection()),
	}
}

// findBelonging says whether a target of the spec stands for an object, or why that cannot be said now.
func (p *openRun) findBelonging(ctx context.Context, target int, o *plan.Object) (b plan.Belonging, trouble string) {
	if target < 0 {
		return plan.Belonging{}, ""
	}
	t := &p.work.Targets[target]
	q, err := snapshot.NewQuery(p.c.GetNamespace(), t)
	if err != nil {
		return plan.Belonging{}, ""
	}
	served, state, _ := p.r.resolver.Resolve(ctx, q.Group, q.Version, q.Kind)
	if state != plan.Complete {
		return plan.Belonging{}, ""
	}
	var namespace *plan.Object
	if q.Namespaces.Labels != nil && o.Namespace != "" {
		seen := p.hands.live.Read(ctx, snapshot.NewNamespaceQuery(o.Namespace))
		if seen.State != plan.Complete {
			return plan.Belonging{}, seen.Detail
		}
		if len(seen.Objects) > 0 {
			namespace = &seen.Objects[0]
		}
	}
	return plan.Belonging{Resource: served.GVR, Matches: watches.QueryMatches(q, o, namespace)}, ""
}

// recordResult records the result of the run.
func (p *openRun) recordResult(ctx context.Context, req plan.Request) error {
	finished := plan.FinishRun(p.c.State().Run, &p.mem.run, req.Result, req.Message, p.r.clock.Now())
	if err := p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run = finished }); err != nil {
		return err
	}
	if finished.Lifecycle == v1alpha1.LifecycleRecurring {
		p.tellRun(ctx, finished)
		return nil
	}
	logf.FromContext(ctx).Info("Finished", "run", finished.Number, "result", finished.Result, "message", finished.Message)
	p.r.metrics.CountRun(string(finished.Result))
	p.tellTerminating(finished, p.mem.run.Rows)
	p.mem.run, p.mem.judged = plan.Memory{}, judged{}
	return nil
}

// deleteSelf deletes the Cleaner, at the version that was read.
func (p *openRun) deleteSelf(ctx context.Context) error {
	if !p.r.opts.Lease.Fresh() {
		return errNotLeader
	}
	finished := p.c.State().Run
	uid, version := p.read.GetUID(), p.read.GetResourceVersion()
	err := p.r.client.Delete(ctx, p.readMetadata(), client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return err
	}
	p.tellFinished(finished)
	return p.rereadCleaner(ctx)
}

// startUninstall hands the release of the run to the pool.
func (p *openRun) startUninstall(ctx context.Context, start bool) error {
	m, run, spec := &p.mem.run, p.c.State().Run, p.work.Helm
	mark, err := signMark(p.ring, p.c, run)
	if err != nil {
		return err
	}
	want := helm.Committed{
		Namespace: p.c.GetNamespace(), Name: run.Helm.Name, Revision: run.Helm.Revision, UID: types.UID(run.Helm.UID),
		FirstDeployed: run.Helm.FirstDeployed.Time, Digest: run.Helm.Digest, Mark: mark,
		Self: plan.Ref{Resource: v1alpha1.GroupVersion.WithResource("cleaners"), Namespace: p.c.GetNamespace(), Name: p.c.GetName(), UID: p.c.GetUID()},
	}
	if m.Release.Begun {
		want.Begun = m.Release.Mark
	}
	want.HookTimeout, want.DisableHooks, want.Rights = defaultHelmTimeout, p.disablesHooks(), m.Reviewed
	if spec != nil {
		if timeout, err := spec.Timeout.Parse(defaultHelmTimeout); err == nil {
			want.HookTimeout = timeout
		}
	}
	want.Timeout = min(want.HookTimeout, maxHelmWait)
	if !start && m.Failed != "" {
		want.Timeout = min(want.Timeout, laterHelmWait)
	}
	who, _ := author.Read(p.ring, p.read) // nobody, where none is known
	m.Busy = true
	job := &uninstallJob{r: p.r, hands: p.hands, key: p.key, uid: p.c.GetUID(), run: run.Number, decides: run.Decides, want: want, start: start, confirmedAt: m.ConfirmedAt, reviewedAt: m.ReviewedAt, author: who.Author, ring: p.ring, ended: p.mem.ended, log: logf.FromContext(ctx)}
	p.mem.stopUninstall = p.r.pool.runJob(ctx, job.doJob)
	return nil
}

// takeUninstall takes the end of an uninstall that the pool has carried out.
func (p *openRun) takeUninstall(ctx context.Context) {
	select {
	case end := <-p.mem.ended:
		if end.run != p.mem.run.Number {
			return
		}
		p.mem.run.TakeUninstall(end.why, p.r.clock.Now())
		p.mem.run.Swept = end.swept
		p.mem.rememberActions(p.read.State().LastActions, end.actions...)
		if end.why != "" {
			logf.FromContext(ctx).Info("Uninstall did not end", "run", end.run, "why", end.why)
		}
	default:
	}
}
