// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/findings"
	"github.com/vtex/cleaner/controllers/internal/report"
	"github.com/vtex/cleaner/controllers/plan"
)

// newReport returns a draft of the status.
func (p *pass) newReport() report.Report {
	return report.Report{Of: p.store, Work: p.assignment.Work, Clock: p.r.clock, Run: &p.mem.run, Sender: p.r.sender, SuspectClock: p.r.opts.Skew.DescribeSuspect}
}

// reportEvaluated drafts what an evaluation came to, and answers a request for it.
func (p *pass) reportEvaluated(in plan.Input, d reportedPlan) {
	p.newReport().SetEvaluated(in, d.Plan)
	reportFindings(p)
	if d.Reason != v1alpha1.ReasonNotSynced { // else who asked has yet to be answered
		p.triggers.AnswerRequest()
	}
}

// reportScheduled drafts that the schedule is waited for.
func (p *pass) reportScheduled() {
	p.newReport().SetScheduled()
	p.triggers.RepeatAnswer()
}

// reportFindings writes what each rule reports now, if that report was made. If a rule gives nothing but errors, or no rule is evaluated,
// its earlier findings stay.
func reportFindings(p *pass) {
	st := p.store.Cleaner.State()
	switch {
	case !p.store.Cleaner.Common().Recurs(): // its rules report as a part of its run
		st.Findings = nil
		return
	case p.wanted == nil:
		return
	}
	wrong := map[string]bool{}
	for i := range p.wanted.Errors {
		wrong[p.wanted.Errors[i].Rule] = true
	}
	st.Findings = findings.UpdateFindings(st.Findings, p.assignment.Work.Rules, findReported(p), wrong)
}

// findReported returns the items of the decision that were reported.
func findReported(p *pass) findings.Reported {
	now, out, seen := p.r.clock.Now(), findings.Reported{}, map[plan.ItemKey]bool{}
	for i := range p.wanted.Steps {
		s := &p.wanted.Steps[i]
		if s.IsDeed() {
			continue
		}
		for _, item := range s.ListItems() {
			if !seen[item] && (p.mem.Rehearsed.HasItem(item) || p.mem.Told.HasItem(item, now)) {
				out.AddItem(item.Rule, s.Shown(p.store.Cleaner.GetNamespace()), s.Reason)
				seen[item] = true
			}
		}
	}
	return out
}

// measureFindings has the metrics say what the status is to say.
func measureFindings(p *pass) {
	counts := map[string]int{}
	for _, f := range p.store.Cleaner.State().Findings {
		counts[f.Rule] = int(f.Count)
	}
	p.r.metrics.SetFindings(p.store.Key, counts)
}
