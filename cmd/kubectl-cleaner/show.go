// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

// planView is a plan with what is printed about it.
type planView struct {
	plan     *plan.Plan
	owner    plan.Owner
	kind     string
	at       time.Time
	warnings []string
	// counts says that the counts of rules are printed.
	counts bool
	// notes say what the Cleaner's mode and schedule mean for the plan.
	notes []string
	// due is the scheduled time before which the steps are not carried out; zero if they are due.
	due time.Time
}

// addNote adds what a field of the spec means for the plan.
func (s *planView) addNote(field, note string) {
	s.notes = append(s.notes, note)
	s.warnings = append(s.warnings, field+": "+note)
}

// writePlan writes the plan down.
func (s *planView) writePlan() *planjson.Plan {
	d := planjson.WritePlan(s.plan, s.owner, s.at, s.warnings)
	if s.counts {
		d.Counts = planjson.WriteCounts(s.plan)
	}
	return &d
}

// newInvalidView is what is printed of an invalid Cleaner.
func newInvalidView(c *manifests.Cleaner, at time.Time) *planView {
	s := &planView{plan: &plan.Plan{Verdict: v1alpha1.VerdictInvalid, Reason: v1alpha1.ReasonInvalidSpec, Errors: c.ListErrors()}, at: at, warnings: c.FormatWarnings()}
	if c.Owner != nil {
		s.owner, s.kind = plan.Owner{Namespace: c.Owner.GetNamespace(), Name: c.Owner.GetName()}, ownerKind(c.Owner)
	}
	return s
}

// planList is what is printed of a file with several Cleaners. Its structure is a promise.
type planList struct {
	Kind  string          `json:"kind"`
	Items []planjson.Plan `json:"items"`
}

// printViews prints plans: one as it is, and several as a list.
func printViews(out output.Screen, form string, views []*planView) error {
	list := planList{Kind: "PlanList"}
	for i, s := range views {
		d := s.writePlan()
		list.Items = append(list.Items, *d)
		if form != output.Table {
			continue
		}
		if i > 0 {
			out.Printf("\n")
		}
		if err := out.WriteColumns(func(page output.Screen) { printPlanTable(page, out.NewPainter(), s, d) }); err != nil {
			return err
		}
	}
	switch {
	case form == output.Table:
		return nil
	case len(views) == 1:
		return out.WriteValue(form, list.Items[0])
	default:
		return out.WriteValue(form, list)
	}
}

// printPlanTable prints a plan for people.
func printPlanTable(out output.Screen, p output.Painter, s *planView, d *planjson.Plan) {
	out.Printf("%s %s at %s: %s (%s)\n", s.kind, d.Cleaner, formatTime(d.At.Time), p.FormatVerdict(d.Verdict), d.Reason)
	if s.plan.Message != "" {
		out.Printf("%s\n", output.EscapeLines(output.ContinuationIndent, s.plan.Message))
	}
	for _, note := range s.notes {
		out.Printf("%s\n", note)
	}
	for _, c := range d.Conditions {
		answer := p.Red(c.Error)
		if c.Value != nil {
			answer = output.EscapeText(strconv.FormatBool(*c.Value))
		}
		out.Printf("  %s: %s\n", c.Expression, answer)
	}
	if len(d.Steps) > 0 {
		out.Printf("%s", p.FormatHeading("STEP", "VERB", "OBJECT", "RULE", "REASON"))
		for i := range d.Steps {
			s := &d.Steps[i]
			out.Printf("%d\t%s\t%s\t%s\t%s\n", i+1, formatVerb(s), s.NameObject(), s.Rule, s.Reason)
		}
	}
	if len(d.Withheld) > 0 {
		out.Printf("%s", p.FormatHeading("WITHHELD", "OBJECT", "RULE", "REASON"))
		for i := range d.Withheld {
			h := &d.Withheld[i]
			out.Printf("%s\t%s\t%s\t%s\n", formatVerb(&h.Step), h.Step.NameObject(), h.Rule, h.Because)
		}
	}
	printLeftOut(out, p, d)
	if len(d.Pending) > 0 {
		out.Printf("%s", p.FormatHeading("PENDING", "RULE", "UNTIL"))
		for _, h := range d.Pending {
			out.Printf("%s\t%s\t%s\n", h.Key, h.Rule, formatTime(h.Until.Time))
		}
	}
	if len(d.Errors) > 0 {
		out.Printf("%s", p.FormatHeading("ERROR", "RULE", "MESSAGE"))
		for _, e := range d.Errors {
			key := e.Key
			if e.Count > 1 {
				key += fmt.Sprintf(" and %d more", e.Count-1)
			}
			out.Printf("%s\t%s\t%s\n", key, e.Rule, p.Red(strings.TrimSpace(e.Expression+" "+e.Message)))
		}
	}
	printNext(out, d.Next, d.Recheck)
}

// printNext prints the moment at which time alone may change the plan, and the moment at which the operator makes it again at the latest.
func printNext(out output.Screen, next, recheck planjson.Moment) {
	if !next.IsZero() || !recheck.IsZero() {
		out.Printf("\n")
	}
	if !next.IsZero() {
		out.Printf("Next: %s\n", formatTime(next.Time))
	}
	if !recheck.IsZero() {
		out.Printf("Recheck: %s\n", formatTime(recheck.Time))
	}
}

// printLeftOut prints what became of the items of each rule, if that is asked for, and which rules leave objects to others.
func printLeftOut(out output.Screen, p output.Painter, d *planjson.Plan) {
	if len(d.Counts) > 0 {
		out.Printf("%s", p.FormatHeading("RULE", "ITEMS", "MATCHED", "KEPT", "SPARED", "WAITING", "PROTECTED", "SHADOWED", "ERRORS", "ACTED"))
		for _, c := range d.Counts {
			out.Printf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", c.Rule, c.Items, c.Matched, c.Kept, c.Spared, c.Waiting, c.Protected, c.Shadowed, c.Errors, c.Acted)
		}
	}
	for _, s := range d.Shadowed {
		out.Printf("\nRule %s leaves %s to rule %s, which wants it first%s.\n", s.Rule, s.Object, s.By, andMoreItems(s.Items-1))
	}
}

// andMoreItems counts the items that are not named; empty if there are none.
func andMoreItems(n int64) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", and 1 more item"
	default:
		return fmt.Sprintf(", and %d more items", n)
	}
}

// formatVerb returns the verb of a step, with the subresource or "by force".
func formatVerb(s *planjson.Step) string {
	switch {
	case s.Subresource != "":
		return s.Verb + " " + s.Subresource
	case s.Options != nil && s.Options.GracePeriodSeconds != nil && *s.Options.GracePeriodSeconds == 0:
		return s.Verb + " by force"
	}
	return s.Verb
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
