// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Check is what limits are checked with.
type Check struct {
	Limits *v1alpha1.Limits
	Now    time.Time
	// Done is what was done before.
	Done Done
	// DoneBytes is how much memory Done may take. When it takes as much, limits count as reached.
	DoneBytes int64
	// GroupNames name the groups of what is wanted, for people.
	GroupNames map[ItemSum]string
	// Targets are those whose objects are all known.
	Targets []Target
}

// Target is what limits.maxPercent is a percentage of.
type Target struct {
	Name string
	// Objects are those that it has now.
	Objects iter.Seq[types.UID]
	// Counts says which actions count against the percentage. Nil: all.
	Counts func(a *Action) bool
}

// Excess is a limit that is exceeded.
type Excess struct {
	// Limit is the field of spec.limits, and Message says it in one sentence. Both are empty if no limit is exceeded.
	Limit, Message string
	// Freed is when the oldest action that counts against it counts no longer; zero if none does.
	Freed time.Time
}

// IsAny says that a spec limits anything.
func IsAny(l *v1alpha1.Limits) bool {
	return l != nil && (l.MaxActions != 0 || l.MaxPercent != 0 || l.PerGroup != 0)
}

// CountsGroups says that a spec limits what is done to a group.
func CountsGroups(l *v1alpha1.Limits) bool { return l != nil && l.PerGroup != 0 }

// ParsePer is for how long actions count.
func ParsePer(l *v1alpha1.Limits) (time.Duration, error) {
	if l == nil {
		return DefaultPer, nil
	}
	per, err := l.Per.Parse(DefaultPer)
	if err != nil {
		return 0, fmt.Errorf("spec.limits.per: %w", err)
	}
	return per, nil
}

// FindExcess says which limit some actions would exceed.
func (c Check) FindExcess(wanted []Action) (Excess, error) {
	if !IsAny(c.Limits) {
		return Excess{}, nil
	}
	per, err := ParsePer(c.Limits)
	if err != nil {
		return Excess{}, err
	}
	if len(wanted) == 0 {
		return Excess{}, nil
	}
	done := c.Done.DropOlder(c.Now, per)
	var freed time.Time
	if len(done) > 0 {
		freed = done[0].At.Add(per)
	}
	limit, message := c.judgeActions(wanted, done, per)
	if limit == "" {
		return Excess{}, nil
	}
	return Excess{Limit: limit, Message: message, Freed: freed}, nil
}

// judgeActions says which limit some actions exceed together with those that still count.
func (c Check) judgeActions(wanted []Action, done Done, per time.Duration) (limit, message string) {
	if c.isFull(done) {
		switch {
		case c.Limits.MaxActions > 0:
			limit = "maxActions"
		case c.Limits.MaxPercent > 0:
			limit = "maxPercent"
		default:
			limit = "perGroup"
		}
		return limit, fmt.Sprintf("The Cleaner takes no action: counting actions for limits.%s over %s takes too much memory. It resumes when enough "+
			"actions no longer count. Set a shorter limits.per, or use fewer Cleaners with limits in the namespace.", limit, per)
	}
	if n := c.Limits.MaxActions; n > 0 {
		if all := countActions(wanted, done); all > n {
			return "maxActions", fmt.Sprintf("The Cleaner takes no action: the plan would exceed limits.maxActions (%d objects in %s) with %d%s.", n, per, all, describeEarlier(countActions(nil, done)))
		}
	}
	if n := c.Limits.PerGroup; n > 0 {
		if of, all, earlier := findLargeGroup(wanted, done, n); all > 0 {
			return "perGroup", fmt.Sprintf("The Cleaner takes no action: the plan would exceed limits.perGroup (%d objects of a group in %s) with %d%s of rule %q%s.",
				n, per, all, describeGroup(c.GroupNames[of.sum]), of.rule, describeEarlier(earlier))
		}
	}
	if n := c.Limits.MaxPercent; n > 0 {
		acted := listObjects(wanted, nil)
		for _, t := range c.Targets {
			acted, done := acted, done
			if t.Counts != nil {
				acted, done = listObjects(wanted, t.Counts), done.selectActions(t.Counts)
			}
			if part, all := t.countActed(acted, done); part*100 > n*all {
				return "maxPercent", fmt.Sprintf("The Cleaner takes no action: the plan would exceed limits.maxPercent (%d%% of target %q in %s) with %d of %d%s.",
					n, t.Name, per, part, all, describeEarlier(int64(len(done.objectsOf(t.Name)))))
			}
		}
	}
	return "", ""
}

// describeEarlier says how many of the objects that count were acted on before; empty if none.
func describeEarlier(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d by earlier actions", n)
}

// isFull says that no more actions can be remembered.
func (c Check) isFull(done Done) bool {
	return done.CountBytes() >= c.DoneBytes || slices.ContainsFunc(done, func(d Action) bool { return d.Forgotten })
}

// countActions is how many objects some actions change, together with those that were changed before. Whatever is done to an object counts
// once, in one evaluation or in several, and one that stands for several items of an action counts as these.
func countActions(wanted []Action, done Done) int64 {
	items := itemCounts{}
	for _, actions := range [][]Action{done, wanted} {
		for i := range actions {
			items.addItems(actions[i].UID, actions[i].Rule, actions[i].Action, actions[i].Items)
		}
	}
	return items.countObjects()
}

// ruleGroup is a group of a rule.
type ruleGroup struct {
	rule string
	sum  ItemSum
}

// findLargeGroup finds the first group of which more objects than that would be acted on, with those on which it was acted before, and says how
// many these are; all is zero if there is none. An object counts once in each of its groups.
func findLargeGroup(wanted []Action, done Done, most int64) (large ruleGroup, all, earlier int64) {
	objects, before := map[ruleGroup]map[types.UID]bool{}, map[ruleGroup]int64{}
	add := func(a *Action, sum ItemSum) int64 {
		of := ruleGroup{a.Rule, sum}
		if objects[of] == nil {
			objects[of] = map[types.UID]bool{}
		}
		objects[of][a.UID] = true
		return int64(len(objects[of]))
	}
	for i := range done {
		for _, sum := range done[i].Groups {
			before[ruleGroup{done[i].Rule, sum}] = add(&done[i], sum)
		}
	}
	for i := range wanted {
		for _, sum := range wanted[i].Groups {
			if add(&wanted[i], sum) > most && all == 0 {
				large, all = ruleGroup{wanted[i].Rule, sum}, most
			}
		}
	}
	if all == 0 {
		return large, 0, 0
	}
	return large, int64(len(objects[large])), before[large]
}

// describeGroup names a group; empty if the rule has only one.
func describeGroup(name string) string {
	if name == "" {
		return ""
	}
	return " of group " + name
}

// itemCounts are the items that each object stands for, by the action that does.
type itemCounts map[itemCount]map[ItemSum]bool

type itemCount struct {
	object types.UID
	rule   string
	action int
}

func (c itemCounts) addItems(object types.UID, rule string, action int, items []ItemSum) {
	of := itemCount{object, rule, action}
	if c[of] == nil {
		c[of] = make(map[ItemSum]bool, len(items))
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

// listObjects are the objects of the actions that count. Nil: all do.
func listObjects(actions []Action, counts func(a *Action) bool) map[types.UID]bool {
	out := make(map[types.UID]bool, len(actions))
	for i := range actions {
		if counts == nil || counts(&actions[i]) {
			out[actions[i].UID] = true
		}
	}
	return out
}

// countActed is how many of a target's objects are acted on, and how many it has: both zero if the plan acts on none. Objects that were
// acted on and are gone count among those that it has.
func (t Target) countActed(acted map[types.UID]bool, done Done) (part, all int64) {
	if !t.hasAny(acted) {
		return 0, 0
	}
	earlier := done.objectsOf(t.Name)
	for id := range t.Objects {
		all++
		if acted[id] || earlier[id] {
			part++
			delete(earlier, id)
		}
	}
	gone := int64(len(earlier))
	return part + gone, all + gone
}

func (t Target) hasAny(acted map[types.UID]bool) bool {
	for id := range t.Objects {
		if acted[id] {
			return true
		}
	}
	return false
}
