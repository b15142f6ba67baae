// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plots draws the figures of `make bench` as SVG files for docs/scale.md.
//
//	plots FIGURES.json FOLDER
//
// It measures nothing, and the same figures always give the same files.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plots FIGURES.json FOLDER")
		os.Exit(2)
	}
	if err := drawAll(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

// measurement is one of those that the file of figures has.
type measurement struct {
	Figures []struct {
		Point *point `json:"point"`
	} `json:"figures"`
}

// point is a point of a line in a plot.
type point struct {
	Plot string  `json:"plot"`
	Line string  `json:"line"`
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
}

// frame is what a plot has beside its lines.
type frame struct {
	name, x, y  string
	logarithmic bool
}

func frames() []frame {
	return []frame{
		{"memory-pods", "Pods", "resident memory, MiB", true},
		{"cpu-looks", "Pods", "CPU time of one look, ms", true},
		{"cpu-changes", "changes per second, of 20,000 Pods", "CPU time per second, ms", false},
		{"memory-cleaners", "Cleaners, beside 100,000 Pods", "resident memory, MiB", false},
	}
}

// drawAll draws every plot into a folder.
func drawAll(figures, folder string) error {
	text, err := os.ReadFile(figures)
	if err != nil {
		return fmt.Errorf("cannot read the figures: %w", err)
	}
	var all []measurement
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("cannot read the figures of %s: %w", figures, err)
	}
	for _, f := range frames() {
		lines := linesOf(all, f.name)
		if len(lines) == 0 {
			return fmt.Errorf("the figures have no points of the plot %q", f.name)
		}
		var b bytes.Buffer
		if err := f.draw(lines, &b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "scale-"+f.name+".svg"), b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("cannot write the plot %q: %w", f.name, err)
		}
	}
	return nil
}

// line is a line of a plot.
type line struct {
	name   string
	points plotter.XYs
}

// linesOf finds the lines of a plot, in the order in which they were measured.
func linesOf(all []measurement, plot string) []line {
	var out []line
	for _, m := range all {
		for _, f := range m.Figures {
			if f.Point == nil || f.Point.Plot != plot {
				continue
			}
			i := slices.IndexFunc(out, func(l line) bool { return l.name == f.Point.Line })
			if i < 0 {
				i, out = len(out), append(out, line{name: f.Point.Line})
			}
			out[i].points = append(out[i].points, plotter.XY{X: f.Point.X, Y: f.Point.Y})
		}
	}
	return out
}

// draw writes the plot as SVG: a legend, and below it the lines.
func (f frame) draw(lines []line, to io.Writer) error {
	const width, height, margin, legendLine = 17 * vg.Centimeter, 10 * vg.Centimeter, 12, 15
	p, legend := plot.New(), plot.NewLegend()
	for _, text := range []*font.Font{&p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &legend.TextStyle.Font} {
		text.Variant = "Sans"
	}
	p.X.Label.Text, p.X.Padding, p.Y.Padding = f.x, 0, 0
	p.Add(plotter.NewGrid())
	for i, l := range lines {
		drawn, dots, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return fmt.Errorf("cannot draw the line %q: %w", l.name, err)
		}
		drawn.Color, drawn.Width = colours()[i%len(colours())], vg.Points(2)
		dots.Color, dots.Shape, dots.Radius = drawn.Color, draw.CircleGlyph{}, vg.Points(3)
		p.Add(drawn, dots)
		legend.Add(l.name, drawn, dots)
	}
	f.scale(p, lines)
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(4)

	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.FillPolygon(color.White, []vg.Point{all.Min, {X: all.Max.X, Y: all.Min.Y}, all.Max, {X: all.Min.X, Y: all.Max.Y}})
	legend.Draw(draw.Crop(all, margin, -margin, 0, -margin/2))
	below := height - vg.Length(len(lines))*legendLine - 2.5*margin
	label := p.X.Label.TextStyle
	label.XAlign = draw.XLeft
	all.FillText(label, vg.Point{X: margin, Y: below}, f.y)
	p.Draw(draw.Crop(all, margin, -2.5*margin, margin, below-height-margin))
	_, err := canvas.WriteTo(to)
	return err
}

// scale sets the axes: at the bottom there is a number below each point.
func (f frame) scale(p *plot.Plot, lines []line) {
	var at plot.ConstantTicks
	for _, l := range lines {
		for _, point := range l.points {
			if x := math.Round(point.X); !slices.ContainsFunc(at, func(t plot.Tick) bool { return t.Value == x }) {
				at = append(at, plot.Tick{Value: x, Label: number(x)})
			}
		}
	}
	for _, tick := range at { // a rounded number may be beyond its point
		p.X.Max = max(p.X.Max, tick.Value)
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = at, thousands{plot.DefaultTicks{}}
	if !f.logarithmic {
		p.X.Min, p.Y.Min = 0, 0
		return
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, math.Ceil(math.Log10(p.Y.Max)))
	p.Y.Tick.Marker = thousands{plot.LogTicks{Prec: -1}}
}

// colours are those of Okabe and Ito, which people tell apart who see few colours.
func colours() []color.Color {
	return []color.Color{
		color.RGBA{R: 0, G: 114, B: 178, A: 255}, color.RGBA{R: 213, G: 94, B: 0, A: 255},
		color.RGBA{R: 0, G: 158, B: 115, A: 255}, color.RGBA{R: 204, G: 121, B: 167, A: 255},
	}
}

// thousands writes the numbers beside an axis as people do: 20,000.
type thousands struct{ plot.Ticker }

func (t thousands) Ticks(from, to float64) []plot.Tick {
	ticks := t.Ticker.Ticks(from, to)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = number(ticks[i].Value)
		}
	}
	return ticks
}

// number writes a number with commas between its thousands.
func number(value float64) string {
	if value != float64(int64(value)) {
		return fmt.Sprintf("%g", value)
	}
	digits := fmt.Sprintf("%d", int64(value))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
