// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/vtex/cleaner/test/e2e/mistakes"
	"github.com/vtex/cleaner/test/operator"
)

// lone are the arguments of an operator that nobody competes with: it need not wait until the Lease of one that was killed expires.
func lone() []string { return append(quick(), "--leader-elect=false") }

// operators are those that a test itself runs, beside or instead of the shared one.
type operators struct {
	l       *lab
	started int // how many of them
}

// doomed runs an operator that is told to crash or to pause, and does not wait until it is ready.
func (o *operators) doomed(binary, order string, args ...string) *operator.Process {
	o.l.Helper()
	o.started++
	p, err := operator.Run(o.l.ctx, o.l.Cluster, operator.Options{
		Binary: binary, Args: args, Env: []string{order}, Name: fmt.Sprintf("-%d", o.started), Doomed: true,
	})
	if err != nil {
		o.l.Fatal(err)
	}
	return p
}

// run runs an operator that is told nothing.
func (o *operators) run(binary string, args ...string) *operator.Process {
	o.l.Helper()
	o.started++
	p, err := operator.Run(o.l.ctx, o.l.Cluster, operator.Options{Binary: binary, Args: args, Name: fmt.Sprintf("-%d", o.started)})
	if err != nil {
		o.l.Fatal(err)
	}
	return p
}

// crashesAt runs an operator until it crashes at the n-th pass through a point.
func (o *operators) crashesAt(point string, n int) {
	o.l.Helper()
	p := o.doomed(faulty(o.l.T, mistakes.Mistake{}), fmt.Sprintf("CLEANER_CRASH_AT=%s:%d", point, n), lone()...)
	select {
	case <-p.Exited():
		if code := p.ExitCode(); code != 137 {
			o.l.Fatalf("at %q it ended with %d instead of a crash; its log is %s:\n%s", point, code, p.LogPath, tail(p.LogPath))
		}
	case <-time.After(patience):
		o.l.Fatalf("%q was not passed %d times; the log is %s:\n%s", point, n, p.LogPath, tail(p.LogPath))
	}
}

// stopsAt runs an operator that pauses at the n-th pass through a point, and returns when it does.
func (o *operators) stopsAt(binary, point string, n int, args ...string) *operator.Process {
	o.l.Helper()
	p := o.doomed(binary, fmt.Sprintf("CLEANER_STOP_AT=%s:%d", point, n), args...)
	o.l.eventually(fmt.Sprintf("it pauses at %q", point), func() string {
		select {
		case <-p.Exited():
			o.l.Fatalf("it ended before; its log is %s:\n%s", p.LogPath, tail(p.LogPath))
		default:
		}
		if text := tail(p.LogPath); !strings.Contains(text, "pauses at "+point) {
			return "it runs; its log:\n" + text
		}
		return ""
	})
	return p
}

// tail is the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// owner is the identity of the process that owns the Cleaners of the test; empty if none does.
func (o *operators) owner() string {
	o.l.Helper()
	owner, err := operator.FindOwner(o.l.ctx, o.l, o.l.ns)
	if err != nil {
		o.l.Fatal(err)
	}
	return owner
}

// countShards counts the shards of each process that owns some.
func (o *operators) countShards() map[string]int {
	o.l.Helper()
	owners, err := operator.ListOwners(o.l.ctx, o.l)
	if err != nil {
		o.l.Fatal(err)
	}
	out := map[string]int{}
	for _, owner := range owners {
		out[owner]++
	}
	return out
}

// owned waits until a process owns the Cleaners of the test, and returns its identity.
func (o *operators) owned() string {
	o.l.Helper()
	owner := ""
	o.l.eventually("a process owns the Cleaners", func() string {
		if owner = o.owner(); owner == "" {
			return "none does"
		}
		return ""
	})
	return owner
}

// follows waits until another process owns the Cleaners of the test.
func (o *operators) follows(before string) {
	o.l.Helper()
	o.l.eventually("another process owns the Cleaners", func() string {
		if now := o.owner(); now == before || now == "" {
			return fmt.Sprintf("the owner is %q", now)
		}
		return ""
	})
}

// givesUp waits until a process that was paused notices that it owns nothing.
func (o *operators) givesUp(p *operator.Process) {
	o.l.Helper()
	o.l.eventually("it owns nothing", func() string {
		text, err := os.ReadFile(p.LogPath)
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(string(text), `"owned":0,`) {
			return "it does not say so; its log:\n" + tail(p.LogPath)
		}
		return ""
	})
}
