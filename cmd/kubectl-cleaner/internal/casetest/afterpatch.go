// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// checkStepsAfterPatch checks rules that patch an object first: once the object is patched, the rule must still want its other steps.
// The operator may stop in between, and then decides again.
func checkStepsAfterPatch(ctx context.Context, d planning.Decision, world *snapshot.Objects, p *plan.Plan) error {
	var later []*plan.Step
	patched := map[types.UID]map[string]any{}
	for i := range p.Steps {
		s := &p.Steps[i]
		for _, before := range s.After {
			if first := &p.Steps[before]; first.Patch != nil && first.Rule == s.Rule {
				later = append(later, s)
			}
		}
	}
	if len(later) == 0 {
		return nil
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Patch == nil || slices.Contains(later, s) {
			continue
		}
		after, err := planning.PatchObject(s)
		if err != nil {
			return fmt.Errorf("rule %q cannot patch %s: %w", s.Rule, s.Object.String(), err)
		}
		patched[s.Object.UID] = after
	}
	again := d.ComputePlan(ctx, &overlay{Objects: world, patched: patched})
	for _, s := range later {
		if !slices.ContainsFunc(again.Steps, func(o plan.Step) bool {
			return o.Rule == s.Rule && o.Action == s.Action && o.Object.UID == s.Object.UID
		}) {
			return fmt.Errorf("rule %q patches an object first, and then no longer wants to %s %s: if the operator stops in between, it never does; "+
				"write a `when` that also holds for the patched object", s.Rule, s.Verb, s.Object.String())
		}
	}
	return nil
}

// overlay is a cluster in which some objects are patched.
type overlay struct {
	*snapshot.Objects
	patched map[types.UID]map[string]any
}

// Read reads a target, with the patched objects in place of the others.
func (o *overlay) Read(ctx context.Context, q snapshot.Query) observed.Target {
	t := o.Objects.Read(ctx, q)
	t.Objects = slices.Clone(t.Objects)
	for i := range t.Objects {
		if after := o.patched[t.Objects[i].UID]; after != nil && !q.MetadataOnly {
			t.Objects[i].Value = after
		}
	}
	return t
}
