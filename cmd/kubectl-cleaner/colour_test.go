// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
)

// program is this program as a file: the test binary under its name.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubectl-cleaner")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*m")

// There are colours on a terminal and nowhere else, unless somebody says otherwise; and but for them it is the same text.
func TestColoursOnTerminalsOnly(t *testing.T) {
	const objects = `{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "web", "uid": "1", "resourceVersion": "1"}, "status": {"phase": "Failed"}},
		{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "with-a-longer-name", "namespace": "web", "uid": "2", "resourceVersion": "1"}, "status": {"phase": "Failed"}},
		{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c", "namespace": "web", "uid": "3", "resourceVersion": "1"}}]}`
	const cleaner = `apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: failed, namespace: web}
spec:
  lifecycle: Recurring
  targets: [{name: pods, reference: {version: v1, kind: Pod}}]
  rules: [{name: failed, forEach: pods.items, when: item.status.phase == "Failed" && item.metadata.labels.a != "b", actions: [{delete: {}}]},
    {name: all, forEach: pods.items, when: item.status.phase == "Failed", actions: [{report: {}}]}]
`
	dir, binary := t.TempDir(), program(t)
	for name, text := range map[string]string{"objects.json": objects, "cleaner.yaml": cleaner} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(more ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"plan", "-f", "cleaner.yaml", "--objects", "objects.json"}, more...)...)
		cmd.Dir, cmd.Env = dir, []string{"TERM=xterm", "NOW=2026-01-01T00:00:00Z"}
		return cmd
	}
	piped := func(cmd *exec.Cmd) string {
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	plain := piped(command())
	if escape.MatchString(plain) || !strings.Contains(plain, "warning:") || !strings.Contains(plain, "STEP") || !strings.Contains(plain, "ERROR") {
		t.Fatalf("into a pipe it writes:\n%q", plain)
	}
	cases := map[string]struct {
		piped, colours bool
		env, args      []string
	}{
		"a terminal":              {colours: true},
		"NO_COLOR":                {env: []string{"NO_COLOR=1"}},
		"NO_COLOR that is empty":  {env: []string{"NO_COLOR="}, colours: true},
		"a dumb terminal":         {env: []string{"TERM=dumb"}},
		"never":                   {args: []string{"--color=never"}},
		"always, whatever is set": {env: []string{"NO_COLOR=1"}, args: []string{"--color=always"}, colours: true},
		"always into a pipe":      {piped: true, args: []string{"--color=always"}, colours: true},
		"YAML on a terminal":      {args: []string{"-o", "yaml"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := command(tc.args...)
			cmd.Env = append(cmd.Env, tc.env...)
			var got string
			if tc.piped {
				got = piped(cmd)
			} else {
				got = onTerminal(t, cmd)
			}
			if escape.MatchString(got) != tc.colours {
				t.Errorf("it writes:\n%q", got)
			}
			if len(tc.args) > 0 && tc.args[0] == "-o" {
				return
			}
			if diff := cmp.Diff(plain, escape.ReplaceAllString(got, "")); diff != "" {
				t.Errorf("but for the colours it differs from what is written into a pipe (-pipe +terminal):\n%s", diff)
			}
		})
	}
}

// onTerminal runs a program on a terminal of its own, and returns what it writes there.
func onTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	out, err := io.ReadAll(terminal)
	if err != nil && !errors.Is(err, syscall.EIO) { // which is how Linux says that nobody writes there any more
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}
