// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/e2e/mistakes"
	"github.com/vtex/cleaner/test/operator"
)

// lone are the arguments of an operator that nobody competes with: it need not wait for the lease of one that was killed.
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

// leader is the identity of the process that leads.
func (o *operators) leader() string {
	o.l.Helper()
	leases := &unstructured.UnstructuredList{}
	leases.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("LeaseList"))
	if err := o.l.List(o.l.ctx, leases, client.InNamespace(operator.Namespace)); err != nil {
		o.l.Fatal(err)
	}
	if len(leases.Items) != 1 {
		o.l.Fatalf("%d Leases in %s, want 1", len(leases.Items), operator.Namespace)
	}
	holder, _, err := unstructured.NestedString(leases.Items[0].Object, "spec", "holderIdentity")
	if err != nil {
		o.l.Fatal(err)
	}
	return holder
}

// follows waits until somebody else leads.
func (o *operators) follows(leader string) {
	o.l.Helper()
	o.l.eventually("another process leads", func() string {
		if now := o.leader(); now == leader || now == "" {
			return fmt.Sprintf("the leader is %q", now)
		}
		return ""
	})
}

// ends waits until a process has ended by itself.
func (o *operators) ends(p *operator.Process) {
	o.l.Helper()
	select {
	case <-p.Exited():
	case <-time.After(patience):
		o.l.Fatalf("it runs, although it does not lead any more; its log:\n%s", tail(p.LogPath))
	}
	if p.ExitCode() == 0 {
		o.l.Errorf("a process that lost the leadership ended as if nothing had happened; its log:\n%s", tail(p.LogPath))
	}
}
