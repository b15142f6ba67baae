// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

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
	switch form {
	case asJSON:
		encoder := json.NewEncoder(t.out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(d)
	case asYAML:
		text, err := yaml.Marshal(d)
		if err != nil {
			return err
		}
		_, err = t.out.Write(text)
		return err
	}
	return table(t.out, t.paint(t.out), s, &d)
}

// table writes a plan for people.
func table(out io.Writer, p paint, s *shown, d *plan.Document) error {
	w := columns(out)
	fmt.Fprintf(w, "%s %s at %s: %s (%s)\n", s.kind, d.Cleaner, stamp(d.At.Time), p.verdict(d.Verdict), d.Reason)
	if s.plan.Message != "" {
		fmt.Fprintln(w, s.plan.Message)
	}
	if s.mode != "" {
		fmt.Fprintln(w, s.mode)
	}
	for _, c := range d.Conditions {
		answer := p.bad(c.Error)
		if c.Value != nil {
			answer = fmt.Sprint(*c.Value)
		}
		fmt.Fprintf(w, "  %s: %s\n", c.Expression, answer)
	}
	if len(d.Steps) > 0 {
		fmt.Fprint(w, p.heading("STEP", "VERB", "OBJECT", "RULE", "WHY"))
		for i := range d.Steps {
			s := &d.Steps[i]
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", i+1, verb(s), object(s), s.Rule, s.Reason)
		}
	}
	if len(d.Withheld) > 0 {
		fmt.Fprint(w, p.heading("WITHHELD", "OBJECT", "RULE", "BECAUSE"))
		for i := range d.Withheld {
			h := &d.Withheld[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", verb(&h.DocumentStep), object(&h.DocumentStep), h.Rule, h.Because)
		}
	}
	if len(d.Pending) > 0 {
		fmt.Fprint(w, p.heading("PENDING", "RULE", "UNTIL"))
		for _, h := range d.Pending {
			fmt.Fprintf(w, "%s\t%s\t%s\n", h.Key, h.Rule, stamp(h.Until.Time))
		}
	}
	if len(d.Errors) > 0 {
		fmt.Fprint(w, p.heading("ERROR", "RULE", "MESSAGE"))
		for _, e := range d.Errors {
			key := e.Key
			if e.Count > 1 {
				key += fmt.Sprintf(" and %d more", e.Count-1)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", key, e.Rule, p.bad(strings.TrimSpace(e.Expression+" "+strings.ReplaceAll(e.Message, "\n", " "))))
		}
	}
	if !d.Next.IsZero() {
		fmt.Fprintf(w, "\nNext: %s\n", stamp(d.Next.Time))
	}
	return w.Flush()
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

// columns lines up what is parted by tabs, in each block for itself.
func columns(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 4, 3, ' ', 0) }
