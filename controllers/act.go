// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// slowReads says why live reads justified nothing.
const slowReads = "the live reads took too long to act on them: there are too many objects, or the API server is too slow"

// confirmAndCommit confirms a decision on live reads and commits it. It returns the decision to report: the one that live reads
// gave, or why they were not enough.
func (p *pass) confirmAndCommit(ctx context.Context, in plan.Input, watched plan.Plan) (plan.Plan, error) {
	if p.r.clock.Now().Before(p.mem.retryAt) {
		return p.mem.held, nil
	}
	if p.isDryRun() {
		p.mem.rehearsed.forgetOthers(watched.MarkItems())
		if p.mem.held.Reason == v1alpha1.ReasonDryRun && len(p.mem.rehearsed) == len(watched.ListItems()) {
			p.mem.held.Next, p.mem.held.Look = watched.Next, watched.Look
			return p.mem.held, nil
		}
	}
	in.Now = p.r.clock.Now() // before the reads: a confirmation is as old as the oldest of them
	in.Snapshot = snapshot.ReadForConfirmation(ctx, p.hands.live, p.c.GetNamespace(), p.work)
	if in.Release = p.hands.helm.ReadWanted(ctx, p.c.GetNamespace(), p.work.Helm); in.Release != nil {
		in.Release.Detail = shown.CleanText(in.Release.Detail)
	}
	refusal, leaves := p.findRefusal(ctx, in.Release), p.namespaceLeaves(ctx)
	in.Clock = p.r.clockTrust() // these reads have measured it, whatever was read before
	live := p.computePlan(ctx, in)
	if err := checkTurn(p.share); err != nil {
		return live, err
	}
	now := p.r.clock.Now()
	switch {
	case refusal.isRefusal():
		live.Verdict, live.Reason, live.Message = v1alpha1.VerdictWait, refusal.reason, "Nothing is deleted: "+refusal.message
		return p.mem.pauseReads(live, &p.mem.disagreed, p.retryPeriod(), now), nil
	case leaves:
		live.Verdict, live.Reason = v1alpha1.VerdictWait, v1alpha1.ReasonNamespaceTerminating
		live.Message = p.leavingMessage()
		return p.mem.pauseReads(live, &p.mem.disagreed, p.retryPeriod(), now), nil
	case plan.ElapsedTime(in.Now, now) >= plan.ConfirmationServes:
		live.Verdict, live.Reason, live.Message = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, "Nothing is deleted: "+slowReads+"."
		return p.mem.pauseReads(live, &p.mem.disagreed, p.retryPeriod(), now), nil
	case live.Verdict == v1alpha1.VerdictAct && !plan.WantTheSame(watched, live):
		live.Verdict, live.Reason, live.Message = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, "The conditions are true, but live reads have not confirmed it yet."
		return p.mem.pauseReads(live, &p.mem.disagreed, p.retryPeriod(), now), nil
	case live.Verdict != v1alpha1.VerdictAct:
		return p.mem.pauseReads(live, &p.mem.disagreed, p.retryPeriod(), now), nil
	case p.isDryRun():
		p.mem.rehearsed.forgetOthers(live.MarkItems())
		(&deeds{openRun: p.openRun, in: in}).rehearseSteps(ctx, p.mem.rehearsed.leaveOutRehearsed(live).Steps)
		maps.Copy(p.mem.rehearsed, live.MarkItems())
		p.mem.held = p.describeRehearsal(live)
		return p.mem.held, nil
	}
	return live, p.commitRun(ctx, in, live)
}

// retryPeriod is retry.period.
func (p *sight) retryPeriod() time.Duration {
	period, err := plan.EvaluationPeriod(p.work)
	if err != nil {
		return plan.DefaultPeriod
	}
	return period
}

// namespaceLeaves says that the Cleaner's namespace is being deleted, or that nobody knows: what goes missing then proves
// nothing.
func (p *authority) namespaceLeaves(ctx context.Context) bool {
	if p.work.Cluster {
		return false
	}
	ns := p.r.own.live.Read(ctx, objectQuery("Namespace", "", p.c.GetNamespace()))
	return ns.State != plan.Complete || len(ns.Objects) == 0 || ns.Objects[0].Terminating
}

// leavingMessage says so in words.
func (p *authority) leavingMessage() string {
	return fmt.Sprintf("Namespace %q is being deleted or cannot be read: no cleanup is started in it.", p.c.GetNamespace())
}

// commitRun records the run before anything of it is done: the finalizer first, then the rows, each at the version of the
// Cleaner that was decided on.
func (p *pass) commitRun(ctx context.Context, in plan.Input, d plan.Plan) error {
	decides, err := p.mem.fingerprintWork(&p.assignment, &p.r.opts)
	if err != nil {
		return err
	}
	faults.PassPoint("decided")
	if !controllerutil.ContainsFinalizer(p.read, v1alpha1.Finalizer) {
		err := p.writeMetadata(ctx, func(c v1alpha1.Owner) { controllerutil.AddFinalizer(c, v1alpha1.Finalizer) })
		if err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	faults.PassPoint("held by the finalizer")
	run, remembered, todo := plan.CommitRun(p.read.State(), in, decides, d)
	run.ServiceAccountName = accountName(p.c, p.hands.account)
	err = p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) {
		s.Run, s.Runs = run, run.Number
		if at := p.requestedAt(); at != "" { // else each restart would answer it again
			s.LastRequestedAt = at
		}
	})
	if err != nil {
		return err
	}
	faults.PassPoint("committed")
	p.mem.run, p.mem.judged = *remembered, judged{at: remembered.ConfirmedAt, in: in, todo: todo}
	p.mem.disagreed = 0
	p.committed = true
	p.dropInterests() // from here on everything is read live
	p.newReport().setEvaluated(in, d)
	logf.FromContext(ctx).Info("Committed", "run", run.Number, "objects", len(run.Rows), "release", releaseName(run), "withheld", len(run.Withheld))
	return nil
}

func andRelease(rel *plan.Release) string {
	if rel == nil {
		return ""
	}
	return fmt.Sprintf(" and release %q uninstalled", rel.Name)
}

func releaseName(run *v1alpha1.Run) string {
	if run.Helm == nil {
		return ""
	}
	return run.Helm.Name
}
