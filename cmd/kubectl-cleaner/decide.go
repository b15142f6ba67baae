// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/confirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// planTimes are the times that a decision depends on.
type planTimes struct {
	// at is the time of the decision.
	at time.Time
	// since is when the `for` of rules began to be counted, for all that holds at all.
	since time.Time
	// created is when a Cleaner was created whose file does not say it; zero: so long ago that its ttl is over.
	created time.Time
}

// unlimitedBatch is for how many items everything is confirmed: for all.
const unlimitedBatch = 1 << 30

// computePlan makes the plan that the operator would make if the cluster were as the reader says, and the release of the spec as
// it was read; nil if it was not. What has to be confirmed is read once more.
func computePlan(ctx context.Context, c *cleaner, r snapshot.Reader, release *plan.Release, p plan.Protection, m planTimes) plan.Plan {
	owner := buildOwner(c, m)
	in := plan.Input{
		Owner: owner, Spec: c.work, Programs: c.programs, Protection: p, Now: m.at, Release: release,
		Snapshot: snapshot.ReadTargets(ctx, r, owner.Namespace, c.work),
		Batch:    unlimitedBatch,
	}
	first := plan.ComputePlan(ctx, in)
	in.Holds = first.Holds.BeganAt(m.since)
	return applySchedule(confirm.DecideToShow(ctx, r, in, first, plan.ComputePlan), c.work, m.at)
}

// applySchedule returns a plan with the moment at which a schedule asks next: between two of its times nothing is evaluated, but for
// what the time that is now has left waiting.
func applySchedule(p plan.Plan, work *v1alpha1.Work, now time.Time) plan.Plan {
	if work.Schedule == "" || p.Verdict == v1alpha1.VerdictInvalid || p.Reason == v1alpha1.ReasonWaitingForTTL {
		return p
	}
	times, err := plan.ParseSchedule(work)
	if err != nil { // validation has refused it
		return p
	}
	p.Next, p.Look, p.Flip = times.Next(now), time.Time{}, time.Time{}
	if len(p.Pending) > 0 && (p.Next.IsZero() || p.Pending[0].Until.Before(p.Next)) {
		p.Next = p.Pending[0].Until
	}
	return p
}

// buildOwner returns the Cleaner as plans know it.
func buildOwner(c *cleaner, m planTimes) plan.Owner {
	created := c.owner.GetCreationTimestamp().Time
	if created.IsZero() {
		created = m.created
	}
	if created.IsZero() {
		ttl, _ := c.work.TTL.Parse(0) // it is valid
		created = m.at.Add(-ttl)
	}
	return plan.Owner{Namespace: c.owner.GetNamespace(), Name: c.owner.GetName(), UID: c.owner.GetUID(), Created: created}
}
