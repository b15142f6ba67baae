// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/confirm"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// confirmsAtATime is how many items one batch confirms by live reads.
	confirmsAtATime = 500
	// longestHold bounds how long an item waits that live reads do not confirm.
	longestHold = 5 * time.Minute
)

// batch is one round of deeds of a Cleaner that stays: what was decided on the watches is confirmed by live reads and
// decided again, recorded if somebody is to be told, and done.
type batch struct {
	deeds
	// rows are the places of objects in the rows of the run, if the Cleaner has a sink.
	rows map[types.UID]int
	// marks are those of the decision on the watches, where mode is DryRun.
	marks map[plan.Sum]uint64
	// doubted says that live reads confirmed nothing of what they were asked about, so that all of it waits.
	doubted bool
}

// carryBatch carries out what a decision on the watches wants. It says whether anything was done; and, with a reason, what is to be
// said instead of the decision. What live reads did not confirm of it waits, and nothing else does.
func (b *batch) carryBatch(ctx context.Context, first plan.Plan) (acted bool, say plan.Plan, err error) {
	if say, ok, err := b.mayBegin(ctx); !ok || err != nil {
		return false, say, err
	}
	last := b.confirmLive(ctx, first)
	if err := checkTurn(b.share); err != nil {
		return false, plan.Plan{}, err
	}
	now := b.r.clock.Now()
	if plan.ElapsedTime(b.in.Now, now) >= plan.ConfirmationServes {
		last.Verdict, last.Reason, last.Message = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, "Nothing is done: "+slowReads+"."
		return false, b.mem.pauseReads(last, &b.mem.disagreed, b.retryPeriod(), now), nil
	}
	if len(last.Errors) == 0 { // those of items that are not of this batch
		last.Errors = first.Errors
	}
	b.mem.holds = last.Holds
	if last.Verdict == v1alpha1.VerdictBlocked { // it was judged as a whole
		return false, b.mem.pauseReads(last, &b.mem.disagreed, b.retryPeriod(), now), nil
	}
	last.Withheld = first.Withheld // what is protected is in no batch
	todo := plan.IntersectPlans(first, last)
	some := b.holdUnconfirmed(first, last, todo, now)
	todo = b.leaveOutTold(todo)
	switch {
	case len(todo.Steps) == 0:
		b.doubted = some
		return false, plan.Plan{}, nil
	case b.isDryRun():
		b.rehearseSteps(ctx, b.reportAlone(todo.Steps))
		return true, plan.Plan{}, nil
	}
	if todo, err = b.recordBatch(ctx, todo); err != nil {
		return false, plan.Plan{}, err
	}
	b.watched, b.versions = map[types.UID]plan.Object{}, map[types.UID]string{}
	for i := range first.Steps {
		b.watched[first.Steps[i].Object.UID] = first.Steps[i].Object
	}
	b.carryOut(ctx, plan.NewCourse(todo), recurring{&b.deeds})
	for uid, i := range b.rows {
		if a := b.answers[uid]; a != nil {
			b.mem.run.TakeAnswer(i, *a, b.r.clock.Now())
		}
	}
	b.tellSteps(b.acted)
	if b.unsent && len(b.acted) == 0 {
		return false, plan.Plan{}, errNotNow
	}
	return slices.ContainsFunc(b.acted, func(s plan.Step) bool { return s.IsDeed() }), plan.Plan{}, nil
}

// holdUnconfirmed has the items wait that live reads were asked about and that they did not confirm, and says whether there are any.
// What is beyond the batch was not asked about.
func (b *batch) holdUnconfirmed(first, last, agreed plan.Plan, now time.Time) bool {
	left := first.ListItems()
	for item := range agreed.ListItems() {
		delete(left, item)
		b.mem.unconfirmed.ForgetItem(item)
	}
	for i := range last.Steps {
		if s := &last.Steps[i]; !s.Confirmed {
			for _, item := range s.ListItems() {
				delete(left, item)
			}
		}
	}
	for _, item := range last.Deferred {
		delete(left, item)
	}
	if len(left) == 0 {
		return false
	}
	b.mem.unconfirmed.HoldItems(left, min(b.retryPeriod(), longestHold), now)
	if last.Verdict == v1alpha1.VerdictAct {
		last.Verdict, last.Reason, last.Message = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, "There is something to do, but live reads have not confirmed it yet."
	}
	b.mem.held = last
	return true
}

// leaveOutTold leaves out the reports that were made already, of the same version of the same item.
func (p *sight) leaveOutTold(d plan.Plan) plan.Plan {
	now := p.r.clock.Now()
	made := func(s *plan.Step) bool {
		return !s.IsDeed() && !slices.ContainsFunc(s.Keys, func(key string) bool {
			return !p.mem.told.HasReport(plan.ItemKey{Rule: s.Rule, Key: key}, reportVersion(s), now)
		})
	}
	n := 0
	for i := range d.Steps {
		if !made(&d.Steps[i]) {
			n++
		}
	}
	if n == len(d.Steps) { // it is not copied: there may be very many
		return d
	}
	at, left := make([]int, len(d.Steps)), make([]plan.Step, 0, n)
	for i, s := range d.Steps {
		if made(&s) {
			continue
		}
		after := s.After
		s.After = nil
		for _, before := range after {
			if at[before] > 0 { // a report that was made holds nothing up
				s.After = append(s.After, at[before]-1)
			}
		}
		left = append(left, s)
		at[i] = len(left)
	}
	d.Steps = left
	return d
}

// reportVersion is what tells one report of an item from another.
func reportVersion(s *plan.Step) string { return s.Object.ResourceVersion + " " + s.Reason }

// mayBegin reads live what no batch begins without: that the Cleaner is as it was decided on, that its account exists, and
// that its namespace stays.
func (b *batch) mayBegin(ctx context.Context) (say plan.Plan, ok bool, err error) {
	now := emptyOwner(b.key)
	if err := b.r.live.Get(ctx, b.key, now); err != nil {
		return plan.Plan{}, false, err
	}
	if now.GetUID() != b.c.GetUID() || now.GetGeneration() != b.c.GetGeneration() || now.GetDeletionTimestamp() != nil {
		return plan.Plan{}, false, errNotNow
	}
	wait := plan.Plan{Verdict: v1alpha1.VerdictWait}
	if refusal := b.findRefusal(ctx, nil); refusal.isRefusal() {
		wait.Reason, wait.Message = refusal.reason, "Nothing is done: "+refusal.message
		return b.mem.pauseReads(wait, &b.mem.disagreed, b.retryPeriod(), b.r.clock.Now()), false, nil
	}
	if b.namespaceLeaves(ctx) {
		wait.Reason, wait.Message = v1alpha1.ReasonNamespaceTerminating, b.leavingMessage()
		return b.mem.pauseReads(wait, &b.mem.disagreed, b.retryPeriod(), b.r.clock.Now()), false, nil
	}
	return plan.Plan{}, true, nil
}

// confirmLive reads live what the decision rests on, and decides again, until nothing is left to be read.
func (b *batch) confirmLive(ctx context.Context, first plan.Plan) (last plan.Plan) {
	b.in.Now = b.r.clock.Now() // before the reads: a confirmation is as old as the oldest of them
	b.in.Batch = confirmsAtATime
	b.in.Only = first.ListItems() // what turns up meanwhile has its turn in the next batch
	last, b.in = confirm.Decide(ctx, b.hands.live, b.in, first, func(ctx context.Context, in plan.Input) plan.Plan {
		in.Clock = b.r.clockTrust() // the reads have measured it
		return b.computePlan(ctx, in)
	})
	return last
}

// recordBatch writes what is about to be done into the run, if somebody is to be told of it, and says how much of it fits into
// one batch.
func (b *batch) recordBatch(ctx context.Context, todo plan.Plan) (plan.Plan, error) {
	if err := b.recordRequest(ctx); err != nil {
		return plan.Plan{}, err
	}
	if b.c.Common().CloudEventSink == "" {
		return todo, nil
	}
	todo = todo.FirstObjects(plan.MaxBatch)
	b.rows = map[types.UID]int{}
	var rows []plan.Row
	for i := range todo.Steps {
		s := &todo.Steps[i]
		if _, known := b.rows[s.Object.UID]; s.Verb == plan.VerbReport || known {
			continue
		}
		b.rows[s.Object.UID] = len(rows)
		rows = append(rows, s.MakeRow())
	}
	if len(rows) == 0 {
		return todo, nil
	}
	faults.PassPoint("decided")
	if err := b.makeReady(ctx); err != nil {
		return plan.Plan{}, err
	}
	faults.PassPoint("held by the finalizer")
	decides, err := b.mem.fingerprintWork(&b.assignment, &b.r.opts)
	if err != nil {
		return plan.Plan{}, err
	}
	run, ledger := plan.BeginBatch(b.read.State(), &b.mem.run.Ledger, decides, rows, todo.ListForbidden(), b.in.Now)
	run.ServiceAccountName = accountName(b.c, b.hands.account)
	err = b.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run, s.Runs = run, run.Number })
	switch {
	case apierrors.IsConflict(err), errors.Is(err, errNotLeader):
		return plan.Plan{}, err
	case err != nil: // nobody knows which rows there are now, and the same ones may be in both batches
		b.mem.run = plan.Memory{}
		return plan.Plan{}, err
	}
	faults.PassPoint("committed")
	b.mem.run, b.number = plan.Memory{Ledger: *ledger}, run.Number
	return todo, nil
}

// errLooked says that a batch was decided on without knowing what became of the one before. It would delete, and count, again
// what is gone and what the watches still show.
var errLooked = errors.New("what became of the batch before had to be found out first")

// makeReady does what has to be done before rows are recorded.
func (b *batch) makeReady(ctx context.Context) error {
	for {
		var err error
		switch req := plan.BeforeBatch(b.c, &b.mem.run.Ledger); req.Kind {
		case plan.Record:
			return nil
		case plan.AddFinalizer:
			err = b.writeMetadata(ctx, func(c v1alpha1.Owner) { controllerutil.AddFinalizer(c, v1alpha1.Finalizer) })
		case plan.LookRows:
			if err = b.doRequest(ctx, req); err == nil {
				err = errLooked
			}
		default:
			err = b.doRequest(ctx, req)
		}
		if err != nil {
			return err
		}
	}
}
