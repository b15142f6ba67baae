// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

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
				if _, claimed := d.claimed[id]; claimed || is != bySome {
					continue
				}
				d.claimed[id] = ""
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

// ReleaseState is what a Helm release is like.
type ReleaseState int

const (
	// ReleaseUnknown was not read.
	ReleaseUnknown ReleaseState = iota
	// ReleaseGone does not exist.
	ReleaseGone
	// ReleaseDeployed is there, and nobody is at it.
	ReleaseDeployed
	// ReleaseUninstalling is being uninstalled, or was left so, by whomever.
	ReleaseUninstalling
	// ReleasePending is being installed, upgraded or rolled back.
	ReleasePending
)

// Release is a Helm release as it was read.
type Release struct {
	State    ReleaseState
	Name     string
	Revision int64
	// UID is that of the Secret that holds the revision.
	UID           types.UID
	FirstDeployed time.Time
	// Mark says on the Secret who has begun to uninstall it, if anything does, and Begun that it is the mark of the open run:
	// this operator has.
	Mark  string
	Begun bool
	// Digest is a fingerprint of what its uninstall would delete and run.
	Digest string
	// HasHooks says that uninstalling it runs hooks, and HooksBlocked why these cannot be run; empty if they can.
	HasHooks     bool
	HooksBlocked string
	// Rights are those that it takes to delete what its uninstall would delete, and HookRights those to run its hooks: in
	// order, one for each verb, resource and namespace. RequiredRights is what an author needs of them.
	Rights, HookRights []Right
	// Blocked is a reason of api/v1alpha1 for which it must not be uninstalled, and Detail says it in words.
	Blocked, Detail string
}

// HasBegun says that the release is being uninstalled, and that the open run has begun that.
func (r *Release) HasBegun() bool { return r.State == ReleaseUninstalling && r.Begun }

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
	case rel.State == ReleaseGone:
		return "", ""
	case rel.Blocked != "":
		return rel.Blocked, rel.Detail
	case rel.State == ReleasePending:
		return v1alpha1.ReasonReleasePending, fmt.Sprintf("Release %q is being installed, upgraded or rolled back.", h.Release)
	case rel.HasHooks && rel.HooksBlocked != "" && !h.DisableHooks:
		return v1alpha1.ReasonReleaseHasHooks, fmt.Sprintf("Release %q is not uninstalled: %s.", h.Release, rel.HooksBlocked)
	}
	p.Release = rel
	return "", ""
}
