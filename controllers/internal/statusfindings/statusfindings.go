// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statusfindings says in a status what rules report now, within bounds. It reports nothing itself.
package statusfindings

import (
	"cmp"
	"slices"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// MaxItems is how many items a finding names.
	MaxItems = 5
	// MaxBytes bounds the texts of all findings of a status: what rules report, and how many rules do, is for users to say.
	MaxBytes = 32 << 10
)

// Reported is what rules report, by their names.
type Reported map[string]*tally

// tally is what a rule reports: how many items, and the first of them by name.
type tally struct {
	count int64
	first []item
}

// item is what a report says of an item: how it is called, and why it is reported.
type item struct{ name, reason string }

func compareItems(a, b item) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.reason, b.reason))
}

// FindReported returns the items of reports that were made, each once.
func FindReported(steps []plan.Step, wasMade func(item plan.ItemKey) bool) Reported {
	out, seen := Reported{}, map[plan.ItemKey]bool{}
	for i := range steps {
		s := &steps[i]
		if s.IsChange() {
			continue
		}
		for _, item := range s.ListItems() {
			if !seen[item] && wasMade(item) {
				out.AddItem(item.Rule, s.DescribeObject(), s.Reason)
				seen[item] = true
			}
		}
	}
	return out
}

// CountItems returns how many items each rule reports.
func CountItems(findings []v1alpha1.Finding) map[string]int {
	counts := map[string]int{}
	for i := range findings {
		counts[findings[i].Rule] = int(findings[i].Count)
	}
	return counts
}

// AddItem adds an item that a rule reports.
func (r Reported) AddItem(rule, name, reason string) {
	t := r[rule]
	if t == nil {
		t = &tally{}
		r[rule] = t
	}
	t.count++
	i := item{name, reason}
	if at, _ := slices.BinarySearchFunc(t.first, i, compareItems); at < MaxItems {
		t.first = slices.Insert(t.first[:min(len(t.first), MaxItems-1)], at, i)
	}
}

// FindWanted returns the findings of rules after a plan, as far as the reports were made. A rule that gives errors keeps its earlier finding.
func FindWanted(before []v1alpha1.Finding, rules []v1alpha1.Rule, p *plan.Plan, wasMade func(item plan.ItemKey) bool) []v1alpha1.Finding {
	wrong := map[string]bool{}
	for i := range p.Errors {
		wrong[p.Errors[i].Rule] = true
	}
	return UpdateFindings(before, rules, FindReported(p.Steps, wasMade), wrong)
}

// UpdateFindings returns the findings of rules, in the order of the rules. A rule that reports nothing while something about it is
// unknown keeps its earlier finding.
func UpdateFindings(before []v1alpha1.Finding, rules []v1alpha1.Rule, now Reported, unknown map[string]bool) []v1alpha1.Finding {
	said := map[string]v1alpha1.Finding{}
	for _, f := range before {
		said[f.Rule] = f
	}
	var all []v1alpha1.Finding
	for i := range rules {
		rule := rules[i].Name
		f, known := said[rule]
		switch t := now[rule]; {
		case t != nil:
			all = append(all, newFinding(rule, t))
		case unknown[rule] && known:
			f.Items = slices.Clone(f.Items) // they are shortened where they are
			all = append(all, f)
		}
	}
	ShortenFindings(all)
	return all
}

// newFinding says what a rule reports.
func newFinding(rule string, t *tally) v1alpha1.Finding {
	f := v1alpha1.Finding{Rule: rule, Count: t.count, Message: sanitize.CleanText(t.first[0].reason)}
	for _, i := range t.first {
		f.Items = append(f.Items, sanitize.CleanText(i.name))
	}
	return f
}

// ShortenFindings has each finding take no more than its share of what there is for all: first of its message, then of the names of
// its items. It has at least one of these.
func ShortenFindings(all []v1alpha1.Finding) {
	for i := range all {
		f := &all[i]
		room := MaxBytes/len(all) - len(f.Rule)
		f.Message = sanitize.ShortenToBytes(f.Message, room/2)
		room -= len(f.Message)
		for n, name := range f.Items {
			if n > 0 && len(name) > room {
				f.Items = f.Items[:n]
				break
			}
			f.Items[n] = sanitize.ShortenToBytes(name, room)
			room -= len(f.Items[n])
		}
	}
}
