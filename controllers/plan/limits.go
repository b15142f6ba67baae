// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/moments"
)

// defaultPer is limits.per where a spec gives none.
const defaultPer = time.Hour

// maxDoneBytes is how much memory the deeds of one Cleaner may take. When they take as much, limits count as reached: to forget some
// of them would be to allow more.
const maxDoneBytes = 8 << 20

// Done are deeds of this process, oldest first.
type Done []Deed

// Deed is something that was done to an object.
type Deed struct {
	At  time.Time
	UID types.UID
	// Rule and Action are those that wanted it.
	Rule   string
	Action int
	// Items are those that it stood for; none are remembered where limits.maxActions, which counts them, is not set.
	Items []itemSum
	// Targets are the names of the targets that the object was in.
	Targets []string
	// Forgotten says that it stands for deeds, of which this is the last one, that were forgotten: limits count as reached.
	Forgotten bool
}

// CountBytes is about how much memory the deed takes after another one. Equal names of targets are remembered once.
func (d *Deed) countBytes(before *Deed) int64 {
	const size, perItem, perTarget = 224, 8, 96
	n := int64(size + perItem*len(d.Items))
	if before == nil || !d.sharesTargets(before) {
		n += perTarget * int64(len(d.Targets))
	}
	return n
}

func (d *Deed) sharesTargets(with *Deed) bool {
	return len(d.Targets) == 0 || len(d.Targets) == len(with.Targets) && &d.Targets[0] == &with.Targets[0]
}

// CountBytes is about how much memory the deeds take.
func (d Done) CountBytes() (n int64) {
	for i := range d {
		n += d[i].countBytes(d.deedBefore(i))
	}
	return n
}

func (d Done) deedBefore(i int) *Deed {
	if i == 0 {
		return nil
	}
	return &d[i-1]
}

// ForgetDeeds is the deeds when there is no memory for them: what they have used up of limits stays used up.
func (d Done) ForgetDeeds() Done {
	if len(d) == 0 {
		return nil
	}
	return Done{{At: d[len(d)-1].At, Forgotten: true}}
}

// isFull says that no more deeds can be remembered.
func (in limiting) isFull(done Done) bool {
	room := int64(maxDoneBytes)
	if in.Room != nil {
		room = min(room, in.Room.DoneBytes)
	}
	return done.CountBytes() >= room || slices.ContainsFunc(done, func(d Deed) bool { return d.Forgotten })
}

// itemSum stands for the key of an item of a rule: deeds are remembered for as long as limits.per says, and keys may be long.
type itemSum uint64

// itemSeed is another one in each process, so that nobody makes keys of one sum.
var itemSeed = maphash.MakeSeed() //nolint:gochecknoglobals // chosen once, and never changed

func sumItems(keys []string) []itemSum {
	out := make([]itemSum, len(keys))
	for i, key := range keys {
		out[i] = itemSum(maphash.String(itemSeed, key))
	}
	return out
}

// AddDeed is the deeds and one more. Of what one action did for several items of one object there is one deed, with all items
// and the last time, so that what is remembered does not grow with how often it is done.
func (d Done) AddDeed(one Deed) Done {
	if n := len(d); n > 0 && slices.Equal(d[n-1].Targets, one.Targets) {
		one.Targets = d[n-1].Targets
	}
	if len(one.Items) < 2 {
		return append(d, one)
	}
	same := func(e Deed) bool { return e.UID == one.UID && e.Rule == one.Rule && e.Action == one.Action }
	if i := slices.IndexFunc(d, same); i >= 0 {
		one.Items = slices.Concat(d[i].Items, one.Items)
		slices.Sort(one.Items)
		one.Items = slices.Compact(one.Items)
		d = slices.Delete(slices.Clone(d), i, i+1)
	}
	return append(d, one)
}

// DropOlder is what is left of the deeds when those are dropped that lie as long ago as a limit counts, or longer.
func (d Done) DropOlder(now time.Time, per time.Duration) Done {
	all := len(d)
	for len(d) > 0 && !d[0].At.After(now.Add(-per)) {
		d = d[1:]
	}
	if len(d) < all/2 {
		return slices.Clone(d) // or the memory of the others would stay
	}
	return d
}

// MakeDeed is what is to be remembered of a step that was done, or may have been.
func (in *Input) MakeDeed(s *Step, at time.Time) Deed {
	d := Deed{At: at, UID: s.Object.Identify(), Rule: s.Rule, Action: s.Action}
	if in.Spec.Limits != nil && in.Spec.Limits.MaxActions > 0 {
		d.Items = sumItems(s.Keys)
	}
	for _, t := range in.Snapshot.TargetsOf(&s.Object) {
		d.Targets = append(d.Targets, in.Spec.Targets[t].Name)
	}
	return d
}

// limiting holds a plan to the limits of a spec.
type limiting struct{ *Input }

// findLimit says which limit a plan is over, and in a sentence; empty if it is over none. freed is when the oldest deed that
// counts against it counts no longer; zero if none does.
func (in limiting) findLimit(p *Plan) (limit, message string, freed time.Time, err error) {
	limits := in.Spec.Limits
	if limits == nil || limits.MaxActions == 0 && limits.MaxPercent == 0 {
		return "", "", time.Time{}, nil
	}
	per, err := limits.Per.Parse(defaultPer)
	if err != nil {
		return "", "", time.Time{}, fmt.Errorf("spec.limits.per: %w", err)
	}
	done := in.Done.DropOlder(in.Now, per)
	if len(done) > 0 {
		freed = done[0].At.Add(per)
	}
	if in.isFull(done) {
		if !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.IsDeed() }) {
			return "", "", time.Time{}, nil
		}
		limit = "maxActions"
		if limits.MaxActions == 0 {
			limit = "maxPercent"
		}
		return limit, fmt.Sprintf("Nothing is done: the actions that limits.%s counts in %s take too much memory. It continues when enough of them "+
			"are older: write a shorter limits.per, or use fewer Cleaners with limits in the namespace.", limit, per), freed, nil
	}
	acted, actions := p.countAgainst(done)
	if n := limits.MaxActions; n > 0 && len(acted) > 0 && actions > n {
		return "maxActions", fmt.Sprintf("Nothing is done: limits.maxActions allows %d objects in %s.", n, per), freed, nil
	}
	if n := limits.MaxPercent; n > 0 {
		for t := range in.Snapshot {
			if in.overPercent(t, acted, done, n) {
				return "maxPercent", fmt.Sprintf("Nothing is done: limits.maxPercent allows %d%% of target %q in %s.",
					n, in.Spec.Targets[t].Name, per), freed, nil
			}
		}
	}
	return "", "", time.Time{}, nil
}

// countAgainst are the objects that the plan changes, and how many objects that is together with those that were acted on before.
// Whatever is done to an object counts once, in one evaluation or in several, and one that stands for several items of an action
// counts as these.
func (p *Plan) countAgainst(done Done) (acted map[types.UID]bool, actions int64) {
	items := itemCounts{}
	for i := range done {
		items.addItems(done[i].UID, done[i].Rule, done[i].Action, done[i].Items)
	}
	acted = make(map[types.UID]bool, len(p.Steps))
	for i := range p.Steps {
		if s := &p.Steps[i]; s.IsDeed() {
			acted[s.Object.Identify()] = true
			items.addItems(s.Object.Identify(), s.Rule, s.Action, sumItems(s.Keys))
		}
	}
	return acted, items.countObjects()
}

// itemCounts are the items that each object stands for, by the action that does.
type itemCounts map[itemCount]map[itemSum]bool

type itemCount struct {
	object types.UID
	rule   string
	action int
}

func (c itemCounts) addItems(object types.UID, rule string, action int, items []itemSum) {
	of := itemCount{object, rule, action}
	if c[of] == nil {
		c[of] = make(map[itemSum]bool, len(items))
	}
	for _, item := range items {
		c[of][item] = true
	}
}

// countObjects is how many there are: each counts as the items of the action for which it stands for most.
func (c itemCounts) countObjects() (n int64) {
	most := map[types.UID]int{}
	for of, items := range c {
		most[of.object] = max(most[of.object], len(items), 1)
	}
	for _, items := range most {
		n += int64(items)
	}
	return n
}

// overPercent says that more of a target's objects are acted on than so many of a hundred. Objects that were acted on and
// are gone count among those that it has.
func (in limiting) overPercent(t int, acted map[types.UID]bool, done Done, percent int64) bool {
	target := &in.Snapshot[t]
	if target.State != Complete || !slices.ContainsFunc(target.Objects, func(o Object) bool { return acted[o.Identify()] }) {
		return false
	}
	earlier := done.objectsOf(in.Spec.Targets[t].Name)
	all, n := int64(len(target.Objects)), int64(0)
	for i := range target.Objects {
		if id := target.Objects[i].Identify(); acted[id] || earlier[id] {
			n++
			delete(earlier, id)
		}
	}
	gone := int64(len(earlier))
	return (n+gone)*100 > percent*(all+gone)
}

// objectsOf are the objects of a target that were acted on.
func (d Done) objectsOf(target string) map[types.UID]bool {
	out, among := map[types.UID]bool{}, false
	for i := range d {
		if before := d.deedBefore(i); before == nil || !d[i].sharesTargets(before) || len(d[i].Targets) == 0 {
			among = slices.Contains(d[i].Targets, target)
		}
		if among {
			out[d[i].UID] = true
		}
	}
	return out
}

// blockOverLimit blocks a plan that is over a limit.
func (in limiting) blockOverLimit(p Plan) Plan {
	limit, message, freed, err := in.findLimit(&p)
	switch {
	case err != nil:
		return invalidPlan(err.Error())
	case limit == "":
		return p
	}
	p.TrippedBy = limit
	p.Next = moments.ChooseEarlier(p.Next, freed)
	return p.blockFor(v1alpha1.ReasonLimitExceeded, message)
}
