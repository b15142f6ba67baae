// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"crypto/sha256"
	"maps"
	"math"
	"slices"
	"time"
	"weak"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/lookups"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
)

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
	d.results, d.sums = d.in.Results.BeginDecision(d.in.dueTime(), period, room), map[string]observed.ContentSum{}
	if d.in.change != nil {
		d.sums = maps.Clone(d.in.change.now.sums)
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
	own := r.in.Spec.FindTarget(depends.Own)
	if depends.Impossible != "" || own < 0 || len(r.in.Snapshot[own].Objects) != items {
		return nil
	}
	joined, lookedUp := sha256.New(), sha256.New()
	for _, target := range depends.Joined {
		s, to := r.sumContents(target), joined
		if !s.IsKnown {
			return nil
		}
		if slices.Contains(depends.LookedUp, target) {
			to = lookedUp
		}
		to.Write(s.Sum[:])
	}
	r.eval.RecordLookups()
	inputs := reuse.Inputs{Joined: reuse.Sum(joined.Sum(nil)), LookedUp: reuse.Sum(lookedUp.Sum(nil))}
	k := &known{rule: r, objects: r.in.Snapshot[own].Objects, results: r.results.BeginRule(r.rule.Name, inputs, items, func() (*lookups.Changes, bool) {
		if !r.in.Earlier.belongsTo(r.in) {
			return nil, false
		}
		return r.eval.FindChangedLookups(r.in.Earlier.lookups)
	})}
	r.in.change.checkRule(r, depends.LookedUp)
	return k
}

// sumContents sums up what expressions see of a target, once.
func (d *decider) sumContents(target string) observed.ContentSum {
	if _, done := d.sums[target]; !done {
		s := observed.ContentSum{}
		if at := d.in.Spec.FindTarget(target); at >= 0 {
			s = d.in.Snapshot[at].SumContents()
		}
		d.sums[target] = s
	}
	return d.sums[target]
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
		k.results.NoteFalse(content, valid.Until, k.rule.eval.LastLookups())
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

// Base is what a plan hands on, so that the next one need not look at what has not changed since. It never changes.
type Base struct {
	programs weak.Pointer[celenv.Programs] // a Base holds none that nothing else uses
	// looksOnly says that it has no more than lookups and sums, which serve plans about all items: what has changed is not enough for one.
	looksOnly bool
	// own says which targets have the items of rules, and counts are those of the rules.
	own    []bool
	counts []RuleCount
	// targets have the first objects of lists only. Of those that have no items, joined has all, values is what expressions see, and sums are their
	// contents.
	targets, joined observed.Snapshot
	values          map[string]any
	sums            map[string]observed.ContentSum
	// kept is what evaluations have found out, and lookups is what of that serves to find changes of what was looked up.
	kept, lookups *celenv.Kept
	// seenBytes is about what the objects take that only lookups has. drifted counts the objects that have changed since its values were computed.
	seenBytes int64
	drifted   int
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
	// maxDrifted is after how many changes of objects the values of lookups are computed again: until then they may have objects that are gone.
	maxDrifted = 500
	// moreResults is how many results there may be besides those of a few items.
	moreResults = 1024
)

// CountBytes is about how much memory it takes.
func (b *Base) CountBytes() int64 {
	if b == nil {
		return 0
	}
	bytes := b.kept.CountBytes() + b.lookups.CountOlder()
	if b.looksOnly {
		bytes = b.lookups.CountBytes() + b.seenBytes
	}
	bytes += objectBytes * int64(b.drifted)
	for t := range b.targets {
		bytes += objectBytes*int64(len(b.joined[t].Objects)) + objectBytes/4*int64(len(b.targets[t].Objects))
	}
	return bytes
}

// ListMoments returns what the targets were, for reads that say what has changed since; nil if there is no Base.
func (b *Base) ListMoments() []any {
	if b == nil || b.looksOnly {
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

// newBase returns the Base of a plan about all items; nil if it is of no use to the next one, or if there is no room.
func newBase(d *decider, p *Plan, e *celenv.Evaluation) *Base {
	in := d.in
	if in.change != nil { // ComputeChange makes it
		next := *in.change.now
		next.kept, _ = e.KeepValues()
		older := next.lookups.KeepInPieces(e, in.change.joined)
		if next.drifted > maxDrifted {
			older, next.drifted = nil, 0
		}
		next.lookups = next.kept.KeepLookups(in.Programs, older)
		return &next
	}
	if d.results == nil {
		return nil
	}
	b := &Base{programs: weak.Make(in.Programs), sums: d.sums}
	b.kept, _ = e.KeepValues()
	older, drifted := in.Earlier.findLookups(d)
	b.lookups, b.drifted = b.kept.KeepLookups(in.Programs, older), drifted
	if !b.follow(in, p, e) {
		b.targets, b.joined, b.values, b.kept, b.looksOnly = nil, nil, nil, nil, true
		if b.seenBytes = objectBytes * countLookedUp(in); b.seenBytes == 0 {
			return nil
		}
	}
	if in.Room != nil && b.CountBytes()+p.Results.CountBytes() > in.Room.ResultBytes {
		return nil
	}
	return b
}

// countLookedUp counts the objects that rules look up: none if some were decoded for this plan alone.
func countLookedUp(in *Input) (n int64) {
	for _, target := range celenv.ListLookedUp(in.Programs) {
		seen := &in.Snapshot[in.Spec.FindTarget(target)]
		if seen.At == nil {
			return 0
		}
		n += int64(len(seen.Objects))
	}
	return n
}

// findLookups returns the values in which entries were looked up, of variables that read no target whose contents have changed since; nil if there
// are none. How many objects have changed since they were computed goes with them.
func (b *Base) findLookups(d *decider) (older *celenv.Kept, drifted int) {
	if !b.belongsTo(d.in) {
		return nil, 0
	}
	var changed []string
	for t := range d.in.Spec.Targets {
		name := d.in.Spec.Targets[t].Name
		if was := b.sums[name]; !was.IsKnown || was != d.sumContents(name) {
			changed = append(changed, name)
		}
	}
	return d.in.Programs.KeepWithout(b.lookups, changed), b.drifted
}

// follow adds what ComputeChange has to know. It is not ok if the next plan must look at all items.
func (b *Base) follow(in *Input, p *Plan, e *celenv.Evaluation) (ok bool) {
	if len(in.Spec.Conditions) > 0 || !in.Spec.IsRecurring() || in.Spec.Helm != nil || !p.wantsNothing() || len(p.Counts) != len(in.Spec.Rules) {
		return false
	}
	b.own, b.counts, b.targets, b.joined, b.values = make([]bool, len(in.Spec.Targets)), p.Counts, slices.Clone(in.Snapshot), make(observed.Snapshot, len(in.Snapshot)), map[string]any{}
	items, ok := b.findOwn(in)
	if !ok || p.Results.CountResults() != items { // else some have no number, or no room
		return false
	}
	b.room = items + max(moreResults, items/4)
	if until := e.Foresight().Until; !until.IsZero() {
		b.until = until
	}
	for i := range in.Spec.Targets {
		if !b.addTarget(&in.Spec.Targets[i], i) {
			return false
		}
	}
	return true
}

// findOwn finds the targets that have the items of rules, and counts the items. It is not ok if a change of an item may concern others.
func (b *Base) findOwn(in *Input) (items int, ok bool) {
	for i := range in.Spec.Rules {
		depends := in.Programs.FindReuse(i)
		own := in.Spec.FindTarget(depends.Own)
		// With leave, all items are grouped, also those that are left alone; and which revision is the newest depends on others. How many items a rule keeps
		// may also depend on others, and so may the order of those.
		isFree := in.Spec.Rules[i].KeepsFixedNumber() && len(depends.Ordering) == 0
		if own < 0 || in.Spec.Rules[i].Leave != nil || in.Spec.Rules[i].FindUninstall() != nil || b.counts[i].Matched > 0 && !isFree {
			return 0, false
		}
		b.own[own] = true
		items += b.counts[i].Items
	}
	for i := range in.Spec.Rules {
		for _, joined := range in.Programs.FindReuse(i).Joined {
			if b.own[in.Spec.FindTarget(joined)] {
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
		b.joined[place], b.values[t.Name] = *seen, seen.MakeValue(t.Reference.Name != "")
		b.joined[place].At = nil // it is that of targets
	}
	if t.Reference.Name == "" {
		*seen = seen.NameFirst(FirstObjects)
	}
	return true
}

// change is what has changed since a Base, while a plan is made of that.
type change struct {
	before, now *Base
	results     *reuse.Results // of the plan before
	joined      []string       // the targets that have no items and have changed
	// were and are what expressions see of the objects of these targets that have changed, alone, as they were and as they are.
	were, are map[string]any
	// concerns says that other items are concerned than those that have changed.
	concerns bool
}

// addJoined adds what has changed of a target that has no items, by changes of contents. It is not ok if that may concern items for another reason than that entries are looked
// up.
func (c *change) addJoined(in, some *Input, place int, changes []observed.Change) (ok bool) {
	t, b := &in.Spec.Targets[place], c.now
	if !c.isLookedUp(in, t.Name) {
		return false
	}
	if len(c.joined) == 0 {
		b.joined, b.values, b.sums = slices.Clone(b.joined), maps.Clone(b.values), maps.Clone(b.sums)
		c.were, c.are = map[string]any{}, map[string]any{}
	}
	c.joined = append(c.joined, t.Name)
	were, are := b.joined[place].SplitChanges(changes)
	b.drifted += len(changes)
	c.were[t.Name], c.are[t.Name] = were.MakeValue(false), are.MakeValue(false) // lists only are made in pieces
	now := b.joined[place].WithChanges(in.Snapshot[place].Changes)
	b.joined[place], b.values[t.Name], b.sums[t.Name] = now, now.MakeValue(t.Reference.Name != ""), now.SumContents()
	if t.Reference.Name != "" {
		b.targets[place], some.Snapshot[place].Objects = now, now.Objects
	} else {
		b.targets[place] = now.NameFirst(FirstObjects)
	}
	b.kept = in.Programs.KeepWithout(b.kept, []string{t.Name, ""}) // what is evaluated once for all items may read any target
	return b.sums[t.Name].IsKnown
}

// isLookedUp says that no rule reads a target otherwise than by looking up entries, and only for items for which `when` was false.
func (c *change) isLookedUp(in *Input, target string) bool {
	for i := range in.Spec.Rules {
		if depends := in.Programs.FindReuse(i); slices.Contains(depends.Joined, target) && (c.before.counts[i].Matched > 0 || !slices.Contains(depends.LookedUp, target)) {
			return false
		}
	}
	return true
}

// checkRule notes whether what a rule has looked up for other items has changed. c may be nil.
func (c *change) checkRule(r *deciding, lookedUp []string) {
	if c == nil || !c.results.LooksUp(r.rule.Name) || !slices.ContainsFunc(c.joined, func(target string) bool { return slices.Contains(lookedUp, target) }) {
		return
	}
	if changes, ok := r.eval.FindChangedPieces(c.before.lookups, c.joined, c.were, c.are); ok && c.now.drifted <= maxDrifted && !c.results.AreConcerned(r.rule.Name, changes) {
		return
	}
	changes, ok := r.eval.FindChangedLookups(c.before.lookups)
	c.concerns = c.concerns || !ok || c.results.AreConcerned(r.rule.Name, changes)
}

// ComputeChange is ComputePlan for a snapshot of what has changed since a Base, which the Results of the input are of, too. It is not ok if all
// items must be looked at. If it is, the snapshot has the first objects of lists from then on.
func ComputeChange(ctx context.Context, in *Input, b *Base) (p Plan, ok bool) {
	if !b.serves(in) {
		return p, false
	}
	some, next := *in, *b
	c := &change{before: b, now: &next, results: in.Results}
	some.change, some.Results, some.Values, some.Earlier = c, &reuse.Results{}, nil, nil // this snapshot has no more than what has changed
	some.Snapshot, next.targets = make(observed.Snapshot, len(b.targets)), slices.Clone(b.targets)
	more := make([]int, len(b.targets))
	for t := range in.Snapshot {
		if more[t], ok = c.addChanges(in, &some, t); !ok {
			return p, false
		}
	}
	p = ComputePlan(ctx, some)
	if !p.wantsNothing() || c.concerns || p.Base == nil || p.Results.CountResults() != p.Evaluated {
		return p, false
	}
	next.kept, next.lookups, next.drifted = p.Base.kept, p.Base.lookups, p.Base.drifted
	if p.Results = in.Results.ExtendWith(p.Results); p.Results.CountResults() > b.room {
		return p, false
	}
	p.Reused = -p.Evaluated
	for i := range p.Counts {
		c, own := &p.Counts[i], in.Spec.FindTarget(in.Programs.FindReuse(i).Own)
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

// belongsTo says that there is a Base, of the programs of an input and of its Results, and that these serve now.
func (b *Base) belongsTo(in *Input) bool {
	period, err := in.Spec.RetryPeriod()
	return b != nil && err == nil && b.programs == weak.Make(in.Programs) && in.Results.ServeAt(in.dueTime(), period)
}

// serves says that a Base serves ComputeChange, and that time alone has changed nothing since.
func (b *Base) serves(in *Input) bool {
	return b.belongsTo(in) && !b.looksOnly && (b.until.IsZero() || in.dueTime().Before(b.until))
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

// addChanges adds what has changed of a target, and the objects that are evaluated for it, and returns how many more the target has. It is not ok if
// they are not all that has to be evaluated.
func (c *change) addChanges(in, some *Input, place int) (more int, ok bool) {
	seen, to, now := &in.Snapshot[place], &some.Snapshot[place], &c.now.targets[place]
	if seen.State != observed.Complete || !seen.IsChange || seen.At == nil {
		return 0, false
	}
	if *to = c.before.targets[place]; in.Spec.Targets[place].Reference.Name == "" {
		to.Objects = nil
	}
	changes := seen.ListContentChanges()
	if !c.before.own[place] {
		ok = len(changes) == 0 || c.addJoined(in, some, place, changes)
		now.At = seen.At
		return 0, ok
	}
	for i := range changes {
		d := &changes[i]
		if d.Was != (d.Now != nil) && c.before.targets[place].IsAmongFirst(FirstObjects, d) {
			return 0, false
		}
		if d.Was {
			more--
		}
		if d.Now != nil {
			more++
			to.Objects = append(to.Objects, *d.Now)
		}
	}
	slices.SortFunc(to.Objects, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) })
	now.At, now.More = seen.At, now.More+more
	return more, true
}
