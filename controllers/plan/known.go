// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"
	"weak"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
)

// contentSum is a sum of the contents of a target, unless some of its objects have no number.
type contentSum struct {
	sum   reuse.Sum
	known bool
}

// beginResults begins to use the results of earlier plans, if the input has them.
func (d *decider) beginResults() {
	period, err := d.in.Spec.RetryPeriod()
	if d.in.Results == nil || err != nil {
		return
	}
	room := int64(math.MaxInt64)
	if d.in.Room != nil {
		room = d.in.Room.ResultBytes
	}
	d.results, d.sums = d.in.Results.BeginDecision(d.in.dueTime(), period, room), map[string]contentSum{}
	if d.in.base != nil {
		d.sums = maps.Clone(d.in.base.sums)
	}
}

// known are the results of a rule that are known from earlier plans. Nil knows none.
type known struct {
	rule    *deciding
	objects []observed.Object // the items, in their order
	results *reuse.Rule
}

// findKnown returns what is known of the items of the rule; nil if that cannot be told.
func findKnown(r *deciding, items int) *known {
	if r.results == nil {
		return nil
	}
	depends := r.in.Programs.FindReuse(r.index)
	own := findTarget(r.in.Spec, depends.Own)
	if depends.Impossible != "" || own < 0 || len(r.in.Snapshot[own].Objects) != items {
		return nil
	}
	joined := sha256.New()
	for _, target := range depends.Joined {
		s := r.sumContents(target)
		if !s.known {
			return nil
		}
		joined.Write(s.sum[:])
	}
	return &known{rule: r, objects: r.in.Snapshot[own].Objects, results: r.results.BeginRule(r.rule.Name, reuse.Sum(joined.Sum(nil)), items)}
}

// findTarget returns the place of a target in a spec; -1 if there is none.
func findTarget(spec *v1alpha1.Work, name string) int {
	return slices.IndexFunc(spec.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Name == name })
}

// sumContents sums up what expressions see of a target.
func (d *decider) sumContents(target string) contentSum {
	if s, done := d.sums[target]; done {
		return s
	}
	s, at := contentSum{}, findTarget(d.in.Spec, target)
	if at >= 0 {
		seen, sum := &d.in.Snapshot[at], sha256.New()
		sum.Write([]byte(seen.State.String()))
		var number [8]byte
		s.known = true
		for i := range seen.Objects {
			s.known = s.known && seen.Objects[i].Content != 0
			binary.LittleEndian.PutUint64(number[:], seen.Objects[i].Content)
			sum.Write(number[:])
		}
		s.sum = reuse.Sum(sum.Sum(nil))
	}
	d.sums[target] = s
	return s
}

// isFalse says that `when` is known to be false for an item.
func (k *known) isFalse(place int) bool {
	if k == nil || !k.results.IsFalse(k.objects[place].Content) {
		return false
	}
	k.rule.p.Reused++
	return true
}

// noteResult remembers whether `when` was false for an item that was evaluated.
func (k *known) noteResult(place int, isFalse bool) {
	if k == nil {
		return
	}
	valid := k.rule.eval.LastForesight()
	if content := k.objects[place].Content; isFalse && !valid.Unknown {
		k.results.NoteFalse(content, valid.Until)
	} else {
		k.results.NoteOther(content)
	}
}

// end hands the results on, and has the plan be made again when one of those that were known may change.
func (k *known) end() {
	if k != nil {
		k.rule.eval.AssumeForesight(k.results.EndRule())
	}
}

// Base is what a plan hands on that wants nothing, so that the next one need not look at what has not changed since. It never changes.
type Base struct {
	programs weak.Pointer[celenv.Programs] // a Base holds none that nothing else uses
	// own says which targets have the items of rules, and counts are those of the rules.
	own    []bool
	counts []RuleCount
	// targets have the first objects of lists only. Of those that have no items, values is what expressions see, and sums are their contents.
	targets observed.Snapshot
	values  map[string]any
	sums    map[string]contentSum
	// kept is what evaluations have found out, and keptBytes and seenBytes are about what that and the rest take.
	kept                 *celenv.Kept
	keptBytes, seenBytes int64
	// until is when time may change an answer, by the API server's clock; zero: never.
	until time.Time
	// room is for how many results there is room, until all items are evaluated again: those of earlier contents of items are still among them.
	room int
}

const (
	// objectBytes is about how many bytes an object takes that only a Base still has.
	objectBytes = 1 << 10
	// FirstObjects is how many objects of each list a Base has, for people.
	FirstObjects = 100
	// moreResults is how many results there may be besides those of a few items.
	moreResults = 1024
)

// CountBytes is about how much memory it takes.
func (b *Base) CountBytes() int64 {
	if b == nil {
		return 0
	}
	return b.keptBytes + b.seenBytes
}

// ListMoments returns what the targets were, for reads that say what has changed since; nil if there is no Base.
func (b *Base) ListMoments() []any {
	if b == nil {
		return nil
	}
	moments := make([]any, len(b.targets))
	for t := range b.targets {
		moments[t] = b.targets[t].At
	}
	return moments
}

// wantsNothing says that `when` is false for all items, but for those that `keep` keeps, and that nothing else is known of them.
func (p *Plan) wantsNothing() bool {
	return p.Reason == v1alpha1.ReasonNothingToDo && len(p.Errors)+len(p.Holds) == 0 && !p.Unpredictable.IsAny() &&
		!slices.ContainsFunc(p.Counts, func(c RuleCount) bool { return c.Matched > c.Kept })
}

// newBase returns the Base of a plan about all items; nil if the next one must look at all of them, or if there is no room.
func newBase(d *decider, p *Plan, e *celenv.Evaluation) *Base {
	in := d.in
	if in.base != nil { // ComputeChange makes it
		next := *in.base
		return next.keepValues(e)
	}
	if d.results == nil || len(in.Spec.Conditions) > 0 || !in.Spec.IsRecurring() || in.Spec.Helm != nil || !p.wantsNothing() || len(p.Counts) != len(in.Spec.Rules) {
		return nil
	}
	b := &Base{programs: weak.Make(in.Programs), own: make([]bool, len(in.Spec.Targets)), counts: p.Counts, targets: slices.Clone(in.Snapshot), values: map[string]any{}, sums: d.sums}
	items, ok := b.findOwn(in)
	if !ok || p.Results.CountResults() != items { // else some have no number, or no room
		return nil
	}
	b.room = items + max(moreResults, items/4)
	if until := e.Foresight().Until; !until.IsZero() {
		b.until = until
	}
	for i := range in.Spec.Targets {
		if !b.addTarget(&in.Spec.Targets[i], i) {
			return nil
		}
	}
	if b.keepValues(e); in.Room != nil && b.CountBytes()+p.Results.CountBytes() > in.Room.ResultBytes {
		return nil
	}
	return b
}

// keepValues takes over what an evaluation has found out.
func (b *Base) keepValues(e *celenv.Evaluation) *Base {
	kept, bytes := e.KeepValues()
	b.kept, b.keptBytes = kept, b.keptBytes+bytes // what was kept before is not counted in it
	return b
}

// findOwn finds the targets that have the items of rules, and counts the items. It is not ok if a change of an item may concern others.
func (b *Base) findOwn(in *Input) (items int, ok bool) {
	for i := range in.Spec.Rules {
		own := findTarget(in.Spec, in.Programs.FindReuse(i).Own)
		// With leave, all items are grouped, also those that are left alone; and which revision is the newest depends on others. How many items a rule keeps
		// may also depend on others.
		if own < 0 || in.Spec.Rules[i].Leave != nil || in.Spec.Rules[i].FindUninstall() != nil || b.counts[i].Matched > 0 && !in.Spec.Rules[i].KeepsFixedNumber() {
			return 0, false
		}
		b.own[own] = true
		items += b.counts[i].Items
	}
	for i := range in.Spec.Rules {
		for _, joined := range in.Programs.FindReuse(i).Joined {
			if b.own[findTarget(in.Spec, joined)] {
				return 0, false
			}
		}
	}
	return items, true
}

// addTarget adds what a target was. It is not ok if nothing can say what changes of it.
func (b *Base) addTarget(t *v1alpha1.ClusterTarget, place int) bool {
	seen := &b.targets[place]
	if seen.At == nil || seen.State != observed.Complete || !t.IsIncluded() || t.Delete {
		return false
	}
	if !b.own[place] {
		b.values[t.Name] = targetValue(t, seen)
		b.seenBytes += objectBytes * int64(len(seen.Objects))
	}
	if t.Reference.Name == "" {
		seen.More = max(0, len(seen.Objects)-FirstObjects)
		seen.Objects = slices.Clone(seen.Objects[:len(seen.Objects)-seen.More])
		for i := range seen.Objects {
			seen.Objects[i] = observed.Object{Ref: seen.Objects[i].Ref}
		}
		b.seenBytes += objectBytes / 4 * int64(len(seen.Objects))
	}
	return true
}

// ComputeChange is ComputePlan for a snapshot of what has changed since a Base, which the Results of the input are of, too. It is not ok if all
// items must be looked at. If it is, the snapshot has the first objects of lists from then on.
func ComputeChange(ctx context.Context, in *Input, b *Base) (p Plan, ok bool) {
	if b == nil || !b.serves(in) {
		return p, false
	}
	change, next := *in, *b
	change.Values = nil // this snapshot has no more than what has changed
	change.base, change.Results, change.Snapshot = b, &reuse.Results{}, slices.Clone(b.targets)
	next.targets = slices.Clone(b.targets)
	more := make([]int, len(b.targets))
	for t := range in.Snapshot {
		if in.Spec.Targets[t].Reference.Name == "" {
			change.Snapshot[t].Objects = nil
		}
		if more[t], ok = b.addChanges(&change.Snapshot[t], &in.Snapshot[t], t); !ok {
			return p, false
		}
		next.targets[t].At, next.targets[t].More = in.Snapshot[t].At, next.targets[t].More+more[t]
	}
	p = ComputePlan(ctx, change)
	if !p.wantsNothing() || p.Base == nil || p.Results.CountResults() != p.Evaluated {
		return p, false
	}
	next.kept, next.keptBytes = p.Base.kept, p.Base.keptBytes
	if p.Results = in.Results.ExtendWith(p.Results); p.Results.CountResults() > b.room {
		return p, false
	}
	p.Reused = -p.Evaluated
	for i := range p.Counts {
		c, own := &p.Counts[i], findTarget(in.Spec, in.Programs.FindReuse(i).Own)
		c.Items = b.counts[i].Items + more[own]
		if c.Matched += b.counts[i].Matched - in.Results.CountOthers(c.Rule, in.Snapshot[own].ListBefore()); c.Matched > b.counts[i].Matched {
			return p, false // keep may not keep all of them: how many it keeps is not known here
		}
		c.Kept, p.Reused = c.Matched, p.Reused+c.Items
	}
	next.counts, next.until = p.Counts, p.assumeUntil(in, b.until)
	if p.Base = &next; in.Room != nil && next.CountBytes()+p.Results.CountBytes() > in.Room.ResultBytes {
		p.Base = nil
	}
	in.Snapshot = next.targets
	return p, true
}

// serves says that a Base is of the programs of an input, and that time alone has changed nothing since.
func (b *Base) serves(in *Input) bool {
	period, err := in.Spec.RetryPeriod()
	due := in.dueTime()
	return err == nil && b.programs == weak.Make(in.Programs) && in.Results.ServeAt(due, period) && (b.until.IsZero() || due.Before(b.until))
}

// assumeUntil has a plan be made again also when time may change an answer about other items, by the API server's clock, and returns when time may
// change any.
func (p *Plan) assumeUntil(in *Input, until time.Time) time.Time {
	if !p.FirstChange.IsZero() {
		until = monotime.ChooseEarlier(until, p.FirstChange.Add(-in.Clock.Ahead))
	}
	p.FirstChange = ahead{in}.byOurClock(until)
	if p.NextCheck, p.Steady = p.FirstChange, p.FirstChange; p.FirstChange.IsZero() {
		p.Steady = in.Now.Add(always)
	}
	if !p.NextCheck.Before(p.Next) {
		p.NextCheck = time.Time{}
	}
	return until
}

// isAmongFirst says that an object that comes or goes is, or was, among the first ones of a list.
func (b *Base) isAmongFirst(place int, c *observed.Change) bool {
	first := b.targets[place].Objects
	return len(first) < FirstObjects || observed.CompareNames(&observed.Ref{Namespace: c.Namespace, Name: c.Name}, &first[len(first)-1].Ref) <= 0
}

// addChanges adds the objects of a target that have changed to those that are evaluated, and returns how many more the target has. It is not ok
// if they are not all that has to be evaluated.
func (b *Base) addChanges(to, seen *observed.Target, place int) (more int, ok bool) {
	if seen.State != observed.Complete || !seen.IsChange || seen.At == nil {
		return 0, false
	}
	for _, c := range seen.Changes {
		switch same := c.Was && c.Now != nil && c.Now.Content == c.Before; {
		case same && c.Before != 0:
			continue
		case !b.own[place] || c.Was != (c.Now != nil) && b.isAmongFirst(place, &c):
			return 0, false
		}
		if c.Was {
			more--
		}
		if c.Now != nil {
			more++
			to.Objects = append(to.Objects, *c.Now)
		}
	}
	slices.SortFunc(to.Objects, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) })
	return more, true
}
