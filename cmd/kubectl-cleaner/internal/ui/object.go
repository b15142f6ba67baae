// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"net/http"
	"strings"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/whynot"
)

// maxDepth bounds how far the parts of an expression are indented.
const maxDepth = 8

// objectPage says what a Cleaner makes of one object.
type objectPage struct {
	subject
	// Object is the name of the object, as the user has written it; empty: none is chosen yet.
	Object string
	// Problem says why there is no answer.
	Problem string
	Answer  *answerView
}

// answerView is an explanation to show.
type answerView struct {
	Object, Answer    string
	Acts              bool
	At, Next, Recheck *moment
	Targets           []fact
	Rules             []ruleView
	// MoreRules says how many rules are not shown.
	MoreRules string
}

// ruleView says what a rule makes of the object.
type ruleView struct {
	Name, Step, Because string
	Until               *moment
	Expressions         []expressionView
	// MoreParts says how many parts of expressions are not shown.
	MoreParts string
}

// expressionView is an expression with the values of its parts.
type expressionView struct {
	Of    string
	Parts []partRow
}

// partRow is a part of an expression. Depth is how deep it is in the whole.
type partRow struct {
	Expression, Value, Class string
	Depth                    int
}

// showObject shows what a Cleaner makes of the object that the address names.
func (s *Server) showObject(w http.ResponseWriter, r *http.Request) {
	owner, u, ok := s.readCleaner(w, r)
	if !ok {
		return
	}
	content := &objectPage{subject: s.viewer.makeSubject(owner, "/object")}
	name := strings.TrimSpace(r.URL.Query().Get("name"))
	content.Object = shorten(name, maxText)
	if name != "" {
		var err error
		content.Answer, err = takeTurn(r.Context(), s.turns, planTimeout, func(ctx context.Context) (*answerView, error) {
			x, err := s.Commands.ExplainObject(ctx, u, name)
			if err != nil {
				return nil, err
			}
			return s.viewer.makeAnswer(x), nil
		})
		if err != nil {
			content.Problem = describeError(err)
		}
	}
	s.showPage(w, r, http.StatusOK, &page{Template: "object", Title: content.DisplayName() + ": object", Current: "/", Content: content})
}

// makeAnswer lays out an explanation.
func (v viewer) makeAnswer(x *whynot.Explanation) *answerView {
	out := &answerView{Object: shorten(x.Object, maxText), Answer: shorten(x.Answer, maxText), Acts: x.Acts, At: v.showTime(x.At.Time), Next: v.showTime(x.Next.Time), Recheck: v.showTime(x.Recheck.Time)}
	for _, t := range x.Targets[:min(len(x.Targets), maxRows)] {
		text := "It is not selected: " + t.Because
		if t.Selected {
			text = "It is selected."
		}
		out.Targets = append(out.Targets, fact{Name: showLine(t.Name), Value: shorten(text, maxText)})
	}
	room := maxRows
	for i := range x.Rules[:min(len(x.Rules), maxRows)] {
		rule := v.makeRule(&x.Rules[i], room)
		for _, e := range rule.Expressions {
			room -= len(e.Parts)
		}
		out.Rules = append(out.Rules, rule)
	}
	if n := len(x.Rules) - maxRows; n > 0 {
		out.MoreRules = countOf(n, "more rule") + " not shown: see kubectl cleaner explain --object."
	}
	return out
}

// makeRule lays out what a rule makes of the object, with at most so many parts of expressions.
func (v viewer) makeRule(r *whynot.Rule, room int) ruleView {
	out := ruleView{Name: showLine(r.Name), Step: showLine(string(r.Step)), Because: shorten(r.Because, maxText), Until: v.showTime(r.Until.Time)}
	if r.Item != "" {
		out.Because = shorten("by an action of the item "+r.Item+" "+r.Because, maxText)
	}
	for i := range r.Parts[:min(len(r.Parts), room)] {
		p := &r.Parts[i]
		row := partRow{Expression: shorten(p.Expression, maxText), Value: shorten(p.Value, maxText), Depth: min(p.Depth, maxDepth)}
		switch {
		case p.NotNeeded:
			row.Value, row.Class = "not needed", "muted"
		case p.Error != "":
			row.Value, row.Class = shorten(p.Error, maxText), "bad"
		}
		if n := len(out.Expressions); n == 0 || out.Expressions[n-1].Of != showLine(p.Of) {
			out.Expressions = append(out.Expressions, expressionView{Of: showLine(p.Of)})
		}
		last := &out.Expressions[len(out.Expressions)-1]
		last.Parts = append(last.Parts, row)
	}
	if n := len(r.Parts) - room; n > 0 {
		out.MoreParts = countOf(n, "more part") + " not shown: see kubectl cleaner explain --object."
	}
	return out
}
