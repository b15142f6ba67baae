// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fatih/color"
	"github.com/mattn/go-isatty"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// When there are colours.
const (
	colourAuto   = "auto"
	colourAlways = "always"
	colourNever  = "never"
)

// colourMode is the value of --color.
type colourMode string

func (c *colourMode) String() string { return string(*c) }

// Type is what help calls the value.
func (*colourMode) Type() string { return "when" }

// Set takes what the command line says.
func (c *colourMode) Set(text string) error {
	if !slices.Contains(colourModes(), text) {
		return fmt.Errorf("write one of %s", strings.Join(colourModes(), ", "))
	}
	*c = colourMode(text)
	return nil
}

func colourModes() []string { return []string{colourAuto, colourAlways, colourNever} }

// enabledFor says whether what is written there has colours: on a terminal that can show them, unless somebody says otherwise.
func (c colourMode) enabledFor(w io.Writer) bool {
	switch c {
	case colourAlways:
		return true
	case colourNever:
		return false
	}
	file, ok := w.(interface{ Fd() uintptr })
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && (isatty.IsTerminal(file.Fd()) || isatty.IsCygwinTerminal(file.Fd()))
}

// painter makes texts safe, and puts colours around them; the zero painter puts none.
type painter struct{ enabled bool }

func (p painter) colourText(text string, attributes ...color.Attribute) safeText {
	shown := escapeText(text)
	if !p.enabled || text == "" {
		return shown
	}
	c := color.New(attributes...)
	c.EnableColor() // by now it is decided, and not by what the library thinks of standard output
	return safeText(c.Sprint(string(shown)))
}

func (p painter) bold(text string) safeText   { return p.colourText(text, color.Bold) }
func (p painter) green(text string) safeText  { return p.colourText(text, color.FgGreen) }
func (p painter) yellow(text string) safeText { return p.colourText(text, color.FgYellow) }
func (p painter) red(text string) safeText    { return p.colourText(text, color.FgRed) }

// formatVerdict colours what an evaluation came to.
func (p painter) formatVerdict(v v1alpha1.Verdict) safeText {
	switch v {
	case v1alpha1.VerdictAct:
		return p.bold(string(v))
	case v1alpha1.VerdictInvalid, v1alpha1.VerdictBlocked:
		return p.red(string(v))
	}
	return escapeText(string(v))
}

// formatHeading returns an empty line, and the names of columns. The colour begins on the line before them: in a cell it would be
// taken for a part of its width.
func (p painter) formatHeading(names ...layout) safeText {
	const mark = "-"
	before, after, _ := strings.Cut(string(p.bold(mark)), mark)
	line := "\n"
	for i, name := range names {
		if i > 0 {
			line += "\t"
		}
		line += string(name)
	}
	return safeText(before + line + after + "\n")
}
