// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// uninstalling decides a rule that uninstalls releases. Its items are the releases that are there: the newest revision stands for each of them.
type uninstalling struct{ *deciding }

// leaveOutItems notes the items that are no releases that are there, and those of a release that has an item already, and returns how many others there
// are.
func (r uninstalling) leaveOutItems(items celenv.ItemList) (left int) {
	left = items.CountItems()
	if r.rule.FindUninstall() == nil || !r.chargeBytes("forEach", (1+releaseSize)*left) {
		return left
	}
	r.leftOut = make([]bool, items.CountItems())
	has := map[observed.ReleaseName]bool{}
	for place := range r.leftOut {
		item := items.MakeItem(place)
		o, _ := r.in.findObject(item.AsObject())
		because := r.reasonToLeaveOut(o, has)
		if because == "" {
			continue
		}
		r.leftOut[place] = true
		left--
		if r.in.Trace.Follows(o.Identify()) {
			r.in.Trace.BeginItem(itemtrace.Entry{Rule: r.rule.Name, Item: r.nameOf(item), Outcome: itemtrace.LeftOut, Because: because})
		}
	}
	return left
}

// releaseSize is about what is held on to for each release of such a rule, in bytes.
const releaseSize = 96

// reasonToLeaveOut says why an object is no item of the rule; empty if it is one. has are the releases that have an item.
func (r uninstalling) reasonToLeaveOut(o *observed.Object, has map[observed.ReleaseName]bool) string {
	switch {
	case o == nil || !o.OfRelease:
		return ""
	case r.in.Uninstalling[o.UID]:
		return "its release is being uninstalled"
	case r.isOlder(o):
		return "a newer revision stands for its release, which the rule uninstalls"
	case o.Labels["status"] == "uninstalled":
		return "its release is uninstalled, and Helm has kept its history"
	}
	of, _, ok := o.ReadRelease()
	if ok && has[of] {
		return "forEach gives the release twice"
	}
	has[of] = true
	return ""
}

// putLeavingFirst puts the releases first that another client is uninstalling: keep is about those that stay.
func (r uninstalling) putLeavingFirst(group []*candidate) {
	if r.rule.FindUninstall() == nil {
		return
	}
	slices.SortStableFunc(group, func(a, b *candidate) int { return cmp.Compare(rankLeaving(a), rankLeaving(b)) })
}

func rankLeaving(c *candidate) int {
	if c.object != nil && c.object.IsLeaving() {
		return 0
	}
	return 1
}

// isLeftOut says that what is at a place of forEach is no item of the rule.
func (r uninstalling) isLeftOut(place int) bool { return r.leftOut != nil && r.leftOut[place] }

// isOlder says that an object records a revision of a release of which some target has a newer one.
func (d *decider) isOlder(o *observed.Object) bool {
	of, revision, ok := o.ReadRelease()
	if !ok || !o.OfRelease {
		return false
	}
	if d.newest == nil {
		d.newest = map[observed.ReleaseName]int64{}
		for t := range d.in.Snapshot {
			if d.in.Spec.Targets[t].IsOfReleases() {
				d.in.Snapshot[t].AddNewestRevisions(d.newest)
			}
		}
	}
	return revision < d.newest[of]
}

// addTargets adds a target to those that limits.maxPercent is about. In a target of releases, an uninstall counts among the releases, for each of
// which its newest revision stands, and whatever else is done counts among the revisions. A release that another
// client uninstalls counts if the plan acts on it.
func (in limiting) addTargets(check *limits.Check, place int, p *Plan) {
	seen := &in.Snapshot[place]
	all := limits.Target{Name: in.Spec.Targets[place].Name, Objects: seen.EachObject}
	if !in.Spec.Targets[place].IsOfReleases() || !in.Spec.UninstallsForRules() {
		check.Targets = append(check.Targets, all)
		return
	}
	releases := all
	all.Counts = func(a *limits.Action) bool { return !a.Uninstall }
	releases.Counts = func(a *limits.Action) bool { return a.Uninstall }
	releases.Objects = func(yield func(types.UID) bool) {
		for o := range seen.EachNewestRevision {
			if !in.Uninstalling[o.UID] && (!o.IsLeaving() || slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Object.Identify() == o.Identify() })) && !yield(o.Identify()) {
				return
			}
		}
	}
	check.Targets = append(check.Targets, all, releases)
}
