// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/internal/liverows"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/passreads"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/internal/timergaps"
	"github.com/vtex/cleaner/controllers/internal/uninstalls"
	"github.com/vtex/cleaner/controllers/liveconfirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
	"github.com/vtex/cleaner/controllers/shards"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// openRun continues an open run, and delivers the event of a finished one.
type openRun struct{ pass *pass }

// carryOn does what life.Next says, one request after the other, until there is nothing to do but to wait, or to
// evaluate. It returns that last request.
func (o *openRun) carryOn(ctx context.Context) (req life.Request, err error) {
	defer func() { o.pass.inLine = req.InLine }()
	o.pass.mem.run.NewPass()
	o.receiveUninstall(ctx)
	if o.pass.mem.run.Busy && o.pass.store.Draft.GetDeletionTimestamp() != nil && !o.pass.r.clock.Now().Before(o.pass.store.Draft.GetDeletionTimestamp().Add(o.pass.r.opts.FinishGrace)) {
		o.pass.mem.stopUninstall()
	}
	for {
		v, err := o.viewOfRun()
		if err != nil {
			return life.Request{}, err
		}
		v.Delivered = o.queueDelivery()
		req = life.Next(v, &o.pass.mem.run)
		if req.Kind != life.Idle && req.Kind != life.Evaluate && o.pass.isOver() {
			req = life.Request{Kind: life.Idle, Until: v.Now, Reason: v1alpha1.ReasonCleaning}
		}
		switch req.Kind {
		case life.Evaluate:
			return req, nil
		case life.Idle:
			o.pass.newReport().SetWaiting(req)
			return req, nil
		case life.OpenAgain:
			o.pass.mem.run.OpenAgain(req.Rows)
			continue
		}
		logf.FromContext(ctx).V(4).Info("Next", "request", req.Kind.String(), "rows", len(req.Rows))
		faults.PassBefore(req.Kind)
		if err := o.doRequest(ctx, req); err != nil {
			return req, err
		}
		faults.PassAfter(req.Kind)
	}
}

// viewOfRun is the Cleaner as life.Next sees it, without whether its event was delivered.
func (o *openRun) viewOfRun() (life.View, error) {
	decides, err := o.pass.mem.fingerprintWork(&o.pass.assignment, &o.pass.r.opts)
	if err != nil {
		return life.View{}, err
	}
	return life.View{
		Cleaner: o.pass.store.Draft, Helm: o.pass.assignment.Work.Helm, Decides: decides, Now: o.pass.r.clock.Now(),
		SettleFor: o.pass.r.opts.Settle, FinishGrace: o.pass.r.opts.FinishGrace, ClockSuspect: o.pass.r.opts.Skew.IsSuspect(), Slot: o.pass.r.pool.FindSlot(o.pass.store.Key),
	}, nil
}

// queueDelivery hands the event of the undelivered run to the sender, if there is one, and reports whether the sink has accepted it.
func (o *openRun) queueDelivery() (delivered bool) {
	if !o.pass.store.Draft.Common().HasSink() {
		o.pass.r.sender.CancelDeliveries(o.pass.store.Key)
		return false
	}
	run := life.UndeliveredRun(o.pass.store.Draft.State())
	if run == nil {
		return false
	}
	o.pass.r.sender.QueueDelivery(o.pass.store.Key, outbox.RefOf(o.pass.store.Draft), outbox.SinkOf(o.pass.store.Draft), run)
	return o.pass.r.sender.GetDelivery(o.pass.store.Key, o.pass.store.Draft.GetUID(), run.Number).Delivered
}

// doRequest carries out one request of life.Next and records its result in the memory of the run.
func (o *openRun) doRequest(ctx context.Context, req life.Request) error {
	switch req.Kind {
	case life.LookRows, life.Settle:
		return o.updateRows(ctx, req)
	case life.LookRelease:
		return releaseOf(o.pass).lookAtRelease(ctx)
	case life.Recheck:
		return o.recheckRun(ctx)
	case life.ReviewAuthor:
		o.pass.authority.reviewUninstall(ctx)
		return nil
	case life.Act:
		return o.actOnRows(ctx, req.Rows)
	case life.AskSlot:
		o.pass.r.pool.AskSlot(o.pass.store.Key)
		return nil
	case life.StartUninstall, life.FinishUninstall:
		return o.startUninstall(ctx, req.Kind == life.StartUninstall)
	default:
		return o.endRun(ctx, req)
	}
}

// endRun carries out the requests after the last action of a run: they record its result, and decide whether the Cleaner stays.
func (o *openRun) endRun(ctx context.Context, req life.Request) error {
	run := o.pass.store.Draft.State().Run
	switch req.Kind {
	case life.WriteResult:
		return o.recordResult(ctx, req)
	case life.MoveToUnsent:
		return o.moveToUnsent(ctx, run)
	case life.ClearUnsent:
		return o.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Unsent = nil })
	case life.ClearRecord:
		return o.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run, s.Unsent = nil, nil })
	case life.DeleteSelf:
		return o.deleteSelf(ctx)
	case life.GiveUp:
		o.pass.journal.GiveUp(ctx)
		return o.pass.store.RemoveFinalizer(ctx)
	case life.RemoveFinalizer:
		if run != nil && run.Result == v1alpha1.ResultAbandoned {
			o.pass.journal.TellFinished(run)
		}
		return o.pass.store.RemoveFinalizer(ctx)
	default:
		return fmt.Errorf("cannot carry out %s", req.Kind)
	}
}

// updateRows records what became of the objects of rows.
func (o *openRun) updateRows(ctx context.Context, req life.Request) error {
	m, run := &o.pass.mem.run, o.pass.store.Draft.State().Run
	if run.Lifecycle == v1alpha1.LifecycleRecurring {
		return o.lookUnknown(ctx)
	}
	sights := o.lookRows(ctx, req.Rows)
	m.RecordSights(run, sights, o.pass.r.clock.Now())
	if req.Kind == life.Settle {
		m.RecordSettleLook(o.pass.r.clock.Now())
	}
	return nil
}

// lookUnknown reads the objects of rows with an unknown outcome. What cannot be read is tried again by other passes, for a while.
func (o *openRun) lookUnknown(ctx context.Context) error {
	run := o.pass.store.Draft.State().Run
	rows := o.pass.mem.run.UnknownRows(run)
	if len(rows) == 0 {
		return nil
	}
	sights := o.lookRows(ctx, rows)
	o.pass.mem.run.RecordSights(run, sights, o.pass.r.clock.Now())
	o.rememberGone(run, sights)
	if left := o.pass.mem.run.UnknownRows(run); len(left) > 0 {
		return fmt.Errorf("cannot determine whether %s of the last batch still exist: %s", sanitize.CountOf(len(left), "object"), sights[left[0]].Failed)
	}
	return nil
}

// rememberGone notes which objects were found to be gone, for the time until the watches show it: what is counted as gone is
// not to be deleted, and counted, again.
func (o *openRun) rememberGone(run *v1alpha1.Run, sights map[int]life.Sight) {
	for i, sight := range sights {
		row, err := runrow.ParseRow(run.Rows[i])
		if err == nil && sight.Failed == "" && (sight.Missing || sight.UID != row.UID) {
			o.pass.mem.Overlay.NoteAnswer(observed.Object{Ref: row.Ref}, nil)
		}
	}
}

// lookRows reads the objects of rows live.
func (o *openRun) lookRows(ctx context.Context, which []int) map[int]life.Sight {
	reader := &liverows.Reader{
		Live: o.pass.clients.Live, Resolver: o.pass.r.resolver, Owner: o.pass.planOwner(), Work: o.pass.assignment.Work, Protection: o.pass.r.opts.newProtection(),
	}
	return reader.LookRows(ctx, o.pass.store.Draft.State().Run.Rows, which)
}

// moveToUnsent makes room for another run: only the event of this one is left. This is the end of a Recurring run. After a Once run, the
// next one begins after a pause.
func (o *openRun) moveToUnsent(ctx context.Context, run *v1alpha1.Run) error {
	counts := run.Lifecycle == v1alpha1.LifecycleRecurring
	finished := life.FinishRun(run, &o.pass.mem.run, "", "", o.pass.r.clock.Now())
	err := o.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) {
		s.Unsent, s.Run = nil, nil
		if o.pass.store.Draft.Common().HasSink() {
			s.Unsent = finished
		}
	})
	if err != nil {
		return err
	}
	if counts {
		o.pass.mem.run = life.Memory{}
		o.pass.journal.TellRun(ctx, finished)
		o.queueDelivery() // nothing else may happen for long
		return nil
	}
	o.pass.journal.TellFinished(finished)
	o.pass.mem.backOffReads(plan.Plan{
		Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPartial,
		Message: fmt.Sprintf("Run %d left objects behind; another run starts after a pause if the conditions are still true.", run.Number),
	}, &o.pass.mem.afterPartial, o.pass.retryPeriod(), o.pass.r.clock.Now())
	return nil
}

// recordResult records the result of the run.
func (o *openRun) recordResult(ctx context.Context, req life.Request) error {
	finished := life.FinishRun(o.pass.store.Draft.State().Run, &o.pass.mem.run, req.Result, req.Message, o.pass.r.clock.Now())
	if err := o.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run = finished }); err != nil {
		return err
	}
	if finished.Lifecycle == v1alpha1.LifecycleRecurring {
		o.pass.journal.TellRun(ctx, finished)
		return nil
	}
	logf.FromContext(ctx).Info("Finished", "run", finished.Number, "result", finished.Result, "message", finished.Message)
	o.pass.r.metrics.CountRun(string(finished.Result))
	o.pass.journal.TellTerminating(finished, o.pass.mem.run.Rows)
	o.pass.mem.run, o.pass.mem.judged = life.Memory{}, nil
	return nil
}

// deleteSelf deletes the Cleaner, at the version that was read.
func (o *openRun) deleteSelf(ctx context.Context) error {
	if !o.pass.mem.tenure.Fresh() {
		return cleanerstore.ErrNotOwner
	}
	finished := o.pass.store.Draft.State().Run
	uid, version := o.pass.store.Stored.GetUID(), o.pass.store.Stored.GetResourceVersion()
	err := o.pass.r.client.Delete(ctx, o.pass.store.ReadMetadata(), client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return err
	}
	o.pass.journal.TellFinished(finished)
	return o.pass.store.RereadCleaner(ctx)
}

// startUninstall hands the release of the run to the pool.
func (o *openRun) startUninstall(ctx context.Context, start bool) error {
	m, run, spec := &o.pass.mem.run, o.pass.store.Draft.State().Run, o.pass.assignment.Work.Helm
	mark, err := signedrecords.SignMark(o.pass.store.Ring, o.pass.store.Draft, run)
	if err != nil {
		return err
	}
	want := helm.UninstallRequest{
		Namespace: o.pass.store.Draft.GetNamespace(), Name: run.Helm.Name, Revision: run.Helm.Revision, UID: types.UID(run.Helm.UID),
		FirstDeployed: run.Helm.FirstDeployed.Time, Digest: run.Helm.Digest, Mark: mark,
		Self: observed.Ref{Resource: v1alpha1.GroupVersion.WithResource("cleaners"), Kind: v1alpha1.KindOf(o.pass.store.Draft), Namespace: o.pass.store.Draft.GetNamespace(), Name: o.pass.store.Draft.GetName(), UID: o.pass.store.Draft.GetUID()},
	}
	if m.Release.Begun {
		want.Begun = m.Release.Mark
	}
	want.DisableHooks, want.Rights = o.pass.authority.disablesHooks(), m.Reviewed
	uninstalls.SetTimeouts(&want, spec, !start && m.Failed != "")
	who, _ := author.Read(o.pass.store.Ring, o.pass.store.Stored) // the zero value if no author is known
	m.Busy = true
	job := &uninstalls.Job{
		Environment: o.pass.r.newEnvironment(o.pass.mem.tenure), Clients: o.pass.clients, Key: o.pass.store.Key, UID: o.pass.store.Draft.GetUID(), Run: run.Number, Decides: run.Decides, Want: want, ReadSlot: o.pass.r.readings.TurnOf(o.pass.store.Key), Start: start,
		ConfirmedAt: m.ConfirmedAt, ReviewedAt: m.ReviewedAt, Author: who.Author, Ring: o.pass.store.Ring, Ended: o.pass.mem.ended, Log: logf.FromContext(ctx),
	}
	o.pass.mem.stopUninstall = o.pass.r.pool.RunJob(ctx, o.pass.store.Key, job.Do)
	return nil
}

// newEnvironment is what uninstalls ask about and tell.
func (r *CleanerReconciler) newEnvironment(tenure shards.Tenure) uninstalls.Environment {
	return uninstalls.Environment{
		Own: r.own, Clock: r.clock, Lease: tenure, FinishGrace: r.opts.FinishGrace, FindCleaner: r.knownCleaner, SuspectClock: r.opts.Skew.DescribeSuspect, Wake: r.wake.Wake,
		Fingerprint: r.fingerprintOf,
	}
}

// receiveUninstall records the end of an uninstall in the pool.
func (o *openRun) receiveUninstall(ctx context.Context) {
	select {
	case end := <-o.pass.mem.ended:
		if end.Run != o.pass.mem.run.Number {
			return
		}
		o.pass.mem.run.RecordUninstall(end.Why, o.pass.r.clock.Now())
		o.pass.mem.run.Uninstalled = end.Uninstalled
		o.pass.journal.RememberActions(end.Actions...)
		if end.Why != "" {
			logf.FromContext(ctx).Info("Uninstall did not end", "run", end.Run, "why", end.Why)
		}
	default:
	}
}

// judged is the last decision on an open run, with its input. It is large, and few Cleaners have one.
type judged struct {
	at   time.Time // life.Memory.ConfirmedAt
	in   plan.Input
	todo plan.Plan
}

// recheckRun asks on live reads what the spec wants of the open run.
func (o *openRun) recheckRun(ctx context.Context) error {
	programs, findings, err := o.pass.evaluator.compileSpec(ctx)
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		o.pass.mem.run.RecordFailure("the spec is no longer valid: "+findings[0].String(), o.pass.r.clock.Now())
		return nil
	}
	defer o.pass.evaluator.reserveSlot(ctx)()
	now := o.pass.r.clock.Now() // before the reads: a confirmation is as old as the oldest of them
	live := o.pass.reads.MeterLive(o.pass.clients.Live, now.Add(life.ConfirmationServes))
	seen := snapshot.ReadForConfirmation(ctx, live, o.pass.store.Draft.GetNamespace(), o.pass.assignment.Work, programs.FindReadings())
	o.judgeRun(ctx, o.pass.evaluator.inputAt(programs, now, live.ChargeSeen(o.pass.assignment.Work, seen)))
	return checkMemory(o.pass.share)
}

// judgeRun decides on live reads what the spec wants of the open run.
func (o *openRun) judgeRun(ctx context.Context, in plan.Input) {
	run, m := o.pass.store.Draft.State().Run, &o.pass.mem.run
	j := func() life.Judgement {
		evaluating, end := o.pass.evaluator.beginEvaluation(ctx)
		defer end() // after a panic too
		return life.JudgeRun(evaluating, in, run, m)
	}()
	// A judgement that fails leaves none that counts.
	m.VoidConfirmation()
	if checkMemory(o.pass.share) != nil { // it is judged again when it is called
		return
	}
	refusal := o.pass.authority.findRefusal(ctx, m.Release)
	switch {
	case refusal.IsRefusal():
		j = life.Judgement{Why: refusal.Message}
	case monotime.ElapsedTime(in.Now, o.pass.r.clock.Now()) >= life.ConfirmationServes:
		j = life.Judgement{Why: passreads.SlowReads}
	}
	if j.Outcome != life.JudgeFailed {
		o.pass.mem.Holds, o.pass.mem.checks, o.pass.holdsChecked = j.Plan.Holds, timergaps.Checks{}, true
	}
	m.RecordJudgement(j, in.Now)
	o.pass.mem.judged = &judged{at: m.ConfirmedAt, in: in, todo: j.Plan}
}

// actOnRows carries out what was decided last for rows of the open run.
func (o *openRun) actOnRows(ctx context.Context, rows []int) error {
	m := &o.pass.mem.run
	if j := o.pass.mem.judged; j == nil || !j.at.Equal(m.ConfirmedAt) { // it is not known what was decided
		m.VoidConfirmation()
		return nil
	}
	o.pass.mem.forgetOld(o.pass.assignment.Work.Limits, o.pass.r.clock.Now())
	f, err := o.newRowFollower(rows)
	if err != nil {
		return err
	}
	f.settleRows(f.executor.runCourse(ctx, f.courseOfRows(), f), nil)
	f.executor.pass.journal.TellSteps(ctx, f.executor.acted)
	if f.executor.unsent {
		return cleanerstore.ErrOutdated
	}
	return nil
}

// rowFollower is the follower of a Once Cleaner: it goes after the objects of the rows that are due in its open run, and hands their results
// to the ledger of the run.
type rowFollower struct {
	executor *executor
	rows     map[types.UID]int // all of the run
	due      map[types.UID]bool
}

func (o *openRun) newRowFollower(rows []int) (*rowFollower, error) {
	f := &rowFollower{executor: &executor{pass: o.pass, in: o.pass.mem.judged.in, run: &o.pass.mem.run, number: o.pass.mem.run.Number}, rows: map[types.UID]int{}, due: map[types.UID]bool{}}
	f.executor.in.Memory = o.pass.share
	f.executor.in.Confirmed, f.executor.in.Unreadable, f.executor.versions = map[observed.Read]bool{}, map[observed.Read]string{}, map[types.UID]string{}
	f.executor.again = map[types.UID]bool{}
	all := o.pass.store.Draft.State().Run.Rows
	for i, text := range all {
		row, err := runrow.ParseRow(text)
		if err != nil { // it was left alone when it was looked at
			continue
		}
		f.rows[row.UID] = i
		if f.executor.run.IsOpenAgain(i) {
			f.executor.again[row.UID] = true
		}
		if left := f.executor.run.Rows[i].Left; left != "" {
			f.executor.versions[row.UID] = left
		}
	}
	for _, i := range rows {
		row, err := runrow.ParseRow(all[i])
		if err != nil {
			return nil, err
		}
		f.due[row.UID] = true
	}
	return f, nil
}

// courseOfRows are the steps of the rows that are due.
func (f *rowFollower) courseOfRows() *life.Course {
	return f.executor.run.CourseOfRows(f.executor.pass.mem.judged.todo, f.rows, f.due)
}

// decideChanged reads changed objects live, and decides the run again.
func (f *rowFollower) decideChanged(ctx context.Context, c *life.Course, changed map[types.UID]bool) *life.Course {
	f.settleRows(c, changed)
	reads := map[observed.Read]types.UID{}
	var ask []observed.Read
	for i := range c.Steps {
		if s := &c.Steps[i]; changed[s.Object.UID] {
			delete(f.executor.versions, s.Object.UID)
			for _, read := range f.executor.readsOf(s) {
				if _, known := reads[read]; !known {
					ask = append(ask, read)
				}
				reads[read] = s.Object.UID
			}
		}
	}
	if !liveconfirm.ReadLive(ctx, f.executor.pass.reads.MeterMoreLive(f.executor.pass.clients.Live, endOfPass(f.executor.pass)), &f.executor.in, ask, f.executor.isLate) || f.executor.isLate() {
		f.executor.run.VoidConfirmation() // a later pass judges it again
		clear(f.due)
		return f.courseOfRows()
	}
	for _, read := range ask {
		if why, failed := f.executor.in.Unreadable[read]; failed {
			f.answerRow(reads[read], life.RowAnswer{Failed: sanitize.CleanText(why)})
		}
	}
	f.executor.in.Failed, f.executor.in.Only = nil, nil
	f.executor.pass.openRun.judgeRun(ctx, f.executor.in)
	if f.executor.run.Stop != "" || !f.executor.run.IsConfirmed(f.executor.pass.r.clock.Now()) {
		clear(f.due)
	}
	return f.courseOfRows()
}

// postponeChanged has objects wait that have changed each time.
func (f *rowFollower) postponeChanged(_ *life.Course, changed map[types.UID]bool, _ int) {
	for uid := range changed {
		a := f.executor.answerOf(uid)
		a.Failed, a.Unstable = "the object changed before the operator could act on it", true
	}
}

// settleRows records the results of rows. It leaves out rows of changed objects, and rows that come after them: those are decided again.
func (f *rowFollower) settleRows(c *life.Course, changed map[types.UID]bool) {
	for uid := range f.due {
		if !c.IsAbout(uid) { // it was not decided when it was not due
			f.executor.run.VoidConfirmation()
			continue
		}
		a := *f.executor.answerOf(uid)
		if c.IsObjectDone(uid) && !f.executor.partly[uid] {
			a.Failed = ""
			f.answerRow(uid, a)
			continue
		}
		switch {
		case a.Replaced:
			f.answerRow(uid, a)
		case changed[uid], a.Cut, a.Failed == "" && (len(changed) > 0 || f.executor.unsent):
			a.Cut = true
			f.executor.run.RecordAnswer(f.rows[uid], a, f.executor.pass.r.clock.Now())
		case a.Failed == "":
			a.Failed = "an earlier action was not carried out"
			f.answerRow(uid, a)
		default:
			f.answerRow(uid, a)
		}
	}
}

// answerRow records the result of a row that is finished for this batch.
func (f *rowFollower) answerRow(uid types.UID, a life.RowAnswer) {
	f.executor.run.RecordAnswer(f.rows[uid], a, f.executor.pass.r.clock.Now())
	delete(f.due, uid)
}
