// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planning makes the plan that the operator would make, from whatever reads objects: files or a cluster. It never acts.
package planning

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/controllers/liveconfirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/schedule"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Times are the times that a plan depends on.
type Times struct {
	// At is the time of the decision.
	At time.Time
	// Since is when `for` of rules began to count, for all conditions that hold.
	Since time.Time
	// Created is the creation time of a Cleaner whose file has none. Zero: its ttl ago.
	Created time.Time
}

// unlimitedBatch confirms all items at once.
const unlimitedBatch = 1 << 30

// Decision is what a plan is made from, besides the objects.
type Decision struct {
	Cleaner    *manifests.Cleaner
	Protection plan.Protection
	Times      Times
	// Release is the Helm release of the spec; nil if it was not read.
	Release *observed.Release
	// Waiting is what waits for the end of its `for` by the status of the Cleaner.
	Waiting []v1alpha1.Pending
	// Trace notes what the rules make of one object; nil: of none.
	Trace *itemtrace.Trace
	// Progress is called while the items of a rule are evaluated; nil: no caller shows it.
	Progress func(rule string, done, total int)
}

// ComputePlan makes the plan that the operator would make of the reader's objects, and adds what is wrong with its patches. It reads again
// what the operator would confirm.
func (d Decision) ComputePlan(ctx context.Context, r snapshot.Reader) plan.Plan {
	in := d.MakeInput(ctx, r)
	first := plan.ComputePlan(ctx, in)
	in.Holds = ContinueHolds(&in, &first, d.Times.Since, d.Waiting)
	p := applySchedule(liveconfirm.DecideToShow(ctx, r, in, first, plan.ComputePlan), d.Cleaner.Work, d.Times.At)
	CheckPatches(ctx, d.Cleaner.Schemas, d.Cleaner.Work, &p)
	return p
}

// maxSkipped is how many of the kinds that a target skips are named.
const maxSkipped = 10

// DescribeSkipped says which kinds the targets of kind "*" of a Cleaner skip, in a sentence for each target.
func DescribeSkipped(ctx context.Context, r snapshot.Reader, namespace string, work *v1alpha1.Work) (sentences []string) {
	if len(work.ListAnyKind()) == 0 {
		return nil
	}
	for i, seen := range snapshot.ReadTargets(ctx, r, namespace, work) {
		skipped := seen.ListSkipped()
		if len(skipped) == 0 {
			continue
		}
		var names []string
		for _, k := range skipped[:min(len(skipped), maxSkipped)] {
			names = append(names, k.Resource.GroupResource().String())
		}
		if more := len(skipped) - maxSkipped; more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		sentences = append(sentences, fmt.Sprintf("target %q skips %d kinds that cannot be read: %s", work.Targets[i].Name, len(skipped), strings.Join(names, ", ")))
	}
	return sentences
}

// MakeInput returns what a plan of the reader's objects is made from. No `for` timer has begun.
func (d Decision) MakeInput(ctx context.Context, r snapshot.Reader) plan.Input {
	c, owner := d.Cleaner, d.BuildOwner()
	return plan.Input{
		Owner: owner, Spec: c.Work, Programs: c.Programs, Protection: d.Protection, Now: d.Times.At, Release: d.Release,
		Snapshot: snapshot.ReadTargets(ctx, r, owner.Namespace, c.Work),
		Batch:    unlimitedBatch, Trace: d.Trace, Progress: d.Progress,
	}
}

// applySchedule sets the next evaluation to the next time of the schedule, or earlier to the end of a wait: between its times, a
// Cleaner with a schedule evaluates only what waits.
func applySchedule(p plan.Plan, work *v1alpha1.Work, now time.Time) plan.Plan {
	if work.Schedule == "" || p.Verdict == v1alpha1.VerdictInvalid || p.Reason == v1alpha1.ReasonWaitingForTTL {
		return p
	}
	times, err := schedule.ParseSchedule(work)
	if err != nil { // validation has refused it
		return p
	}
	p.Next, p.NextCheck, p.FlipsAt, p.Recheck = times.Next(now), time.Time{}, time.Time{}, time.Time{}
	if len(p.Pending) > 0 && (p.Next.IsZero() || p.Pending[0].Until.Before(p.Next)) {
		p.Next = p.Pending[0].Until
	}
	p.NextChange = p.Next
	return p
}

// NextTick returns the time of the schedule that is due now or comes next; zero if there is none.
func NextTick(work *v1alpha1.Work, now time.Time) time.Time {
	if work.Schedule == "" {
		return time.Time{}
	}
	times, err := schedule.ParseSchedule(work)
	if err != nil { // validation has refused it
		return time.Time{}
	}
	return times.Next(now.Add(-1))
}

// BuildOwner returns the Cleaner's identity and creation time.
func (d Decision) BuildOwner() plan.Owner {
	c := d.Cleaner
	created := c.Owner.GetCreationTimestamp().Time
	if created.IsZero() {
		created = d.Times.Created
	}
	if created.IsZero() {
		ttl, _ := c.Work.TTL.Parse(0) // it is valid
		created = d.Times.At.Add(-ttl)
	}
	return plan.Owner{Namespace: c.Owner.GetNamespace(), Name: c.Owner.GetName(), UID: c.Owner.GetUID(), Created: created}
}
