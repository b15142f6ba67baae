// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// teller writes the story, each line with the seconds since its beginning.
type teller struct {
	out   io.Writer
	began time.Time
}

func newTeller(out io.Writer) *teller { return &teller{out: out, began: time.Now()} }

func (t *teller) chapter(title string) { fmt.Fprintf(t.out, "\n── %s ──\n", title) }

func (t *teller) say(format string, args ...any) {
	fmt.Fprintf(t.out, "%6.1fs  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}

// show writes a text as it is, indented.
func (t *teller) show(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(t.out, "           │ %s", line)
	}
	fmt.Fprintln(t.out)
}
