// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/staleness"
	"github.com/vtex/cleaner/controllers/liveconfirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// judged is the last decision on an open run, with its input.
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
	live := o.pass.reads.meterLive(o.pass.clients.Live, now.Add(life.ConfirmationServes))
	seen := snapshot.ReadForConfirmation(ctx, live, o.pass.store.Cleaner.GetNamespace(), o.pass.assignment.Work)
	o.judgeRun(ctx, o.pass.evaluator.inputAt(programs, now, live.chargeSeen(o.pass.assignment.Work, seen)))
	return checkMemory(o.pass.share)
}

// judgeRun decides on live reads what the spec wants of the open run.
func (o *openRun) judgeRun(ctx context.Context, in plan.Input) {
	run, m := o.pass.store.Cleaner.State().Run, &o.pass.mem.run
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
		j = life.Judgement{Why: slowReads}
	}
	if j.Outcome != life.JudgeFailed {
		o.pass.mem.Holds, o.pass.mem.checks, o.pass.holdsChecked = j.Plan.Holds, staleness.Checks{}, true
	}
	m.RecordJudgement(j, in.Now)
	o.pass.mem.judged = judged{at: m.ConfirmedAt, in: in, todo: j.Plan}
}

// actOnRows carries out what was decided last for rows of the open run.
func (o *openRun) actOnRows(ctx context.Context, rows []int) error {
	m := &o.pass.mem.run
	if !o.pass.mem.judged.at.Equal(m.ConfirmedAt) { // it is not known what was decided
		m.VoidConfirmation()
		return nil
	}
	o.pass.mem.forgetOld(o.pass.assignment.Work.Limits, o.pass.r.clock.Now())
	f, err := o.newRowFollower(rows)
	if err != nil {
		return err
	}
	c := f.executor.runCourse(ctx, f.courseOfRows(), f)
	f.settleRows(c, nil)
	f.executor.pass.journal.TellSteps(f.executor.acted)
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
	f.executor.in.Confirmed, f.executor.in.Unreadable, f.executor.versions = map[plan.Read]bool{}, map[plan.Read]string{}, map[types.UID]string{}
	all := o.pass.store.Cleaner.State().Run.Rows
	for i, text := range all {
		row, err := plan.ParseRow(text)
		if err != nil { // it was left alone when it was looked at
			continue
		}
		f.rows[row.UID] = i
		if left := f.executor.run.Rows[i].Left; left != "" {
			f.executor.versions[row.UID] = left
		}
	}
	for _, i := range rows {
		row, err := plan.ParseRow(all[i])
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
	reads := map[plan.Read]types.UID{}
	var ask []plan.Read
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
	if !liveconfirm.ReadLive(ctx, f.executor.pass.reads.meterMoreLive(f.executor.pass.clients.Live, endOfPass(f.executor.pass)), &f.executor.in, ask, f.executor.isLate) || f.executor.isLate() {
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
