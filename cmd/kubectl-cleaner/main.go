// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-cleaner is the kubectl plugin `kubectl cleaner`. It plans, validates and tests Cleaners, with or without a
// cluster, and decides with the operator's own packages.
//
// It never deletes or patches what Cleaners clean up. In a cluster it changes only spec.suspend and one annotation of a
// Cleaner, and only when told to.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // schedules name time zones, and not every machine has them

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/progress"
)

// The exit codes of failures.
const (
	exitInvalid = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, clock.RealClock{}, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is a mistake in the command line.
type usageError struct{ error }

// errReported is a failure that the command has already printed.
var errReported = errors.New("already reported")

// terminal is the input and output of a command.
type terminal struct {
	in  manifests.Input
	out output.Screen
	err output.Screen
	// progress is shown on standard error while a command takes long; nil: nowhere.
	progress *progress.Line
}

// printProblem prints a problem of a file.
func (t terminal) printProblem(p manifests.Problem) {
	t.err.Printf("%s\n", p.FormatWith(t.err.NewPainter()))
}

// printWarning prints an error that does not stop the command.
func (t terminal) printWarning(err error) {
	t.err.Printf("%s %s\n", t.err.NewPainter().Yellow("warning:"), output.EscapeLines(output.ContinuationIndent, err.Error()))
}

// printError prints why a command failed.
func (t terminal) printError(err error) {
	t.err.Printf("%s %s\n", t.err.NewPainter().Red("error:"), output.EscapeLines(output.ContinuationIndent, err.Error()))
}

// tool is the program: what its commands share.
type tool struct {
	clock    clock.WithTicker
	terminal terminal
	cluster  kubeconfig
	// colourMode says when output has colours.
	colourMode output.ColourMode
}

// newTool returns a tool with this clock, input and output.
func newTool(c clock.WithTicker, stdin io.Reader, stdout, stderr io.Writer) *tool {
	t := &tool{clock: c, colourMode: output.ColourAuto}
	line := output.NewStatusLine(stderr)
	out := output.Screen{To: line.GuardWriter(stdout), ColourMode: &t.colourMode}
	err := output.Screen{To: line.GuardWriter(stderr), ColourMode: &t.colourMode}
	t.terminal = terminal{in: manifests.Input{Stdin: stdin}, out: out, err: err, progress: progress.NewLine(c, line)}
	t.cluster = kubeconfig{flags: genericclioptions.NewConfigFlags(true), warnings: err}
	return t
}

// run runs one command and returns the exit code.
func run(ctx context.Context, c clock.WithTicker, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	t := newTool(c, stdin, stdout, stderr)
	defer t.terminal.progress.Close()
	root, err := t.newRootCommand()
	if err != nil {
		t.terminal.printError(err)
		return exitInvalid
	}
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	var wrong usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return exitInvalid
	case errors.As(err, &wrong):
		t.terminal.printError(err)
		t.terminal.err.Printf("See 'kubectl cleaner --help'.\n")
		return exitUsage
	}
	t.terminal.printError(err)
	return exitInvalid
}

// newRootCommand returns the root command with all its subcommands.
func (t *tool) newRootCommand() (*cobra.Command, error) {
	root := &cobra.Command{
		Use:   "kubectl-cleaner",
		Short: "Plan, validate, test and explain Cleaners",
		Long: `Show what Cleaners would do, validate them and test them, with files or with a cluster. Explain why Cleaners in a cluster
have or have not acted, suspend and resume them, or evaluate them now. No command deletes or changes the objects that Cleaners act on.`,
		Example: `  kubectl cleaner validate -f cleaner.yaml
  kubectl cleaner plan -f cleaner.yaml
  kubectl cleaner explain preview -n default`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl cleaner"},
		Args:          validateArgs(checkCommand),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, g := range commandGroups() {
		root.AddGroup(&g.Group)
	}
	root.SetUsageTemplate(newUsageTemplate(root))
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(t.terminal.out.NewHelpWriter())
	root.SetErr(t.terminal.err.NewHelpWriter())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	t.cluster.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Var(&t.colourMode, "color", "when to use colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	out := t.terminal.out
	change := changeCommand{out: out, cluster: t.cluster, clock: t.clock}
	root.AddCommand(
		(&planCommand{terminal: t.terminal, cluster: t.cluster, clock: t.clock}).newCommand(),
		newForecastCommand(t),
		(&testCommand{terminal: t.terminal, clock: t.clock}).newCommand(),
		(&validateCommand{terminal: t.terminal, cluster: t.cluster}).newCommand(),
		newExplainCommand(t),
		(&rightsCommand{terminal: t.terminal, cluster: t.cluster}).newCommand(),
		(&listCommand{out: out, cluster: t.cluster, clock: t.clock}).newCommand(),
		change.newSuspendCommand(true), change.newSuspendCommand(false), change.newRunCommand(),
		(&uiCommand{out: out, cluster: t.cluster}).newCommand(),
		(&versionCommand{out: out, cluster: t.cluster}).newCommand(),
		completionCommand{out: out}.newCommand(),
	)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		cmd.GroupID = groupOf(cmd.Name())
		if cmd.Name() == "help" {
			cmd.Example = "  kubectl cleaner help plan"
		}
	}
	return root, flagCompletions{cluster: t.cluster}.registerAll(root)
}

// commandGroup is a part of the list of commands in the help.
type commandGroup struct {
	cobra.Group
	names []string
}

// commandGroups are those of the help, in their order.
func commandGroups() []commandGroup {
	return []commandGroup{
		{cobra.Group{ID: "write", Title: "Write Cleaners:"}, []string{"plan", "rights", "test", "validate"}},
		{cobra.Group{ID: "cluster", Title: "Look after Cleaners in a cluster:"}, []string{"explain", "forecast", "list", "resume", "run", "suspend", "ui"}},
		{cobra.Group{ID: "other", Title: "Other commands:"}, nil},
	}
}

// groupOf is the group of a command.
func groupOf(name string) string {
	for _, g := range commandGroups() {
		if slices.Contains(g.names, name) {
			return g.ID
		}
	}
	return "other"
}

// newUsageTemplate returns the template of help without the flags that all commands share: there are so many that they would hide those of the
// command.
func newUsageTemplate(root *cobra.Command) string {
	begin, end := "{{if .HasAvailableInheritedFlags}}", "{{if .HasHelpSubCommands}}"
	before, rest, _ := strings.Cut(root.UsageTemplate(), begin)
	_, after, _ := strings.Cut(rest, end)
	return before + begin + `

"kubectl cleaner --help" lists the flags that all commands share, such as -n and --context.{{end}}` + end + after
}

// checkCommand refuses a command that does not exist, and says which may be meant.
func checkCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	meant := ""
	if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
		meant = ": did you mean " + strings.Join(names, " or ") + "?"
	}
	return fmt.Errorf("%q is not a command%s", args[0], meant)
}

// oneCleaner wants the name of one Cleaner.
func oneCleaner(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name a Cleaner, such as 'kubectl cleaner %s NAME -n NAMESPACE' or 'kubectl cleaner %[1]s clustercleaner/NAME'; 'kubectl cleaner list -A' lists them", cmd.Name())
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// validateArgs turns errors of a check of arguments into usage errors.
func validateArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
