// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// AgreePlans is what two plans of a Cleaner that cleans once want together, one from the watches and one from live reads: as much of the
// live one as the watches want too, in the same ways on the same objects. Versions are those that were read live. What was decided on all
// objects, such as the data of the event and what is withheld, is the live plan's. Where the plans differ, decide makes the live one anew for
// some items only, so that no step that they share stands for others. It does not act unless all of these plans do.
func AgreePlans(watched, live Plan, decide func(only map[ItemKey]bool) Plan) Plan {
	switch {
	case live.Verdict != v1alpha1.VerdictAct:
		return live
	case watched.Verdict != v1alpha1.VerdictAct:
		return watched
	}
	both := intersectLive(watched, live)
	if len(both.Steps) == len(live.Steps) {
		return both
	}
	anew := decide(listSharedItems(watched, live))
	if anew.Verdict != v1alpha1.VerdictAct {
		return anew
	}
	// That plan lacks some items: keep only its steps that the full live plan wants too.
	both.Steps = intersectLive(live, intersectLive(watched, anew)).Steps
	return both
}

// intersectLive is IntersectPlans of plans whose last one was decided on live reads of everything.
func intersectLive(first, last Plan) Plan {
	return keepWanted(first, last, func(*Step) bool { return true })
}

// listSharedItems are the items that both plans act on. It leaves out an item if the live plan has a step for it together with other
// items, and the watched plan has no such step for it.
func listSharedItems(watched, live Plan) map[ItemKey]bool {
	wanted := watched.listWants()
	shared := watched.ListItems()
	for i := range live.Steps {
		s := &live.Steps[i]
		if len(s.Keys) < 2 {
			continue
		}
		for _, key := range s.Keys {
			if !wanted[want{s.stepKey(), key}] {
				delete(shared, ItemKey{Rule: s.Rule, Key: key})
			}
		}
	}
	return shared
}

// want is what a step does for one of its items.
type want struct {
	step stepID
	item string
}

func (p *Plan) listWants() map[want]bool {
	out := make(map[want]bool, len(p.Steps))
	for i := range p.Steps {
		for _, key := range p.Steps[i].Keys {
			out[want{p.Steps[i].stepKey(), key}] = true
		}
	}
	return out
}

// IntersectPlans is what the last of several plans may do: its confirmed steps that the first plan wanted too, for the same
// items of the same rule on the same objects, and of these the ones all of whose earlier steps are among them. Objects,
// versions and patches are the last plan's. There are none unless both plans act.
func IntersectPlans(first, last Plan) Plan {
	return keepWanted(first, last, func(s *Step) bool { return s.Confirmed })
}

// keepWanted is the last plan with those of its steps that may be carried out and that the first plan wanted too, as IntersectPlans says.
func keepWanted(first, last Plan, may func(*Step) bool) Plan {
	out := last
	out.Steps = nil
	if first.Verdict != v1alpha1.VerdictAct || last.Verdict != v1alpha1.VerdictAct {
		return out
	}
	wanted, stays := first.listWants(), make([]bool, len(last.Steps))
	out.Steps = KeepSteps(last.Steps, func(n int) bool {
		s, id := &last.Steps[n], last.Steps[n].stepKey()
		stays[n] = may(s) && !slices.ContainsFunc(s.Keys, func(k string) bool { return !wanted[want{id, k}] }) &&
			!slices.ContainsFunc(s.After, func(before int) bool { return !stays[before] })
		return stays[n]
	})
	return out
}
