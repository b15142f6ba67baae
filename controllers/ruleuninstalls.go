// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/uninstalls"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// ruleUninstalls uninstalls releases for the rules of a Cleaner: steps begin uninstalls, and the pool finishes what has begun.
type ruleUninstalls struct{ pass *pass }

// carryOn takes what the pool has come to, finds what another process has begun, and has the pool look at what is due.
func (u ruleUninstalls) carryOn(ctx context.Context) {
	p := u.pass
	now := p.r.clock.Now()
	uninstalls.TellAttempts(p.journal, logf.FromContext(ctx), p.mem.Backoff, p.mem.underWay.ReceiveAttempts(now), now)
	live := p.reads.MeterLive(p.clients.Live, endOfPass(p))
	if err := p.mem.underWay.FindBegun(ctx, live, p.store.Ring, p.store.Stored, p.assignment.Work, p.r.clock.Now()); err != nil {
		logf.FromContext(ctx).Info("Cannot look for releases whose uninstall has begun; it is tried again", "why", err.Error())
	}
	p.asksUninstalls = true
	if !p.mem.underWay.AskDue(p.r.clock.Now()) || p.mem.run.Busy || life.IsPaused(p.store.Draft.Common()) {
		return
	}
	p.r.pool.AskSlot(p.store.Key)
	if p.inLine = p.r.pool.FindSlot(p.store.Key) != life.SlotHeld; p.inLine {
		return
	}
	fingerprint, err := p.mem.fingerprintWork(&p.assignment, &p.r.opts)
	if err != nil { // validation refuses such a spec
		return
	}
	reviewer := p.authority.newReviewer()
	job := &uninstalls.RuleJob{
		Environment: p.r.newEnvironment(p.mem.tenure), Helm: p.clients.Helm, Key: p.store.Key, ReadSlot: p.r.readings.TurnOf(p.store.Key), Owner: p.store.ReadMetadata(), Ring: p.store.Ring,
		Author: reviewer.Author(), Review: reviewer.ReviewRelease, Decides: fingerprint, Rules: p.assignment.Work.Rules, Log: logf.FromContext(ctx),
	}
	job.Releases, job.Ended = p.mem.underWay.TakeDue(p.r.clock.Now())
	p.mem.stopUninstall = p.r.pool.RunJob(ctx, p.store.Key, job.Do)
}

// executeStep begins the uninstall that a step asks for, or says what would come of that. One begins at a time: each takes memory.
func (u ruleUninstalls) executeStep(ctx context.Context, s *plan.Step, version string, dryRun bool, guard actuate.Guard) (out actuate.Outcome) {
	p := u.pass
	p.starting.Lock()
	defer p.starting.Unlock()
	fingerprint, err := p.mem.fingerprintWork(&p.assignment, &p.r.opts)
	if err != nil {
		return uninstalls.NewOutcome(life.AnswerRefused, err)
	}
	if !dryRun && p.mem.underWay.IsFull(s.Object.Namespace) { // the next decision waits until one of them is at its end
		return uninstalls.NewOutcome(life.AnswerUnsent, errFull)
	}
	starter := uninstalls.Starter{
		Helm: p.clients.Helm, Owner: p.store.Stored, Ring: p.store.Ring, Decides: fingerprint, Rules: p.assignment.Work.Rules, Clock: p.r.clock, Review: p.authority.newReviewer().ReviewRelease,
	}
	err = releaseOf(p).readUnlessChanged(ctx, func(ctx context.Context, slot helm.ReadSlot) {
		starter.Slot = slot
		begun := (*uninstalls.Begun)(nil)
		if dryRun {
			out = starter.RehearseStep(ctx, s, guard)
		} else if out, begun = starter.StartStep(ctx, s, version, guard); begun != nil {
			p.mem.underWay.NoteStarted(*begun, p.r.clock.Now())
		}
	})
	if err != nil && out.Kind != life.AnswerDone && out.Kind != life.AnswerLost {
		return uninstalls.NewOutcome(life.AnswerUnsent, err)
	}
	return out
}

// errFull says why a release is not uninstalled yet.
var errFull = errors.New("as many other releases are being uninstalled as may be at a time")
