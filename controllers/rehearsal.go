// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
)

// rehearsed are the items that live reads have confirmed while mode is DryRun, and of which the API server was asked, with the mark of
// what would be done: they stay so until that changes.
type rehearsed map[plan.Sum]uint64

// forgetOthers drops what is not to be done any more as it was rehearsed.
func (r rehearsed) forgetOthers(marks map[plan.Sum]uint64) {
	maps.DeleteFunc(r, func(item plan.Sum, mark uint64) bool { return marks[item] != mark })
}

// leaveOutRehearsed is what of a decision was not rehearsed.
func (r rehearsed) leaveOutRehearsed(d plan.Plan) plan.Plan {
	return d.WithoutItems(func(item plan.ItemKey) bool { _, done := r[item.Sum()]; return done })
}

// isDryRun says that nothing is done, and what would be is asked instead.
func (p *sight) isDryRun() bool { return p.c.Common().Mode == v1alpha1.ModeDryRun }

// reportAlone makes the reports among steps, which change nothing, but for those that come after deeds: these, and the deeds, are left to
// be rehearsed.
func (b *batch) reportAlone(steps []plan.Step) (left []plan.Step) {
	for i := range steps {
		if s := &steps[i]; s.IsAlone() {
			b.takeOutcome(s, actuate.Outcome{})
		} else {
			left = append(left, *s)
			for _, item := range s.ListItems() {
				b.mem.rehearsed[item.Sum()] = b.marks[item.Sum()]
			}
		}
	}
	b.tellSteps(b.acted)
	return left
}

// rehearseSteps asks the API server about steps.
func (b *deeds) rehearseSteps(ctx context.Context, steps []plan.Step) {
	results := make([]string, len(steps))
	actuate.RunParallel(len(steps), func(i int) {
		s := &steps[i]
		results[i] = "would be " + wordsOf(s.Verb).result
		if out := b.hands.actuator.ExecuteStep(ctx, s, s.Object.ResourceVersion, true, &stepGuard{deeds: b}); out.Kind != plan.AnswerDeleted {
			results[i] = "would be refused: " + out.Why
		}
		if s.Reason != "" {
			results[i] += ": " + s.Reason
		}
	})
	for i, result := range results {
		s := &steps[i]
		b.mem.rememberActions(b.read.State().LastActions, v1alpha1.Action{
			Object: s.Shown(b.c.GetNamespace()), UID: string(s.Object.UID), Rule: s.Rule,
			Action: string(s.Verb) + " (dry run)", Time: atSecond(b.r.clock), Result: shown.CleanText(result),
		})
	}
	b.tellDryRun(steps)
}

// describeRehearsal is what is said of a decision of which what was rehearsed would be done.
func (p *recurrence) describeRehearsal(d plan.Plan) plan.Plan {
	objects := map[types.UID]bool{}
	for i := range d.Steps {
		s := &d.Steps[i]
		if !s.IsDeed() {
			continue
		}
		for _, item := range s.ListItems() {
			if _, done := p.mem.rehearsed[item.Sum()]; done {
				objects[s.Object.UID] = true
			}
		}
	}
	d.Reason = v1alpha1.ReasonDryRun
	d.Message = fmt.Sprintf("Mode is DryRun: %s would be acted on%s; nothing was changed.", countOf(len(objects), "object"), andRelease(d.Release))
	return d
}
