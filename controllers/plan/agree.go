// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/vtex/cleaner/api/v1alpha1"

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

// listSharedItems are the items that both plans act on. It leaves out an item if the live plan wants a step for it and others together that
// the watched plan does not want for it.
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
