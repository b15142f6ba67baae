// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// actRules evaluates the rules of an open run on live reads, and does what they want of its rows.
func (p *pass) actRules(ctx context.Context, rows []int) error {
	programs, findings, err := p.compile(ctx)
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		p.mem.run.Fail("the spec is not valid any more: "+findings[0].String(), p.r.clock.Now())
		return nil
	}
	wanted, err := p.rowsByUID(rows)
	if err != nil {
		return err
	}
	p.forgetOld()
	b := &batch{pass: p}
	now := p.r.clock.Now()
	b.in = p.input(programs, now, snapshot.ReadForConfirmation(ctx, p.hands.live, p.c.GetNamespace(), p.work))
	b.in.Acting, b.in.Backoff, b.in.Remade = true, nil, nil // each row has a back-off of its own
	b.in.Confirmed, b.in.Unreadable, b.in.Batch = b.in.Snapshot.Live(), map[plan.Read]string{}, math.MaxInt
	d := p.compute(ctx, b.in)
	p.mem.holds, p.looked = d.Holds, true
	refusal := p.findRefusal(ctx, nil)
	switch {
	case refusal.refuses():
		p.mem.run.Fail(refusal.message, p.r.clock.Now())
		return nil
	case plan.Elapsed(now, p.r.clock.Now()) >= plan.ConfirmationServes:
		p.mem.run.Fail(slowReads, p.r.clock.Now())
		return nil
	case d.Reason == v1alpha1.ReasonConditionsNotMet:
		p.mem.run.Stop = d.Message
		return nil
	case d.Verdict != v1alpha1.VerdictAct && d.Reason != v1alpha1.ReasonNothingToDo && d.Reason != v1alpha1.ReasonProtected && len(d.Pending) == 0: // nobody can say what the rules want
		p.mem.run.Fail(d.Message, p.r.clock.Now())
		return nil
	}
	p.mem.run.ConfirmedAt = now
	d = d.Of(wanted)
	b.carryOut(ctx, d, d)
	b.tellSteps(b.acted)
	b.answer(ctx, d, wanted)
	if b.unsent {
		return errNotNow
	}
	return nil
}

// rowsByUID are the places of rows, by the UIDs of their objects.
func (p *pass) rowsByUID(rows []int) (map[types.UID]int, error) {
	out := map[types.UID]int{}
	for _, i := range rows {
		row, err := plan.ParseRow(p.c.State().Run.Rows[i])
		if err != nil {
			return nil, err
		}
		out[row.UID] = i
	}
	return out, nil
}

// answer tells the memory of a run what came of its rows. One of which nothing was wanted is looked at.
func (b *batch) answer(ctx context.Context, d plan.Plan, wanted map[types.UID]int) {
	var until time.Time
	for _, p := range d.Pending {
		until = earliest(until, p.Until)
	}
	asked := map[types.UID]bool{}
	for i := range d.Steps {
		asked[d.Steps[i].Object.UID] = true
	}
	var look []int
	for uid, i := range wanted {
		a := plan.RuleAnswer{Did: b.did[uid], Failed: b.why[uid], Unstable: b.unstable[uid], RetryAfter: b.retryAfter[uid]}
		switch {
		case b.cut[uid]:
			continue
		case asked[uid] && a.Did == "" && a.Failed == "":
			a.Failed = "a step before it failed"
		case !asked[uid] && until.IsZero():
			look = append(look, i)
			continue
		case !asked[uid]:
			a.Until = until
		}
		b.mem.run.ActedByRules(i, uid, a, b.r.clock.Now())
	}
	for i, sight := range b.lookRows(ctx, look) {
		row, err := plan.ParseRow(b.c.State().Run.Rows[i])
		if err != nil {
			continue
		}
		b.mem.run.ActedByRules(i, row.UID, plan.RuleAnswer{Sight: sight}, b.r.clock.Now())
	}
}
