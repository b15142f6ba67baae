// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/rehearsed"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// isDryRun says that nothing is done, and what would be is asked instead.
func (p *pass) isDryRun() bool { return p.store.Draft.Common().Mode == v1alpha1.ModeDryRun }

// reportAlone carries out the reports that come after no action: they change nothing. It returns the other steps, which are only
// rehearsed.
func (b *batch) reportAlone(ctx context.Context, steps []plan.Step) (left []plan.Step) {
	for i := range steps {
		if s := &steps[i]; s.IsAlone() {
			b.executor.recordOutcome(s, actuate.NewDone(""))
		} else {
			left = append(left, *s)
		}
	}
	b.pass.journal.TellSteps(ctx, b.executor.acted)
	return left
}

// rehearseSteps asks the API server about steps of items with these marks.
func (b *executor) rehearseSteps(ctx context.Context, steps []plan.Step, marks rehearsed.Items) {
	results, refusals := make([]string, len(steps)), make([]string, len(steps))
	all := make([]*plan.Step, len(steps))
	for i := range steps {
		all[i] = &steps[i]
	}
	b.pass.mem.lastNamespace = actuate.RunSteps(all, b.pass.mem.lastNamespace, func(i int) {
		s := &steps[i]
		results[i] = actionlog.DescribeDryRun(s.Verb)
		if out := rehearseStep(ctx, b, s); out.Kind != life.AnswerDone {
			refusals[i] = out.Why
			results[i] = "would be refused: " + out.Why
		}
		if s.Reason != "" {
			results[i] += ": " + s.Reason
		}
	})
	for i := range steps {
		b.pass.mem.Rehearsed.AddStep(&steps[i], marks)
	}
	var allowed []plan.Step
	for i, result := range results {
		s := &steps[i]
		if refusals[i] != "" {
			b.pass.mem.Rehearsed.NoteRefused(s, b.pass.r.clock.Now())
			b.pass.mem.refusal = rehearsed.Refusal{Reason: s.Verb.RefusalReason(), Why: fmt.Sprintf("%s: %s", s.Object.String(), sanitize.CleanText(refusals[i]))}
		}
		a := b.pass.journal.NewAction(s, result)
		a.Action += " (dry run)"
		if refusals[i] == "" {
			b.pass.journal.RememberActions(a)
			allowed = append(allowed, *s)
		} else {
			b.pass.journal.RememberNews(a)
		}
	}
	b.pass.journal.TellDryRun(allowed)
}

// rehearseStep asks what would come of a step.
func rehearseStep(ctx context.Context, b *executor, s *plan.Step) actuate.Outcome {
	if s.Verb == plan.VerbHelmUninstall {
		return ruleUninstalls{b.pass}.executeStep(ctx, s, "", true, &stepGuard{executor: b})
	}
	return b.pass.clients.Actuator.ExecuteStep(ctx, s, s.Object.ResourceVersion, true, &stepGuard{executor: b})
}
