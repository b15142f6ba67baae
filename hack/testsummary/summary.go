// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json: see go doc test2json.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of what was built, in build events
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string // of a package that failed because this one did not build
}

// suite is a package whose tests are running.
type suite struct {
	output map[string][]string // by test, "" being the package itself; only of those that have not passed
	failed []string            // tests, in the order in which they failed
	open   []string            // tests that have started and not ended
}

// summary counts events, and prints each package when it ends.
type summary struct {
	out     io.Writer
	running map[string]*suite
	builds  map[string][]string // output of builds, by import path

	passed, failed, skipped int
	failures                []string
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, running: map[string]*suite{}, builds: map[string][]string{}}
}

// read takes events until there are no more. A line that is no event is printed as it is.
func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r) // no Scanner: a line may be of any length
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				s.take(e)
			} else {
				fmt.Fprintf(s.out, "%s", line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the output of go test: %w", err)
		}
	}
}

func (s *summary) take(e event) {
	if e.Action == "build-output" {
		s.builds[e.ImportPath] = append(s.builds[e.ImportPath], e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := s.running[e.Package]
	if p == nil {
		p = &suite{output: map[string][]string{}}
		s.running[e.Package] = p
	}
	switch e.Action {
	case "run":
		p.open = append(p.open, e.Test)
	case "output":
		p.output[e.Test] = append(p.output[e.Test], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.end(p, e)
			return
		}
		s.endTest(p, e)
	}
}

// endTest counts a test.
func (s *summary) endTest(p *suite, e event) {
	p.open = slices.DeleteFunc(p.open, func(name string) bool { return name == e.Test })
	switch e.Action {
	case "pass":
		s.passed++
		delete(p.output, e.Test)
	case "skip":
		s.skipped++
		delete(p.output, e.Test)
	case "fail":
		s.fail(p, e.Package, e.Test)
	}
}

// end counts and prints a package.
func (s *summary) end(p *suite, e event) {
	delete(s.running, e.Package)
	if e.Action == "skip" { // no test files
		return
	}
	if e.Action == "pass" {
		fmt.Fprintf(s.out, "ok    %s  %s\n", e.Package, seconds(e.Elapsed))
		return
	}
	for _, test := range p.open { // the package ended before them: a panic, a timeout, os.Exit
		s.fail(p, e.Package, test)
	}
	if len(p.failed) == 0 { // it did not build, or failed outside of its tests
		s.fail(p, e.Package, "")
	} else if !slices.Contains(p.failed, "") {
		p.failed = append(p.failed, "") // the package's own words come last
	}
	fmt.Fprintf(s.out, "FAIL  %s  %s\n", e.Package, seconds(e.Elapsed))
	for _, text := range s.builds[e.FailedBuild] {
		fmt.Fprintf(s.out, "      %s", text)
	}
	for _, test := range p.failed {
		for _, text := range p.output[test] {
			fmt.Fprintf(s.out, "      %s", text)
		}
	}
}

// fail counts a failure and remembers it for the end.
func (s *summary) fail(p *suite, pkg, test string) {
	s.failed++
	p.failed = append(p.failed, test)
	s.failures = append(s.failures, strings.TrimSpace(pkg+" "+test))
}

// finish prints what failed, once more, and the sum. What has not ended by now never will.
func (s *summary) finish() {
	for _, pkg := range sortedKeys(s.running) {
		s.end(s.running[pkg], event{Action: "fail", Package: pkg})
	}
	fmt.Fprintln(s.out)
	for _, name := range s.failures {
		fmt.Fprintf(s.out, "failed: %s\n", name)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
}

func sortedKeys(m map[string]*suite) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}
