// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestMain makes the test binary the program too, for the scripts: with a clock that stands still if they say when.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubectl-cleaner": func() {
		var c clock.WithTicker = clock.RealClock{}
		if now, err := time.Parse(time.RFC3339, os.Getenv("NOW")); err == nil {
			c = clocktesting.NewFakeClock(now)
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // as main does
		code := run(ctx, c, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}})
}

// Each file of testdata is a session: commands, and what they must print. UPDATE=1 writes the files that are compared.
func TestScripts(t *testing.T) {
	samples := t.TempDir() // without the cookbook, which has tests of its own
	files, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(samples, filepath.Base(file)), []byte(contents(t, file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	templates, err := filepath.Abs("../../config/templates")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       os.Getenv("UPDATE") != "",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("NOW", "2026-01-01T00:00:00Z")
			env.Setenv("SAMPLES", samples)
			env.Setenv("TEMPLATES", templates)
			env.Setenv("KUBECONFIG", env.WorkDir+"/no-kubeconfig")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command and wants it to end with a code: "exits 2 kubectl-cleaner plan".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("%s ends with %s, not with %s", strings.Join(args[1:], " "), code, args[0])
	}
}

// The templates that are shipped pass their own cases, each time: none of them rests on the order of a map that has none.
func TestShippedTemplates(t *testing.T) {
	var out strings.Builder
	for range 5 {
		out.Reset()
		if code := run(t.Context(), clock.RealClock{}, []string{"test", "../../config/templates"}, strings.NewReader(""), &out, &out); code != 0 {
			t.Fatal(out.String())
		}
	}
	if got := strings.Count(out.String(), "ok "); got < 16 {
		t.Errorf("only %d cases were found:\n%s", got, out.String())
	}
}
