// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Component is one process of the control plane. Its value is the name of the program.
type Component string

// The processes of a control plane, in the order in which they start.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
)

// readyTimeout is how long a process may take until it answers that it is ready; a busy machine with two cores takes 10 s.
const readyTimeout = 2 * time.Minute

// process is one component: how to run it, and the run of the moment.
type process struct {
	name    Component
	path    string
	args    []string
	env     []string // besides this process's own
	logPath string
	ready   string // a URL that answers 200 when the component is ready

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone and reaped
}

// start runs the process on the given thread. Its output is appended to the log file.
func (p *process) start(on *thread) error {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the log of %s: %w", p.name, err)
	}
	defer log.Close() // the child has its own copy

	cmd := exec.Command(p.path, p.args...) //nolint:noctx // it outlives the context of Start; Stop ends it
	cmd.Dir = filepath.Dir(p.logPath)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = childAttributes()
	if err := on.do(cmd.Start); err != nil {
		return fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(exited)
	}()
	return nil
}

// waitReady returns when the component answers that it is ready. The error of one that does not shows the end of its log.
func (p *process) waitReady(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var last error
	for {
		if last = probe(ctx, client, p.ready); last == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("cannot start %s: it ended with %s; the end of %s:\n%s", p.name, p.cmd.ProcessState, p.logPath, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("cannot start %s: %w before it was ready (last answer: %w); the end of %s:\n%s", p.name, ctx.Err(), last, p.logPath, p.logTail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// kill ends the process and returns when it is gone. SIGKILL, because it also ends a process that a test has paused, and because no test
// needs what an orderly shutdown would save.
func (p *process) kill() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot kill %s: %w", p.name, err)
	}
	<-p.exited
	return nil
}

func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("cannot send %q to %s: %w", sig, p.name, err)
	}
	return nil
}

func (p *process) logTail() []byte {
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return []byte(err.Error())
	}
	return lastLines(text, 20)
}

// probe asks a health endpoint once.
func probe(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only to say more
		return fmt.Errorf("%s answered %s: %s", url, resp.Status, body)
	}
	return nil
}

// thread runs functions on one OS thread for as long as it is open.
//
// Children are to die with this process however it ends, also by SIGKILL, which only the kernel can see to. Linux' "parent
// death signal", however, is sent when the *thread* that started the child ends, and the Go runtime ends and reuses
// threads as it likes: a child started from an ordinary goroutine may be killed at any time. So children are started from a
// goroutine that is locked to a thread, which keeps that thread alive until the children are gone.
type thread struct{ calls chan func() }

func newThread() *thread {
	t := &thread{calls: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for call := range t.calls {
			call()
		}
	}()
	return t
}

func (t *thread) do(f func() error) error {
	result := make(chan error)
	t.calls <- func() { result <- f() }
	return <-result
}

func (t *thread) close() { close(t.calls) }

// given counts the ports that FindFreePorts has looked at, so that control planes which this process starts at the same time
// do not get the same.
var given atomic.Int64 //nolint:gochecknoglobals // ports belong to the process, or rather to the machine

// FindFreePorts returns n ports of the loopback address that are free.
//
// They lie below those that systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere): a server that comes back after a
// crash could find such a port taken by any connection that was made in the meantime.
func FindFreePorts(n int) ([]int, error) {
	const first, count = 20000, 10000
	start := os.Getpid() * 64 // so that processes which look at the same time look in different places
	var ports []int
	var taken error
	for range count {
		port := first + (start+int(given.Add(1)))%count
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			taken = err
			continue
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("cannot give port %d back: %w", port, err)
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("cannot find %d free ports: %w", n, taken)
}
