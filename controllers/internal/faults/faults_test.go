// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package faults

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// buildPasses builds a program that passes the points that its arguments say. It is a package for the time of the build only: no
// program but the operator may have points.
func buildPasses(t *testing.T, flags ...string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "passes", "main.go"): filepath.Join(here, "testdata", "passes.go.txt")}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, list := filepath.Join(dir, "passes"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(append([]string{"build", "-overlay=" + list}, flags...), "-o", path, "./passes")
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %s\n%s", strings.Join(args, " "), err, out)
	}
	return path
}

// A program with the build tag ends at the pass that it is told to, as kill -9 would end it, and nowhere else.
func TestCrash(t *testing.T) {
	path := buildPasses(t, "-tags=faultpoints")
	for name, tc := range map[string]struct {
		order, points string
		status        int
		said          string
	}{
		"Nothing":      {"", "a b", 0, "passed a,passed b,ended"},
		"First":        {"a:1", "a b", 137, ""},
		"Second":       {"a:2", "a b a b", 137, "passed a,passed b"},
		"OthersCount":  {"b:1", "a a b", 137, "passed a,passed a"},
		"TooFew":       {"a:3", "a b a b", 0, "passed a,passed b,passed a,passed b,ended"},
		"Unheard":      {"c:1", "a", 0, "passed a,ended"},
		"NoPass":       {"a", "a", 0, "passed a,ended"},
		"NoNumber":     {"a:x", "a", 0, "passed a,ended"},
		"Before":       {"before delete:1", "request:delete", 137, ""},
		"After":        {"after delete:1", "request:delete", 137, "did delete"},
		"AfterAnother": {"after delete:1", "request:write request:delete", 137, "did write,did delete"},
		"NamedAlike":   {"delete:1", "request:delete", 0, "did delete,ended"},
	} {
		t.Run(name, func(t *testing.T) {
			program := exec.CommandContext(t.Context(), path, strings.Fields(tc.points)...)
			program.Env = append(os.Environ(), "CLEANER_CRASH_AT="+tc.order)
			out, err := program.Output()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			said := strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), ",")
			if status := program.ProcessState.ExitCode(); status != tc.status || said != tc.said {
				t.Errorf("it ends with %d and has said %q, want %d and %q", status, said, tc.status, tc.said)
			}
		})
	}
}

// A program that is told to pause stops as a whole, and goes on where it was when it is told to.
func TestPause(t *testing.T) {
	program := exec.CommandContext(t.Context(), buildPasses(t, "-tags=faultpoints"), "a", "request:write", "b")
	program.Env = append(os.Environ(), "CLEANER_STOP_AT=before write:1")
	var out bytes.Buffer
	program.Stdout = &out
	said, err := program.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "pauses at before write\n" {
		t.Errorf("it says %q: %v", line, err)
	}
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(program.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || pid != program.Process.Pid || !status.Stopped() || status.StopSignal() != syscall.SIGSTOP {
		t.Errorf("it is not stopped: %v, %v", status, err)
	}
	if err := program.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil || out.String() != "passed a\ndid write\npassed b\nended\n" {
		t.Errorf("it says %q: %v", out.String(), err)
	}
}

// The product, which is built without the tag, cannot be told to crash.
func TestTheProductCannotBeToldToCrash(t *testing.T) {
	path := buildPasses(t)
	program := exec.CommandContext(t.Context(), path, "a", "request:delete")
	program.Env = append(os.Environ(), "CLEANER_CRASH_AT=a:1", "CLEANER_STOP_AT=before delete:1")
	if out, err := program.CombinedOutput(); err != nil || string(out) != "passed a\ndid delete\nended\n" {
		t.Errorf("it says %q: %v", out, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{"CLEANER_CRASH_AT", "CLEANER_STOP_AT"} {
		if bytes.Contains(text, []byte(variable)) {
			t.Errorf("the program knows %s", variable)
		}
	}
}
