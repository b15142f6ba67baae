// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// patience is how many times longer than without a mutant tests may take, beside a leeway.
	patience = 4
	// memory is how many bytes a program may take: a mutant that appends forever would take all there are.
	memory = 6 << 30
)

// fate is what became of a mutant.
type fate string

const (
	caught  fate = "caught"
	late    fate = "caught by the time limit"
	lived   fate = "LIVED"
	unbuilt fate = "does not compile with the tests"
)

// result is the fate of a mutant.
type result struct {
	*mutant
	fate fate
	by   string // the test that failed first
}

// nursery runs tests.
type nursery struct {
	root     string // folder of the module
	rooms    map[string]room
	parallel int
	leeway   time.Duration
	took     map[string]time.Duration // of a package's tests, without a mutant
}

// boundMemory bounds the memory of each program that is started from now on.
func boundMemory() error {
	limit := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_DATA, &limit); err != nil {
		return err
	}
	limit.Cur = min(memory, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &limit)
}

// check runs the tests without a mutant: what fails now would seem to catch all of them.
func (n *nursery) check(ctx context.Context, packages []*code) error {
	n.took = map[string]time.Duration{}
	for _, c := range packages {
		for _, path := range append([]string{c.Path}, c.Tests...) {
			if _, ran := n.took[path]; ran {
				continue
			}
			begun := time.Now()
			out, err := n.test(ctx, path, 30*time.Minute, "-count=1")
			if err != nil {
				return fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", path, err, out)
			}
			n.took[path] = time.Since(begun)
		}
	}
	return nil
}

// test runs the tests of a package that need no control plane.
func (n *nursery) test(ctx context.Context, path string, timeout time.Duration, args ...string) (string, error) {
	args = append([]string{"test", "-short", "-vet=off", "-failfast", "-timeout=" + timeout.String()}, args...)
	if skip := n.rooms[path].Skip; skip != "" {
		args = append(args, "-skip="+skip)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+path)...)
	cmd.Dir = n.root
	// The test program goes with go test, however that ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// plant runs the tests of each mutant, some at a time, and says what became of it as soon as it is known.
func (n *nursery) plant(ctx context.Context, mutants []*mutant, tell func(result)) ([]result, error) {
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()

	results, failures := make([]result, len(mutants)), make([]error, len(mutants))
	next, mu, group := make(chan int), sync.Mutex{}, sync.WaitGroup{}
	for range n.parallel {
		group.Go(func() {
			for i := range next {
				results[i], failures[i] = n.try(ctx, mutants[i], filepath.Join(scratch, fmt.Sprint(i)))
				if failures[i] == nil {
					mu.Lock()
					tell(results[i])
					mu.Unlock()
				}
			}
		})
	}
	for i := range mutants {
		next <- i
	}
	close(next)
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return results, errors.Join(failures...)
}

// try finds out what becomes of one mutant. What it writes has names that begin with scratch.
func (n *nursery) try(ctx context.Context, m *mutant, scratch string) (result, error) {
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {m.file.absolute: scratch + ".go"}})
	if err == nil {
		err = errors.Join(os.WriteFile(scratch+".go", m.source(), 0o600), os.WriteFile(scratch+".json", overlay, 0o600))
	}
	if err != nil {
		return result{}, err
	}
	for _, path := range append([]string{m.code.Path}, m.code.Tests...) {
		out, err := n.test(ctx, path, patience*n.took[path]+n.leeway, "-overlay="+scratch+".json")
		exit := &exec.ExitError{}
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return result{}, ctx.Err()
		case !errors.As(err, &exit):
			return result{}, fmt.Errorf("%s: %w", m, err)
		}
		return judge(m, out), nil
	}
	return result{mutant: m, fate: lived}, nil
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// judge says what the output of tests that failed means.
func judge(m *mutant, out string) result {
	switch {
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return result{mutant: m, fate: unbuilt}
	case strings.Contains(out, "panic: test timed out after"):
		return result{mutant: m, fate: late}
	}
	by := "the program ended"
	if test := failed.FindStringSubmatch(out); test != nil {
		by = test[1]
	}
	return result{mutant: m, fate: caught, by: by}
}
