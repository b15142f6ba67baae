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
	"fmt"
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

// usage is a mistake in the command line.
type usage struct{ error }

// errSaid is a failure of which everything has been said.
var errSaid = errors.New("said already")

// tool is what the commands share.
type tool struct {
	clock  clock.PassiveClock
	config *genericclioptions.ConfigFlags
	in     input
	out    io.Writer
	err    io.Writer
}

// run carries one command out, and says what the process ends with.
func run(ctx context.Context, c clock.PassiveClock, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	t := &tool{clock: c, config: genericclioptions.NewConfigFlags(true), in: input{stdin: stdin}, out: stdout, err: stderr}
	root := &cobra.Command{
		Use:           "kubectl-cleaner",
		Short:         "Show what Cleaners would do, check them, and test them",
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl cleaner"},
		Args:          arguments(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage{err} })
	t.config.AddFlags(root.PersistentFlags())
	root.AddCommand(t.planCommand(), t.testCommand(), t.validateCommand(), t.explainCommand(), t.suspendCommand(true), t.suspendCommand(false), t.runCommand())

	err := root.ExecuteContext(ctx)
	var wrong usage
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSaid):
		return exitInvalid
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "error: %v\nSee 'kubectl cleaner --help'.\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "error: %v\n", err)
	return exitInvalid
}

// arguments makes a mistake in what follows a command one in the command line.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usage{err}
		}
		return nil
	}
}
