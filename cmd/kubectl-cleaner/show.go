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

// shown is a plan, and what is said of it.
type shown struct {
	plan     *plan.Plan
	owner    plan.Owner
	kind     string
	at       time.Time
	warnings []string
	// mode is what the mode of the Cleaner makes of the plan; empty if nothing.
	mode string
}

func (t *tool) show(s *shown, form string) error {
	d := s.plan.Document(s.owner, s.at, s.warnings)
	if form != asTable {
		return t.out.document(form, d)
	}
	return t.out.columns(func(page screen) { table(page, t.out.paint(), s, &d) })
}

// table writes a plan for people.
func table(out screen, p paint, s *shown, d *plan.Document) {
	out.printf("%s %s at %s: %s (%s)\n", s.kind, d.Cleaner, stamp(d.At.Time), p.verdict(d.Verdict), d.Reason)
	if s.plan.Message != "" {
		out.printf("%s\n", escapeLines(continued, s.plan.Message))
	}
	if s.mode != "" {
		out.printf("%s\n", s.mode)
	}
	for _, c := range d.Conditions {
		answer := p.bad(c.Error)
		if c.Value != nil {
			answer = escapeText(strconv.FormatBool(*c.Value))
		}
		out.printf("  %s: %s\n", c.Expression, answer)
	}
	if len(d.Steps) > 0 {
		out.printf("%s", p.heading("STEP", "VERB", "OBJECT", "RULE", "WHY"))
		for i := range d.Steps {
			s := &d.Steps[i]
			out.printf("%d\t%s\t%s\t%s\t%s\n", i+1, verb(s), object(s), s.Rule, s.Reason)
		}
	}
	if len(d.Withheld) > 0 {
		out.printf("%s", p.heading("WITHHELD", "OBJECT", "RULE", "BECAUSE"))
		for i := range d.Withheld {
			h := &d.Withheld[i]
			out.printf("%s\t%s\t%s\t%s\n", verb(&h.DocumentStep), object(&h.DocumentStep), h.Rule, h.Because)
		}
	}
	if len(d.Pending) > 0 {
		out.printf("%s", p.heading("PENDING", "RULE", "UNTIL"))
		for _, h := range d.Pending {
			out.printf("%s\t%s\t%s\n", h.Key, h.Rule, stamp(h.Until.Time))
		}
	}
	if len(d.Errors) > 0 {
		out.printf("%s", p.heading("ERROR", "RULE", "MESSAGE"))
		for _, e := range d.Errors {
			key := e.Key
			if e.Count > 1 {
				key += fmt.Sprintf(" and %d more", e.Count-1)
			}
			out.printf("%s\t%s\t%s\n", key, e.Rule, p.bad(strings.TrimSpace(e.Expression+" "+e.Message)))
		}
	}
	if !d.Next.IsZero() {
		out.printf("\nNext: %s\n", stamp(d.Next.Time))
	}
}

// verb is what a step does, and to which part.
func verb(s *plan.DocumentStep) string {
	switch {
	case s.Subresource != "":
		return s.Verb + " " + s.Subresource
	case s.Options != nil && s.Options.GracePeriodSeconds != nil && *s.Options.GracePeriodSeconds == 0:
		return s.Verb + " by force"
	}
	return s.Verb
}

// object names what a step acts on.
func object(s *plan.DocumentStep) string {
	name := s.Name
	if s.Namespace != "" {
		name = s.Namespace + "/" + name
	}
	return strings.TrimSpace(s.Kind + " " + name)
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
