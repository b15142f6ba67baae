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

// colours is the value of --color.
type colours string

func (c *colours) String() string { return string(*c) }

// Type is what help calls the value.
func (*colours) Type() string { return "when" }

// Set takes what the command line says.
func (c *colours) Set(text string) error {
	if !slices.Contains(whenColours(), text) {
		return fmt.Errorf("write one of %s", strings.Join(whenColours(), ", "))
	}
	*c = colours(text)
	return nil
}

func whenColours() []string { return []string{colourAuto, colourAlways, colourNever} }

// wanted says whether what is written there has colours: on a terminal that can show them, unless somebody says otherwise.
func (c colours) wanted(w io.Writer) bool {
	switch c {
	case colourAlways:
		return true
	case colourNever:
		return false
	}
	file, ok := w.(interface{ Fd() uintptr })
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && (isatty.IsTerminal(file.Fd()) || isatty.IsCygwinTerminal(file.Fd()))
}

// paint makes texts safe, and puts colours around them; the zero paint puts none.
type paint struct{ on bool }

func (p paint) with(text string, attributes ...color.Attribute) safe {
	shown := escapeText(text)
	if !p.on || text == "" {
		return shown
	}
	c := color.New(attributes...)
	c.EnableColor() // by now it is decided, and not by what the library thinks of standard output
	return safe(c.Sprint(string(shown)))
}

func (p paint) bold(text string) safe { return p.with(text, color.Bold) }
func (p paint) good(text string) safe { return p.with(text, color.FgGreen) }
func (p paint) warn(text string) safe { return p.with(text, color.FgYellow) }
func (p paint) bad(text string) safe  { return p.with(text, color.FgRed) }

// verdict is what an evaluation came to.
func (p paint) verdict(v v1alpha1.Verdict) safe {
	switch v {
	case v1alpha1.VerdictAct:
		return p.bold(string(v))
	case v1alpha1.VerdictInvalid, v1alpha1.VerdictBlocked:
		return p.bad(string(v))
	}
	return escapeText(string(v))
}

// heading is an empty line, and the names of columns. The colour begins on the line before them: in a cell it would be
// taken for a part of its width.
func (p paint) heading(names ...layout) safe {
	const mark = "-"
	before, after, _ := strings.Cut(string(p.bold(mark)), mark)
	line := "\n"
	for i, name := range names {
		if i > 0 {
			line += "\t"
		}
		line += string(name)
	}
	return safe(before + line + after + "\n")
}
