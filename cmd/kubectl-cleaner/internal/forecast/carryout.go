// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

// maxWarnings bounds the warnings of one Cleaner.
const maxWarnings = 100

// reportID tells reports apart. The operator repeats one whose reason changes; that moment cannot be predicted, and it changes nothing.
type reportID struct {
	rule   string
	action int
	object types.UID
	key    string
}

// carrying carries out the steps of one plan.
type carrying struct {
	*simulation
	in *plan.Input
	// listed are the places of the steps in the forecast by the UIDs of the objects that they delete.
	listed map[types.UID]int
	// failed are steps of the plan that cannot succeed.
	failed map[int]bool
	// reported are the reports of the plan, by which a later plan repeats none of them.
	reported map[reportID]bool
	changed  bool
	// sent counts the requests that were sent for the plan.
	sent int64
}

// carryOut carries out the steps of a plan, and reports whether they changed anything that is evaluated again.
func (s *simulation) carryOut(in *plan.Input, p *plan.Plan) (changed bool) {
	c := &carrying{simulation: s, in: in, listed: map[types.UID]int{}, failed: map[int]bool{}, reported: map[reportID]bool{}}
	written := planjson.WritePlan(p, in.Owner, s.now, nil).Steps
	for i := range p.Steps {
		c.carryStep(i, &p.Steps[i], &written[i])
	}
	s.reported = c.reported
	if p.Release != nil {
		s.blur.noteChange(s, "", becauseRelease)
		c.listStep(&written[len(p.Steps)], false)
	}
	c.countDependents()
	if !s.work.IsRecurring() {
		s.ended, s.out.Ends = true, planjson.Moment{Time: s.now}
		return false
	}
	return c.changed
}

// carryStep carries out one step, unless it changes nothing.
func (c *carrying) carryStep(n int, step *plan.Step, written *planjson.Step) {
	for _, before := range step.After {
		if c.failed[before] {
			c.failed[n] = true
			return
		}
	}
	if !step.IsChange() {
		c.carryReport(step, written)
		return
	}
	done, err := c.changeObject(step)
	switch {
	case err != nil:
		c.failed[n] = true
		c.addWarning(fmt.Sprintf("rule %q cannot %s %s: %v", step.Rule, step.Verb, step.Object.String(), err))
		return
	case !done: // the operator sends no patch that would change nothing
		return
	}
	c.changed = true
	c.noteDelay(step)
	exact := c.blur.isExact(step.Rule)
	if at, ok := c.listStep(written, exact); ok && step.EndsObject() {
		c.listed[step.Object.Identify()] = at
	}
	if !exact {
		c.blur.noteChange(c.simulation, "", becauseChange)
	}
	if step.Verb == plan.VerbHelmUninstall {
		c.blur.noteChange(c.simulation, step.Rule, becauseRelease)
	}
	if limits.IsAny(c.work.Limits) {
		per, err := limits.ParsePer(c.work.Limits)
		if err == nil {
			c.done = c.done.DropOlder(c.now, per)
		}
		c.done = c.done.AddAction(c.in.MakeAction(step, c.now))
	}
}

// noteDelay notes if a request may be carried out later than it is wanted, or not at all.
func (c *carrying) noteDelay(step *plan.Step) {
	if step.Verb == plan.VerbEvict && canBeRefused(&step.Object) {
		c.blur.noteChange(c.simulation, step.Rule, becauseEviction)
	}
	// Forecasts show seconds: a delay that is shorter is none.
	if l := c.work.Limits; l != nil && l.ActionsPerSecond > 0 && c.sent >= l.ActionsPerSecond {
		c.blur.noteChange(c.simulation, "", becauseRate)
	}
	c.sent++
}

// canBeRefused reports whether a PodDisruptionBudget can prevent an eviction. The API server asks none about Pods that have ended, have not
// started, or are being deleted.
func canBeRefused(pod *observed.Object) bool {
	phase, _, err := unstructured.NestedString(pod.Value, "status", "phase")
	ignored := phase == string(corev1.PodPending) || phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)
	return !pod.Terminating && (err != nil || !ignored)
}

// carryReport lists a report that the plan before this one did not make.
func (c *carrying) carryReport(step *plan.Step, written *planjson.Step) {
	id := reportID{rule: step.Rule, action: step.Action, object: step.Object.UID}
	if step.Object.Name == "" && len(step.Keys) > 0 {
		id.key = step.Keys[0]
	}
	c.reported[id] = true
	if !c.simulation.reported[id] {
		c.listStep(written, c.blur.isExact(step.Rule))
	}
}

// changeObject does to the object of a step what the step says. It reports whether that changes anything.
func (c *carrying) changeObject(step *plan.Step) (bool, error) {
	o := c.world.findLiving(step.Object.UID)
	if o == nil {
		return false, nil
	}
	switch step.Verb {
	case plan.VerbPatch:
		now := *step
		now.Object = *o // which an earlier step may have changed
		content, err := planning.PatchObject(&now)
		if err != nil || equality.Semantic.DeepEqual(content, o.Value) {
			return false, err
		}
		c.world.ReplaceObject(o.UID, content)
	case plan.VerbRemoveFinalizer:
		c.world.removeFinalizer(o, step.Finalizer)
	case plan.VerbHelmUninstall:
		c.world.removeRelease(o)
	default:
		return c.world.deleteObject(o, deletion{at: c.now, propagation: step.Propagation, grace: step.Grace}), nil
	}
	return true, nil
}

// listStep lists a step, and returns its place. It only counts the step if there are too many.
func (c *carrying) listStep(written *planjson.Step, exact bool) (at int, listed bool) {
	if len(c.out.Steps) >= MaxSteps {
		c.out.Omitted++
		return 0, false
	}
	step := Step{At: planjson.Moment{Time: c.now}, Exact: exact, Step: *written}
	step.ResourceVersion = "" // by then it is another one
	c.out.Steps = append(c.out.Steps, step)
	return len(c.out.Steps) - 1, true
}

// countDependents lets what the deleted objects owned go too, and counts it at the steps that deleted them.
func (c *carrying) countDependents() {
	took := c.world.collectGarbage(c.now)
	for _, by := range took {
		for took[by] != "" {
			by = took[by]
		}
		if at, ok := c.listed[by]; ok {
			c.out.Steps[at].Dependents++
		}
	}
	for uid, at := range c.listed {
		c.out.Steps[at].Remains = !c.world.gone[uid]
	}
}

func (s *simulation) addWarning(text string) {
	if len(s.out.Warnings) < maxWarnings {
		s.out.Warnings = append(s.out.Warnings, text)
	}
}
