// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	// testTimeout is how long the tests of one package may take: the first ones build a control plane.
	testTimeout = "40m"
	// stopGrace is how long tests that were interrupted may clean up.
	stopGrace = 10 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs go test with these arguments, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-timeout", testTimeout}, args...)...)
	cmd.Stderr = stderr
	// A process group of their own: so that go test, the test programs and what they started can be ended together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace

	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(stderr, "cannot run go test: %v\n", err)
		return 1
	}

	s := newSummary(stdout)
	readErr := s.read(events)
	waitErr := cmd.Wait()
	// Nothing of the group may outlive go test; usually there is nothing left.
	killErr := signalGroup(cmd.Process.Pid, syscall.SIGKILL)

	if err := errors.Join(readErr, unlessExited(waitErr), killErr, context.Cause(ctx)); err != nil {
		fmt.Fprintf(stderr, "cannot run go test to its end: %v\n", err)
	}
	s.finish()
	if errors.Join(readErr, waitErr, killErr) != nil || s.failed > 0 {
		return 1
	}
	return 0
}

// unlessExited drops the error of a program that exited by itself: go test has already said what was wrong.
func unlessExited(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return nil
	}
	return err
}

// signalGroup sends a signal to a process group. That it is gone is no error.
func signalGroup(id int, sig syscall.Signal) error {
	if err := syscall.Kill(-id, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot send %s to the processes of the tests: %w", sig, err)
	}
	return nil
}
