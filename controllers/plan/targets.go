// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// checkTargets says whether every target that matters is known well enough to go on, else what is waited for.
func (in *Input) checkTargets() (Plan, bool) {
	var reason string
	var problems []string
	for i := range in.Spec.Targets {
		t, seen := &in.Spec.Targets[i], &in.Snapshot[i]
		if t.Delete && !in.Spec.Cluster && seen.Resource.Resource != "" && !seen.Namespaced {
			return invalidPlan(fmt.Sprintf("spec.targets[%d].delete: %s is cluster-scoped, but a Cleaner deletes only in its own namespace: remove delete: true (expressions can still read the target).", i, ResourceName(seen.Resource))), false
		}
		r, problem := FindProblem(t, seen)
		if r == "" {
			continue
		}
		if reason == "" {
			reason = r
		}
		problems = append(problems, problem)
	}
	if reason == "" {
		return Plan{}, true
	}
	return Plan{Verdict: v1alpha1.VerdictWait, Reason: reason, Message: strings.Join(problems, " ")}, false
}

// FindProblem says for which reason a target holds an evaluation up, and in words; both empty if it does not.
func FindProblem(t *v1alpha1.ClusterTarget, seen *Target) (reason, message string) {
	if !t.IsIncluded() && !t.Delete {
		return "", ""
	}
	asNull := t.IsIncluded() && t.OnMissing == v1alpha1.OnMissingAsNull
	missing := func(r string) string {
		return fmt.Sprintf("Target %q: %s.", t.Name, strings.TrimSuffix(r, "."))
	}
	switch seen.State {
	case Complete:
		if t.IsIncluded() && t.Reference.Name != "" && len(seen.Objects) == 0 && !asNull {
			name := t.Reference.Name
			if t.Reference.Namespace != "" {
				name = t.Reference.Namespace + "/" + name
			}
			return v1alpha1.ReasonTargetMissing, missing(fmt.Sprintf("%s %q does not exist", t.Reference.Kind, name))
		}
		return "", ""
	case NoSuchKind:
		if asNull {
			return "", ""
		}
		return v1alpha1.ReasonKindNotServed, missing(seen.Detail)
	case Forbidden:
		return v1alpha1.ReasonAccessDenied, missing(seen.Detail)
	case Unsynced:
		return v1alpha1.ReasonNotSynced, missing(seen.Detail)
	default:
		return v1alpha1.ReasonReadFailed, missing(seen.Detail)
	}
}

// targetValues is what expressions see of the targets.
func (in *Input) targetValues() map[string]any {
	out := make(map[string]any, len(in.Spec.Targets))
	for i := range in.Spec.Targets {
		t, seen := &in.Spec.Targets[i], &in.Snapshot[i]
		if !t.IsIncluded() {
			continue
		}
		out[t.Name] = targetValue(t, seen)
	}
	return out
}

func targetValue(t *v1alpha1.ClusterTarget, seen *Target) any {
	if t.Reference.Name != "" {
		if seen.State != Complete || len(seen.Objects) == 0 {
			return nil
		}
		return seen.Objects[0].Value
	}
	if seen.State != Complete {
		return nil
	}
	items := make([]any, len(seen.Objects))
	for i := range seen.Objects {
		items[i] = seen.Objects[i].Value
	}
	return map[string]any{"items": items}
}

// addTargetSteps adds the objects of the targets with delete: true, each once, but for those that a rule acts on. An object that
// conditions see is deleted at the version that they saw, whichever target wants it.
func (in *Input) addTargetSteps(d *decider) {
	if !slices.ContainsFunc(in.Spec.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Delete }) {
		return
	}
	seen := in.ListSeenObjects()
	for _, bySome := range []bool{false, true} {
		for i := range in.Spec.Targets {
			if !in.Spec.Targets[i].Delete {
				continue
			}
			for _, o := range in.Snapshot[i].Objects {
				id := o.Identify()
				s, is := seen[id]
				if is != bySome || d.claimed[id] {
					continue
				}
				d.claimed[id] = true
				if is {
					o = s.ownObject(o)
				}
				in.addTargetStep(d, Step{
					Rule: targetRule + in.Spec.Targets[i].Name, Action: noAction, Keys: []string{string(id)}, Object: o,
					Verb: VerbDelete, Propagation: v1alpha1.PropagateBackground, Confirmed: len(d.gate) == 0,
				})
			}
		}
	}
}

// addTargetStep adds a step of a target, unless something keeps its object from being deleted.
func (in *Input) addTargetStep(d *decider, s Step) {
	id := ItemKey{Rule: s.Rule, Key: s.Keys[0]}
	switch because := in.Protection.ForbidsDelete(&s.Object); {
	case !d.mayAct(id):
	case (in.Spec.IsRecurring() || in.OpenRun) && s.Object.Terminating: // a run records what is on its way, too; nobody deletes it again and again
	case because != "":
		d.addWithheld(Withheld{Step: s, Because: because})
	case !d.isDeferred(id, &s.Object):
		d.p.Steps = append(d.p.Steps, s)
	}
}

// ListSeenObjects are the objects that conditions see.
func (in *Input) ListSeenObjects() map[types.UID]Seen {
	out := map[types.UID]Seen{}
	for i := range in.Spec.Targets {
		if !in.Spec.Targets[i].IsIncluded() {
			continue
		}
		for _, o := range in.Snapshot[i].Objects {
			id := o.Identify()
			out[id] = append(out[id], SeenIn{Target: i, Object: o})
		}
	}
	return out
}

// TargetsOf are the targets in which an object stands, as whichever resource.
func (s Snapshot) TargetsOf(o *Object) []int {
	var out []int
	for t := range s {
		if n, there := searchObject(s[t].Objects, o.Namespace, o.Name); there && s[t].Objects[n].Identify() == o.Identify() {
			out = append(out, t)
		}
	}
	return out
}
