// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/hashes"
	"github.com/vtex/cleaner/controllers/plan/limits"
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
	// Object is what is acted on, at its ResourceVersion. Without a name if an item that is no object is reported.
	Object Object
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

// IsChange says that the step changes something: all but reports do.
func (s *Step) IsChange() bool { return s.Verb != VerbReport }

// IsAlone says that the step changes nothing, and that nothing has to be changed before it.
func (s *Step) IsAlone() bool { return !s.IsChange() && len(s.After) == 0 }

// Shown names what the step is about, for the readers of an owner: its object, or the item where that is none.
func (s *Step) Shown(owner string) string {
	if s.Object.Name == "" && len(s.Keys) > 0 {
		return s.Keys[0]
	}
	return s.Object.Ref.NameFor(owner)
}

// MakeRow is the step as it is recorded.
func (s *Step) MakeRow() Row { return Row{Rule: s.Rule, Ref: s.Object.Ref} }

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
	d := limits.Action{At: at, UID: s.Object.Identify(), Rule: s.Rule, Action: s.Action}
	if in.Spec.Limits != nil && in.Spec.Limits.MaxActions > 0 {
		d.Items = limits.SumItems(s.Keys)
	}
	for _, t := range in.Snapshot.TargetsOf(&s.Object) {
		d.Targets = append(d.Targets, in.Spec.Targets[t].Name)
	}
	return d
}

// ItemKey names one item of one rule.
type ItemKey struct{ Rule, Key string }

// Sum stands for the item, whichever rule it is of.
func (k ItemKey) Sum() hashes.Sum { return hashes.SumOf(k.Rule + "\x00" + k.Key) } // no name of a rule has the character

// Read is a live read that a decision depends on.
type Read struct {
	// Target is the index of the target that the object belongs to.
	Target int
	// Namespace and Name are those of the object.
	Namespace, Name string
	// All says that the whole target is read, whatever it is: then there is no name.
	All bool
}

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
