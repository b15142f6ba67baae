// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
)

//go:embed chart.svg.tmpl
var svgText string

//go:embed page.html.tmpl
var pageText string

//go:embed figure.html.tmpl
var figureText string

//go:embed strip.svg.tmpl
var stripText string

//go:embed shape.svg.tmpl
var shapeText string

//go:embed chart.css
var chartStyle string

//go:embed figure.css
var figureStyle string

//go:embed page.css
var pageStyle string

// The layout of the image, in pixels.
const (
	imageWidth = 960
	margin     = 28
	headHeight = 116
	laneHeight = 66
	footHeight = 34
)

// image is an SVG image.
type image struct {
	*chart
	Style         template.CSS
	Width, Height int
	Plot          int
	Lanes         []placedLane
	AxisY, FootY  int
}

// placedLane is a lane and where it is.
type placedLane struct {
	lane
	Y, SummaryY, StripY int
}

// placedEntry is an entry of the legend and where it is.
type placedEntry struct {
	legendEntry
	X, TextX int
}

// PaperWidth and PaperHeight leave room for the border.
func (i *image) PaperWidth() int { return i.Width - 1 }

// PaperHeight is like PaperWidth.
func (i *image) PaperHeight() int { return i.Height - 1 }

// PlaceLegend returns where the entries of the legend are.
func (i *image) PlaceLegend() []placedEntry {
	var out []placedEntry
	x := margin + 6
	for _, e := range i.Legend {
		out = append(out, placedEntry{e, x, x + 14})
		x += 40 + 7*len(e.Text)
	}
	return out
}

// WriteSVG writes a forecast as an image.
func WriteSVG(w io.Writer, d *forecast.Document) error {
	c := drawChart(d)
	i := &image{chart: c, Style: template.CSS(chartStyle), Width: imageWidth, Plot: imageWidth - 2*margin, AxisY: headHeight - 12} //nolint:gosec // it is our own
	for n, l := range c.Lanes {
		y := headHeight + n*laneHeight
		i.Lanes = append(i.Lanes, placedLane{lane: l, Y: y + 18, SummaryY: y + 18, StripY: y + 28})
	}
	i.FootY = headHeight + len(c.Lanes)*laneHeight + footHeight/2
	i.Height = i.FootY
	if c.LeftOut != "" {
		i.Height += footHeight / 2
	}
	return render(w, svgText, i)
}

// figure is the part of a page of HTML that shows a forecast.
type figure struct {
	*chart
	Rows    []row
	Several bool
	Notes   []note
	More    string
}

// page is a page of HTML.
type page struct {
	*figure
	Style  template.CSS
	Policy string
}

// row is a step in the table.
type row struct {
	When, In, Verb, Class, Object, Cleaner, Rule, Reason, More string
	About                                                      bool
}

// note is something to know about a Cleaner.
type note struct{ Cleaner, Text string }

// WriteHTML writes a forecast as a page.
func WriteHTML(w io.Writer, d *forecast.Document) error {
	style := Style() + pageStyle
	sum := sha256.Sum256([]byte(style))
	return render(w, pageText, &page{
		figure: makeFigure(d), Style: template.CSS(style), //nolint:gosec // it is our own
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'",
	})
}

// WriteFigure writes a forecast as a part of a page, which has the style sheet of Style, and a heading above the figure's own.
func WriteFigure(w io.Writer, d *forecast.Document) error {
	return render(w, figureText, makeFigure(d))
}

// Style returns the style sheet of a figure.
func Style() string { return chartStyle + figureStyle }

// makeFigure lays out what a page shows.
func makeFigure(d *forecast.Document) *figure {
	f := &figure{chart: drawChart(d), Several: len(d.Cleaners) != 1}
	steps := d.SortSteps()
	for i := range steps[:min(len(steps), maxRows)] {
		f.Rows = append(f.Rows, makeRow(d, &steps[i]))
	}
	if n := len(steps) - maxRows; n > 0 {
		f.More = areOf(n, "more step") + " not in the table: see kubectl cleaner forecast -o json."
	}
	for i := range d.Cleaners {
		f.Notes = append(f.Notes, listNotes(&d.Cleaners[i])...)
	}
	return f
}

// makeRow writes a step down for the table.
func makeRow(d *forecast.Document, s *forecast.Located) row {
	r := row{
		When: formatTime(s.At.Time), In: "now", Verb: cleanText(s.Verb), Class: classOf(s.Verb), Object: cleanText(s.Step.NameObject()),
		Cleaner: cleanText(s.Of.Cleaner), Rule: cleanText(s.Rule), Reason: cleanText(s.Reason), About: !s.Exact,
	}
	if s.At.After(d.At.Time) {
		r.In = duration.HumanDuration(s.At.Sub(d.At.Time))
	}
	if s.Dependents > 0 {
		r.More = "and " + countOf(int(s.Dependents), "object") + " with it"
	}
	if s.Remains {
		r.More = strings.TrimSpace("stays until its finalizers are gone " + r.More)
	}
	return r
}

// listNotes lists what to know about a Cleaner.
func listNotes(c *forecast.Cleaner) []note {
	var out []note
	add := func(text string) {
		out = append(out, note{cleanText(c.Kind + " " + c.Cleaner), shortenText(text, maxNote)})
	}
	if c.Cut != "" {
		add(fmt.Sprintf("Predicted until %s only. %s", formatTime(c.Until.Time), c.Cut))
	}
	for _, u := range c.Unpredictable {
		if u.Rule == "" {
			add("Not exactly predictable: " + u.Because)
		} else {
			add(fmt.Sprintf("Rule %q cannot be predicted exactly: %s", u.Rule, u.Because))
		}
	}
	if !c.Ends.IsZero() {
		add("It has cleaned up, and deletes itself, at " + formatTime(c.Ends.Time) + ".")
	}
	for _, w := range c.Warnings {
		add(w)
	}
	return out
}

// render writes a template. html/template escapes all that is not ours, in SVG too.
func render(w io.Writer, text string, value any) error {
	t, err := template.New("chart").Parse(text)
	for name, part := range map[string]string{"figure": figureText, "strip": stripText, "shape": shapeText} {
		if err == nil {
			_, err = t.New(name).Parse(part)
		}
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, "chart", value); err != nil {
		return err
	}
	_, err = io.WriteString(w, b.String())
	return err
}
