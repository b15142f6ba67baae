// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timeline draws a forecast: as an SVG image, as a page of HTML, and as a part of another page. They load nothing, run no script, and
// follow the reader's choice of light or dark.
//
// It never decides, and whatever a tenant wrote is text in them, never markup.
package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

const (
	// maxLanes is how many rules are drawn, and maxRows how many steps the table lists.
	maxLanes = 100
	maxRows  = 2000
	// maxText and maxNote bound texts, in characters, and maxListed how many steps the title of one mark lists.
	maxText   = 200
	maxNote   = 600
	maxListed = 8
	// closest is how close two marks of a lane may be, as a part of the lane: steps that are closer are one mark.
	closest = 1.0 / 40
)

// chart is what is drawn.
type chart struct {
	Title, Description string
	Ticks              []tick
	Lanes              []lane
	// Legend lists the verbs of the steps, and the bands that there are.
	Legend []legendEntry
	// LeftOut says what is not drawn; empty if all is.
	LeftOut string
}

// tick is a time on the axis. X is a percentage.
type tick struct{ X, Label, Anchor string }

// lane is a rule of a Cleaner, or a Cleaner that does nothing.
type lane struct {
	Cleaner, Rule, Summary string
	Bands                  []band
	Marks                  []mark
	Ticks                  []tick
}

// band is a span of time in which something is so.
type band struct{ X, Width, Class, Title string }

// mark is one or more steps at a place.
type mark struct {
	X, Class, Title string
	// Count is shown if there is more than one step.
	Count string
	About bool
}

// legendEntry explains a mark or a band. Count is how many steps have the verb.
type legendEntry struct {
	Class, Text string
	Count       int
	Band        bool
}

// Mark returns the mark of a step with the verb.
func (e legendEntry) Mark() mark { return mark{Class: e.Class} }

// drawing draws one forecast.
type drawing struct {
	*forecast.Document
	at, until time.Time
}

// drawChart lays a forecast out.
func drawChart(d *forecast.Document) *chart {
	g := drawing{Document: d, at: d.At.Time, until: d.Until.Time}
	c := &chart{Title: fmt.Sprintf("Forecast: %s to %s", formatDay(g.at), formatDay(g.until)), Ticks: g.listTicks()}
	all := g.listLanes()
	steps, counts := 0, map[string]*legendEntry{}
	for i := range d.Cleaners {
		for j := range d.Cleaners[i].Steps {
			verb := d.Cleaners[i].Steps[j].Verb
			if counts[verb] == nil {
				counts[verb] = &legendEntry{Class: classOf(verb), Text: cleanText(verb)}
			}
			counts[verb].Count++
			steps++
		}
	}
	for _, e := range counts {
		c.Legend = append(c.Legend, *e)
	}
	slices.SortFunc(c.Legend, func(a, b legendEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Text, b.Text))
	})
	c.Description = fmt.Sprintf("%s of %s, if nothing else changes. Times are UTC.", countOf(steps, "step"), countOf(len(d.Cleaners), "Cleaner"))
	if n := len(all) - maxLanes; n > 0 {
		c.LeftOut = fmt.Sprintf("%s not drawn.", areOf(n, "more rule"))
		all = all[:maxLanes]
	}
	if n := d.CountOmitted(); n > 0 {
		c.LeftOut = strings.TrimSpace(c.LeftOut + fmt.Sprintf(" %s not listed.", areOf(int(n), "more step")))
	}
	c.Lanes = all
	c.addBands()
	return c
}

// addBands adds the bands that are drawn to the legend.
func (c *chart) addBands() {
	for i := range c.Legend {
		c.Legend[i].Text += fmt.Sprintf(" %d", c.Legend[i].Count)
	}
	for _, e := range []legendEntry{
		{Class: "blocked", Text: "blocked"}, {Class: "unpredictable", Text: "times are not exact"}, {Class: "unknown", Text: "not predicted"}, {Class: "ended", Text: "the Cleaner is gone"},
	} {
		if slices.ContainsFunc(c.Lanes, func(l lane) bool {
			return slices.ContainsFunc(l.Bands, func(b band) bool { return b.Class == e.Class })
		}) {
			e.Band = true
			c.Legend = append(c.Legend, e)
		}
	}
}

// listLanes lists the rules of each Cleaner that do something, in the order of their first steps; and the Cleaners that do nothing.
func (g drawing) listLanes() []lane {
	var lanes []lane
	for i := range g.Cleaners {
		c := &g.Cleaners[i]
		byRule := map[string][]*forecast.Step{}
		var rules []string
		for j := range c.Steps {
			rule := c.Steps[j].Rule
			if byRule[rule] == nil {
				rules = append(rules, rule)
			}
			byRule[rule] = append(byRule[rule], &c.Steps[j])
		}
		for _, rule := range rules {
			lanes = append(lanes, g.drawLane(c, rule, byRule[rule]))
		}
		if len(rules) == 0 {
			lanes = append(lanes, g.drawLane(c, "", nil))
		}
	}
	return lanes
}

// drawLane draws one lane.
func (g drawing) drawLane(c *forecast.Cleaner, rule string, steps []*forecast.Step) lane {
	l := lane{Cleaner: cleanText(c.Kind + " " + c.Cleaner), Rule: cleanText(rule), Ticks: g.listTicks(), Bands: g.listBands(c, rule), Marks: g.listMarks(steps)}
	switch {
	case len(steps) > 0:
		first := steps[0].At.Time
		l.Summary = fmt.Sprintf("%s, the first %s", countOf(len(steps), "step"), g.describeTime(first))
	case c.Cut != "":
		l.Summary = cleanText(c.Cut)
	case len(c.States) > 0:
		last := &c.States[len(c.States)-1]
		l.Summary = cleanText(fmt.Sprintf("no steps: %s. %s", last.Reason, last.Message))
	default:
		l.Summary = "no steps"
	}
	if c.Mode == v1alpha1.ModeDryRun {
		l.Summary = "DryRun: " + l.Summary
	}
	return l
}

// describeTime says when something happens.
func (g drawing) describeTime(at time.Time) string {
	if !at.After(g.at) {
		return "now"
	}
	return "in " + duration.HumanDuration(at.Sub(g.at))
}

// listMarks draws steps that are close to each other as one mark.
func (g drawing) listMarks(steps []*forecast.Step) []mark {
	var out []mark
	for from := 0; from < len(steps); {
		to, place := from+1, g.shareOf(steps[from].At.Time)
		for to < len(steps) && g.shareOf(steps[to].At.Time)-place < closest {
			to++
		}
		out = append(out, g.drawMark(steps[from:to]))
		from = to
	}
	return out
}

// drawMark draws steps as one mark: at the first of them, as the verb that changes most.
func (g drawing) drawMark(steps []*forecast.Step) mark {
	m := mark{X: g.formatX(steps[0].At.Time)}
	worst := slices.MinFunc(steps, func(a, b *forecast.Step) int { return cmp.Compare(weighVerb(a.Verb), weighVerb(b.Verb)) })
	m.Class = classOf(worst.Verb)
	var lines []string
	for i, s := range steps {
		m.About = m.About || !s.Exact
		if i < maxListed {
			lines = append(lines, describeStep(s))
		}
	}
	if n := len(steps) - maxListed; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}
	if len(steps) > 1 {
		m.Count = shortenCount(len(steps))
	}
	m.Title = strings.Join(lines, "\n")
	return m
}

// describeStep is a step in one line.
func describeStep(s *forecast.Step) string {
	about := ""
	if !s.Exact {
		about = "about "
	}
	text := fmt.Sprintf("%s%s: %s %s", about, formatTime(s.At.Time), s.Verb, s.Step.NameObject())
	if s.Reason != "" {
		text += " (" + s.Reason + ")"
	}
	return cleanText(text)
}

// listBands draws when a Cleaner is blocked, when a rule cannot be predicted, and when the Cleaner is gone or nothing is known.
func (g drawing) listBands(c *forecast.Cleaner, rule string) []band {
	var out []band
	for i := range c.States {
		s := &c.States[i]
		if !s.IsBlocked() {
			continue
		}
		to := c.Until.Time
		if i+1 < len(c.States) {
			to = c.States[i+1].From.Time
		}
		out = append(out, g.drawBand(s.From.Time, to, "blocked", fmt.Sprintf("%s (%s): %s", s.Verdict, s.Reason, s.Message)))
	}
	for i := range c.Unpredictable {
		if u := &c.Unpredictable[i]; u.Rule == "" || u.Rule == rule {
			out = append(out, g.drawBand(u.From.Time, c.Until.Time, "unpredictable", "Not exactly predictable: "+u.Because))
			break
		}
	}
	if c.Cut != "" {
		out = append(out, g.drawBand(c.Until.Time, g.until, "unknown", "Not predicted: "+c.Cut))
	}
	if !c.Ends.IsZero() {
		out = append(out, g.drawBand(c.Ends.Time, g.until, "ended", "The Cleaner has cleaned up, and has deleted itself."))
	}
	return out
}

func (g drawing) drawBand(from, to time.Time, class, title string) band {
	left := g.shareOf(from)
	return band{X: formatPercent(left), Width: formatPercent(max(0, g.shareOf(to)-left)), Class: class, Title: cleanText(title)}
}

// shareOf returns which part of the forecast is over at a moment.
func (g drawing) shareOf(at time.Time) float64 {
	whole := g.until.Sub(g.at)
	if whole <= 0 {
		return 0
	}
	return min(1, max(0, float64(at.Sub(g.at))/float64(whole)))
}

func (g drawing) formatX(at time.Time) string { return formatPercent(g.shareOf(at)) }

func formatPercent(share float64) string { return strconv.FormatFloat(share*100, 'f', 2, 64) + "%" }

// maxTicks is how many times the axis shows at most, besides the first.
const maxTicks = 8

// listTicks lists round times of the forecast.
func (g drawing) listTicks() []tick {
	const day = 24 * time.Hour
	step := 1000 * day
	for _, s := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day} {
		if g.until.Sub(g.at) <= maxTicks*s {
			step = s
			break
		}
	}
	var out []tick
	for at := g.at.UTC().Truncate(step); !at.After(g.until) && len(out) <= maxTicks; at = at.Add(step) {
		if at.Before(g.at) {
			continue
		}
		t := tick{X: g.formatX(at), Label: at.Format("Jan 2"), Anchor: "middle"}
		if step < day && at.Truncate(day) != at {
			t.Label = at.Format("15:04")
		}
		switch share := g.shareOf(at); {
		case share < 0.04:
			t.Anchor = "start"
		case share > 0.96:
			t.Anchor = "end"
		}
		out = append(out, t)
	}
	return out
}

// verbClasses are the classes of the style sheet for verbs, the one that changes most first.
func verbClasses() [][2]string {
	return [][2]string{
		{"helmUninstall", "uninstall"}, {"delete", "delete"}, {"evict", "evict"}, {"removeFinalizer", "finalizer"}, {"patch", "patch"}, {"report", "report"},
	}
}

func weighVerb(verb string) int {
	return slices.IndexFunc(verbClasses(), func(c [2]string) bool { return c[0] == verb })
}

func classOf(verb string) string {
	if n := weighVerb(verb); n >= 0 {
		return verbClasses()[n][1]
	}
	return "report"
}

// shortenCount is a number that has room in a mark.
func shortenCount(n int) string {
	if n > 99 {
		return "99+"
	}
	return strconv.Itoa(n)
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func areOf(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}

// cleanText makes a text fit to be shown: on one line, without characters that XML does not allow, and not too long.
func cleanText(text string) string { return shortenText(text, maxText) }

func shortenText(text string, most int) string {
	shown := []rune(string(output.EscapeText(text)))
	if len(shown) > most {
		return string(shown[:most-1]) + "…"
	}
	return string(shown)
}

// formatTime returns a moment to the second, as people read it.
func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func formatDay(at time.Time) string { return at.UTC().Format("2 January 2006, 15:04") }
