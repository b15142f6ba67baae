// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// kubectl-cleaner, which kubectl runs as `kubectl cleaner`, shows what Cleaners would do, checks them, and tests them
// without a cluster. It decides by the very packages of the operator.
//
// It never deletes or patches what Cleaners clean: of a cluster it changes nothing but spec.suspend and an annotation of
// a Cleaner, when it is told to.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // schedules name time zones, and not every machine has them

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"
)

// What the process ends with.
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

// errReported is a failure of which everything has been said.
var errReported = errors.New("said already")

// tool is what the commands share.
type tool struct {
	clock  clock.PassiveClock
	config *genericclioptions.ConfigFlags
	// colourMode is when there are any.
	colourMode colourMode
	in         input
	out        screen
	err        screen
}

// newTool is one that writes there.
func newTool(c clock.PassiveClock, stdin io.Reader, stdout, stderr io.Writer) *tool {
	t := &tool{clock: c, config: genericclioptions.NewConfigFlags(true), colourMode: colourAuto, in: input{stdin: stdin}}
	t.out, t.err = screen{to: stdout, colourMode: &t.colourMode}, screen{to: stderr, colourMode: &t.colourMode}
	return t
}

// run carries one command out, and says what the process ends with.
func run(ctx context.Context, c clock.PassiveClock, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	t := newTool(c, stdin, stdout, stderr)
	root, err := t.newRootCommand()
	if err != nil {
		t.printError(err)
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
		t.printError(err)
		t.err.printf("See 'kubectl cleaner --help'.\n")
		return exitUsage
	}
	t.printError(err)
	return exitInvalid
}

// printError says why a command failed.
func (t *tool) printError(err error) {
	t.err.printf("%s %s\n", t.err.newPainter().red("error:"), escapeLines(continuationIndent, err.Error()))
}

// newRootCommand makes the command line as a whole.
func (t *tool) newRootCommand() (*cobra.Command, error) {
	root := &cobra.Command{
		Use:   "kubectl-cleaner",
		Short: "Show what Cleaners would do, check them, and test them",
		Long: `Show what Cleaners would do, check them, and test them, with files or with a cluster. Of those in a cluster, say why they
have or have not acted, stop them, and have them evaluated now. What they clean is never touched from here.`,
		Example: `  kubectl cleaner validate -f cleaner.yaml
  kubectl cleaner plan -f cleaner.yaml
  kubectl cleaner explain preview -n default`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl cleaner"},
		Args:          validateArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(t.out.newHelpWriter())
	root.SetErr(t.err.newHelpWriter())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	t.config.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Var(&t.colourMode, "color", "when to use colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	root.AddCommand(t.newPlanCommand(), t.newTestCommand(), t.newValidateCommand(), t.newExplainCommand(), t.newSuspendCommand(true), t.newSuspendCommand(false), t.newRunCommand(),
		t.newVersionCommand(), t.newCompletionCommand())
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Example = "  kubectl cleaner help plan"
		}
	}
	return root, t.registerCompletions(root)
}

// validateArgs makes a mistake in what follows a command one in the command line.
func validateArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
