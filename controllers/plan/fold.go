// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/controllers/plan/owners"
)

// fold is one step in the making: what one action does to one object, for all items that want it. Items of which all
// reads were answered are apart from those of which they were not, so that a batch can end with the former.
type fold struct {
	itemAction
	items     []*acting
	confirmed bool
	// last is the place of the last item of it, or of what comes before it.
	last int
	// before are earlier steps: those of the same items, and those on the same object.
	before []*fold
	place  int // in the plan
}

// foldID tells folds apart. What is no object is not folded: it has the place of its item.
type foldID struct {
	action    int
	object    types.UID
	item      int
	confirmed bool
}

// folding makes steps of what a rule does.
type folding struct{ *deciding }

// foldActions makes steps of what is done with the items, and adds them to the plan. An error in a patch is one of its items,
// of which nothing is done then.
func (r folding) foldActions() {
	folds := r.groupActions()
	for !r.makePatches(folds) && r.chargeBytes("actions", len(r.acting)) { // each time for fewer items
		r.acting = slices.DeleteFunc(r.acting, func(a *acting) bool { return a.failed })
		folds = r.groupActions()
	}
	r.addSteps(folds)
	for _, f := range folds {
		r.reserved = append(r.reserved, f.itemAction)
	}
	for _, d := range r.reserved {
		if r.claimsObject(d) {
			r.claimed[d.object.Identify()] = true
		}
	}
}

// groupActions groups what the same action does to the same object into folds, ordered by item, then by action. A fold of several items is placed
// at its last item, so that all its dependencies come before it.
func (r folding) groupActions() []*fold {
	all := make([]*fold, 0, len(r.acting))
	at := make(map[foldID]*fold, len(r.acting))
	deleted := map[types.UID]int{} // by which action, from 1
	for place, a := range r.acting {
		var mine []*fold
		for _, d := range a.actions {
			id, deletes := foldID{action: d.action, confirmed: a.confirmed}, r.rule.Actions[d.action].Delete != nil
			if d.object == nil {
				id.item = place + 1
			} else {
				id.object = d.object.Identify()
			}
			if deletes {
				if by := deleted[id.object]; by != 0 && by != d.action+1 {
					continue // the first of several deletes is the one
				}
				deleted[id.object] = d.action + 1
			}
			f := at[id]
			if f == nil {
				f = &fold{itemAction: d, confirmed: a.confirmed}
				at[id] = f
				all = append(all, f)
			} else {
				f.patch = nil // it was about one item
			}
			f.items = append(f.items, a)
			f.last = place
			f.before = append(f.before, mine...)
			if len(a.actions) > 1 {
				mine = append(mine, f)
			}
		}
	}
	if len(r.rule.Actions) > 1 {
		behindEachOther(all)
	}
	return orderFolds(all)
}

// behindEachOther makes folds on the same object depend on each other in the order of the actions, across items.
func behindEachOther(all []*fold) {
	on := make(map[types.UID][]*fold, len(all))
	for _, f := range all {
		if f.object != nil {
			id := f.object.Identify()
			on[id] = append(on[id], f)
		}
	}
	for _, f := range all {
		if f.object == nil {
			continue
		}
		for _, other := range on[f.object.Identify()] {
			if other.action < f.action {
				f.before = append(f.before, other)
			}
		}
	}
}

// orderFolds puts folds into an order in which each stands after what comes before it. What comes before has an earlier
// action.
func orderFolds(all []*fold) []*fold {
	byAction := slices.Clone(all)
	slices.SortStableFunc(byAction, func(a, b *fold) int { return cmp.Compare(a.action, b.action) })
	for _, f := range byAction {
		for _, b := range f.before {
			f.last = max(f.last, b.last)
		}
	}
	slices.SortStableFunc(all, func(a, b *fold) int { return cmp.Or(cmp.Compare(a.last, b.last), cmp.Compare(a.action, b.action)) })
	return all
}

// makePatches makes the patches. It is false if one failed: then its items have, too, and the others are folded anew.
func (r folding) makePatches(folds []*fold) bool {
	ok := true
	for _, f := range folds {
		if r.rule.Actions[f.action].Patch == nil || f.patch != nil {
			continue
		}
		body, err := r.makePatch(f)
		if err == nil {
			if !r.chargeBytes(fmt.Sprintf("actions[%d].patch", f.action), len(body)) {
				return true
			}
			f.patch = body
			f.keepPatch()
			continue
		}
		ok = false
		r.errors.addError(r.rule.Name, r.nameCandidate(f.items[0].candidate), err, int64(len(f.items)))
		for _, a := range f.items {
			a.failed = true
		}
	}
	return ok
}

// keepPatch remembers the patch of one item alone for when the others are folded anew.
func (f *fold) keepPatch() {
	if len(f.items) > 1 {
		return
	}
	actions := f.items[0].actions
	for i := range actions {
		if actions[i].action == f.action {
			actions[i].patch = f.patch
		}
	}
}

// makePatch makes one patch. Equal patches are equal bytes: keys are sorted.
func (r folding) makePatch(f *fold) ([]byte, *expr.Error) {
	items := make([]*celenv.Item, len(f.items))
	for i, a := range f.items {
		items[i] = a.item
	}
	value, problem := r.eval.EvaluatePatch(f.action, f.object.Value, items)
	if problem != nil {
		return nil, problem
	}
	if because := owners.FindChangeIn(r.rule.Actions[f.action].Patch.Type, value); because != "" {
		return nil, r.makeError(fmt.Sprintf("actions[%d].patch.expression", f.action), because, owners.Hint)
	}
	var out bytes.Buffer
	w := json.NewEncoder(&out)
	w.SetEscapeHTML(false)
	if err := w.Encode(value); err != nil {
		return nil, r.makeError(fmt.Sprintf("actions[%d].patch.expression", f.action), err.Error(), "")
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// addSteps adds folds to the plan.
func (r folding) addSteps(folds []*fold) {
	first := len(r.p.Steps)
	r.p.Steps = slices.Grow(r.p.Steps, len(folds))
	for i, f := range folds {
		f.place = first + i
		s := r.makeStep(f.action, f.object)
		s.Keys = f.itemKeys()
		s.Reason, s.Confirmed = joinReasons(f.items), f.confirmed
		for _, a := range f.items {
			s.BlindFor = shorterBlind(s.BlindFor, a.blindFor)
		}
		if s.Patch != nil {
			s.Patch.Body = f.patch
		}
		for _, b := range f.before {
			s.After = append(s.After, b.place)
		}
		slices.Sort(s.After)
		s.After = slices.Compact(s.After)
		r.p.Steps = append(r.p.Steps, s)
	}
}

// itemKeys are those of the items, each once.
func (f *fold) itemKeys() []string {
	if len(f.items) == 1 {
		return []string{f.items[0].key}
	}
	out, seen := make([]string, 0, len(f.items)), make(map[string]bool, len(f.items))
	for _, a := range f.items {
		if !seen[a.key] {
			seen[a.key] = true
			out = append(out, a.key)
		}
	}
	return out
}
