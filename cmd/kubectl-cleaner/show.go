// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vtex/cleaner/controllers/plan"
)

// planView is a plan, and what is said of it.
type planView struct {
	plan     *plan.Plan
	owner    plan.Owner
	kind     string
	at       time.Time
	warnings []string
	// modeNote is what the mode of the Cleaner makes of the plan; empty if nothing.
	modeNote string
}

func (t *tool) printPlan(s *planView, form string) error {
	d := s.plan.ToDocument(s.owner, s.at, s.warnings)
	if form != outputTable {
		return t.out.writeValue(form, d)
	}
	return t.out.writeColumns(func(page screen) { printPlanTable(page, t.out.newPainter(), s, &d) })
}

// printPlanTable writes a plan for people.
func printPlanTable(out screen, p painter, s *planView, d *plan.Document) {
	out.printf("%s %s at %s: %s (%s)\n", s.kind, d.Cleaner, formatTime(d.At.Time), p.formatVerdict(d.Verdict), d.Reason)
	if s.plan.Message != "" {
		out.printf("%s\n", escapeLines(continuationIndent, s.plan.Message))
	}
	if s.modeNote != "" {
		out.printf("%s\n", s.modeNote)
	}
	for _, c := range d.Conditions {
		answer := p.red(c.Error)
		if c.Value != nil {
			answer = escapeText(strconv.FormatBool(*c.Value))
		}
		out.printf("  %s: %s\n", c.Expression, answer)
	}
	if len(d.Steps) > 0 {
		out.printf("%s", p.formatHeading("STEP", "VERB", "OBJECT", "RULE", "WHY"))
		for i := range d.Steps {
			s := &d.Steps[i]
			out.printf("%d\t%s\t%s\t%s\t%s\n", i+1, formatVerb(s), formatObject(s), s.Rule, s.Reason)
		}
	}
	if len(d.Withheld) > 0 {
		out.printf("%s", p.formatHeading("WITHHELD", "OBJECT", "RULE", "BECAUSE"))
		for i := range d.Withheld {
			h := &d.Withheld[i]
			out.printf("%s\t%s\t%s\t%s\n", formatVerb(&h.DocumentStep), formatObject(&h.DocumentStep), h.Rule, h.Because)
		}
	}
	if len(d.Pending) > 0 {
		out.printf("%s", p.formatHeading("PENDING", "RULE", "UNTIL"))
		for _, h := range d.Pending {
			out.printf("%s\t%s\t%s\n", h.Key, h.Rule, formatTime(h.Until.Time))
		}
	}
	if len(d.Errors) > 0 {
		out.printf("%s", p.formatHeading("ERROR", "RULE", "MESSAGE"))
		for _, e := range d.Errors {
			key := e.Key
			if e.Count > 1 {
				key += fmt.Sprintf(" and %d more", e.Count-1)
			}
			out.printf("%s\t%s\t%s\n", key, e.Rule, p.red(strings.TrimSpace(e.Expression+" "+e.Message)))
		}
	}
	if !d.Next.IsZero() {
		out.printf("\nNext: %s\n", formatTime(d.Next.Time))
	}
}

// formatVerb returns what a step does, and to which part.
func formatVerb(s *plan.DocumentStep) string {
	switch {
	case s.Subresource != "":
		return s.Verb + " " + s.Subresource
	case s.Options != nil && s.Options.GracePeriodSeconds != nil && *s.Options.GracePeriodSeconds == 0:
		return s.Verb + " by force"
	}
	return s.Verb
}

// formatObject names what a step acts on.
func formatObject(s *plan.DocumentStep) string {
	name := s.Name + s.Key
	if s.Namespace != "" {
		name = s.Namespace + "/" + name
	}
	return strings.TrimSpace(s.Kind + " " + name)
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
