// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// defaultPer is limits.per where a spec gives none.
const defaultPer = time.Hour

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
}

// DeedOf is what is to be remembered of the deletion of a row that a target has made, and that conditions saw among others too.
func DeedOf(row Row, seen Seen, work *v1alpha1.Work, at time.Time) Deed {
	d := Deed{At: at, UID: row.UID, Rule: row.Rule, Action: noAction, Items: sumItems([]string{string(row.UID)})}
	if target, ok := strings.CutPrefix(row.Rule, targetRule); ok {
		d.Targets = []string{target}
	}
	for i := range seen {
		if name := work.Targets[seen[i].Target].Name; !slices.Contains(d.Targets, name) {
			d.Targets = append(d.Targets, name)
		}
	}
	return d
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

// With is the deeds and one more. Of what one action did for several items of one object there is one deed, with all items
// and the last time, so that what is remembered does not grow with how often it is done.
func (d Done) With(one Deed) Done {
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

// Since is what is left of the deeds when those are dropped that lie as long ago as a limit counts, or longer.
func (d Done) Since(now time.Time, per time.Duration) Done {
	for len(d) > 0 && !d[0].At.After(now.Add(-per)) {
		d = d[1:]
	}
	return d
}

// Deed is what is to be remembered of a step that was done, or may have been.
func (in *Input) Deed(s *Step, at time.Time) Deed {
	d := Deed{At: at, UID: s.Object.identity(), Rule: s.Rule, Action: s.Action}
	if in.Spec.Limits != nil && in.Spec.Limits.MaxActions > 0 {
		d.Items = sumItems(s.Keys)
	}
	for _, t := range in.Snapshot.Holding(&s.Object) {
		d.Targets = append(d.Targets, in.Spec.Targets[t].Name)
	}
	return d
}

// limited says which limit a plan is over, and in a sentence; empty if it is over none. freed is when the oldest deed that
// counts against it counts no longer; zero if none does.
func (in *Input) limited(p *Plan) (limit, message string, freed time.Time, err error) {
	limits := in.Spec.Limits
	if limits == nil {
		return "", "", time.Time{}, nil
	}
	per, err := limits.Per.Parse(defaultPer)
	if err != nil {
		return "", "", time.Time{}, fmt.Errorf("spec.limits.per: %w", err)
	}
	done := in.Done.Since(in.Now, per)
	if len(done) > 0 {
		freed = done[0].At.Add(per)
	}
	acted, actions := p.counts(done)
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

// counts are the objects that the plan changes, and how many objects that is together with those that were acted on before.
// Whatever is done to an object counts once, in one evaluation or in several, and one that stands for several items of an action
// counts as these.
func (p *Plan) counts(done Done) (acted map[types.UID]bool, actions int64) {
	items := itemCounts{}
	for i := range done {
		items.add(done[i].UID, done[i].Rule, done[i].Action, done[i].Items)
	}
	acted = make(map[types.UID]bool, len(p.Steps))
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Deed() {
			acted[s.Object.identity()] = true
			items.add(s.Object.identity(), s.Rule, s.Action, sumItems(s.Keys))
		}
	}
	return acted, items.objects()
}

// itemCounts are the items that each object stands for, by the action that does.
type itemCounts map[itemCount]map[itemSum]bool

type itemCount struct {
	object types.UID
	rule   string
	action int
}

func (c itemCounts) add(object types.UID, rule string, action int, items []itemSum) {
	of := itemCount{object, rule, action}
	if c[of] == nil {
		c[of] = make(map[itemSum]bool, len(items))
	}
	for _, item := range items {
		c[of][item] = true
	}
}

// objects is how many there are: each counts as the items of the action for which it stands for most.
func (c itemCounts) objects() (n int64) {
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
func (in *Input) overPercent(t int, acted map[types.UID]bool, done Done, percent int64) bool {
	target := &in.Snapshot[t]
	if target.State != Complete {
		return false
	}
	earlier := map[types.UID]bool{}
	for i := range done {
		for _, name := range done[i].Targets {
			if name == in.Spec.Targets[t].Name {
				earlier[done[i].UID] = true
			}
		}
	}
	all, planned, n := int64(len(target.Objects)), false, int64(0)
	for i := range target.Objects {
		id := target.Objects[i].identity()
		switch {
		case acted[id]:
			planned = true
			n++
			delete(earlier, id)
		case earlier[id]:
			n++
			delete(earlier, id)
		}
	}
	gone := int64(len(earlier))
	return planned && (n+gone)*100 > percent*(all+gone)
}

// trip blocks a plan that is over a limit.
func (in *Input) trip(p Plan) Plan {
	limit, message, freed, err := in.limited(&p)
	switch {
	case err != nil:
		return invalid(err.Error())
	case limit == "":
		return p
	}
	p.TrippedBy = limit
	p.Next = earlier(p.Next, freed)
	return p.blocked(v1alpha1.ReasonLimitExceeded, message)
}
