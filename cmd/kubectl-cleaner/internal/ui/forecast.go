// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/timeline"
)

// maxPredicted is how many Cleaners one forecast is made for.
const maxPredicted = 100

// forecastPage shows what Cleaners will do when.
type forecastPage struct {
	// One says that it is about one Cleaner: the subject.
	One bool
	*subject
	Filter filter
	Action string
	Ahead  []ahead
	// Figure is drawn by package timeline, which escapes all text in it.
	Figure template.HTML
	// Asked says that a forecast was asked for; Problems say what it does not contain, and why.
	Asked    bool
	Problems []string
}

// ahead is how far ahead a forecast looks.
type ahead struct {
	Value, Label string
	Current      bool
}

// listAhead lists the choices, and returns the chosen one; zero if none is.
func listAhead(asked, instead string) ([]ahead, time.Duration) {
	choices := []ahead{{Value: "24h", Label: "24 hours"}, {Value: "7d", Label: "7 days"}, {Value: "30d", Label: "30 days"}, {Value: "90d", Label: "90 days"}}
	if !slices.ContainsFunc(choices, func(c ahead) bool { return c.Value == asked }) {
		asked = instead
	}
	var length time.Duration
	for i := range choices {
		if choices[i].Value == asked {
			choices[i].Current = true
			length, _ = v1alpha1.ParseDuration(asked) // it is one of ours
		}
	}
	return choices, length
}

// showForecast shows what the Cleaners will do when: those of the filter, as soon as it is asked for.
func (s *Server) showForecast(w http.ResponseWriter, r *http.Request) {
	f := readFilter(r.URL.Query())
	content := &forecastPage{Filter: f, Action: "/forecast"}
	var length time.Duration
	content.Ahead, length = listAhead(r.URL.Query().Get("until"), "")
	if content.Asked = length > 0; !content.Asked {
		content.Ahead, _ = listAhead("7d", "7d")
	} else {
		s.predict(r.Context(), content, length, func(ctx context.Context, out *prediction) []*unstructured.Unstructured {
			return readMatching(ctx, s, f, out)
		})
	}
	s.showPage(w, r, http.StatusOK, &page{Template: "forecast", Title: "Forecast", Current: "/forecast", UTC: true, Content: content})
}

// showForecastOfOne shows what one Cleaner will do when.
func (s *Server) showForecastOfOne(w http.ResponseWriter, r *http.Request) {
	owner, u, ok := s.readCleaner(w, r)
	if !ok {
		return
	}
	subject := s.viewer.makeSubject(owner, "/forecast")
	content := &forecastPage{One: true, subject: &subject, Asked: true, Action: subject.Path() + "/forecast"}
	var length time.Duration
	content.Ahead, length = listAhead(r.URL.Query().Get("until"), "7d")
	s.predict(r.Context(), content, length, func(context.Context, *prediction) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{u}
	})
	s.showPage(w, r, http.StatusOK, &page{Template: "forecast", Title: subject.DisplayName() + ": forecast", Current: "/", UTC: true, Content: content})
}

// readMatching reads the Cleaners of the filter, as many as a page is for.
func readMatching(ctx context.Context, s *Server, f filter, out *prediction) []*unstructured.Unstructured {
	rows, _, _ := s.fleet.listRows()
	var found []*summary
	for _, r := range rows {
		if f.matchesText(r) {
			found = append(found, r)
		}
	}
	if n := len(found) - maxPredicted; n > 0 {
		out.addProblem("%s are left out: this page is for at most %d. Choose a namespace or a text.", countOf(n, "more Cleaner"), maxPredicted)
		found = found[:maxPredicted]
	}
	var all []*unstructured.Unstructured
	for _, r := range found {
		u, err := s.getCleaner(ctx, r.Name)
		if err != nil {
			out.addProblem("Cannot read %s %s: %s", r.Kind(), showLine(r.DisplayName()), describeError(err))
			continue
		}
		all = append(all, u)
	}
	return all
}

// prediction is a forecast that is drawn.
type prediction struct {
	problems []string
	figure   template.HTML
}

// addProblem adds what the forecast does not contain, and why.
func (p *prediction) addProblem(format string, values ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, values...))
}

// predict makes the forecast, and draws what of it was ready in time.
func (s *Server) predict(ctx context.Context, content *forecastPage, length time.Duration, read func(context.Context, *prediction) []*unstructured.Unstructured) {
	now := s.Clock.Now().UTC().Truncate(time.Second)
	made, err := takeTurn(ctx, s.turns, forecastTimeout, func(ctx context.Context) (*prediction, error) {
		d, out := forecast.NewDocument(now, now.Add(length)), &prediction{}
		if err := fillForecast(ctx, s.Commands, d, out, read); err != nil {
			return nil, err
		}
		out.draw(d)
		return out, nil
	})
	if err != nil {
		content.Problems = []string{describeError(err)}
		return
	}
	content.Problems, content.Figure = made.problems, made.figure
	if n := len(content.Problems) - maxRows; n > 0 {
		content.Problems = append(content.Problems[:maxRows], groupDigits(int64(n))+" more problems are not shown.")
	}
}

// fillForecast predicts each Cleaner, until the time is over.
func fillForecast(ctx context.Context, commands Commands, d *forecast.Document, out *prediction, read func(context.Context, *prediction) []*unstructured.Unstructured) error {
	predict, err := commands.PrepareForecast(ctx)
	if err != nil {
		return err
	}
	all := read(ctx, out)
	left := len(all)
	for _, u := range all {
		if ctx.Err() != nil {
			break
		}
		left--
		if err := predict(ctx, d, u); err != nil {
			name := Name{u.GetNamespace(), u.GetName()}
			out.addProblem("Cannot predict %s %s: %s", name.Kind(), showLine(name.DisplayName()), describeError(err))
		}
	}
	if left > 0 {
		out.addProblem("%s could not be predicted in time: choose a namespace or a text.", countOf(left, "Cleaner"))
	}
	return nil
}

// draw draws a forecast. What the figure lists of it is bounded, and the warnings of its Cleaners here.
func (p *prediction) draw(d *forecast.Document) {
	if len(d.Cleaners) == 0 {
		return
	}
	room, left := maxRows, 0
	for i := range d.Cleaners {
		c := &d.Cleaners[i]
		shown := min(len(c.Warnings), room)
		room, left = room-shown, left+len(c.Warnings)-shown
		c.Warnings = c.Warnings[:shown]
	}
	if left > 0 {
		p.addProblem("%s are not shown: see kubectl cleaner forecast.", countOf(left, "more warning"))
	}
	var figure strings.Builder
	if err := timeline.WriteFigure(&figure, d); err != nil {
		p.addProblem("%s", describeError(err))
		return
	}
	p.figure = template.HTML(figure.String()) //nolint:gosec // html/template has written and escaped it
}
