// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"net/http"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

// planPage is what a Cleaner would do now.
type planPage struct {
	subject
	Plan *planView
	// Problem says why there is no plan.
	Problem string
	// HasFor says that rules have `for`, whose timers a plan begins.
	HasFor bool
}

// planView is a plan to show.
type planView struct {
	Verdict, Reason, Message, Count string
	// DryRun says that the steps would not be carried out.
	DryRun bool
	// Next is the first moment at which time alone may change the plan, and Recheck when it is made again at the latest.
	At, Next, Recheck *moment
	// Due is when the steps are due by the schedule; nil if they are due now.
	Due        *moment
	Warnings   []string
	Conditions []outcome
	Funnels    []funnel
	Steps      []stepRow
	Withheld   []stepRow
	Pending    []pendingRow
	Errors     []errorRow
	Shadowed   []string
	// More says what is not shown of each table.
	MoreSteps, MoreWithheld, MorePending, MoreErrors string
}

// stepRow is a step, or one that is withheld.
type stepRow struct{ Verb, Class, Object, Rule, Because string }

// funnel shows what becomes of the items of a rule.
type funnel struct {
	Rule   string
	Stages []stage
}

// stage is a line of a funnel. Width is a percentage of the items.
type stage struct {
	Label, Hint, Count, Width, Class string
}

// makePlan lays out a plan.
func (v viewer) makePlan(p *Plan) *planView {
	out := &planView{
		Verdict: showLine(string(p.Verdict)), Reason: showLine(p.Reason), Message: shorten(p.Message, maxText), Count: countOf(len(p.Steps), "step"), DryRun: p.DryRun,
		At: v.showTime(p.At.Time), Next: v.showTime(p.Next.Time), Recheck: v.showTime(p.Recheck.Time), Due: v.showTime(p.Due),
	}
	for _, w := range p.Warnings[:min(len(p.Warnings), maxRows)] {
		out.Warnings = append(out.Warnings, shorten(w, maxText))
	}
	for _, c := range p.Conditions[:min(len(p.Conditions), maxRows)] {
		out.Conditions = append(out.Conditions, makeOutcome(c.Expression, c.Value, c.Error))
	}
	for i := range p.Counts[:min(len(p.Counts), maxRows)] {
		out.Funnels = append(out.Funnels, makeFunnel(&p.Counts[i], 0))
	}
	for i := range p.Steps[:min(len(p.Steps), maxRows)] {
		out.Steps = append(out.Steps, makeStep(&p.Steps[i], p.Steps[i].Reason))
	}
	for i := range p.Withheld[:min(len(p.Withheld), maxRows)] {
		out.Withheld = append(out.Withheld, makeStep(&p.Withheld[i].Step, p.Withheld[i].Because))
	}
	for _, h := range p.Pending[:min(len(p.Pending), maxRows)] {
		out.Pending = append(out.Pending, pendingRow{Rule: showLine(h.Rule), Key: shorten(h.Key, maxText), Until: v.showTime(h.Until.Time)})
	}
	for _, e := range p.Errors[:min(len(p.Errors), maxRows)] {
		message := e.Message
		if e.Count > 1 {
			message += " (" + groupDigits(e.Count) + " items)"
		}
		out.Errors = append(out.Errors, errorRow{Rule: showLine(e.Rule), Key: shorten(e.Key, maxText), Where: showLine(e.Expression), Message: shorten(message, maxText)})
	}
	for _, h := range p.Shadowed[:min(len(p.Shadowed), maxRows)] {
		text := "Rule " + h.Rule + " leaves " + h.Object + " to rule " + h.By + ", which wants it first"
		if h.Items > 1 {
			text += ", and " + countOf(int(h.Items-1), "more item")
		}
		out.Shadowed = append(out.Shadowed, shorten(text+".", maxText))
	}
	out.MoreSteps, out.MoreWithheld = describeMore(len(p.Steps)), describeMore(len(p.Withheld))
	out.MorePending, out.MoreErrors = describeMore(len(p.Pending)), describeMore(len(p.Errors))
	return out
}

// describeMore says how many rows a table leaves out.
func describeMore(n int) string {
	if n <= maxRows {
		return ""
	}
	return groupDigits(int64(n-maxRows)) + " more are not shown: see kubectl cleaner plan -o json."
}

// makeStep lays out a step.
func makeStep(p *planjson.Step, because string) stepRow {
	verb := p.Verb
	switch {
	case p.Subresource != "":
		verb += " " + p.Subresource
	case p.Options != nil && p.Options.GracePeriodSeconds != nil && *p.Options.GracePeriodSeconds == 0:
		verb += " by force"
	}
	return stepRow{Verb: showLine(verb), Class: classOf(p.Verb), Object: shorten(p.NameObject(), maxText), Rule: showLine(p.Rule), Because: shorten(because, maxText)}
}

// classOf is the class of a verb in the style sheet.
func classOf(verb string) string {
	switch verb {
	case "delete", "evict", "patch":
		return verb
	case "helmUninstall":
		return "uninstall"
	case "removeFinalizer":
		return "finalizer"
	default:
		return "report"
	}
}

// makeFunnel lays out what becomes of the items of a rule. Stages that leave nothing out are not shown. Deferred are the items that wait because
// an action on their object has failed: no plan knows of them.
func makeFunnel(c *planjson.Count, deferred int64) funnel {
	f := funnel{Rule: showLine(c.Rule)}
	add := func(label, hint, class string, n int64, always bool) {
		if n > 0 || always {
			width := 0.0
			if c.Items > 0 {
				width = min(100, 100*float64(n)/float64(c.Items))
			}
			f.Stages = append(f.Stages, stage{Label: label, Hint: hint, Class: class, Count: groupDigits(n), Width: formatPercent(width)})
		}
	}
	add("Items", "in forEach", "all", c.Items, true)
	add("Matched", "when is true", "all", c.Matched, true)
	add("Kept", "by keep and leave", "out", c.Kept, false)
	add("Spared", "by unless", "out", c.Spared, false)
	add("Waiting", "for the end of for", "out", c.Waiting, false)
	add("Protected", "never touched", "out", c.Protected, false)
	add("Left", "to an earlier rule", "out", c.Shadowed, false)
	add("Deferred", "after a failed action", "out", deferred, false)
	add("Errors", "in an expression", "bad", c.Errors, false)
	add("Acted on", "now", "act", c.Acted, true)
	return f
}

// showPlan shows what a Cleaner would do now.
func (s *Server) showPlan(w http.ResponseWriter, r *http.Request) {
	owner, u, ok := s.readCleaner(w, r)
	if !ok {
		return
	}
	content := &planPage{subject: s.viewer.makeSubject(owner, "/plan"), HasFor: hasFor(owner.Work())}
	var err error
	content.Plan, err = takeTurn(r.Context(), s.turns, planTimeout, func(ctx context.Context) (*planView, error) {
		p, err := s.Commands.MakePlan(ctx, u)
		if err != nil {
			return nil, err
		}
		return s.viewer.makePlan(p), nil
	})
	if err != nil {
		content.Problem = describeError(err)
	}
	// Live updates leave a plan as it is: it says at which moment it was made.
	s.showPage(w, r, http.StatusOK, &page{Template: "plan", Title: content.DisplayName() + ": plan", Current: "/", Content: content})
}

// hasFor reports whether a rule has `for`.
func hasFor(work *v1alpha1.Work) bool {
	for i := range work.Rules {
		if work.Rules[i].For != "" {
			return true
		}
	}
	return false
}
