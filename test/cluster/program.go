// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"syscall"
)

// Program is a process that runs beside the control plane: an operator, say. Like the control plane's own processes it
// ends when Stop is called, and when this process ends, however that happens.
type Program struct{ p *process }

// ProgramOptions say what to run.
type ProgramOptions struct {
	Name, Path string
	Args, Env  []string
	// LogPath takes its output, appended.
	LogPath string
	// Ready is a URL that answers 200 when the program is ready. Without one it is not waited for.
	Ready string
}

// Run starts a program and returns when it is ready.
func (c *Cluster) Run(ctx context.Context, o ProgramOptions) (*Program, error) {
	p := &process{name: Component(o.Name), path: o.Path, args: o.Args, env: o.Env, logPath: o.LogPath, ready: o.Ready}
	return c.run(ctx, p, http.DefaultClient)
}

// run starts a program, and waits until it says to the client that it is ready.
func (c *Cluster) run(ctx context.Context, p *process, client *http.Client) (*Program, error) {
	if err := c.add(p); err != nil {
		return nil, err
	}
	if p.ready == "" {
		return &Program{p}, nil
	}
	if err := p.waitReady(ctx, client); err != nil {
		_ = p.kill() // the first error tells more
		return nil, err
	}
	return &Program{p}, nil
}

// Kill ends the program by SIGKILL, and returns when it is gone.
func (p *Program) Kill() error { return p.p.kill() }

// PID is its number among the processes of this machine.
func (p *Program) PID() int { return p.p.cmd.Process.Pid }

// Signal sends it a signal.
func (p *Program) Signal(sig syscall.Signal) error { return p.p.signal(sig) }

// Exited is closed when the program is gone.
func (p *Program) Exited() <-chan struct{} { return p.p.exited }

// ExitCode is how a program that is gone has ended; -1 if by a signal.
func (p *Program) ExitCode() int { return p.p.cmd.ProcessState.ExitCode() }
