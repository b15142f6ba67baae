// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command recording makes a picture that moves of what the demo prints: an SVG of a terminal that scrolls as the demo did, with its pauses
// cut short. It reads the output of the demo from standard input and writes the picture to standard output. It runs nothing itself.
package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// columns and rows are the size of the terminal, and lineHeight is the height of a row.
	columns, rows, lineHeight = 124, 26, 18
	// shortestPause and longestPause bound the time between two lines, and lastPause is how long the end is shown.
	shortestPause, longestPause, lastPause = 400 * time.Millisecond, 1500 * time.Millisecond, 6 * time.Second
	// maxLines bounds what is read.
	maxLines = 2000
)

//go:embed recording.svg.tmpl
var picture string

func main() {
	if err := record(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// line is a row of the terminal.
type line struct {
	// Class says how it looks, and Time what stands before the text.
	Class, Time, Text string
	Y                 int
	at                time.Duration
}

// step is a moment at which the terminal has scrolled.
type step struct {
	Percent string
	Offset  int
}

// record reads what the demo printed, and writes the picture.
func record(in io.Reader, out io.Writer) error {
	lines, err := readLines(in)
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return fmt.Errorf("there is nothing to record: pipe the output of the demo into it")
	}
	t, err := template.New("recording").Parse(picture)
	if err != nil {
		return err
	}
	steps, total := scrollLines(lines)
	return t.Execute(out, map[string]any{
		"Lines": lines, "Steps": steps, "Seconds": strconv.FormatFloat(total.Seconds(), 'f', 1, 64),
		"Last": steps[len(steps)-1].Offset, "Width": 1060, "Height": rows*lineHeight + 60, "Inner": rows*lineHeight + 58, "Screen": rows * lineHeight,
	})
}

var spoken = regexp.MustCompile(`^ *([0-9.]+)s  (.*)$`)

// readLines reads the lines of the demo. It leaves out those before the first chapter, which are about building, and where the control plane is.
func readLines(in io.Reader) ([]line, error) {
	var lines []line
	var at time.Duration
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		text := strings.TrimRight(scanner.Text(), " ")
		l := line{Text: text}
		switch m := spoken.FindStringSubmatch(text); {
		case strings.HasPrefix(text, "── "):
			l.Class = "chapter"
		case len(lines) == 0, strings.HasPrefix(text, "control plane at "):
			continue
		case m != nil:
			seconds, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return nil, fmt.Errorf("%q does not begin with a time: %w", text, err)
			}
			at = time.Duration(seconds * float64(time.Second))
			l.Time, l.Text, l.Class = m[1]+"s", m[2], classify(m[2])
		}
		if len(lines) == maxLines {
			return nil, fmt.Errorf("there are more than %d lines", maxLines)
		}
		l.at, l.Y, l.Text = at, len(lines)*lineHeight, cutText(l.Text)
		lines = append(lines, l)
	}
	return lines, scanner.Err()
}

// classify says how a line of the demo looks.
func classify(text string) string {
	switch text = strings.TrimSpace(text); {
	case strings.HasPrefix(text, "EVENT:"):
		return "event"
	case strings.HasPrefix(text, "DELETE "), strings.HasPrefix(text, "delete "):
		return "deletion"
	case strings.Contains(text, "refuses it"):
		return "refusal"
	default:
		return ""
	}
}

// cutText cuts a line to the width of the terminal.
func cutText(text string) string {
	const beforeText = 9 // columns of the time
	if utf8.RuneCountInString(text) <= columns-beforeText {
		return text
	}
	return string([]rune(text)[:columns-beforeText-1]) + "…"
}

// scrollLines says when the terminal scrolls to where, and how long it all takes.
func scrollLines(lines []line) (steps []step, total time.Duration) {
	moments := make([]time.Duration, len(lines))
	before := lines[0].at
	for i, l := range lines {
		if i > 0 {
			total += min(max(l.at-before, shortestPause), longestPause)
		}
		moments[i], before = total, l.at
	}
	total += lastPause
	for i, at := range moments {
		percent := strconv.FormatFloat(100*at.Seconds()/total.Seconds(), 'f', 3, 64)
		steps = append(steps, step{Percent: percent, Offset: (rows - 1 - i) * lineHeight})
	}
	return steps, total
}
