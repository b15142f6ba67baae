// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// findObject finds the snapshot's own object for what an expression gave: by apiVersion, kind, namespace, name and, if that is
// there, UID, and the index of the target where it is. What an expression built is never acted on. It is nil if there is
// no such object.
func (in *Input) findObject(value map[string]any) (*observed.Object, int) {
	var found *observed.Object
	at := -1
	namespace, name := observed.NestedString(value, "metadata", "namespace"), observed.NestedString(value, "metadata", "name")
	if name == "" {
		return nil, at
	}
	for t := range in.Snapshot {
		target := &in.Snapshot[t]
		if target.State != observed.Complete || !in.Spec.Targets[t].IsIncluded() {
			continue
		}
		named := observed.ListNamed(target.Objects, namespace, name)
		for i := range named {
			if o := &named[i]; isSameMap(o.Value, value) { // in another target it may be at another version
				return o, t
			} else if (found == nil || found.Unreadable == "" && o.Unreadable != "") && o.StandsFor(value) { // a record that one target cannot read stays
				found, at = o, t
			}
		}
	}
	return found, at
}

// isSameMap says that two maps are one.
func isSameMap(a, b map[string]any) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// describeAbsent returns the message for an object that findObject did not find.
func describeAbsent(value map[string]any) string {
	name := observed.FormatName(observed.NestedString(value, "kind"), observed.NestedString(value, "metadata", "namespace"), observed.NestedString(value, "metadata", "name"))
	return name + " is not among the targets"
}

// acting is an item that is acted on.
type acting struct {
	*candidate
	actions   []itemAction
	reason    string
	confirmed bool
	failed    bool
}

// itemAction is what one action of a rule does for one item.
type itemAction struct {
	action int
	object *observed.Object // nil where an item that is no object is reported
	target int              // where the object was found
	patch  []byte           // what it says if the item has it for itself
}

// choosing evaluates the actions of a rule for an item.
type choosing struct{ *deciding }

// chooseActions adds what is done with an item, unless there is an error, or something forbids it.
func (r choosing) chooseActions(c *candidate) {
	a := &acting{candidate: c}
	withheld, err := r.askActions(a)
	if err == nil && len(a.actions)+len(withheld) > 0 && r.rule.Reason != "" {
		a.reason, err = c.item.EvaluateReason()
	}
	if err != nil {
		failing(r).addItemError(r.nameCandidate(c), c.item, err)
		return
	}
	if r.isShadowed(a) {
		r.count.Shadowed++
		return
	}
	for i := range withheld {
		withheld[i].Step.Reason = a.reason
		r.count.Protected++
		r.addWithheld(withheld[i])
		tracing(r).noteItem(c, itemtrace.Protected, withheld[i].Because)
	}
	if len(a.actions) == 0 {
		if len(withheld) == 0 {
			tracing(r).noteItem(c, itemtrace.Unchanged, "")
		}
		return
	}
	if r.isLeftForNow(a) {
		return
	}
	r.count.Acted++
	tracing(r).noteActions(a, itemtrace.Acted, a.reason)
	if !r.mayAct(ItemKey{Rule: r.rule.Name, Key: c.key}) {
		if r.chargeBytes("actions", stepSize*len(a.actions)) {
			r.reserved = append(r.reserved, a.actions...)
		}
		return
	}
	if a.confirmed, err = confirming(r).confirmItem(a); err != nil {
		r.addError(r.nameCandidate(c), err)
		return
	}
	a.confirmed = a.confirmed && len(r.gate) == 0
	if r.chargeBytes("actions", actingSize+len(a.reason)+stepSize*len(a.actions)) {
		r.acting = append(r.acting, a)
	}
}

// Shadow is one rule that leaves objects to an earlier one, which wants them too.
type Shadow struct {
	Rule, By string
	// Object names the first object for people, and Items counts the items.
	Object string
	Items  int64
}

// maxShadows bounds how many pairs of rules a plan tells.
const maxShadows = 100

// isShadowed says that an earlier rule acts on an object of an item, and notes that.
func (r choosing) isShadowed(a *acting) bool {
	for _, d := range a.actions {
		if !r.claimsObject(d) {
			continue
		}
		by, claimed := r.claimed[d.object.Identify()]
		if !claimed {
			continue
		}
		tracing(r).noteActions(a, itemtrace.Shadowed, by)
		i := slices.IndexFunc(r.p.Shadowed, func(s Shadow) bool { return s.Rule == r.rule.Name && s.By == by })
		switch {
		case i >= 0:
			r.p.Shadowed[i].Items++
		case len(r.p.Shadowed) < maxShadows:
			r.p.Shadowed = append(r.p.Shadowed, Shadow{Rule: r.rule.Name, By: by, Object: runrow.ShowName(d.object.String()), Items: 1})
		}
		return true
	}
	return false
}

// mayAct says that an item may be acted on.
func (d *decider) mayAct(id ItemKey) bool {
	return !d.in.Failed[id] && (d.in.Only == nil || d.in.Only[id])
}

// claimsObject says that no rule that comes later acts on the object of an action: a report claims nothing.
func (r *deciding) claimsObject(d itemAction) bool {
	return d.object != nil && r.rule.Actions[d.action].Report == nil
}

// askActions asks the actions about an item. A step that is withheld ends them.
func (r choosing) askActions(a *acting) ([]Withheld, *expr.Error) {
	for i := range r.rule.Actions {
		action := &r.rule.Actions[i]
		applies, err := a.item.EvaluateActionWhen(i)
		if err != nil {
			return nil, err
		}
		if !applies {
			continue
		}
		d, err := r.findActionObject(a, i)
		if err != nil {
			return nil, err
		}
		if d.object == nil {
			a.actions = append(a.actions, d)
			continue
		}
		verb := verbOf(action)
		if r.hasNothingToDo(a, action, verb, d.object) {
			continue
		}
		if because := r.in.Protection.ForbidsVerb(verb, d.object); because != "" {
			step := r.makeStep(i, d.object)
			step.Keys = []string{a.key}
			return []Withheld{{Step: step, Because: because}}, nil
		}
		a.actions = append(a.actions, d)
	}
	return nil, nil
}

// findActionObject finds what an action is about.
func (r choosing) findActionObject(a *acting, i int) (d itemAction, err *expr.Error) {
	action := &r.rule.Actions[i]
	d = itemAction{action: i, object: a.object, target: a.target}
	switch {
	case action.Object != "" || a.object == nil && action.Report == nil:
		value, err := a.item.EvaluateActionObject(i)
		if err != nil {
			return d, err
		}
		if d.object, d.target = r.in.findObject(value); d.object == nil {
			return d, r.makeError(fmt.Sprintf("actions[%d].object", i), describeAbsent(value), "actions apply only to objects of targets")
		}
	case a.object == nil:
		return d, nil
	}
	return d, r.checkActionObject(d)
}

// checkActionObject says why an action cannot be about its object, whatever it says; nil if it can.
func (r choosing) checkActionObject(d itemAction) *expr.Error {
	i, action := d.action, &r.rule.Actions[d.action]
	if action.Evict != nil && d.object.Resource.GroupResource() != (schema.GroupResource{Resource: "pods"}) {
		return r.makeError(fmt.Sprintf("actions[%d].evict", i), "only Pods can be evicted", "delete the object, or evict its Pods")
	}
	if r.in.Spec.Targets[d.target].IsOfAnyKind() && action.Delete == nil && action.Report == nil { // no other right was reviewed
		return r.makeError(fmt.Sprintf("actions[%d]", i), `only delete and report act on objects of a target of kind "*"`, "use a target of one kind")
	}
	if action.HelmUninstall != nil && !d.object.OfRelease {
		return r.makeError(fmt.Sprintf("actions[%d].helmUninstall", i), d.object.String()+" is not an item of a target with helmReleases", "act on items of such a target")
	}
	if o := d.object; !r.in.Spec.Cluster && (!r.in.Snapshot[d.target].Namespaced || o.Namespace != r.in.Owner.Namespace) {
		return r.makeError(fmt.Sprintf("actions[%d]", i), "a Cleaner acts only in its own namespace",
			"only read the object here; use a ClusterCleaner to act on it")
	}
	return nil
}

// hasNothingToDo says that an action has nothing to do with an object.
func (r choosing) hasNothingToDo(a *acting, action *v1alpha1.RuleAction, verb Verb, o *observed.Object) bool {
	if r.in.Uninstalling[o.UID] {
		return verb != VerbReport
	}
	switch verb {
	case VerbHelmUninstall: // a newer revision stands for the release, and there is nothing left of one whose history was kept
		return o.Labels["status"] == "uninstalled" || r.isOlder(o)
	case VerbDelete:
		return o.EndsWithin(action.Delete.GracePeriodSeconds) || slices.ContainsFunc(a.actions, func(d itemAction) bool {
			return d.object != nil && r.rule.Actions[d.action].Delete != nil && d.object.Identify() == o.Identify()
		})
	case VerbEvict:
		return o.EndsWithin(action.Evict.GracePeriodSeconds)
	case VerbRemoveFinalizer:
		return !slices.Contains(o.Finalizers, action.RemoveFinalizer.Name)
	default:
		return false
	}
}

// isLeftForNow says that an item is left, because too few of its group would remain, or that it waits after a failure, and counts it.
func (r choosing) isLeftForNow(a *acting) bool {
	switch {
	case !leaving(r).mayGo(a):
		return true
	case r.waitsForOthers(a):
		r.p.Deferred = append(r.p.Deferred, ItemKey{Rule: r.rule.Name, Key: a.key})
	case !r.isWaiting(a):
		return false
	}
	r.count.Deferred++
	for _, d := range a.actions { // it is done when it has waited
		leaving(r).noteRemoved(d)
	}
	tracing(r).noteActions(a, itemtrace.Deferred, r.p.DeferDetail)
	return true
}

// waitsForOthers says that an item waits until other uninstalls are at their end.
func (r choosing) waitsForOthers(a *acting) bool {
	return r.in.UninstallsFull != nil && slices.ContainsFunc(a.actions, func(d itemAction) bool {
		return r.rule.Actions[d.action].HelmUninstall != nil && r.in.UninstallsFull(d.object.Namespace)
	})
}

// isWaiting says that an item waits because an earlier attempt on one of its objects failed.
func (r choosing) isWaiting(a *acting) bool {
	for _, d := range a.actions {
		if r.claimsObject(d) && r.isDeferred(ItemKey{Rule: r.rule.Name, Key: a.key}, d.object) {
			return true
		}
	}
	return false
}

// isDeferred says that an object waits after a failure, or because somebody makes it anew, and notes that an item does with it.
func (d *decider) isDeferred(item ItemKey, o *observed.Object) bool {
	b, waits := d.in.Backoff.FindWait(o.UID, d.in.Now)
	reason, why, until := b.Reason, b.Why, b.Until
	if b.IsUnstable() {
		reason = v1alpha1.ReasonTargetUnstable
	}
	if !waits {
		e, loops := d.in.Recreations.FindWait(o.Place(), o.UID, d.in.Now)
		if !loops {
			return false
		}
		reason, why, until = v1alpha1.ReasonRecreationLoop, e.DescribeWait(), e.Until
	}
	d.p.Deferred = append(d.p.Deferred, item)
	d.p.Next = monotime.ChooseEarlier(d.p.Next, until)
	if rankDeferReason(reason) > rankDeferReason(d.p.DeferReason) {
		d.p.DeferReason, d.p.DeferDetail = reason, fmt.Sprintf("%s: %s", o.String(), why)
	}
	return true
}

// rankDeferReason is higher for a reason that is reported before others: a refused request comes first.
func rankDeferReason(reason string) int {
	last := []string{"", v1alpha1.ReasonTargetUnstable, v1alpha1.ReasonRecreationLoop}
	if i := slices.Index(last, reason); i >= 0 {
		return i
	}
	return len(last)
}

// addWithheld adds a step that is not carried out, as far as there is room.
func (d *decider) addWithheld(w Withheld) {
	if len(d.p.Withheld) < MaxWithheld {
		w.Object = runrow.ShowName(w.Step.Object.String())
		d.p.Withheld = append(d.p.Withheld, w)
	}
}

// verbOf is what an action does.
func verbOf(a *v1alpha1.RuleAction) Verb {
	switch {
	case a.Delete != nil:
		return VerbDelete
	case a.Evict != nil:
		return VerbEvict
	case a.Patch != nil:
		return VerbPatch
	case a.RemoveFinalizer != nil:
		return VerbRemoveFinalizer
	case a.HelmUninstall != nil:
		return VerbHelmUninstall
	default:
		return VerbReport
	}
}

// makeStep returns the step of an action on an object, without the fields that depend on the items.
func (r *deciding) makeStep(action int, o *observed.Object) Step {
	a := &r.rule.Actions[action]
	s := Step{Rule: r.rule.Name, Action: action, Verb: verbOf(a)}
	if o != nil {
		s.Object = *o
	}
	switch s.Verb {
	case VerbDelete:
		s.Grace, s.Propagation = a.Delete.GracePeriodSeconds, a.Delete.PropagationPolicy
		if s.Propagation == "" {
			s.Propagation = v1alpha1.PropagateBackground
		}
	case VerbEvict:
		s.Grace = a.Evict.GracePeriodSeconds
	case VerbPatch:
		s.Patch = &Patch{Type: a.Patch.Type, Subresource: a.Patch.Subresource, Force: a.Patch.Force}
	case VerbRemoveFinalizer:
		s.Finalizer = a.RemoveFinalizer.Name
	}
	return s
}

// joinReasons says why a step is wanted, of which the items have reasons of their own.
func joinReasons(items []*acting) string {
	if n := len(items) - 1; n > 0 && items[0].reason != "" {
		return fmt.Sprintf("%s, and %d more", strings.TrimSuffix(items[0].reason, "."), n)
	}
	return items[0].reason
}
