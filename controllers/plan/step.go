// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/controllers/plan/idlepatches"
	"github.com/vtex/cleaner/controllers/plan/itemerrors"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/ownerpatches"
	"github.com/vtex/cleaner/controllers/plan/runrow"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// Verb says what a step does.
type Verb string

const (
	// VerbReport does nothing but to say so.
	VerbReport Verb = "report"
	// VerbDelete deletes the object.
	VerbDelete Verb = "delete"
	// VerbEvict evicts the Pod.
	VerbEvict Verb = "evict"
	// VerbPatch patches the object.
	VerbPatch Verb = "patch"
	// VerbRemoveFinalizer takes one finalizer off the object.
	VerbRemoveFinalizer Verb = "removeFinalizer"
	// VerbHelmUninstall uninstalls the Helm release of which the object records the newest revision.
	VerbHelmUninstall Verb = "helmUninstall"
)

// noAction is the action of a step that no rule made.
const noAction = -1

// Step is one thing to do with one object.
type Step struct {
	// Rule is what wants it: the name of a rule, or "targets.<name>".
	Rule string
	// Action is the index among the actions of the rule; -1 for targets.<name>.
	Action int
	// Keys are the items of the rule that the step stands for, in their order; for targets.<name> it is the object's UID.
	Keys []string
	// Groups are the groups of these items, each once, as groupBy gives them: "" without it. For targets.<name> there are none.
	Groups []string
	// Object is what is acted on, at its ResourceVersion. Without a name if an item that is no object is reported.
	Object observed.Object
	Verb   Verb
	// Grace is how many seconds the object has to end, by delete and evict; nil: as many as it says itself.
	Grace *int64
	// Propagation says what delete does with the object's dependents.
	Propagation v1alpha1.PropagationPolicy
	// Patch is what patch sends; nil for other verbs.
	Patch *Patch
	// Finalizer is what removeFinalizer takes off.
	Finalizer string
	// Reason is why, in the words of the rule's author: that of the first item, and how many more there are.
	Reason string
	// After are indexes of earlier steps of the plan: all must have succeeded before this one.
	After []int
	// BlindFor is for how long at most it may be unknown whether `when` stayed true, for each of its items that waits for `for`; 0: none waits.
	BlindFor time.Duration
	// Confirmed says that all reads that the step depends on were answered live.
	Confirmed bool
}

// Patch is what changes an object.
type Patch struct {
	Type v1alpha1.PatchType
	// Subresource is what is patched; empty: the object itself.
	Subresource string
	// Force says that an Apply takes fields over from others.
	Force bool
	// Body is the patch as JSON, without the resourceVersion: equal patches are equal bytes.
	Body []byte
}

// Sum stands for what the patch asks for.
func (p *Patch) Sum() stringhash.Sum {
	return stringhash.SumOf(fmt.Sprintf("%s %s %t %s", p.Type, p.Subresource, p.Force, p.Body))
}

// RefusalReason is the reason of conditions when a request of the verb is refused. The removal of a finalizer is sent as a patch.
func (v Verb) RefusalReason() string {
	switch v {
	case VerbEvict:
		return v1alpha1.ReasonEvictionRefused
	case VerbPatch, VerbRemoveFinalizer:
		return v1alpha1.ReasonPatchRefused
	case VerbHelmUninstall:
		return v1alpha1.ReasonUninstallFailed
	default:
		return v1alpha1.ReasonDeletionRefused
	}
}

// IsRefusal says that a reason of conditions is that a request was refused.
func IsRefusal(reason string) bool {
	return slices.Contains([]string{v1alpha1.ReasonDeletionRefused, v1alpha1.ReasonEvictionRefused, v1alpha1.ReasonPatchRefused, v1alpha1.ReasonUninstallFailed}, reason)
}

// IsChange says that the step changes something: all but reports do.
func (s *Step) IsChange() bool { return s.Verb != VerbReport }

// EndsObject says that the object is gone in the end when the step has succeeded.
func (s *Step) EndsObject() bool {
	return s.Verb == VerbDelete || s.Verb == VerbEvict || s.Verb == VerbHelmUninstall
}

// IsAlone says that the step changes nothing, and that nothing has to be changed before it.
func (s *Step) IsAlone() bool { return !s.IsChange() && len(s.After) == 0 }

// DescribeObject names what the step is about in messages: its object, the release that it uninstalls, or the item where that is no object.
func (s *Step) DescribeObject() string {
	if s.Verb == VerbHelmUninstall {
		return s.Object.DescribeRelease()
	}
	if s.Object.Name == "" && len(s.Keys) > 0 {
		return s.Keys[0]
	}
	return s.Object.String()
}

// MakeRow is the step as it is recorded.
func (s *Step) MakeRow() runrow.Row { return runrow.Row{Rule: s.Rule, Ref: s.Object.Ref} }

// ListItems are the items of a rule that the step stands for.
func (s *Step) ListItems() []ItemKey {
	out := make([]ItemKey, len(s.Keys))
	for i, key := range s.Keys {
		out[i] = ItemKey{Rule: s.Rule, Key: key}
	}
	return out
}

// MakeAction is what is remembered of a step that was done, or may have been.
func (in *Input) MakeAction(s *Step, at time.Time) limits.Action {
	d := limits.Action{At: at, UID: s.Object.Identify(), Rule: s.Rule, Action: s.Action, Uninstall: s.Verb == VerbHelmUninstall}
	if in.Spec.Limits != nil && in.Spec.Limits.MaxActions > 0 {
		d.Items = limits.SumItems(s.Keys)
	}
	if limits.CountsGroups(in.Spec.Limits) {
		d.Groups = limits.SumItems(s.Groups)
	}
	for _, t := range in.Snapshot.TargetsOf(&s.Object) {
		d.Targets = append(d.Targets, in.Spec.Targets[t].Name)
	}
	return d
}

// ItemKey names one item of one rule.
type ItemKey struct{ Rule, Key string }

// Sum stands for the item, whichever rule it is of.
func (k ItemKey) Sum() stringhash.Sum { return stringhash.SumOf(k.Rule + "\x00" + k.Key) } // no name of a rule has the character

// Withheld is a step that is not carried out, because its object is protected.
type Withheld struct {
	Step Step
	// Object names the object for people.
	Object string
	// Because says why.
	Because string
}

// Pending is something for which a rule's `when` holds, and not yet for as long as its `for` says.
type Pending struct {
	Rule string
	// Key is the value of forKey or of key, or else it names the object.
	Key string
	// Until is when it will have held for long enough.
	Until time.Time
}

// ListItems are all items that a plan acts on.
func (p *Plan) ListItems() map[ItemKey]bool {
	out := map[ItemKey]bool{}
	for i := range p.Steps {
		for _, key := range p.Steps[i].Keys {
			out[ItemKey{Rule: p.Steps[i].Rule, Key: key}] = true
		}
	}
	return out
}

// stepID identifies a step of a plan. The confirmed and the unconfirmed part of one fold share it.
type stepID struct {
	rule   string
	action int
	object types.UID
	key    string // of an item that is no object
}

func (s *Step) stepKey() stepID {
	id := stepID{rule: s.Rule, action: s.Action}
	if s.Object.Name == "" {
		id.key = s.Keys[0]
	} else {
		id.object = s.Object.Identify()
	}
	return id
}

// KeepSteps returns the steps that are kept, by their place in a plan, each with the places of those before it as they are now. A step that is
// left out delays nothing. It asks about each step once, in their order.
func KeepSteps(steps []Step, stays func(n int) bool) []Step {
	at := make([]int, len(steps)) // where a step stands then, from 1
	var kept []Step
	for n, s := range steps {
		if !stays(n) {
			continue
		}
		after := s.After
		s.After = nil
		for _, before := range after {
			if at[before] > 0 {
				s.After = append(s.After, at[before]-1)
			}
		}
		kept = append(kept, s)
		at[n] = len(kept)
	}
	return kept
}

// ListForbidden is what a plan would do and may not, as it is recorded and shown to people.
func (p *Plan) ListForbidden() []v1alpha1.Withheld {
	var out []v1alpha1.Withheld
	for i := range p.Withheld {
		w := &p.Withheld[i]
		out = append(out, v1alpha1.Withheld{Object: w.Object, Because: w.Because})
	}
	return out
}

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
	for (!r.makePatches(folds) || r.leaveOutIdle(folds)) && r.chargeBytes("actions", len(r.acting)) { // each time for fewer items
		r.acting = slices.DeleteFunc(r.acting, func(a *acting) bool { return a.failed })
		folds = r.groupActions()
	}
	r.addSteps(folds)
	for _, f := range folds {
		r.reserved = append(r.reserved, f.itemAction)
	}
	for _, d := range r.reserved {
		leaving(r).noteRemoved(d)
		if r.claimsObject(d) {
			r.claimed[d.object.Identify()] = r.rule.Name
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
		r.errors.AddError(r.rule.Name, r.nameCandidate(f.items[0].candidate).Name, err, int64(len(f.items)))
		for _, a := range f.items {
			a.failed = true
			tracing(r).noteActions(a, itemtrace.Failed, err.Path+" "+itemerrors.DescribeError(err))
		}
	}
	return ok
}

// IdleStep is a patch that is left out because it would change nothing, as far as is known.
type IdleStep struct {
	ID   idlepatches.ID
	Keys []string // of the items
}

// IdleID tells the patch of a step from others.
func (s *Step) IdleID() idlepatches.ID {
	return idlepatches.ID{UID: s.Object.Identify(), Rule: s.Rule, Action: s.Action}
}

// ListIdle are the patches that are left out because they would change nothing.
func (p *Plan) ListIdle() []idlepatches.ID {
	out := make([]idlepatches.ID, len(p.Idle))
	for i := range p.Idle {
		out[i] = p.Idle[i].ID
	}
	return out
}

// leaveOutIdle leaves out the patches that would change nothing, or that have to wait since the last one of their action has changed nothing:
// those of items that want no other change. Their reports stay. It says whether there were any; then the others are folded again.
func (r folding) leaveOutIdle(folds []*fold) (some bool) {
	idle := r.findIdle(folds)
	for _, f := range folds {
		until, is := idle[f]
		if !is {
			continue
		}
		some = true
		s := r.makeStep(f.action, f.object)
		s.Keys = f.itemKeys()
		r.p.Idle = append(r.p.Idle, IdleStep{s.IdleID(), s.Keys})
		if !until.IsZero() {
			r.p.Deferred = append(r.p.Deferred, s.ListItems()...)
			r.p.Next = monotime.ChooseEarlier(r.p.Next, until)
		}
		for _, a := range f.items {
			tracing(r).noteActions(a, itemtrace.Unchanged, "its patch would change nothing")
			a.actions = slices.DeleteFunc(slices.Clone(a.actions), func(d itemAction) bool { return d.action == f.action })
			a.failed = len(a.actions) == 0
		}
	}
	return some
}

// findIdle are the patches that leaveOutIdle leaves out, and until when they have to wait; zero for what would change nothing. An item whose
// other changes are carried out keeps its patches: what comes after them waits for them.
func (r folding) findIdle(folds []*fold) map[*fold]time.Time {
	idle, changes := map[*fold]time.Time{}, map[*acting][]*fold{}
	for _, f := range folds {
		if !r.claimsObject(f.itemAction) {
			continue
		}
		for _, a := range f.items {
			changes[a] = append(changes[a], f)
		}
		if r.rule.Actions[f.action].Patch == nil || len(r.in.Idle) == 0 {
			continue
		}
		s := r.makeStep(f.action, f.object)
		s.Patch.Body = f.patch
		if is, until := r.in.Idle.IsIdle(s.IdleID(), f.object.ResourceVersion, s.Patch.Sum(), r.in.Now); is || !until.IsZero() {
			idle[f] = until
		}
	}
	for some := true; some; {
		some = false
		for f := range idle {
			if slices.ContainsFunc(f.items, func(a *acting) bool {
				return slices.ContainsFunc(changes[a], func(other *fold) bool { _, is := idle[other]; return !is })
			}) {
				delete(idle, f)
				some = true
			}
		}
	}
	return idle
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
	if because := ownerpatches.FindChangeIn(r.rule.Actions[f.action].Patch.Type, value); because != "" {
		return nil, r.makeError(fmt.Sprintf("actions[%d].patch.expression", f.action), because, ownerpatches.Hint)
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
		if limits.CountsGroups(r.in.Spec.Limits) {
			s.Groups = f.listGroups()
		}
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

// listGroups are the groups of the items, each once.
func (f *fold) listGroups() []string {
	var out []string
	seen := map[string]bool{}
	for _, a := range f.items {
		if !seen[a.group] {
			seen[a.group] = true
			out = append(out, a.group)
		}
	}
	return out
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

// ListRowSteps are the steps that a run records: the first action on each object.
func (p *Plan) ListRowSteps() []int {
	out, has := make([]int, 0, len(p.Steps)), make(map[types.UID]bool, len(p.Steps))
	for i := range p.Steps {
		if id := p.Steps[i].Object.Identify(); p.Steps[i].IsChange() && !has[id] {
			has[id] = true
			out = append(out, i)
		}
	}
	return out
}

func (p *Plan) rowBytes(steps []int) int {
	n := 0
	for _, i := range steps {
		n += p.Steps[i].RowBytes()
	}
	return n
}

// RowBytes is how many bytes the row of a step takes where it is stored.
func (s *Step) RowBytes() int { return runrow.StoredBytes(s.MakeRow().String()) }
