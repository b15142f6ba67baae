// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/plan/groupfloor"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// orderRules returns the rules in the order in which they are decided: those with `leave` last, because they count what all others delete. What
// is gone is not left.
func (d *decider) orderRules(gone []types.UID) []int {
	var order, last []int
	for i := range d.in.Spec.Rules {
		if d.in.Spec.Rules[i].Leave == nil {
			order = append(order, i)
		} else {
			last = append(last, i)
		}
	}
	if len(last) > 0 {
		d.floors = groupfloor.NewFloors()
		for _, object := range gone {
			d.floors.RemoveObject(object)
		}
		d.removeTargets()
	}
	return append(order, last...)
}

// removeTargets notes that the objects of targets with delete: true go, also those that a rule may keep from that by a patch.
func (d *decider) removeTargets() {
	for i := range d.in.Spec.Targets {
		if !d.in.Spec.Targets[i].Delete {
			continue
		}
		for _, o := range d.in.Snapshot[i].Objects {
			if d.in.Protection.ForbidsDelete(&o) == "" {
				d.floors.RemoveObject(o.Identify())
			}
		}
	}
}

// sortCounts puts the counts of rules into the order of the rules.
func (d *decider) sortCounts() {
	place := func(c RuleCount) int {
		return slices.IndexFunc(d.in.Spec.Rules, func(r v1alpha1.Rule) bool { return r.Name == c.Rule })
	}
	slices.SortFunc(d.p.Counts, func(a, b RuleCount) int { return cmp.Compare(place(a), place(b)) })
}

// leaving holds a rule to its `leave`, and to that of others.
type leaving struct{ *deciding }

// grouped is the group of an item, whatever `when` says of it. It is not known after an error.
type grouped struct {
	group string
	known bool
}

// groupedSize is what is held on to for each item that counts in a group, in bytes, without its group.
const groupedSize = 192

// groupItems groups all items of the rule, and says how many of each group must remain. An item with an error counts in no group, and of a
// group for which nobody knows how many must remain, none goes.
func (r leaving) groupItems(items celenv.ItemList) {
	members, of := map[string][]types.UID{}, map[string][]*celenv.Item{}
	var names []string
	r.grouped = make([]grouped, items.CountItems())
	for place := range items.CountItems() {
		if uninstalling(r).isLeftOut(place) {
			continue
		}
		item := items.MakeItem(place)
		group, err := item.EvaluateGroup()
		switch {
		case r.abortReason() != nil:
			return
		case err != nil:
			failing(r).addItemError(r.nameOf(item), item, err)
			continue
		}
		r.grouped[place] = grouped{group, true}
		o, _ := r.in.findObject(item.AsObject())
		if o != nil && (o.IsLeaving() || r.in.Uninstalling[o.UID]) {
			continue
		}
		if !r.chargeBytes("leave", groupedSize+len(group)) {
			return
		}
		if _, there := members[group]; !there {
			names = append(names, group)
		}
		members[group], of[group] = append(members[group], r.memberOf(o, place)), append(of[group], item)
	}
	for _, group := range names {
		leave, err := r.eval.EvaluateLeave(of[group])
		if err != nil {
			r.addError(itemtrace.Item{Name: group}, err)
			leave = math.MaxInt
		}
		r.floors.AddGroup(r.rule.Name, members[group], leave)
	}
}

// memberOf stands for an item in its group: its object, or, if it is none of a target, its place in the list of the rule.
func (r leaving) memberOf(o *observed.Object, place int) types.UID {
	if o != nil {
		return o.Identify()
	}
	return types.UID(fmt.Sprintf("%s %d", r.rule.Name, place))
}

// findGroup returns the group of a candidate; not ok after an error, which is recorded.
func (r leaving) findGroup(c *candidate) (group string, ok bool) {
	if r.grouped != nil {
		return r.grouped[c.place].group, r.grouped[c.place].known
	}
	group, err := c.item.EvaluateGroup()
	if err != nil {
		failing(r).addItemError(r.nameCandidate(c), c.item, err)
	}
	return group, err == nil
}

// mayGo says that a rule may act on an item, because enough others of its group remain, and notes that. The other rules' groups count too.
func (r leaving) mayGo(a *acting) bool {
	if r.rule.Leave == nil {
		return true
	}
	var removed []types.UID
	for _, d := range a.actions {
		if r.removesObject(d) {
			removed = append(removed, d.object.Identify())
		}
	}
	if r.floors.TakeItem(r.rule.Name, r.memberOf(a.object, a.place), removed) {
		return true
	}
	r.count.Kept++
	tracing(r).noteActions(a, itemtrace.Left, "")
	return false
}

// removesObject says that an action deletes or evicts its object, or uninstalls its release.
func (r leaving) removesObject(d itemAction) bool {
	verb := verbOf(&r.rule.Actions[d.action])
	return d.object != nil && (verb == VerbDelete || verb == VerbEvict || verb == VerbHelmUninstall)
}

// noteRemoved notes an action of a rule without `leave`, for the rules that have it.
func (r leaving) noteRemoved(d itemAction) {
	if r.floors != nil && r.rule.Leave == nil && r.removesObject(d) {
		r.floors.RemoveObject(d.object.Identify())
	}
}
