// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/controllers/plan/askedreads"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/itemerrors"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// decideRules adds the steps of the rules to a plan, in the order of the rules, of which those with `leave` come last.
// Objects in gone are deleted, although the snapshot has them.
func (in *Input) decideRules(e *celenv.Evaluation, p *Plan, gone []types.UID) *decider {
	d := &decider{in: in, p: p, abortReason: e.AbortReason, retain: e.RetainBytes, reads: askedreads.List{Items: in.Batch, Objects: in.Reads}, claimed: map[types.UID]string{}}
	for _, read := range (evidence{in}).gateReads() {
		if !(evidence{in}).isConfirmed(read) {
			d.gate = append(d.gate, read)
		}
	}
	p.Holds = nil
	d.beginResults()
	for _, i := range d.orderRules(gone) {
		r, reads := &deciding{decider: d, index: i, rule: &in.Spec.Rules[i], eval: e.SelectRule(i)}, in.Programs.ListRuleTargets(i)
		if in.ReadsLost(reads) {
			continue
		}
		r.outdated = in.Snapshot.ReadOutdated(func(t int) bool { return slices.Contains(reads, in.Spec.Targets[t].Name) })
		if r.decideRule(); e.AbortReason() != nil {
			break
		}
		if r.eval.Foresight().Unknown {
			p.Unpredictable.Rules = append(p.Unpredictable.Rules, r.rule.Name)
		}
	}
	if d.floors != nil {
		d.sortCounts()
	}
	p.Errors = d.errors.ListRows()
	if d.results != nil {
		p.Results = d.results.EndDecision()
	}
	slices.SortStableFunc(p.Pending, func(a, b Pending) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	if len(p.Pending) > 0 {
		p.Next = monotime.ChooseEarlier(p.Next, p.Pending[0].Until)
	}
	if d.blindFor > 0 { // in case that nobody knows until when time changes nothing
		p.NextCheck = in.Now.Add(d.blindFor / 2)
	}
	return d
}

// DecideSteps adds the steps of rules and targets to a plan, except target steps for objects in done, which are not left for
// `leave`.
func (in *Input) DecideSteps(e *celenv.Evaluation, p *Plan, done []types.UID) {
	d := in.decideRules(e, p, done)
	for _, uid := range done {
		d.claimed[uid] = ""
	}
	in.addTargetSteps(d)
}

// deciding is the evaluation of one rule.
type deciding struct {
	*decider
	index int
	rule  *v1alpha1.Rule
	eval  *celenv.RuleEvaluation
	// outdated are the reads of targets of the rule that are Outdated.
	outdated []observed.Read
	holds    *fortimers.Holding // nil without `for`
	// grouped are the groups of all items, by their places in forEach; nil without `leave`.
	grouped []grouped
	// leftOut says what of forEach is no item of the rule, by the places; nil: all are items.
	leftOut []bool
	// acting are the items that are acted on, in their order.
	acting []*acting
	// count is how many items each step has left out so far.
	count RuleCount
	// reserved are actions for items that may not be acted on now: their objects are not for later rules either.
	reserved []itemAction
}

// RuleCount says what became of the items of a rule. Items with errors are in no other number but Items and, if when holds, Matched.
type RuleCount struct {
	Rule string
	// Items are those of forEach, and Matched those for which when holds.
	Items, Matched int
	// Kept are left out by keep and leave, Spared by unless, and Waiting by for.
	Kept, Spared, Waiting int
	// Protected are left out because something forbids an action, unless another one comes before it; Shadowed because an earlier rule acts on their object, and Deferred because an
	// action has failed. Acted are the others with an action.
	Protected, Shadowed, Deferred, Acted int
}

// ListCounts returns the counts of the rules with their errors, as a status tells them.
func (p *Plan) ListCounts() []v1alpha1.RuleCounts {
	errors := map[string]int64{}
	for i := range p.Errors {
		errors[p.Errors[i].Rule] += p.Errors[i].Count
	}
	var out []v1alpha1.RuleCounts
	for _, c := range p.Counts {
		out = append(out, v1alpha1.RuleCounts{
			Rule: c.Rule, Items: int64(c.Items), Matched: int64(c.Matched), Kept: int64(c.Kept), Spared: int64(c.Spared), Waiting: int64(c.Waiting),
			Protected: int64(c.Protected), Shadowed: int64(c.Shadowed), Deferred: int64(c.Deferred), Errors: errors[c.Rule], Acted: int64(c.Acted),
		})
	}
	return out
}

// candidate is an item for which `when` holds.
type candidate struct {
	item  *celenv.Item
	place int // in the list of forEach
	// object is the snapshot's own copy of the item, found in a target; nil if it is no object of a target.
	object *observed.Object
	target int
	key    string
	group  string
	order  celenv.Order
	// unordered says why it has no order.
	unordered *expr.Error
	// holdKey is the key of its `for` timer, and until is when the timer ends.
	holdKey string
	until   time.Time
	// blindFor is for how long at most its hold may be blind; 0 if it waits for nothing.
	blindFor time.Duration
}

// decideRule goes through the items: when, for, groupBy, orderBy, keep, unless, actions.
func (r *deciding) decideRule() {
	r.count.Rule = r.rule.Name
	defer func() { r.p.Counts = append(r.p.Counts, r.count) }()
	if r.rule.For != "" {
		r.holds = r.in.Holds.BeginRule(r.in.Spec, r.rule, r.in.Now)
	}
	items, err := r.eval.EvaluateItems()
	if err != nil {
		r.addError(itemtrace.Item{}, err)
		r.keepHolds()
		return
	}
	r.count.Items = uninstalling{r}.leaveOutItems(items)
	if r.rule.Leave != nil {
		leaving{r}.groupItems(items)
	}
	candidates := r.findCandidates(items)
	r.count.Matched = len(candidates)
	candidates = r.leaveOutTwins(candidates)
	if r.abortReason() != nil {
		return
	}
	if r.holds != nil {
		r.handHolds(r.holds.ListHolds())
	}
	pending := map[string]int{}
	for _, group := range r.groupCandidates(candidates) {
		for _, c := range group {
			if r.abortReason() != nil {
				return
			}
			spared, err := c.item.EvaluateUnless()
			switch {
			case err != nil:
				failing{r}.addItemError(r.nameCandidate(c), c.item, err)
			case spared:
				r.count.Spared++
				tracing{r}.noteItem(c, itemtrace.Spared, "")
			case c.until.After(r.in.Now):
				r.count.Waiting++
				r.addPending(pending, c)
				r.in.Trace.NoteWait(r.rule.Name, r.nameCandidate(c), c.until)
			default:
				choosing{r}.chooseActions(c)
			}
		}
	}
	if r.abortReason() == nil {
		folding{r}.foldActions()
	}
}

// What is held on to for each item that gets so far, in bytes, without its texts.
const (
	candidateSize = 320
	holdSize      = 512 // it is held on to until the next evaluation, too
	actingSize    = 128
	stepSize      = 640
	readSize      = 384
)

// chargeBytes counts what is held on to for an item. It is false when there is too much of it: then nothing is decided.
func (r *deciding) chargeBytes(field string, bytes int) bool {
	return r.retain(fmt.Sprintf("rules[%d].%s", r.index, field), bytes)
}

// keepHolds hands the holds of the rule on: what `when` gives is not known.
func (r *deciding) keepHolds() {
	if r.holds != nil {
		r.handHolds(r.holds.ListUnknown())
	}
}

func (r *deciding) handHolds(h fortimers.RuleHolds) {
	if len(h.Since) == 0 {
		return
	}
	if r.p.Holds == nil {
		r.p.Holds = fortimers.Holds{}
	}
	r.p.Holds[r.rule.Name] = h
}

// findCandidates are the items for which `when` holds, and of which everything is known that comes before the others matter.
func (r *deciding) findCandidates(items celenv.ItemList) []candidate {
	var out []candidate
	total := items.CountItems()
	known := findKnown(r, total)
	for place := range total {
		if r.in.Progress != nil && place%progressEvery == 0 {
			r.in.Progress(r.rule.Name, place, total)
		}
		if (uninstalling{r}).isLeftOut(place) || known.isFalse(place) {
			continue
		}
		item := items.MakeItem(place)
		matches, err := item.EvaluateWhen()
		r.p.Evaluated++
		tracing{r}.beginItem(item, matches)
		known.noteResult(place, err == nil && !matches)
		switch {
		case r.abortReason() != nil:
			return nil
		case err != nil:
			failing{r}.addItemError(r.nameOf(item), item, err)
			r.recordUnknown(item)
		case matches:
			if c, ok := r.makeCandidate(item, place); ok {
				if !r.chargeBytes("when", candidateSize+len(c.key)+len(c.holdKey)+len(c.group)+c.order.Size()) {
					return nil
				}
				out = append(out, c)
			}
		}
	}
	known.end()
	return out
}

// progressEvery is after how many items the caller is told how far the evaluation is.
const progressEvery = 100

// leaveOutTwins removes all candidates that share a key with another one, and records an error for each such key: `for` timers, retries
// and reports could not be assigned to one of them. Their `for` timers start again. Without keys, an object that forEach gives twice is one
// item: keep would keep it, and let it go.
func (r *deciding) leaveOutTwins(candidates []candidate) []candidate {
	if r.rule.Key == "" {
		has := make(map[string]bool, len(candidates))
		candidates = slices.DeleteFunc(candidates, func(c candidate) bool {
			if !c.isObject() {
				return false
			}
			twin := has[c.key]
			has[c.key] = true
			return twin
		})
		r.count.Items, r.count.Matched = r.count.Items-(r.count.Matched-len(candidates)), len(candidates)
		return candidates
	}
	first, twins := make(map[string]int, len(candidates)), map[string]bool{}
	for i := range candidates {
		c := &candidates[i]
		at, known := first[c.key]
		switch {
		case !known:
			first[c.key] = i
		case !twins[c.key]:
			twins[c.key] = true
			message := fmt.Sprintf("%s and %s have the same key", candidates[at].describePlace(), c.describePlace())
			r.addError(r.nameCandidate(c), r.makeError("key", message, "return a unique string for each item"))
		}
	}
	if len(twins) == 0 {
		return candidates
	}
	if r.holds != nil && r.rule.ForKey == "" {
		r.holds.DropHolds(twins)
	}
	return slices.DeleteFunc(candidates, func(c candidate) bool { return twins[c.key] })
}

// isObject says that the item is an object of a target itself, and not one that an expression made of it.
func (c *candidate) isObject() bool {
	return c.object != nil && isSameMap(c.object.Value, c.item.AsObject())
}

// describePlace says which item of the rule a candidate is, whatever its key.
func (c *candidate) describePlace() string {
	if c.object != nil {
		return c.object.String()
	}
	return fmt.Sprintf("item %d of forEach", c.place)
}

// makeCandidate looks at an item for which `when` holds. It is not ok if there is an error.
func (r *deciding) makeCandidate(item *celenv.Item, place int) (c candidate, ok bool) {
	c.item, c.place = item, place
	if value := item.AsObject(); value != nil {
		c.object, c.target = r.in.findObject(value)
	}
	var err *expr.Error
	if c.key, err = r.nameItem(item, c.object); err != nil {
		failing{r}.addItemError(r.nameOf(item), item, err)
		r.recordUnknown(item)
		return c, false
	}
	if r.holds != nil && !r.holdItem(&c) {
		return c, false
	}
	if r.rule.GroupBy != "" {
		if c.group, ok = (leaving{r}).findGroup(&c); !ok {
			return c, false
		}
	}
	if len(r.rule.OrderBy) > 0 {
		c.order, c.unordered = item.EvaluateOrder()
	}
	return c, true
}

// nameItem names the item within its rule.
func (r *deciding) nameItem(item *celenv.Item, o *observed.Object) (string, *expr.Error) {
	switch {
	case r.rule.Key != "":
		key, err := item.EvaluateKey()
		if err == nil && key == "" {
			return "", r.makeError("key", "the key is empty", "return a unique string for each item")
		}
		return key, err
	case o != nil:
		return string(o.Identify()), nil
	case item.AsObject() != nil:
		return "", r.makeError("forEach", describeAbsent(item.AsObject()), "use items of targets, or add key to the rule")
	default:
		return "", r.makeError("key", "the item is not an object and has no name", "add key to the rule")
	}
}

// holdItem records that `when` holds for an item. It is not ok if there is an error.
func (r *deciding) holdItem(c *candidate) bool {
	c.holdKey = c.key
	length, err := c.item.EvaluateFor()
	if err == nil && r.rule.ForKey != "" {
		c.holdKey, err = c.item.EvaluateForKey()
	}
	if err != nil {
		failing{r}.addItemError(r.nameCandidate(c), c.item, err)
		r.recordUnknown(c.item)
		return false
	}
	c.blindFor = fortimers.BlindFor(length)
	blind, lags := r.in.Lagging[ItemKey{Rule: r.rule.Name, Key: c.key}]
	if !lags {
		blind = r.in.Now
	}
	if length > 0 && (lags || c.object != nil && r.in.Unseen[c.object.UID]) {
		r.holds.RecordUnknownSince(c.holdKey, blind)
		c.until = r.in.Now.Add(length)
		return r.chargeBytes("for", holdSize+4*len(c.holdKey))
	}
	since, ok := r.holds.RecordHold(c.holdKey, length, r.roomForHold)
	if c.until = since.Add(length); !ok && length > 0 {
		r.addError(r.nameCandidate(c), r.makeError("for", "too many items wait and take too much memory: the timer does not start for some of them",
			"select fewer items in when, or use for in fewer Cleaners of the namespace"))
		return false
	}
	r.blindFor = shorterBlind(r.blindFor, c.blindFor)
	return r.chargeBytes("for", holdSize+4*len(c.holdKey))
}

// shorterBlind returns the shorter of two times; 0 is none.
func shorterBlind(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// roomForHold says that one more hold may be remembered, and counts it. Those from before are never forgotten for others.
func (d *decider) roomForHold() bool {
	if d.in.Room == nil {
		return true
	}
	if d.newHolds >= d.in.Room.Holds-d.in.Holds.CountHolds() {
		return false
	}
	d.newHolds++
	return true
}

// recordUnknown records that the result of `when` is unknown for an item. If its key is unknown too, the item counts as absent, and
// its `for` timer starts again.
func (r *deciding) recordUnknown(item *celenv.Item) {
	if r.holds == nil {
		return
	}
	var key string
	var err *expr.Error
	switch {
	case r.rule.ForKey != "":
		key, err = item.EvaluateForKey()
	case r.rule.Key != "":
		key, err = item.EvaluateKey()
	default:
		if o, _ := r.in.findObject(item.AsObject()); o != nil {
			key = string(o.Identify())
		}
	}
	if err == nil {
		r.holds.RecordUnknown(key)
	}
}

// addPending records that an item waits for its hold. Several that share one are one row.
func (r *deciding) addPending(rows map[string]int, c *candidate) {
	if i, ok := rows[c.holdKey]; ok {
		if row := &r.p.Pending[i]; c.until.Before(row.Until) {
			row.Until = c.until
		}
		return
	}
	rows[c.holdKey] = len(r.p.Pending)
	row := Pending{Rule: r.rule.Name, Key: c.holdKey, Until: c.until}
	if r.rule.ForKey == "" {
		row.Key = r.nameCandidate(c).Name
	}
	r.p.Pending = append(r.p.Pending, row)
}

// groupCandidates are the candidates in the order in which they are acted on, without those that stay.
func (r *deciding) groupCandidates(candidates []candidate) [][]*candidate {
	var groups [][]*candidate
	at := map[string]int{}
	for i := range candidates {
		c := &candidates[i]
		g, ok := at[c.group]
		if !ok {
			g = len(groups)
			at[c.group] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], c)
	}
	for g := range groups {
		groups[g] = r.leaveKept(groups[g])
	}
	return groups
}

// leaveKept orders a group and takes off it what stays. What cannot be ordered stays as a whole.
func (r *deciding) leaveKept(group []*candidate) []*candidate {
	if !r.sortGroup(group) {
		return nil
	}
	if r.rule.Keep == nil {
		return group
	}
	uninstalling{r}.putLeavingFirst(group)
	items := make([]*celenv.Item, len(group))
	for i, c := range group {
		items[i] = c.item
	}
	keep, err := r.eval.EvaluateKeep(items)
	if err != nil {
		r.addError(itemtrace.Item{Name: group[0].group}, err)
		return nil
	}
	left := group[:max(0, len(group)-keep)]
	r.count.Kept += len(group) - len(left)
	for _, c := range group[len(left):] {
		tracing{r}.noteItem(c, itemtrace.Kept, "")
	}
	return left
}

// sortGroup puts a group in the order of orderBy, then namespace, name and UID, if the rule has an order. It is not ok if there
// is none for this group.
func (r *deciding) sortGroup(group []*candidate) bool {
	if len(r.rule.OrderBy) == 0 {
		return true
	}
	ok := true
	for _, c := range group {
		if c.unordered != nil {
			failing{r}.addItemError(r.nameCandidate(c), c.item, c.unordered)
			ok = false
		}
	}
	if !ok {
		return false
	}
	var failed *expr.Error
	slices.SortFunc(group, func(a, b *candidate) int {
		n, err := r.eval.CompareOrders(a.order, b.order)
		if err != nil && failed == nil {
			failed = err
		}
		if n == 0 && a.object != nil && b.object != nil {
			n = cmp.Or(observed.CompareNames(&a.object.Ref, &b.object.Ref), cmp.Compare(a.object.UID, b.object.UID))
		}
		return cmp.Or(n, cmp.Compare(a.place, b.place))
	})
	if failed != nil {
		r.addError(itemtrace.Item{Name: group[0].group}, failed)
	}
	return failed == nil
}

// nameCandidate names a candidate by its key, or by its object.
func (r *deciding) nameCandidate(c *candidate) itemtrace.Item {
	if r.rule.Key == "" && c.object != nil {
		return itemtrace.Item{Name: c.object.String(), Object: c.object.Identify()}
	}
	return itemtrace.Item{Name: c.key}
}

// nameOf is nameCandidate for an item that may not be a candidate; empty if it has no name.
func (r *deciding) nameOf(item *celenv.Item) itemtrace.Item {
	if r.rule.Key != "" {
		key, err := item.EvaluateKey()
		if err != nil {
			return itemtrace.Item{}
		}
		return itemtrace.Item{Name: key}
	}
	if o, _ := r.in.findObject(item.AsObject()); o != nil {
		return itemtrace.Item{Name: o.String(), Object: o.Identify()}
	}
	return itemtrace.Item{}
}

// addError records an error of an item, or, if it is empty, of the whole rule.
func (r *deciding) addError(item itemtrace.Item, err *expr.Error) {
	r.errors.AddError(r.rule.Name, item.Name, err, 1)
	if r.in.Trace != nil {
		r.in.Trace.NoteOutcome(r.rule.Name, item, itemtrace.Failed, err.Path+" "+itemerrors.DescribeError(err))
	}
}

// failing records errors of items.
type failing struct{ *deciding }

// addItemError is addError for an expression about an item: where it is one that could not be read, the error says so too.
func (r failing) addItemError(name itemtrace.Item, item *celenv.Item, err *expr.Error) {
	if o, _ := r.in.findObject(item.AsObject()); o != nil && o.Unreadable != "" {
		err = err.WithHint(o.DescribeUnreadable())
	}
	r.addError(name, err)
}

// makeError is an error in a field of the rule that no expression gave.
func (r *deciding) makeError(field, message, hint string) *expr.Error {
	return &expr.Error{Kind: expr.Runtime, Path: fmt.Sprintf("rules[%d].%s", r.index, field), Message: message, Hint: hint}
}

// tracing notes what becomes of items about the object that is followed.
type tracing struct{ *deciding }

// beginItem notes what `when` gave for an item. What comes after it says what else becomes of the item: until then it counts as failed.
func (r tracing) beginItem(item *celenv.Item, matches bool) {
	if r.in.Trace == nil {
		return
	}
	o, _ := r.in.findObject(item.AsObject())
	if o == nil || !r.in.Trace.Follows(o.Identify()) {
		return
	}
	outcome := itemtrace.NotMatched
	if matches {
		outcome = itemtrace.Failed
	}
	r.in.Trace.BeginItem(itemtrace.Entry{Rule: r.rule.Name, Item: r.nameOf(item), Outcome: outcome, Parts: item.ListWhenParts()})
}

// noteItem notes what becomes of an item.
func (r tracing) noteItem(c *candidate, outcome itemtrace.Outcome, because string) {
	if c.object != nil && r.in.Trace.Follows(c.object.Identify()) {
		r.in.Trace.NoteOutcome(r.rule.Name, r.nameCandidate(c), outcome, because)
	}
}

// noteActions notes what becomes of an item, whose actions may be about the object.
func (r tracing) noteActions(a *acting, outcome itemtrace.Outcome, because string) {
	if r.in.Trace == nil {
		return
	}
	r.noteItem(a.candidate, outcome, because)
	for _, d := range a.actions {
		if d.object != nil && r.in.Trace.Follows(d.object.Identify()) {
			r.in.Trace.NoteAction(r.rule.Name, r.nameCandidate(a.candidate), outcome, because)
		}
	}
}

// ReadsLost says that some of these targets are lost.
func (in *Input) ReadsLost(targets []string) bool {
	return slices.ContainsFunc(targets, func(name string) bool { return in.Lost[name] })
}
