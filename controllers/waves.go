// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/reportdedup"
	"github.com/vtex/cleaner/controllers/liveconfirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// followsInBatch is how often a batch goes after an object that has changed.
const followsInBatch = 3

// executor carries out the steps of a batch, for both lifecycles.
type executor struct {
	pass *pass
	// in is what the decision depends on, with what was read live in it.
	in plan.Input
	// run is what is known of the open run that the batch belongs to, for a Once Cleaner; nil for a Recurring Cleaner.
	run *life.Memory
	// number is the number of the run that records the batch; 0 without a sink.
	number int64
	// watched is how the watches know the objects that the batch is about.
	watched map[types.UID]observed.Object
	// versions are those of objects that this batch, or an earlier one of the run, has changed, as the API server answered.
	versions map[types.UID]string
	// acted are the steps that were carried out, and seen is how they left their objects.
	acted []plan.Step
	seen  life.Acted
	// answers are the results of the steps on objects, and partly are the objects with a step that was carried out for some of its items
	// only.
	answers map[types.UID]*life.RowAnswer
	partly  map[types.UID]bool
	// again are the objects that get a second DELETE.
	again map[types.UID]bool
	// learned says that patches have changed nothing, so that the next decision wants them no longer.
	learned bool
	// unsent says that requests were not sent, because the Cleaner has changed, or because it took too long.
	unsent bool
}

// follower recomputes the steps for objects that changed before the request (409), and backs off from those that keep changing.
type follower interface {
	decideChanged(ctx context.Context, c *life.Course, changed map[types.UID]bool) *life.Course
	postponeChanged(c *life.Course, changed map[types.UID]bool, times int)
}

// runCourse carries out a course. An object that has changed is read live, decided again and acted on at once, a few times; then it waits.
func (b *executor) runCourse(ctx context.Context, c *life.Course, f follower) *life.Course {
	b.seen, b.answers, b.partly = life.Acted{}, map[types.UID]*life.RowAnswer{}, map[types.UID]bool{}
	for times := 1; ; times++ {
		b.in.Failed = c.FailedItems()
		changed := b.carryWaves(ctx, c)
		switch {
		case len(changed) == 0:
			return c
		case times > followsInBatch:
			f.postponeChanged(c, changed, times)
			return c
		}
		c = f.decideChanged(ctx, c, changed)
	}
}

// carryWaves carries out steps: first those that come after none, then those whose earlier steps have succeeded, and so on. It
// returns the objects that have changed since they were decided on.
func (b *executor) carryWaves(ctx context.Context, c *life.Course) map[types.UID]bool {
	changed, actuator := map[types.UID]bool{}, b.pass.clients.Actuator.BeginBatch()
	for !c.IsOver() {
		ready := b.readySteps(ctx, c)
		outcomes, steps := make([]actuate.Outcome, len(ready)), make([]*plan.Step, len(ready))
		guard := &stepGuard{executor: b, log: logf.FromContext(ctx)}
		for n, i := range ready {
			steps[n] = &c.Steps[i]
		}
		b.pass.mem.lastNamespace = actuate.RunSteps(steps, b.pass.mem.lastNamespace, func(n int) {
			s := steps[n]
			if !s.IsChange() { // a report asks for nothing
				outcomes[n] = actuate.NewDone("")
				return
			}
			if s.Verb == plan.VerbHelmUninstall {
				outcomes[n] = ruleUninstalls{b.pass}.executeStep(ctx, s, b.namedVersion(s), false, guard)
				return
			}
			outcomes[n] = actuator.ExecuteStep(ctx, s, b.namedVersion(s), false, guard)
		})
		for n, i := range ready {
			s, out := &c.Steps[i], outcomes[n]
			done := b.recordOutcome(s, out)
			if done {
				c.MarkSucceeded(i)
			} else {
				c.MarkFailed(i)
				for _, item := range s.ListItems() {
					b.in.Failed[item] = true
				}
			}
			if out.Kind == life.AnswerConflict && !done {
				changed[s.Object.UID] = true
				b.noteLag(s, out.Sight)
			}
		}
	}
	return changed
}

// readySteps returns the steps that wait for no other. A step for several items is made again without the items whose earlier step has failed.
// A patch that is already in place is not repeated if another action comes after it: that action is sent at once, so that it does not
// wait for requests on other objects.
func (b *executor) readySteps(ctx context.Context, c *life.Course) []int {
	others := sync.OnceValue(func() plan.Plan { return b.decideOthers(ctx) }) // one decision serves all that are ready
	for {
		stood, out := false, []int(nil)
		ready, broken := c.NextSteps()
		for _, i := range ready {
			switch s := &c.Steps[i]; {
			case broken[i] && !b.refoldStep(s, others):
				c.MarkFailed(i)
			case s.Verb == plan.VerbPatch && b.pass.mem.Patches.HasStood(s, b.namedVersion(s), b.pass.r.clock.Now()) && c.ChangeFollows(i):
				c.MarkSucceeded(i)
				stood = true
			default:
				out = append(out, i)
			}
		}
		if !stood {
			return out
		}
	}
}

// refoldStep makes a step again for those of its items without a failed earlier step. It returns false if there are none, or no time is
// left to decide: then the step is left for the next pass.
func (b *executor) refoldStep(s *plan.Step, others func() plan.Plan) bool {
	if !slices.ContainsFunc(s.ListItems(), func(item plan.ItemKey) bool { return !b.in.Failed[item] }) {
		return false
	}
	if b.isLate() {
		b.unsent = true
		b.answerOf(s.Object.UID).Cut = true
		return false
	}
	d := others()
	for i := range d.Steps {
		if n := &d.Steps[i]; n.Confirmed && n.Rule == s.Rule && n.Action == s.Action && n.Object.UID == s.Object.UID && n.Object.Resource == s.Object.Resource {
			s.Keys, s.Patch, s.Reason, s.Grace, s.BlindFor = n.Keys, n.Patch, n.Reason, n.Grace, n.BlindFor
			b.partly[s.Object.UID] = true
			return true
		}
	}
	return false
}

// isLate reports whether no time is left to evaluate or to read: the pass is over, or the live reads are too old.
func (b *executor) isLate() bool {
	return b.pass.isOver() || monotime.ElapsedTime(b.in.Now, b.pass.r.clock.Now()) >= life.ConfirmationServes
}

// decideOthers decides again without the items that have a failed step.
func (b *executor) decideOthers(ctx context.Context) plan.Plan {
	if b.run == nil {
		return b.pass.evaluator.computePlan(ctx, b.in)
	}
	ctx, end := b.pass.evaluator.beginEvaluation(ctx)
	defer end()
	return life.JudgeRun(ctx, b.in, b.pass.store.Draft.State().Run, b.run).Plan
}

// namedVersion returns the resourceVersion that the request of a step must carry.
func (b *executor) namedVersion(s *plan.Step) string {
	if v, changed := b.versions[s.Object.UID]; changed {
		return v
	}
	return s.Object.ResourceVersion
}

// recordOutcome records the outcome of a step, and reports whether it succeeded.
func (b *executor) recordOutcome(s *plan.Step, out actuate.Outcome) bool {
	now, uid := b.pass.r.clock.Now(), s.Object.UID
	if b.isIdle(s, out) {
		b.recordIdle(s, out, now)
		return true
	}
	due := monotime.ChooseEarlier(b.pass.mem.Backoff[uid].First, b.pass.mem.due.SinceOr(b.decidedAt())) // as far as this process knows
	b.pass.journal.TellOutcome(s, out.Answer, actionlog.Moments{Decided: b.decidedAt(), Due: due})
	switch out.Kind {
	case life.AnswerUnsent:
		b.unsent = true
		b.answerOf(uid).Cut = true
	case life.AnswerReplaced:
		b.answerOf(uid).Replaced = true
		b.rememberObject(s, out)
		return b.run == nil && s.EndsObject()
	case life.AnswerDone, life.AnswerNotFound:
		b.acted = append(b.acted, *s)
		if !s.IsChange() {
			for _, item := range s.ListItems() {
				b.pass.mem.Told.NoteReport(item, reportdedup.VersionOf(s), now, b.pass.retryPeriod())
			}
			return true
		}
		b.recordDone(s, out, now)
		return true
	case life.AnswerLost, life.AnswerUnknown: // it may have been done, so it counts
		b.noteAction(s, now)
		b.answerOf(uid).Lost = true
		noteAsked(b.answerOf(uid), s)
		b.recordRefused(s, out, now)
	case life.AnswerRefused: // maybe between the two writes of a DELETE
		noteAsked(b.answerOf(uid), s)
		b.recordRefused(s, out, now)
	case life.AnswerConflict: // it is decided again, unless it is terminating
		if b.run != nil && out.Sight.Terminating {
			a := b.answerOf(uid)
			a.Did, a.Terminating, a.Finalizers = v1alpha1.OutcomeGone, true, out.Sight.Finalizers
			return true
		}
	}
	return false
}

// recordDone records an action that was carried out, or is no longer needed.
func (b *executor) recordDone(s *plan.Step, out actuate.Outcome, now time.Time) {
	uid, a := s.Object.UID, b.answerOf(s.Object.UID)
	if out.Kind == life.AnswerDone {
		a.Did = life.OutcomesOfVerbs()[s.Verb]
		noteAsked(a, s)
	} else if b.run != nil || a.Did == "" { // for a Recurring Cleaner, an earlier action counts
		a.Did = v1alpha1.OutcomeGone
	}
	a.Left, a.Gone, a.Failed, a.RetryAfter, a.Lost = out.Version, out.Gone, "", 0, false
	b.pass.mem.Backoff.ForgetObject(uid)
	b.pass.mem.Idle.NoteChange(s.IdleID())
	b.pass.mem.Patches.NotePatch(s, b.namedVersion(s), out.Version, now)
	b.rememberObject(s, out)
	if out.Kind == life.AnswerDone && s.EndsObject() && b.pass.mem.Recreations.RecordDeletion(s.Object.Place(), s.Object.UID, now) {
		b.pass.journal.TellLoop(s)
	}
	if out.Kind == life.AnswerDone {
		b.noteAction(s, now)
	}
	b.versions[uid] = out.Version
}

// isIdle says that a patch has changed nothing: it is no action, and is not sent again until its object or the rule changes. A run counts what
// became of its objects, and ends.
func (b *executor) isIdle(s *plan.Step, out actuate.Outcome) bool {
	return b.run == nil && s.Verb == plan.VerbPatch && out.Kind == life.AnswerDone && out.Version != "" && out.Version == b.namedVersion(s)
}

// recordIdle records that a patch has changed nothing.
func (b *executor) recordIdle(s *plan.Step, out actuate.Outcome, now time.Time) {
	uid := s.Object.UID
	if a := b.answerOf(uid); a.Did == "" {
		a.Cut = true // there is nothing to count
	}
	b.learned = true
	b.pass.journal.TellIdle(s)
	b.pass.mem.Backoff.ForgetObject(uid)
	b.pass.mem.Idle.NoteIdle(s.IdleID(), out.Version, s.Patch.Sum(), now)
	b.pass.mem.Patches.NotePatch(s, b.namedVersion(s), out.Version, now)
}

// answerOf is what has come so far of the steps on an object.
func (b *executor) answerOf(uid types.UID) *life.RowAnswer {
	if b.answers[uid] == nil {
		b.answers[uid] = &life.RowAnswer{}
	}
	return b.answers[uid]
}

// noteAsked notes a DELETE that may have marked its object as terminating.
func noteAsked(a *life.RowAnswer, s *plan.Step) {
	a.Asked = a.Asked || s.Verb == plan.VerbDelete
}

// recordRefused has an object wait after a request that was refused, or whose outcome is unknown.
func (b *executor) recordRefused(s *plan.Step, out actuate.Outcome, now time.Time) {
	uid, reason := s.Object.UID, s.Verb.RefusalReason()
	a := b.answerOf(uid)
	a.Failed, a.FailedReason, a.RetryAfter = out.Why, reason, out.RetryAfter
	if b.run == nil {
		b.pass.mem.Backoff.RecordFailure(uid, reason, out.Why, now)
		b.pass.mem.Backoff.Postpone(uid, out.RetryAfter, now)
	}
}

// noteAction remembers an action for limits, if there are any. The first DELETE of an object counts, and a second one does not.
func (b *executor) noteAction(s *plan.Step, now time.Time) {
	if l := b.pass.assignment.Work.Limits; !b.again[s.Object.UID] && l != nil && (l.MaxActions > 0 || l.MaxPercent > 0 || l.PerGroup > 0) {
		b.pass.mem.Done = b.pass.mem.Done.AddAction(b.in.MakeAction(s, now))
	}
}

// rememberObject notes how an object is now, for the time until the watches show it.
func (b *executor) rememberObject(s *plan.Step, out actuate.Outcome) {
	if b.run != nil || out.Now == nil && !out.Gone { // nothing is read before the run is over; or the outcome is unknown
		return
	}
	before := s.Object
	before.ResourceVersion = b.namedVersion(s)
	b.pass.mem.Overlay.NoteUnseen(b.watched[s.Object.UID], before)
	for _, was := range []observed.Object{b.watched[s.Object.UID], s.Object, before} {
		if was.UID != "" {
			b.pass.mem.Overlay.NoteAnswer(was, out.Now)
			b.seen.NoteAnswer(was, out.Now)
		}
	}
	if reads := b.pass.mem.queried.reads; reads != nil {
		b.pass.mem.Overlay.KeepParts(s.Object.UID, reads)
		b.seen.KeepParts(s.Object.UID, reads)
	}
}

// batchFollower is the follower of a Recurring Cleaner: it goes after the objects of a batch.
type batchFollower struct{ executor *executor }

// isBlind says that a step has an item that waits for `for`, and that the watches do not show the changes of its object soon enough: after a
// live read that shows a change, the item waits until the watches show it too, because the result of `when` in between is unknown.
func (b *executor) isBlind(s *plan.Step) bool {
	return s.BlindFor > 0 && b.pass.mem.Lagging.IsBlind(s, b.pass.r.clock.Now())
}

// noteLag records that the watches are behind for an object that has changed.
func (b *executor) noteLag(s *plan.Step, now life.Sight) {
	if b.run == nil && now.ResourceVersion != "" && b.isBlind(s) {
		b.pass.mem.Lagging.NoteLag(s, now.ResourceVersion, b.in.Now, b.watched[s.Object.UID].ResourceVersion, s.Object.ResourceVersion, b.namedVersion(s))
	}
}

// decideChanged reads changed objects live, and decides again on their items, except those that wait for the watches, and those beyond what a batch
// may read. What else these depend on was confirmed before.
func (b batchFollower) decideChanged(ctx context.Context, c *life.Course, changed map[types.UID]bool) *life.Course {
	b.executor.in.Only = map[plan.ItemKey]bool{}
	var reads []observed.Read
	for i := range c.Steps {
		s := &c.Steps[i]
		if !changed[s.Object.UID] {
			continue
		}
		if b.executor.isBlind(s) || len(b.executor.in.Only) >= plan.MaxReads {
			b.executor.pass.mem.Backoff.RecordConflict(s.Object.UID, s.Verb.RefusalReason(), 1, b.executor.pass.r.clock.Now())
			continue
		}
		reads = append(reads, b.executor.readsOf(s)...)
		delete(b.executor.versions, s.Object.UID)
		for _, item := range s.ListItems() {
			b.executor.in.Only[item] = true
			delete(b.executor.in.Failed, item)
		}
	}
	if len(b.executor.in.Only) == 0 {
		return life.NewCourse(plan.Plan{})
	}
	if !liveconfirm.ReadLive(ctx, b.executor.pass.reads.MeterMoreLive(b.executor.pass.clients.Live, endOfPass(b.executor.pass)), &b.executor.in, slices.Compact(reads), b.executor.isLate) || b.executor.isLate() {
		b.executor.unsent = true // the next pass decides on them
		return life.NewCourse(plan.Plan{})
	}
	b.executor.in.Snapshot = b.executor.seen.OverlaySnapshot(b.executor.in.Snapshot) // what was done to other objects is not done again
	b.executor.in.Done = b.executor.pass.mem.Done                                    // limits count what this batch has done
	d := b.executor.pass.evaluator.computePlan(ctx, b.executor.in)
	return life.NewCourse(life.KeepEarlierObjects(plan.Plan{Steps: c.Steps}, d))
}

// postponeChanged has objects wait that have changed each time.
func (b batchFollower) postponeChanged(c *life.Course, changed map[types.UID]bool, times int) {
	for uid := range changed {
		b.executor.pass.mem.Backoff.RecordConflict(uid, c.FindVerb(uid).RefusalReason(), times, b.executor.pass.r.clock.Now())
	}
}

// readsOf are the live reads of the object of a step, in each target where it stands.
func (b *executor) readsOf(s *plan.Step) []observed.Read {
	var out []observed.Read
	for _, t := range b.in.Snapshot.TargetsOf(&s.Object) {
		out = append(out, b.in.Snapshot.ReadOf(t, &s.Object))
	}
	return out
}

// stepGuard implements actuate.Guard for the steps of a batch. A step that it refuses is decided on again: an uninstall that has begun is not,
// so that controllers/internal/uninstalls has a guard of its own.
type stepGuard struct {
	executor *executor
	log      logr.Logger
}

// LimitWait ends the wait when the live reads are too old: the next pass continues, and others get a worker.
func (o *stepGuard) LimitWait(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, life.ConfirmationServes-monotime.ElapsedTime(o.executor.in.Now, o.executor.pass.r.clock.Now()))
}

// WaitForPace waits until limits.actionsPerSecond let one more request through. It fails at once where that would be later than ctx ends.
func (o *stepGuard) WaitForPace(ctx context.Context) error { return o.executor.pass.mem.pace.Wait(ctx) }

// MaySend is asked before each request: this process owns the Cleaner, which as the watch knows it still wants the request, and what it
// rests on was read lately.
func (o *stepGuard) MaySend(ctx context.Context) error {
	if !o.executor.pass.mem.tenure.Fresh() {
		return cleanerstore.ErrNotOwner
	}
	c, err := o.executor.pass.r.knownCleaner(ctx, o.executor.pass.store.Key)
	if err != nil {
		return err
	}
	same, err := o.mayGoOn(ctx, c)
	switch {
	case err != nil:
		return err
	case !same, c.GetUID() != o.executor.pass.store.Draft.GetUID(), c.GetDeletionTimestamp() != nil, life.IsPaused(c.Common()):
		return cleanerstore.ErrOutdated
	case monotime.ElapsedTime(o.executor.in.Now, o.executor.pass.r.clock.Now()) >= life.ConfirmationServes, o.executor.pass.r.opts.Skew.IsSuspect():
		return cleanerstore.ErrOutdated
	}
	return nil
}

// LogIntent records a request before it is sent.
func (o *stepGuard) LogIntent(s *plan.Step, version string) {
	log := o.log
	if o.executor.again[s.Object.UID] {
		log = log.WithValues("again", true)
	}
	log.Info("Intent", "evaluation", o.executor.in.Now.UTC().Format(time.RFC3339Nano), "run", o.executor.number, "rule", s.Rule, "verb", s.Verb,
		"object", s.Object.Ref.String(), "uid", s.Object.UID, "resourceVersion", version, "decides", o.executor.pass.mem.fingerprint)
}

// mayGoOn reports whether the spec is the one that was decided on. An open run continues after an edit that decides nothing.
func (o *stepGuard) mayGoOn(ctx context.Context, c v1alpha1.Owner) (bool, error) {
	same, err := o.executor.pass.r.assignments().IsCurrent(ctx, c, o.executor.pass.assignment.Version)
	if err != nil || same || o.executor.run == nil {
		return same, err
	}
	fingerprint, err := o.executor.pass.r.fingerprintOf(ctx, c)
	return err == nil && fingerprint == o.executor.pass.store.Draft.State().Run.Decides, err
}

// decidedAt is when it was decided to act.
func (b *executor) decidedAt() time.Time {
	if b.run == nil {
		return b.in.Now
	}
	return b.pass.store.Draft.State().Run.DecidedAt.Time
}
