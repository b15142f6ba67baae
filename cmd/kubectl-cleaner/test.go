// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/cmd/internal/protectedkinds"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/casetest"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// testFlags are the flags of `test`.
type testFlags struct {
	update       bool
	junit        string
	templates    []string
	crds         []string
	allowedKinds []string
}

// testCommand is `test`.
type testCommand struct {
	terminal terminal
	clock    clock.PassiveClock
	flags    testFlags
}

func (t *testCommand) newCommand() *cobra.Command {
	f := &t.flags
	cmd := &cobra.Command{
		Use:   "test DIR ...",
		Short: "Compare the plans of Cleaners with expected plans",
		Long: `Compare the plans of Cleaners with expected plans. Each folder below DIR that has an objects.yaml is a case:

  cleaner.yaml  the Cleaner or ClusterCleaner, and optionally templates;
                by default, the one in the nearest parent folder
  objects.yaml  the objects of the cluster
  plan.yaml     the expected verdict, reason, steps, withheld, pending, next and errors; --update writes it
  patch.yaml    optional: what differs in the Cleaner of this case, as a JSON merge patch
  at            optional: the time of the decision (default: 2026-01-01T00:00:00Z); a second line is the time at which
                the timers of ` + "`for`" + ` started
  allow-protected-kinds
                optional: protected resources that may be deleted in this case, one on each line, in addition to
                those of the flag

The command refuses symbolic links below DIR. If a rule patches an object before another action, the command also checks
that the rule still wants the other action on the patched object: the operator can stop in between, and then decides
again.`,
		Example: `  kubectl cleaner test config/templates
  kubectl cleaner test --update my-template/testdata`,
		Args:              validateArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeFolders,
		RunE:              func(cmd *cobra.Command, args []string) error { return t.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.update, "update", false, "write each plan.yaml instead of comparing with it")
	flags.StringVar(&f.junit, "junit", "", "file to write the results to, in the format of JUnit")
	flags.StringArrayVar(&f.templates, "templates", nil, "file or folder with CleanerTemplates, in addition to those that are shipped; may be repeated")
	flags.StringArrayVar(&f.crds, "crds", nil, "file or folder with CustomResourceDefinitions; may be repeated")
	flags.Var(protectedkinds.NewValue(&f.allowedKinds), "allow-protected-kinds", "protected resources that may be deleted, as in the operator's flag of this name")
	return cmd
}

func (t *testCommand) run(ctx context.Context, dirs []string) error {
	var folders []*manifests.Folder
	for _, dir := range dirs {
		f, err := manifests.OpenFolder(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		folders = append(folders, f)
	}
	cases, err := casetest.FindCases(folders)
	if err != nil {
		return err
	}
	l, err := manifests.NewLoader()
	if err != nil {
		return err
	}
	l.AllowedKinds = t.flags.allowedKinds
	templates, err := t.terminal.in.ReadPaths(t.flags.templates)
	if err != nil {
		return err
	}
	if err := manifests.JoinErrors(l.AddTemplates(ctx, templates)); err != nil {
		return err
	}
	runner := casetest.Runner{Loader: l, Update: t.flags.update}
	if runner.CRDs, err = t.terminal.in.ReadPaths(t.flags.crds); err != nil {
		return err
	}
	var results []casetest.Result
	failed, p := 0, t.terminal.out.NewPainter()
	t.terminal.progress.BeginStage("Running cases")
	for i, of := range cases {
		t.terminal.progress.Count(i, len(cases))
		began := t.clock.Now()
		r := casetest.Result{Name: filepath.ToSlash(of.DisplayDir()), Failure: runner.RunCase(ctx, of)}
		r.Duration = t.clock.Since(began)
		results = append(results, r)
		if r.Failure != nil {
			failed++
			t.terminal.out.Printf("%s %s\n    %s\n", p.Red("FAIL"), r.Name, output.EscapeLines("    ", r.Failure.Error()))
			continue
		}
		t.terminal.out.Printf("%s   %s\n", p.Green("ok"), r.Name)
	}
	if t.flags.junit != "" {
		if err := casetest.WriteJUnit(t.flags.junit, results); err != nil {
			return err
		}
	}
	if failed > 0 {
		t.terminal.out.Printf("%s\n", p.Red(fmt.Sprintf("%d of %s failed", failed, formatCaseCount(len(results)))))
		return errReported
	}
	t.terminal.out.Printf("%s\n", p.Green(formatCaseCount(len(results))+" passed"))
	return nil
}

// formatCaseCount returns a number with the word for cases.
func formatCaseCount(n int) string {
	if n == 1 {
		return "1 case"
	}
	return fmt.Sprintf("%d cases", n)
}
