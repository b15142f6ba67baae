// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"github.com/vtex/cleaner/controllers/internal/findings"
	"github.com/vtex/cleaner/controllers/plan"
)

// reportFindings says what each rule reports now: what it wants to report, and has. Where a rule gives errors alone nobody knows, and
// what was said of it before stays; as it does while no rule is asked.
func reportFindings(p *sight) {
	st := p.c.State()
	switch {
	case !p.c.Common().Recurs(): // its rules report as a part of its run
		st.Findings = nil
		return
	case p.wanted == nil:
		return
	}
	wrong := map[string]bool{}
	for i := range p.wanted.Errors {
		wrong[p.wanted.Errors[i].Rule] = true
	}
	st.Findings = findings.UpdateFindings(st.Findings, p.work.Rules, findReported(p), wrong)
}

// findReported gives the items of the decision of which a report was made.
func findReported(p *sight) findings.Reported {
	now, out, seen := p.r.clock.Now(), findings.Reported{}, map[plan.ItemKey]bool{}
	for i := range p.wanted.Steps {
		s := &p.wanted.Steps[i]
		if s.IsDeed() {
			continue
		}
		for _, item := range s.ListItems() {
			_, done := p.mem.rehearsed[item.Sum()]
			if !seen[item] && (done || p.mem.told.HasItem(item, now)) {
				out.AddItem(item.Rule, s.Shown(p.c.GetNamespace()), s.Reason)
				seen[item] = true
			}
		}
	}
	return out
}

// measureFindings has the metrics say what the status is to say.
func measureFindings(p *sight) {
	counts := map[string]int{}
	for _, f := range p.c.State().Findings {
		counts[f.Rule] = int(f.Count)
	}
	p.r.metrics.SetFindings(p.key, counts)
}
