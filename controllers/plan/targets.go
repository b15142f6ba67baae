// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// targetValues is what expressions see of the targets.
func (in *Input) targetValues() map[string]any {
	out := make(map[string]any, len(in.Spec.Targets))
	for i := range in.Spec.Targets {
		t, seen := &in.Spec.Targets[i], &in.Snapshot[i]
		switch {
		case !t.IsIncluded():
		case in.change != nil && !in.change.now.own[i]:
			out[t.Name] = in.change.now.values[t.Name]
		default:
			out[t.Name] = seen.MakeValue(t.Reference.Name != "")
		}
	}
	return out
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
				if _, claimed := d.claimed[id]; claimed || is != bySome {
					continue
				}
				d.claimed[id] = ""
				if is {
					o = s.OwnObject(o)
				}
				in.addTargetStep(d, Step{
					Rule: runrow.TargetRule(in.Spec.Targets[i].Name), Action: noAction, Keys: []string{string(id)}, Object: o,
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
func (in *Input) ListSeenObjects() map[types.UID]observed.Seen {
	out := map[types.UID]observed.Seen{}
	for i := range in.Spec.Targets {
		if !in.Spec.Targets[i].IsIncluded() {
			continue
		}
		for _, o := range in.Snapshot[i].Objects {
			id := o.Identify()
			out[id] = append(out[id], observed.SeenIn{Target: i, Object: o})
		}
	}
	return out
}

// releaseStep adds the release, or says for which reason it blocks the plan.
func (in *Input) releaseStep(p *Plan) (reason, detail string) {
	h := in.Spec.Helm
	if h == nil || !h.Delete || in.Release == nil {
		return "", ""
	}
	rel, protected := in.Release, in.Protection.OfNamespace(in.Owner.Namespace)
	switch {
	case protected != "":
		return v1alpha1.ReasonProtected, fmt.Sprintf("Release %q is not uninstalled: %s.", h.Release, protected)
	case rel.State == observed.ReleaseGone:
		return "", ""
	case rel.Blocked != "":
		return rel.Blocked, rel.Detail
	case rel.State == observed.ReleasePending:
		return v1alpha1.ReasonReleasePending, fmt.Sprintf("Release %q is being installed, upgraded or rolled back.", h.Release)
	case rel.HasHooks && rel.HooksBlocked != "" && !h.DisableHooks:
		return v1alpha1.ReasonReleaseHasHooks, fmt.Sprintf("Release %q is not uninstalled: %s.", h.Release, rel.HooksBlocked)
	}
	p.Release = rel
	return "", ""
}
