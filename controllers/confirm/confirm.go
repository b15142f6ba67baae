// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package confirm reads live what a decision rests on, and has it decided again. The operator confirms each batch so before it acts,
// and the command line each plan that it shows.
package confirm

import (
	"context"
	"slices"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// maxRounds bounds how often a decision asks for more to be read: once for the objects that are acted on, and once for
	// each entry of confirm.
	maxRounds = 20
	// inFlight is how many reads are on their way at a time.
	inFlight = 32
)

// Compute decides.
type Compute func(ctx context.Context, in plan.Input) plan.Plan

// Decide reads live what a first decision rests on, and decides again with the answers in the place of what the input's snapshot shows,
// until nothing is left to be read, or nothing is to be done. It returns the input that the last decision was made of.
func Decide(ctx context.Context, r snapshot.Reader, in plan.Input, first plan.Plan, compute Compute) (plan.Plan, plan.Input) {
	return decide(ctx, r, in, first, compute, func(d plan.Plan) bool { return d.Verdict == v1alpha1.VerdictAct })
}

// DecideToShow is Decide for a plan that is shown to a person, also if it is blocked.
func DecideToShow(ctx context.Context, r snapshot.Reader, in plan.Input, first plan.Plan, compute Compute) plan.Plan {
	d, _ := decide(ctx, r, in, first, compute, func(plan.Plan) bool { return true })
	return d
}

func decide(ctx context.Context, r snapshot.Reader, in plan.Input, first plan.Plan, compute Compute, matters func(plan.Plan) bool) (plan.Plan, plan.Input) {
	in.Confirmed, in.Unreadable = map[plan.Read]bool{}, map[plan.Read]string{}
	readUnseenTargets(ctx, r, &in, first)
	for range maxRounds {
		d := compute(ctx, in)
		if len(d.Confirm) == 0 || !matters(d) {
			return d, in
		}
		ReadLive(ctx, r, &in, d.Confirm)
	}
	return plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonUnconfirmed, Message: "The objects to confirm change faster than they can be read."}, in
}

// readUnseenTargets reads the targets that are deleted and that no expression sees: no decision asks for them, and what is deleted of
// them is read live all the same.
func readUnseenTargets(ctx context.Context, r snapshot.Reader, in *plan.Input, first plan.Plan) {
	if !slices.ContainsFunc(first.Steps, func(s plan.Step) bool { return s.Action < 0 }) {
		return
	}
	var unseen []int
	for i := range in.Spec.Targets {
		if t := &in.Spec.Targets[i]; t.Delete && !t.Included() {
			unseen = append(unseen, i)
		}
	}
	live := make([]plan.Target, len(unseen))
	contain.RunParallel(inFlight, len(unseen), func(n int) {
		live[n] = snapshot.ReadTarget(ctx, r, in.Owner.Namespace, &in.Spec.Targets[unseen[n]])
	})
	for n, t := range unseen {
		in.Snapshot = in.Snapshot.WithTarget(t, live[n])
	}
}

// ReadLive reads objects, or whole targets, live, and puts the answers into the place of what the input's snapshot shows.
func ReadLive(ctx context.Context, r snapshot.Reader, in *plan.Input, reads []plan.Read) {
	answers := make([]answer, len(reads))
	contain.RunParallel(inFlight, len(reads), func(i int) { answers[i] = readOne(ctx, r, in, reads[i]) })
	found := map[plan.Read]*plan.Object{}
	for i, read := range reads {
		a := &answers[i]
		switch {
		case a.problem != "":
			in.Unreadable[read] = a.problem
			continue
		case read.All:
			in.Snapshot = in.Snapshot.WithTarget(read.Target, a.whole)
		default:
			found[read] = a.found
		}
		in.Confirmed[read] = true
	}
	in.Snapshot = in.Snapshot.WithLive(found)
}

// answer is what came of one read.
type answer struct {
	whole plan.Target
	// found is the object; nil if there is none, or if the target does not stand for it.
	found   *plan.Object
	problem string
}

func readOne(ctx context.Context, r snapshot.Reader, in *plan.Input, read plan.Read) (a answer) {
	t := &in.Spec.Targets[read.Target]
	if read.All {
		a.whole = snapshot.ReadTarget(ctx, r, in.Owner.Namespace, t)
		if !plan.IsAnswer(t, a.whole.State) {
			a.problem = a.whole.Detail
		}
		return a
	}
	found, matches, state, detail := snapshot.ReadObject(ctx, r, in.Owner.Namespace, t, read.Namespace, read.Name)
	switch {
	case state != plan.Complete:
		a.problem = detail
	case matches:
		a.found = found
	}
	return a
}
