// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package liveconfirm reads live what a decision depends on, and has it decided again. The operator confirms each batch so before it acts,
// and the command line each plan that it shows.
package liveconfirm

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// maxRounds bounds how often a decision asks for more to be read: once for the objects that are acted on, and once for
	// each entry of confirm.
	maxRounds = 20
	// inFlight is how many reads are on their way at a time.
	inFlight = 32
	// definitionTime is how long definitions may take to be read. It is short, because all is read live then.
	definitionTime = 2 * time.Second

	notInTime = "There was no time left to confirm it."
)

// Compute decides.
type Compute func(ctx context.Context, in plan.Input) plan.Plan

// IsLate says that no time is left to read, or to decide again. Goroutines share it.
type IsLate func() bool

// Never is for those who have as much time as it takes.
func Never() bool { return false }

// Readers are what is read from.
type Readers struct {
	Live snapshot.Reader
	// Definitions reads CustomResourceDefinitions live. Nil: the objects of the input were not read from watches.
	Definitions snapshot.Reader
}

// Decide reads live what a first decision depends on, and decides again with the answers in place of those in the input's snapshot. It
// repeats this until there is nothing left to read, or nothing to do. It returns the input of the last decision, and whether that was in
// time: if not, the caller must do nothing.
func Decide(ctx context.Context, r Readers, in plan.Input, first plan.Plan, compute Compute, isLate IsLate) (_ plan.Plan, _ plan.Input, inTime bool) {
	return decide(ctx, r, in, first, compute, isLate, func(d plan.Plan) bool { return d.Verdict == v1alpha1.VerdictAct })
}

// DecideToShow is Decide for a plan that is shown to a person, also if it is blocked.
func DecideToShow(ctx context.Context, r snapshot.Reader, in plan.Input, first plan.Plan, compute Compute) plan.Plan {
	d, _, _ := decide(ctx, Readers{Live: r}, in, first, compute, Never, func(plan.Plan) bool { return true })
	return d
}

func decide(ctx context.Context, r Readers, in plan.Input, first plan.Plan, compute Compute, isLate IsLate, matters func(plan.Plan) bool) (_ plan.Plan, _ plan.Input, inTime bool) {
	in.Confirmed, in.Unreadable = map[observed.Read]bool{}, map[observed.Read]string{}
	if in.Values == nil {
		in.Values = plan.NewValues(plan.FewValueBytes)
	}
	readUnseenTargets(ctx, r.Live, &in, first)
	if matters(first) {
		leaveOutUnselected(ctx, r.Live, &in, first)
		markOutdated(ctx, r.Definitions, &in, first)
	}
	if matters(first) && !ReadLive(ctx, r.Live, &in, listCertainReads(&in, first), isLate) {
		return dropSteps(first, notInTime), in, false
	}
	d := first
	for range maxRounds {
		if isLate() {
			return dropSteps(d, notInTime), in, false
		}
		d = compute(ctx, in)
		if len(d.Confirm) == 0 || !matters(d) {
			return d, in, true
		}
		if !ReadLive(ctx, r.Live, &in, d.Confirm, isLate) {
			return dropSteps(d, notInTime), in, false
		}
	}
	return dropSteps(d, "The objects to confirm change faster than they can be read."), in, true
}

// listCertainReads returns the first reads that the chosen items of a first decision ask for, where no item decides which these are: targets that the
// decision depends on as a whole. Asked for at once, they save a decision. Conditions come before items, and may make all reads needless.
func listCertainReads(in *plan.Input, first plan.Plan) []observed.Read {
	if len(in.Spec.Conditions) > 0 {
		return nil
	}
	chosen := map[string]bool{}
	for i := range first.Steps {
		chosen[first.Steps[i].Rule] = chosen[first.Steps[i].Rule] || in.Chosen == nil || slices.ContainsFunc(first.Steps[i].ListItems(), func(item plan.ItemKey) bool { return in.Chosen[item] })
	}
	var out []observed.Read
	for i := range in.Spec.Rules {
		rule := &in.Spec.Rules[i]
		if !chosen[rule.Name] {
			continue
		}
		if len(rule.Confirm) > 0 || slices.ContainsFunc(rule.Actions, func(a v1alpha1.RuleAction) bool { return a.Object != "" }) {
			return nil
		}
		unproven := in.Programs.ListUnprovenTargets(i)
		for t := range in.Spec.Targets {
			if read := (observed.Read{Target: t, All: true}); slices.Contains(unproven, in.Spec.Targets[t].Name) && !slices.Contains(out, read) {
				out = append(out, read)
			}
		}
	}
	return out
}

// dropSteps returns a plan that does nothing, because it was not confirmed.
func dropSteps(d plan.Plan, why string) plan.Plan {
	d.Verdict, d.Reason, d.Message = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, why
	d.Steps, d.Confirm, d.Release = nil, nil, nil
	return d
}

// readUnseenTargets reads the targets that are deleted and that no expression sees: no decision asks for them, and what is deleted of
// them is read live all the same.
func readUnseenTargets(ctx context.Context, r snapshot.Reader, in *plan.Input, first plan.Plan) {
	if !slices.ContainsFunc(first.Steps, func(s plan.Step) bool { return s.Action < 0 }) {
		return
	}
	var unseen []int
	for i := range in.Spec.Targets {
		if t := &in.Spec.Targets[i]; t.Delete && !t.IsIncluded() {
			unseen = append(unseen, i)
		}
	}
	live, qs := make([]observed.Target, len(unseen)), newQueries(in)
	r = snapshot.ShareReads(r)
	contain.RunParallel(inFlight, len(unseen), func(n int) { live[n] = qs.ReadTarget(ctx, r, unseen[n]) })
	for n, t := range unseen {
		in.Snapshot = in.Snapshot.WithTarget(t, live[n])
	}
}

// leaveOutUnselected reads which Namespaces have the labels that the targets of the steps ask for, and leaves out the objects in others: the version of an
// object says nothing of the labels of its Namespace.
func leaveOutUnselected(ctx context.Context, r snapshot.Reader, in *plan.Input, first plan.Plan) {
	r = snapshot.ShareReads(r)
	for t := range in.Spec.Targets {
		if in.Spec.Targets[t].Reference.NamespaceSelector == nil || !hasSteps(in, first, t) {
			continue
		}
		if q, err := snapshot.NewQuery(in.Owner.Namespace, &in.Spec.Targets[t]); err == nil && q.Namespaces.Labels != nil {
			in.Snapshot = in.Snapshot.WithTarget(t, keepSelected(in.Snapshot[t], &q.Namespaces, r.Read(ctx, q.Namespaces.NewListQuery())))
		}
	}
}

// hasSteps says that a step acts on an object of a target: also one that is not chosen, because it needs no reads of its own to be confirmed.
func hasSteps(in *plan.Input, first plan.Plan, target int) bool {
	return slices.ContainsFunc(first.Steps, func(s plan.Step) bool { return in.Snapshot[target].Has(&s.Object) })
}

// markOutdated reads the definitions of the custom objects that the steps are about. A target is outdated if its objects were read by another one, or if
// that cannot be read in time: the version of an object says nothing of its definition.
func markOutdated(ctx context.Context, definitions snapshot.Reader, in *plan.Input, first plan.Plan) {
	if definitions == nil {
		return
	}
	var custom []int
	for t := range in.Snapshot {
		if seen := &in.Snapshot[t]; seen.Custom && !seen.Outdated && seen.State == observed.Complete && hasSteps(in, first, t) {
			custom = append(custom, t)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, definitionTime)
	defer cancel()
	definitions = snapshot.ShareReads(definitions)
	outdated := make([]bool, len(custom))
	contain.RunParallel(inFlight, len(custom), func(n int) {
		seen := &in.Snapshot[custom[n]]
		now, ok := served.ReadDefinitionState(ctx, definitions, seen.Resource.GroupResource())
		outdated[n] = !ok || now != seen.Definition
	})
	for n, t := range custom {
		if outdated[n] {
			other := in.Snapshot[t]
			other.Outdated = true
			in.Snapshot = in.Snapshot.WithTarget(t, other)
		}
	}
}

// keepSelected leaves out the objects of a target in Namespaces that are not selected of those that were read, or all if these were not read.
func keepSelected(t observed.Target, by *snapshot.Namespaces, read observed.Target) observed.Target {
	if read.State != observed.Complete {
		t.State, t.Detail, t.Objects = read.State, read.Detail, nil
		return t
	}
	selected := make(map[string]bool, len(read.Objects))
	for i := range read.Objects {
		selected[read.Objects[i].Name] = by.MatchesNamespace(read.Objects[i].Name, &read.Objects[i])
	}
	t.Objects = slices.DeleteFunc(slices.Clone(t.Objects), func(o observed.Object) bool { return o.Namespace != "" && !selected[o.Namespace] })
	return t
}

// ReadLive reads objects, or whole targets, live, and puts the answers into the place of what the input's snapshot shows. If it gets
// late before all are read, it is false, and the input is as it was: nothing is decided on a part of them. What several ask for is read once.
func ReadLive(ctx context.Context, r snapshot.Reader, in *plan.Input, reads []observed.Read, isLate IsLate) bool {
	answers := make([]answer, len(reads))
	r = snapshot.ShareReads(r)
	var whole snapshot.Queries // of targets that are read as a whole
	if slices.ContainsFunc(reads, func(read observed.Read) bool { return read.All }) {
		whole = newQueries(in)
	}
	var late atomic.Bool
	contain.RunParallel(inFlight, len(reads), func(i int) {
		if isLate() {
			late.Store(true)
			return
		}
		answers[i] = readOne(ctx, r, in, whole, reads[i])
	})
	if late.Load() || isLate() { // reads end with the time that there is
		return false
	}
	found := map[observed.Read]*observed.Object{}
	for i, read := range reads {
		a := &answers[i]
		switch {
		case a.failed:
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
	return true
}

// answer is what came of one read.
type answer struct {
	whole observed.Target
	// found is the object; nil if there is none, or if the target does not stand for it.
	found *observed.Object
	// failed says that it is no answer. Then problem says why, or is empty.
	failed  bool
	problem string
}

// newQueries is what is asked for targets that are read as a whole: no more of their objects than the expressions read, if there are any.
func newQueries(in *plan.Input) snapshot.Queries {
	if in.Programs == nil {
		return snapshot.NewQueries(in.Owner.Namespace, in.Spec)
	}
	return snapshot.NewReadingQueries(in.Owner.Namespace, in.Spec, in.Programs.FindReadings())
}

func readOne(ctx context.Context, r snapshot.Reader, in *plan.Input, whole snapshot.Queries, read observed.Read) (a answer) {
	t := &in.Spec.Targets[read.Target]
	if read.All {
		a.whole = whole.ReadTarget(ctx, r, read.Target)
		if !observed.IsAnswer(t, a.whole.State) {
			a.failed, a.problem = true, a.whole.Detail
		}
		return a
	}
	found, matches, state, detail := snapshot.ReadSeen(ctx, r, in.Owner.Namespace, t, read)
	switch {
	case state != observed.Complete:
		a.failed, a.problem = true, detail
	case matches:
		a.found = found
	}
	return a
}
