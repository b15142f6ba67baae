// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// evidence is what was read live.
type evidence struct{ *Input }

// isConfirmed says that a read was answered live.
func (in evidence) isConfirmed(r observed.Read) bool {
	return in.Confirmed[r] || in.Confirmed[observed.Read{Target: r.Target, All: true}]
}

// findReadError says why a read failed, if it did.
func (in evidence) findReadError(r observed.Read) (string, bool) {
	if why, failed := in.Unreadable[r]; failed {
		return why, true
	}
	why, failed := in.Unreadable[observed.Read{Target: r.Target, All: true}]
	return why, failed
}

// gateReads are the reads that all steps depend on, of a Cleaner whose decision is not read live as a whole anyway: the
// targets that conditions read, and all that expressions see where targets are deleted, or where a limit is a part of them.
func (in evidence) gateReads() []observed.Read {
	if !in.Spec.IsRecurring() && !in.OpenRun {
		return nil
	}
	needed := map[string]bool{}
	for i := range in.Spec.Conditions {
		for _, name := range in.Programs.ListConditionTargets(i) {
			needed[name] = true
		}
	}
	countsObjects := in.Spec.Limits != nil && in.Spec.Limits.MaxPercent > 0
	for i := range in.Spec.Targets {
		if (in.Spec.Targets[i].Delete || countsObjects) && !in.OpenRun {
			for j := range in.Spec.Targets {
				needed[in.Spec.Targets[j].Name] = true
			}
		}
	}
	var out []observed.Read
	for i := range in.Spec.Targets {
		if t := &in.Spec.Targets[i]; needed[t.Name] && t.IsIncluded() {
			out = append(out, observed.Read{Target: i, All: true})
		}
	}
	return out
}

// MaxReads is how many objects are read live at most by their names, for one item and for all of a batch.
const MaxReads = 2000

// gate is the stage of the reads that all steps depend on. Those of `object:` are next, then the entries of confirm.
const gate = -1

// confirming tells what the decision on an item depends on.
type confirming struct{ *deciding }

// confirmItem says whether everything that an item depends on was read live, and asks for what comes next if it was not. Beyond
// the batch nothing is asked.
func (r confirming) confirmItem(a *acting) (bool, *expr.Error) {
	objects := r.actionReads(a)
	if len(objects)+len(r.rule.Confirm)+len(r.eval.ListUnprovenTargets())+len(r.outdated) == 0 {
		return true, nil
	}
	if !r.reads.HasRoom() || r.in.Chosen != nil && !r.in.Chosen[ItemKey{Rule: r.rule.Name, Key: a.key}] {
		return false, nil
	}
	entries, named := r.readEntries(a, objects)
	if len(named) > MaxReads {
		return false, r.makeError("confirm", fmt.Sprintf("the entries of confirm return more than %d names for one item", MaxReads), "give fewer names, or leave name out to read the target as a whole")
	}
	if !r.reads.AddNamed(named) {
		return false, nil
	}
	asked := false
	for stage := 0; stage <= len(entries); stage++ {
		wanted := objects
		if stage > 0 {
			if wanted = entries[stage-1].reads; entries[stage-1].err != nil {
				return false, entries[stage-1].err
			}
		}
		if len(wanted) > 0 && !asked {
			asked = true
			r.reads.CountItem()
		}
		missing, err := r.findMissing(stage, wanted)
		if err != nil {
			return false, err
		}
		if len(missing) > 0 {
			if !r.chargeBytes(r.stageField(stage), readSize*len(missing)) {
				return false, nil
			}
			r.reads.AddReads(stage, missing)
			return false, nil
		}
	}
	return true, nil
}

// entry is what an entry of confirm asks for, or why nobody can say.
type entry struct {
	reads []observed.Read
	err   *expr.Error
}

// readEntries is what the entries of confirm ask for, for an item, as far as is known now; the last one is for all that no entry names.
// Named are the objects that the item depends on by their names: what is read as a whole before is not read once more. When they are too
// many, no other entry is asked.
func (r confirming) readEntries(a *acting, objects []observed.Read) (entries []entry, named map[observed.Read]bool) {
	entries, named = make([]entry, len(r.rule.Confirm)+1), map[observed.Read]bool{}
	whole := map[int]bool{}
	add := func(reads []observed.Read) {
		for _, read := range reads {
			if read.All || r.in.Confirmed[observed.Read{Target: read.Target, All: true}] {
				whole[read.Target] = true
			} else if !whole[read.Target] {
				named[read] = true
			}
		}
	}
	add(objects)
	for i := range entries {
		if len(named) > MaxReads {
			break
		}
		entries[i].reads, entries[i].err = r.entryReads(a, i)
		add(entries[i].reads)
	}
	return entries, named
}

// findMissing are those of the reads of a stage that were not answered yet. It is an error if one of them failed.
func (r confirming) findMissing(stage int, wanted []observed.Read) (missing []observed.Read, err *expr.Error) {
	for _, read := range wanted {
		if why, failed := (evidence{r.in}).findReadError(read); failed {
			return nil, r.makeError(r.stageField(stage), fmt.Sprintf("cannot be read live: %s", why), "")
		}
		if !(evidence{r.in}).isConfirmed(read) {
			missing = append(missing, read)
		}
	}
	return missing, nil
}

// stageField is what asks for the reads of a stage.
func (r confirming) stageField(stage int) string {
	switch {
	case stage == 0:
		return "actions"
	case stage > len(r.rule.Confirm):
		return "when"
	default:
		return fmt.Sprintf("confirm[%d]", stage-1)
	}
}

// actionReads are the reads of what actions are about besides the item. The item itself is not read again: the API server
// refuses every version of it but the one that was decided on.
func (r confirming) actionReads(a *acting) []observed.Read {
	var out []observed.Read
	for _, d := range a.actions {
		if r.rule.Actions[d.action].Object == "" || d.object == nil || a.object != nil && d.object.Identify() == a.object.Identify() {
			continue
		}
		out = append(out, r.in.Snapshot.ReadOf(d.target, d.object))
	}
	return out
}

// entryReads are the reads that an entry of confirm asks for. After the last one come those of all that no entry names, and of what is Outdated.
func (r confirming) entryReads(a *acting, entry int) ([]observed.Read, *expr.Error) {
	switch {
	case entry == len(r.rule.Confirm):
		return append(r.wholeTargetReads(r.eval.ListUnprovenTargets()), r.outdated...), nil
	case r.rule.Confirm[entry].Target == v1alpha1.ConfirmAll:
		return r.wholeTargetReads(r.eval.ListJoinedTargets()), nil
	default:
		return r.entryOf(a, entry)
	}
}

// wholeTargetReads are the reads of targets as a whole.
func (r confirming) wholeTargetReads(targets []string) []observed.Read {
	var out []observed.Read
	for _, name := range targets {
		out = append(out, observed.Read{Target: r.in.Spec.FindTarget(name), All: true})
	}
	return out
}

// entryOf are the reads that an entry asks for which names a target.
func (r confirming) entryOf(a *acting, entry int) ([]observed.Read, *expr.Error) {
	t := r.in.Spec.FindTarget(r.rule.Confirm[entry].Target)
	if t < 0 {
		return nil, r.makeError(fmt.Sprintf("confirm[%d].target", entry), fmt.Sprintf("no target is named %q", r.rule.Confirm[entry].Target), "name one of spec.targets")
	}
	all := r.eval.ConfirmsAll(entry)
	var names []string
	var namespace string
	if !all {
		var err *expr.Error
		names, namespace, err = a.item.EvaluateConfirm(entry)
		if err != nil || len(names) == 0 {
			return nil, err
		}
	}
	target := &r.in.Snapshot[t]
	if target.State != observed.Complete && !all {
		return nil, r.makeError(fmt.Sprintf("confirm[%d]", entry), fmt.Sprintf("target %q is null and cannot be read", r.rule.Confirm[entry].Target),
			"check in when that it is not null")
	}
	if all {
		return []observed.Read{{Target: t, All: true}}, nil
	}
	namespace, err := r.entryNamespace(a, entry, target, namespace)
	if err != nil {
		return nil, err
	}
	out := make([]observed.Read, len(names))
	for i, name := range names {
		out[i] = observed.Read{Target: t, Namespace: namespace, Name: name}
	}
	return out, nil
}

// entryNamespace is where an entry of confirm reads: where it says, else where the item is. A Cleaner reads its own only.
func (r confirming) entryNamespace(a *acting, entry int, target *observed.Target, said string) (string, *expr.Error) {
	at := fmt.Sprintf("confirm[%d].namespace", entry)
	if !target.Namespaced {
		return "", nil
	}
	if said == "" {
		said = observed.NestedString(a.item.AsObject(), "metadata", "namespace")
	}
	own := r.in.Owner.Namespace
	switch {
	case r.in.Spec.Cluster && said == "":
		return "", r.makeError(at, "the item has no namespace", "set namespace")
	case r.in.Spec.Cluster || said == own:
		return said, nil
	case said == "": // it cannot be another
		return own, nil
	default:
		return "", r.makeError(at, fmt.Sprintf("a Cleaner reads only its own namespace, not %q", said), "leave it out")
	}
}
