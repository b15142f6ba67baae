// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/plan"
)

// followsInBatch is how often a batch goes after an object that has changed.
const followsInBatch = 3

// carryOut does what is to be done. An object that has changed is read live, decided on anew and acted on at once, a few
// times; then it waits.
func (b *batch) carryOut(ctx context.Context, first, todo plan.Plan) {
	b.versions, b.watched, b.seen = map[types.UID]string{}, map[types.UID]plan.Object{}, plan.Acted{}
	b.did, b.why, b.cut, b.unstable = map[types.UID]v1alpha1.Outcome{}, map[types.UID]string{}, map[types.UID]bool{}, map[types.UID]bool{}
	b.retryAfter = map[types.UID]time.Duration{}
	for i := range first.Steps {
		b.watched[first.Steps[i].Object.UID] = first.Steps[i].Object
	}
	b.in.Failed = map[plan.ItemKey]bool{}
	for follow := 0; ; follow++ {
		changed := b.waves(ctx, todo)
		switch {
		case len(changed) == 0:
			return
		case follow == followsInBatch:
			for uid := range changed {
				b.mem.backoff.Conflict(uid, follow+1, b.r.clock.Now())
				b.why[uid], b.unstable[uid] = "it changed before it could be acted on", true
			}
			return
		}
		todo = b.again(ctx, todo, changed)
	}
}

// progress is how far a step is.
type progress int

const (
	waiting progress = iota
	succeeded
	failed
)

// waves carries out steps: first those that come after none, then those whose earlier steps have succeeded, and so on. It
// returns the objects that have changed since they were decided on.
func (b *batch) waves(ctx context.Context, todo plan.Plan) map[types.UID]bool {
	states, changed := make([]progress, len(todo.Steps)), map[types.UID]bool{}
	for {
		ready := b.ready(ctx, &todo, states)
		if len(ready) == 0 {
			return changed
		}
		outcomes := make([]actuate.Outcome, len(ready))
		orders := &stepGuard{batch: b, log: logf.FromContext(ctx)}
		actuate.RunParallel(len(ready), func(n int) {
			s := &todo.Steps[ready[n]]
			if !s.Deed() {
				return
			}
			outcomes[n] = b.hands.actuator.ExecuteStep(ctx, s, b.version(s), false, orders)
		})
		for n, i := range ready {
			s, out := &todo.Steps[i], outcomes[n]
			if states[i] = b.took(s, out); states[i] == failed {
				for _, item := range s.Items() {
					b.in.Failed[item] = true
				}
			}
			if out.Kind == plan.AnswerConflict {
				changed[s.Object.UID] = true
			}
		}
	}
}

// ready lists the steps whose turn it is. One that stands for several items, of some of which an earlier step has failed,
// is made anew for the others.
func (b *batch) ready(ctx context.Context, todo *plan.Plan, states []progress) []int {
	var out []int
	for i := range todo.Steps {
		s := &todo.Steps[i]
		if states[i] != waiting || slices.ContainsFunc(s.After, func(before int) bool { return states[before] == waiting }) {
			continue
		}
		if slices.ContainsFunc(s.After, func(before int) bool { return states[before] == failed }) && !b.refold(ctx, s) {
			states[i] = failed
			continue
		}
		if s.Verb == plan.VerbPatch && b.mem.patches.stand(s, b.version(s), b.r.clock.Now()) && later(todo, i) {
			states[i] = succeeded
			continue
		}
		out = append(out, i)
	}
	return out
}

// later says that a deed comes after a step.
func later(todo *plan.Plan, i int) bool {
	return slices.ContainsFunc(todo.Steps, func(s plan.Step) bool { return s.Deed() && slices.Contains(s.After, i) })
}

// refold makes a step anew for those of its items of which no earlier step has failed. It says whether there are any.
func (b *batch) refold(ctx context.Context, s *plan.Step) bool {
	if !slices.ContainsFunc(s.Items(), func(item plan.ItemKey) bool { return !b.in.Failed[item] }) {
		return false
	}
	d := b.compute(ctx, b.in)
	for i := range d.Steps {
		if n := &d.Steps[i]; n.Confirmed && n.Rule == s.Rule && n.Action == s.Action && n.Object.UID == s.Object.UID && n.Object.Resource == s.Object.Resource {
			s.Keys, s.Patch, s.Reason, s.Grace = n.Keys, n.Patch, n.Reason, n.Grace
			return true
		}
	}
	return false
}

// version is the one of its object that a step names.
func (b *batch) version(s *plan.Step) string {
	if v, changed := b.versions[s.Object.UID]; changed {
		return v
	}
	return s.Object.ResourceVersion
}

// took remembers what came of a step.
func (b *batch) took(s *plan.Step, out actuate.Outcome) progress {
	now, uid := b.r.clock.Now(), s.Object.UID
	b.tellOutcome(s, out.Answer, b.in.Now)
	switch out.Kind {
	case plan.AnswerUnsent:
		b.unsent, b.cut[uid] = true, true
		return failed
	case plan.AnswerDeleted, plan.AnswerNotFound:
		b.acted = append(b.acted, *s)
		if !s.Deed() {
			for _, item := range s.Items() {
				b.mem.told.note(item, told(s), now, b.period())
			}
			return succeeded
		}
		if s.Verb == plan.VerbPatch && out.Version != "" && out.Version == b.version(s) { // longer each time
			b.mem.backoff.Fail(uid, "its patch changes nothing: exclude objects that are already patched in when", now)
		} else {
			b.mem.backoff.Succeed(uid)
		}
		b.mem.patches.note(s, b.version(s), out.Version, now)
		b.did[uid] = outcomes()[s.Verb]
		delete(b.why, uid)
		b.remember(s, out)
		b.settle(s, out)
		if out.Kind == plan.AnswerDeleted && (s.Verb == plan.VerbDelete || s.Verb == plan.VerbEvict) && b.mem.remade.Deleted(&s.Object, now) {
			b.tellLoop(s)
		}
		if out.Kind == plan.AnswerDeleted {
			b.note(s, now)
		}
		b.versions[uid] = out.Version
		return succeeded
	case plan.AnswerLost: // it may have been done, so it counts
		b.note(s, now)
		b.settle(s, out)
		b.mem.run.Whole = false
		b.refused(uid, out, now)
	case plan.AnswerRefused:
		b.refused(uid, out, now)
	case plan.AnswerConflict: // it is decided on anew
	}
	return failed
}

// refused has an object wait after a request that was not done, or of which nobody knows.
func (b *batch) refused(uid types.UID, out actuate.Outcome, now time.Time) {
	b.mem.backoff.Fail(uid, out.Why, now)
	b.mem.backoff.Postpone(uid, out.RetryAfter, now)
	b.why[uid], b.retryAfter[uid] = out.Why, out.RetryAfter
}

// note remembers a deed for limits, where there are any.
func (b *batch) note(s *plan.Step, now time.Time) {
	if l := b.work.Limits; l != nil && (l.MaxActions > 0 || l.MaxPercent > 0) {
		b.mem.done = b.mem.done.With(b.in.Deed(s, now))
	}
}

// remember notes how an object is now, for the time until the watches show it.
func (b *batch) remember(s *plan.Step, out actuate.Outcome) {
	if out.Now == nil && !out.Gone { // nobody knows
		return
	}
	before := s.Object
	before.ResourceVersion = b.version(s)
	for _, was := range []plan.Object{b.watched[s.Object.UID], s.Object, before} {
		if was.UID != "" {
			b.mem.overlay.Note(was, out.Now)
			b.seen.Note(was, out.Now)
		}
	}
}

// settle notes what became of the row of a step.
func (b *batch) settle(s *plan.Step, out actuate.Outcome) {
	if i, recorded := b.rows[s.Object.UID]; recorded {
		b.mem.ledger.Answered(i, out.Kind, outcomes()[s.Verb])
	}
}

// outcomes says what a verb makes of an object.
func outcomes() map[plan.Verb]v1alpha1.Outcome {
	return map[plan.Verb]v1alpha1.Outcome{
		plan.VerbDelete: v1alpha1.OutcomeDeleted, plan.VerbEvict: v1alpha1.OutcomeEvicted,
		plan.VerbPatch: v1alpha1.OutcomePatched, plan.VerbRemoveFinalizer: v1alpha1.OutcomePatched,
	}
}

// again reads objects that have changed live, and decides anew on them. What else that rests on was confirmed before.
func (b *batch) again(ctx context.Context, todo plan.Plan, changed map[types.UID]bool) plan.Plan {
	b.in.Only = map[plan.ItemKey]bool{}
	var reads []plan.Read
	for i := range todo.Steps {
		s := &todo.Steps[i]
		if !changed[s.Object.UID] {
			continue
		}
		for _, t := range b.in.Snapshot.Holding(&s.Object) {
			reads = append(reads, plan.Read{Target: t, Namespace: s.Object.Namespace, Name: s.Object.Name})
		}
		delete(b.versions, s.Object.UID)
		for _, item := range s.Items() {
			b.in.Only[item] = true
			delete(b.in.Failed, item)
		}
	}
	b.ask(ctx, slices.Compact(reads))
	b.in.Snapshot = b.seen.Over(b.in.Snapshot) // what was done to other objects is not done again
	d := b.compute(ctx, b.in)
	return plan.Again(todo, d)
}

// stepGuard is what the steps of a batch ask and tell.
type stepGuard struct {
	*batch
	log logr.Logger
}

// WaitForPace waits until limits.actionsPerSecond let one more request through. It fails at once where that would be later than what
// was read live justifies: the next pass goes on, and others get their turn.
func (o *stepGuard) WaitForPace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, plan.ConfirmationServes-plan.Elapsed(o.in.Now, o.r.clock.Now()))
	defer cancel()
	return o.mem.pace.Wait(ctx)
}

// MaySend is asked before each request: this process leads, the Cleaner that the watch knows still wants it, and what it rests
// on was read lately.
func (o *stepGuard) MaySend(ctx context.Context) error {
	if !o.r.opts.Lease.Fresh() {
		return errNotLeader
	}
	c, err := o.r.known(ctx, o.key)
	if err != nil {
		return err
	}
	same, err := o.same(ctx, c)
	switch {
	case err != nil:
		return err
	case !same, c.GetUID() != o.c.GetUID(), c.GetDeletionTimestamp() != nil, plan.Held(c.Common()):
		return errNotNow
	case plan.Elapsed(o.in.Now, o.r.clock.Now()) >= plan.ConfirmationServes, o.r.opts.Skew.IsSuspect():
		return errNotNow
	}
	return nil
}

// LogIntent records a request before it is sent.
func (o *stepGuard) LogIntent(s *plan.Step, version string) {
	o.log.Info("Intent", "evaluation", o.in.Now.UTC().Format(time.RFC3339Nano), "run", o.number(), "rule", s.Rule, "verb", s.Verb,
		"object", s.Object.Ref.String(), "uid", s.Object.UID, "resourceVersion", version, "decides", o.mem.decides)
}

// number is that of the run in which the batch is recorded; 0 if nobody is to be told.
func (b *batch) number() int64 {
	if run := b.c.State().Run; run != nil && run.Lifecycle != v1alpha1.LifecycleRecurring {
		return run.Number
	}
	if len(b.rows) == 0 {
		return 0
	}
	return b.mem.ledger.Number
}
