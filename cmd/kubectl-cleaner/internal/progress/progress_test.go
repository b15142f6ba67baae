// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/test/screen"
)

// A line appears after two seconds, is rewritten, gives way to other output, and is gone at the end.
func TestLine(t *testing.T) {
	s, clock := screen.Open(t, 60), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	line := output.NewStatusLine(s.Writer)
	l, out := NewLine(clock, line), line.GuardWriter(s.Writer)
	l.BeginStage("Reading %s", "pods")
	clock.Step(patience - time.Millisecond)
	l.mu.Lock()
	if !clock.HasWaiters() {
		t.Error("nothing rewrites the line")
	}
	l.mu.Unlock()
	if got := l.describe(); got != "" {
		t.Errorf("after %s it shows %q", patience-time.Millisecond, got)
	}
	clock.Step(refresh)
	s.WaitForLine("Reading pods, 2s")
	l.Count(500, 0)
	clock.Step(time.Second)
	s.WaitForLine("Reading pods: 500, 3s")
	l.Count(500, 1200)
	clock.Step(time.Second)
	s.WaitForLine("Reading pods: 500 of 1200, 4s")
	l.BeginStage("Done \x1b[2J\n")
	clock.Step(time.Minute)
	s.WaitForLine(`Done \x1b[2J\n, 1m4s`)

	write := func(text string) {
		t.Helper()
		if _, err := io.WriteString(out, text); err != nil {
			t.Fatal(err)
		}
	}
	write("a warning\n")
	s.WaitForLine("")
	clock.Step(time.Second)
	s.WaitForLine(`Done \x1b[2J\n, 1m5s`)
	write("half ")
	s.WaitForLine("half")
	line.ReplaceText("nothing") // is written into a line that another has begun
	write("a line\n")
	s.WaitForLine("")
	l.BeginStage("Evaluating %s", strings.Repeat("long", 40))
	clock.Step(time.Second)
	s.WaitForLine(("Evaluating " + strings.Repeat("long", 40))[:59])
	l.Close()
	s.WaitForLine("")
	want := []string{"a warning", "half a line", ""}
	if got := s.ListLines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("at the end the screen shows\n%q\nand not\n%q", got, want)
	}
	l.Close()
}

// Where standard error is no terminal, there is no line, and all calls do nothing.
func TestNoLine(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	file, err := os.Create(t.TempDir() + "/stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := screen.Open(t, 80)
	for name, to := range map[string]io.Writer{"a buffer": &bytes.Buffer{}, "a file": file, "a dumb terminal": s.Writer} {
		if name == "a dumb terminal" {
			t.Setenv("TERM", "dumb")
		}
		line := output.NewStatusLine(to)
		l := NewLine(clock, line)
		if l != nil {
			t.Errorf("%s has a line", name)
		}
		if line.GuardWriter(to) != to {
			t.Errorf("%s is guarded", name)
		}
		l.BeginStage("Reading")
		l.Count(1, 2)
		l.Close()
		if clock.HasWaiters() {
			t.Errorf("%s: something waits for the clock", name)
		}
	}
}
