// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/passreads"
	"github.com/vtex/cleaner/controllers/internal/rehearsed"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/internal/statusreport"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// committer begins the run of a Once Cleaner.
type committer struct{ pass *pass }

// confirmAndCommit confirms a decision on live reads and commits it. It returns the decision to report: the one that live reads
// gave, or why they were not enough.
func (c *committer) confirmAndCommit(ctx context.Context, in plan.Input, watched plan.Plan) (reportedPlan, error) {
	if c.isPostponed(watched) {
		return c.pass.mem.paused, nil
	}
	giveBack := c.pass.evaluator.reserveSlot(ctx)
	defer giveBack()
	if err := c.readToCommit(ctx, &in); err != nil {
		return reportedPlan{watched}, err
	}
	obstacle := c.pass.authority.findObstacle(ctx, in.Release)
	in.Clock = c.pass.r.clockTrust() // these reads have measured it, whatever was read before
	live, agreed, inTime := watched, watched, !c.pass.isOver()
	if inTime {
		live, agreed = c.decideLive(ctx, in, watched)
	}
	giveBack()
	if err := checkMemory(c.pass.share); err != nil {
		return reportedPlan{live}, err
	}
	now := c.pass.r.clock.Now()
	if slow := !inTime || monotime.ElapsedTime(in.Now, now) >= life.ConfirmationServes; slow && !obstacle.IsRefusal() {
		obstacle = identity.Refusal{Reason: v1alpha1.ReasonUnconfirmed, Message: takesNoAction + passreads.SlowReads + "."}
	}
	if obstacle.IsRefusal() {
		live.Verdict, live.Reason, live.Message = v1alpha1.VerdictWait, obstacle.Reason, obstacle.Message
		return c.pass.mem.backOffReads(live, &c.pass.mem.disagreed, c.pass.retryPeriod(), now), nil
	}
	return c.commitAgreed(ctx, in, live, agreed)
}

// isPostponed says that nothing is read live for a decision now: reads wait, or all that would be done is rehearsed.
func (c *committer) isPostponed(watched plan.Plan) bool {
	if c.pass.r.clock.Now().Before(c.pass.mem.retryAt) {
		return true
	}
	if !c.pass.isDryRun() {
		return false
	}
	c.pass.mem.Rehearsed.ForgetOthers(rehearsed.MarkItems(watched))
	again := c.pass.mem.Rehearsed.NextAttempt()
	due := !again.IsZero() && !c.pass.r.clock.Now().Before(again)
	if due || c.pass.mem.paused.Reason != v1alpha1.ReasonDryRun || len(c.pass.mem.Rehearsed) != len(watched.ListItems()) {
		return false
	}
	c.pass.mem.paused.Next, c.pass.mem.paused.NextCheck = monotime.ChooseEarlier(watched.Next, again), watched.NextCheck
	return true
}

// readToCommit reads live all that a run depends on.
func (c *committer) readToCommit(ctx context.Context, in *plan.Input) (err error) {
	if err := releaseOf(c.pass).loadRelease(ctx); err != nil {
		return err
	}
	in.Now = c.pass.r.clock.Now() // before the reads: a confirmation is as old as the oldest of them
	live := c.pass.reads.MeterLive(c.pass.clients.Live, endOfPass(c.pass))
	in.Snapshot = live.ChargeSeen(c.pass.assignment.Work, snapshot.ReadForConfirmation(ctx, live, c.pass.store.Draft.GetNamespace(), c.pass.assignment.Work, in.Programs.FindReadings()))
	if err := checkMemory(c.pass.share); err != nil {
		return err
	}
	if in.Release, err = releaseOf(c.pass).readWanted(ctx); err != nil {
		return err
	}
	if in.Release != nil {
		in.Release.Detail = sanitize.CleanText(in.Release.Detail)
	}
	return nil
}

// commitAgreed commits what live reads and the watches want, or says what that waits for. In a dry run it asks the API server about it.
func (c *committer) commitAgreed(ctx context.Context, in plan.Input, live, agreed plan.Plan) (reportedPlan, error) {
	now := c.pass.r.clock.Now()
	switch {
	case life.WaitsForObjects(&live): // it may be by those of others that come and go
		c.pass.mem.Awaited.ForgetComparisons()
		return c.pass.mem.postponeReads(live, min(c.pass.mem.Awaited.NextPause(), c.pass.retryPeriod()), now), nil
	case live.Verdict != v1alpha1.VerdictAct:
		return c.pass.mem.backOffReads(live, &c.pass.mem.disagreed, c.pass.retryPeriod(), now), nil
	case agreed.Verdict != v1alpha1.VerdictAct, c.pass.mem.Awaited.CompareReads(live, agreed):
		live.Verdict, live.Reason, live.Message = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, "According to the watches, all conditions are true, but reads from the API server have not confirmed that yet."
		return c.pass.mem.postponeReads(live, min(c.pass.mem.Awaited.NextPause(), c.pass.retryPeriod()), now), nil
	case c.pass.isDryRun():
		marks := rehearsed.MarkItems(agreed)
		c.pass.mem.Rehearsed.ForgetOthers(marks)
		(&executor{pass: c.pass, in: in}).rehearseSteps(ctx, c.pass.mem.Rehearsed.LeaveOut(agreed, now).Steps, marks)
		c.pass.mem.paused = reportedPlan{c.pass.mem.Rehearsed.DescribeIn(agreed, c.pass.mem.refusal)}
		if len(agreed.Steps) < len(live.Steps) { // it is not asked about the others each time that one comes
			c.pass.mem.postponeReads(c.pass.mem.paused.Plan, min(c.pass.mem.Awaited.NextPause(), c.pass.retryPeriod()), now)
		}
		return c.pass.mem.paused, nil
	}
	return reportedPlan{agreed}, c.commitRun(ctx, in, agreed)
}

// decideLive decides on live reads, and says what of it the watches want too.
func (c *committer) decideLive(ctx context.Context, in plan.Input, watched plan.Plan) (live, agreed plan.Plan) {
	live = c.pass.evaluator.computePlan(ctx, in)
	return live, plan.AgreePlans(watched, live, func(only map[plan.ItemKey]bool) plan.Plan {
		some := in
		some.Only = only
		return c.pass.evaluator.computePlan(ctx, some)
	})
}

// commitRun records the run before anything of it is done: the finalizer first, then the rows, each at the version of the
// Cleaner that was decided on.
func (c *committer) commitRun(ctx context.Context, in plan.Input, d plan.Plan) error {
	fingerprint, err := c.pass.mem.fingerprintWork(&c.pass.assignment, &c.pass.r.opts)
	if err != nil {
		return err
	}
	faults.PassPoint("decided")
	if !controllerutil.ContainsFinalizer(c.pass.store.Stored, v1alpha1.Finalizer) {
		err := c.pass.store.WriteMetadata(ctx, func(owner v1alpha1.Owner) { controllerutil.AddFinalizer(owner, v1alpha1.Finalizer) })
		if err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	faults.PassPoint("held by the finalizer")
	run, remembered, todo := life.CommitRun(c.pass.store.Stored.State(), in, fingerprint, d)
	run.ServiceAccountName = c.pass.clients.Account.RecordedName(c.pass.store.Draft)
	err = c.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) {
		s.Run, s.Runs = run, run.Number
		if at := c.pass.store.RequestedAt(); at != "" { // else each restart would answer it again
			s.LastRequestedAt = at
		}
	})
	if err != nil {
		return err
	}
	faults.PassPoint("committed")
	c.pass.mem.run, c.pass.mem.judged = *remembered, &judged{at: remembered.ConfirmedAt, in: plan.DropValues(in), todo: todo}
	c.pass.mem.disagreed, c.pass.mem.Awaited = 0, life.Awaited{}
	c.pass.committed = true
	c.pass.evaluator.dropInterests() // from here on everything is read live
	c.pass.reportEvaluated(in, reportedPlan{d})
	logf.FromContext(ctx).Info("Committed", "run", run.Number, "objects", len(run.Rows), "release", statusreport.ReleaseName(run), "withheld", len(run.Withheld))
	return nil
}

// readingLimit is how long it may take to read a release, without the wait for a slot: later it justifies nothing.
const readingLimit = life.ConfirmationServes

// releaseReader reads the release of a Cleaner, in slots that Cleaners share.
type releaseReader struct{ pass *pass }

func releaseOf(p *pass) releaseReader { return releaseReader{p} }

// takeReadSlot waits for the slot in which a record of a release is read: that is not the pass's own time.
func (r releaseReader) takeReadSlot(ctx context.Context) (leave func(), err error) {
	began := r.pass.r.clock.Now()
	defer func() { r.pass.waited += r.pass.r.clock.Since(began) }()
	return r.pass.r.readings.TurnOf(r.pass.store.Key)(ctx)
}

// wantsRelease says that the spec wants a release uninstalled.
func (r releaseReader) wantsRelease() bool {
	return r.pass.assignment.Work.Helm != nil && r.pass.assignment.Work.Helm.Delete
}

// loadRelease decodes the record of the release in spec.helm into a cache, which can take long. Afterwards readWanted is fast enough for
// a confirmation.
func (r releaseReader) loadRelease(ctx context.Context) error {
	if !r.wantsRelease() {
		return nil
	}
	return r.readUnlessChanged(ctx, func(ctx context.Context, slot helm.ReadSlot) {
		r.pass.clients.Helm.LoadRelease(ctx, slot, r.pass.store.Draft.GetNamespace(), r.pass.assignment.Work.Helm.Release)
	})
}

// readWanted reads the release that the spec wants uninstalled; nil if there is none.
func (r releaseReader) readWanted(ctx context.Context) (rel *observed.Release, err error) {
	if !r.wantsRelease() {
		return nil, nil
	}
	err = r.readUnlessChanged(ctx, func(ctx context.Context, slot helm.ReadSlot) {
		rel = r.pass.clients.Helm.ReadWanted(ctx, slot, r.pass.store.Draft.GetNamespace(), r.pass.assignment.Work.Helm)
	})
	return rel, err
}

// readCommitted reads the release of the open run. Why it cannot be read is unread.
func (r releaseReader) readCommitted(ctx context.Context, name string) (rel helm.Release, unread, err error) {
	err = r.readUnlessChanged(ctx, func(ctx context.Context, slot helm.ReadSlot) {
		rel, unread = r.pass.clients.Helm.ReadRelease(ctx, slot, r.pass.store.Draft.GetNamespace(), name)
	})
	return rel, unread, err
}

// lookAtRelease reads the release of the open run, and records its state.
func (r releaseReader) lookAtRelease(ctx context.Context) error {
	p, run := r.pass, r.pass.store.Draft.State().Run
	rel, unread, err := r.readCommitted(ctx, run.Helm.Name)
	if err != nil {
		return err
	}
	if unread != nil {
		p.mem.run.RecordReleaseUnread(sanitize.CleanText(unread.Error()), p.r.clock.Now())
		return nil
	}
	rel.Begun = signedrecords.IsMark(p.store.Ring, p.store.Draft, run, rel.Mark)
	p.mem.run.RecordRelease(run, rel.Release, p.r.clock.Now())
	return nil
}

// readUnlessChanged reads something within its time, and stops when the Cleaner is changed or deleted: then nothing that was read counts.
func (r releaseReader) readUnlessChanged(ctx context.Context, read func(context.Context, helm.ReadSlot)) error {
	following, end := followCleaner(ctx, r.pass)
	defer end()
	limited, slot, stop := helm.LimitTime(following, r.pass.r.clock, readingLimit, r.takeReadSlot)
	defer stop()
	read(limited, slot)
	if following.Err() != nil && ctx.Err() == nil {
		return cleanerstore.ErrOutdated
	}
	return nil
}
