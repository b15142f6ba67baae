// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// isDryRun says that nothing is done, and what would be is asked instead.
func (p *pass) isDryRun() bool { return p.store.Draft.Common().Mode == v1alpha1.ModeDryRun }

// reportAlone carries out the reports that come after no action: they change nothing. It returns the other steps, which are only
// rehearsed.
func (b *batch) reportAlone(steps []plan.Step) (left []plan.Step) {
	for i := range steps {
		if s := &steps[i]; s.IsAlone() {
			b.executor.recordOutcome(s, actuate.NewDone(""))
		} else {
			left = append(left, *s)
			b.pass.mem.Rehearsed.AddStep(s, b.marks)
		}
	}
	b.pass.journal.TellSteps(b.executor.acted)
	return left
}

// rehearseSteps asks the API server about steps.
func (b *executor) rehearseSteps(ctx context.Context, steps []plan.Step) {
	results := make([]string, len(steps))
	all := make([]*plan.Step, len(steps))
	for i := range steps {
		all[i] = &steps[i]
	}
	b.pass.mem.lastNamespace = actuate.RunSteps(all, b.pass.mem.lastNamespace, func(i int) {
		s := &steps[i]
		results[i] = actionlog.DescribeDryRun(s.Verb)
		if out := b.pass.clients.Actuator.ExecuteStep(ctx, s, s.Object.ResourceVersion, true, &stepGuard{executor: b}); out.Kind != life.AnswerDone {
			results[i] = "would be refused: " + out.Why
		}
		if s.Reason != "" {
			results[i] += ": " + s.Reason
		}
	})
	for i, result := range results {
		s := &steps[i]
		b.pass.journal.RememberActions(v1alpha1.Action{
			Object: s.Shown(b.pass.store.Draft.GetNamespace()), UID: string(s.Object.UID), Rule: s.Rule,
			Action: string(s.Verb) + " (dry run)", Time: actionlog.AtSecond(b.pass.r.clock), Result: sanitize.CleanText(result),
		})
	}
	b.pass.journal.TellDryRun(steps)
}

// describeRehearsal returns what to report of a decision whose actions were rehearsed.
func (r *recurrence) describeRehearsal(d plan.Plan) plan.Plan {
	objects := map[types.UID]bool{}
	for i := range d.Steps {
		s := &d.Steps[i]
		if !s.IsChange() {
			continue
		}
		if slices.ContainsFunc(s.ListItems(), r.pass.mem.Rehearsed.HasItem) {
			objects[s.Object.UID] = true
		}
	}
	d.Reason = v1alpha1.ReasonDryRun
	d.Message = fmt.Sprintf("Mode is DryRun: %s would be acted on%s; nothing was changed.", sanitize.CountOf(len(objects), "object"), andRelease(d.Release))
	return d
}
