// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
)

// commandLine is the command line as users have it.
func commandLine(t *testing.T) *cobra.Command {
	t.Helper()
	root, err := newTool(clock.RealClock{}, strings.NewReader(""), io.Discard, io.Discard).newRootCommand()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// walk calls a function with each command that can be run.
func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	if cmd.Runnable() && !cmd.Hidden {
		f(cmd)
	}
	for _, sub := range cmd.Commands() {
		walk(sub, f)
	}
}

// ours finds the commands of a line of the shell that are this program.
var ours = regexp.MustCompile(`kubectl[ -]cleaner( [^|<>()]*)?`)

// Each command says what it is for, and shows how it is written; what is shown is what it understands. TestLive runs it.
func TestHelp(t *testing.T) {
	seen := 0
	walk(commandLine(t), func(cmd *cobra.Command) {
		seen++
		name := cmd.CommandPath()
		switch {
		case cmd.Short == "" || strings.HasSuffix(cmd.Short, "."):
			t.Errorf("%s: the short help is %q: write a phrase without a full stop", name, cmd.Short)
		case len(cmd.Long) <= len(cmd.Short):
			t.Errorf("%s: the long help is %q", name, cmd.Long)
		}
		shown := false
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimRight(line, "\n")
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q is not indented", name, line)
			}
			for _, m := range ours.FindAllStringSubmatch(line, -1) {
				found := understands(t, strings.Fields(m[1]))
				shown = shown || found == name || cmd.Name() == "help" || !cmd.HasParent()
			}
		}
		if !shown {
			t.Errorf("%s has no example", name)
		}
	})
	if seen < 10 {
		t.Errorf("only %d commands were found", seen)
	}
}

// understands finds the command of a command line, and wants its flags and arguments to be such.
func understands(t *testing.T, args []string) string {
	t.Helper()
	cmd, rest, err := commandLine(t).Find(args)
	if err != nil {
		t.Errorf("%v: %v", args, err)
		return ""
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%v: %v", args, err)
	} else if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("%v: %v", args, err)
	}
	return cmd.CommandPath()
}

func TestWhatFlagsMayBecome(t *testing.T) {
	complete := func(args ...string) string {
		var out strings.Builder
		run(context.WithoutCancel(t.Context()), clock.RealClock{}, append([]string{"__complete"}, args...), strings.NewReader(""), &out, io.Discard)
		return out.String()
	}
	for line, want := range map[string]string{
		"":                       "explain\t",
		"plan -o ":               "table\nyaml\njson\n:4",
		"list -o ":               "table\nyaml\njson\n:4",
		"forecast -o ":           "table\nyaml\njson\nsvg\nhtml\n:4",
		"version -o ":            "text\nyaml\njson\n:4",
		"plan --color ":          "auto\nalways\nnever\n:4",
		"plan -f ":               "yaml\nyml\njson\n:8",
		"plan --at ":             ":4",
		"completion p":           "powershell\n:4",
		"test ":                  ":16",
		"suspend a ":             ":4",
		"validate ":              ":4",
		"version --kubeconfig ":  ":0",
		"suspend --no-such-flag": ":4",
	} {
		if got := complete(strings.Split(line, " ")...); !strings.Contains(got, want) {
			t.Errorf("%q may become %q, which has no %q", line, got, want)
		}
	}
	walk(commandLine(t), func(cmd *cobra.Command) {
		if cmd.HasParent() && cmd.Name() != "help" && cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil {
			t.Errorf("%s completes any file as its argument", cmd.CommandPath())
		}
	})
}

// What is mistyped or missing on the command line is answered with what to write.
func TestCommandLineMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"explian a":       `error: "explian" is not a command: did you mean explain?`,
		"lsit":            `error: "lsit" is not a command: did you mean list?`,
		"uninstall":       `error: "uninstall" is not a command` + "\n",
		"explain":         "error: name a Cleaner, such as 'kubectl cleaner explain NAME -n NAMESPACE'",
		"run":             "error: name a Cleaner, such as 'kubectl cleaner run NAME -n NAMESPACE' or 'kubectl cleaner run clustercleaner/NAME'; 'kubectl cleaner list -A' lists them",
		"explain a b":     "accepts at most 1 arg(s), received 2",
		"ui --port 70000": "--port 70000 is not a port: write a number from 0 to 65535",
		"list -o wide":    "-o wide is not an output format: write table, yaml or json",
		"list something":  "unknown command",
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), clock.RealClock{}, strings.Fields(line), strings.NewReader(""), &out, &errs); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: code %d, and it says %s%s", line, code, out.String(), errs.String())
		}
	}
}

// The help of a command shows its own flags, and the help of the program groups the commands and has the flags that all share.
func TestHelpIsGrouped(t *testing.T) {
	help := func(args ...string) string {
		var out strings.Builder
		run(t.Context(), clock.RealClock{}, append(args, "--help"), strings.NewReader(""), &out, io.Discard)
		return out.String()
	}
	if got := help("suspend"); strings.Contains(got, "--certificate-authority") || !strings.Contains(got, "--selector") || !strings.Contains(got, `"kubectl cleaner --help" lists the flags that all commands share`) {
		t.Errorf("the help of suspend is\n%s", got)
	}
	got := help()
	if strings.Contains(got, "Additional Commands") || !strings.Contains(got, "--certificate-authority") {
		t.Errorf("the help is\n%s", got)
	}
	at := 0
	for _, g := range commandGroups() {
		next := strings.Index(got, g.Title)
		if next < at {
			t.Errorf("%q is not where it belongs in\n%s", g.Title, got)
		}
		at = next
	}
}
