// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fatih/color"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// The values of --color.
const (
	ColourAuto   = "auto"
	colourAlways = "always"
	colourNever  = "never"
)

// ColourMode is the value of --color.
type ColourMode string

func (c *ColourMode) String() string { return string(*c) }

// Type returns the name of the value in help.
func (*ColourMode) Type() string { return "when" }

// Set parses the value of the flag.
func (c *ColourMode) Set(text string) error {
	if !slices.Contains(ColourModes(), text) {
		return fmt.Errorf("write one of %s", strings.Join(ColourModes(), ", "))
	}
	*c = ColourMode(text)
	return nil
}

// ColourModes returns the values of --color.
func ColourModes() []string { return []string{ColourAuto, colourAlways, colourNever} }

// enabledFor reports whether to write colours. By default only a terminal that can show them gets any.
func (c ColourMode) enabledFor(w io.Writer) bool {
	switch c {
	case colourAlways:
		return true
	case colourNever:
		return false
	}
	_, ok := terminalOf(w)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Painter makes texts safe and colours them. The zero painter uses no colours.
type Painter struct{ enabled bool }

func (p Painter) colourText(text string, attributes ...color.Attribute) SafeText {
	shown := EscapeText(text)
	if !p.enabled || text == "" {
		return shown
	}
	c := color.New(attributes...)
	c.EnableColor() // enabledFor has decided; the library would look at standard output
	return SafeText(c.Sprint(string(shown)))
}

// Bold returns bold text.
func (p Painter) Bold(text string) SafeText { return p.colourText(text, color.Bold) }

// Green returns green text.
func (p Painter) Green(text string) SafeText { return p.colourText(text, color.FgGreen) }

// Yellow returns yellow text.
func (p Painter) Yellow(text string) SafeText { return p.colourText(text, color.FgYellow) }

// Red returns red text.
func (p Painter) Red(text string) SafeText { return p.colourText(text, color.FgRed) }

// FormatVerdict colours a verdict.
func (p Painter) FormatVerdict(v v1alpha1.Verdict) SafeText {
	switch v {
	case v1alpha1.VerdictAct:
		return p.Bold(string(v))
	case v1alpha1.VerdictInvalid, v1alpha1.VerdictBlocked:
		return p.Red(string(v))
	}
	return EscapeText(string(v))
}

// FormatHeading returns an empty line and the names of columns. The colour begins on the empty line: in a cell it would count as
// width.
func (p Painter) FormatHeading(names ...layout) SafeText {
	const mark = "-"
	before, after, _ := strings.Cut(string(p.Bold(mark)), mark)
	line := "\n"
	for i, name := range names {
		if i > 0 {
			line += "\t"
		}
		line += string(name)
	}
	return SafeText(before + line + after + "\n")
}
