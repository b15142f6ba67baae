// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"slices"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// maxFound is how many items of a finding a status names.
	maxFound = 5
	// maxFindingsBytes bounds the texts of all findings of a status: what rules report, and how many rules do, is for users to say.
	maxFindingsBytes = 32 << 10
)

// found is what a report says of an item: how it is called, and why it is reported.
type found struct{ shown, reason string }

func compareFound(a, b found) int {
	return cmp.Or(cmp.Compare(a.shown, b.shown), cmp.Compare(a.reason, b.reason))
}

// tally is what a rule reports: how many items, and the first of them by name.
type tally struct {
	count int64
	first []found
}

func (t *tally) add(f found) {
	t.count++
	at, _ := slices.BinarySearchFunc(t.first, f, compareFound)
	if at < maxFound {
		t.first = slices.Insert(t.first[:min(len(t.first), maxFound-1)], at, f)
	}
}

// findings says what each rule reports now: what it wants to report, and has. Where a rule gives errors alone nobody knows, and what
// was said of it before stays; as it does while no rule is asked.
func (r report) findings() {
	st := r.draft()
	switch {
	case !r.p.c.Common().Recurs(): // its rules report as a part of its run
		st.Findings = nil
		return
	case r.p.wanted == nil:
		return
	}
	now, byRule, wrong := r.p.findReported(r.p.wanted), map[string]v1alpha1.Finding{}, map[string]bool{}
	for i := range r.p.wanted.Errors {
		wrong[r.p.wanted.Errors[i].Rule] = true
	}
	for _, f := range st.Findings {
		byRule[f.Rule] = f
	}
	st.Findings = nil
	for i := range r.p.work.Rules {
		rule := r.p.work.Rules[i].Name
		before, said := byRule[rule]
		switch t := now[rule]; {
		case t != nil:
			st.Findings = append(st.Findings, newFinding(rule, t))
		case wrong[rule] && said:
			st.Findings = append(st.Findings, before)
		}
	}
	shortenFindings(st.Findings)
}

// findReported gives, by rule, the items of a decision of which a report was made.
func (p *sight) findReported(d *plan.Plan) map[string]*tally {
	now, out, seen := p.r.clock.Now(), map[string]*tally{}, map[plan.ItemKey]bool{}
	for i := range d.Steps {
		s := &d.Steps[i]
		if s.Deed() {
			continue
		}
		for _, item := range s.Items() {
			_, done := p.mem.rehearsed[item.Sum()]
			if seen[item] || !done && !p.mem.told.HasItem(item, now) {
				continue
			}
			seen[item] = true
			if out[item.Rule] == nil {
				out[item.Rule] = &tally{}
			}
			out[item.Rule].add(found{shown: s.Shown(p.c.GetNamespace()), reason: s.Reason})
		}
	}
	return out
}

// newFinding says what a rule reports.
func newFinding(rule string, t *tally) v1alpha1.Finding {
	f := v1alpha1.Finding{Rule: rule, Count: t.count, Message: cleanText(t.first[0].reason)}
	for _, item := range t.first {
		f.Items = append(f.Items, cleanText(item.shown))
	}
	return f
}

// shortenFindings has each finding take no more than its share of what there is for all: first of its message, then of the names of
// its items. It has at least one of these.
func shortenFindings(all []v1alpha1.Finding) {
	for i := range all {
		f := &all[i]
		room := maxFindingsBytes/len(all) - len(f.Rule)
		f.Message = shortenText(f.Message, room/2)
		room -= len(f.Message)
		for n, item := range f.Items {
			switch {
			case n == 0:
				f.Items[0] = shortenText(item, room)
			case len(item) > room:
				f.Items = f.Items[:n]
			}
			if len(f.Items) <= n {
				break
			}
			room -= len(f.Items[n])
		}
	}
}

// measureFindings has the metrics say what the status is to say.
func (p *sight) measureFindings() {
	counts := map[string]int{}
	for _, f := range p.c.State().Findings {
		counts[f.Rule] = int(f.Count)
	}
	p.r.metrics.SetFindings(p.key, counts)
}
