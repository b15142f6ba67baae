// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/e2e/mistakes"
	"github.com/vtex/cleaner/test/operator"
)

// builds are the operators that tests have built besides the product, by what they are.
var builds struct {
	sync.Mutex
	made map[string]string
}

// faulty builds the operator with the points at which it can be told to crash or to pause; and, if given, with a mistake.
func faulty(t *testing.T, m mistakes.Mistake) string {
	t.Helper()
	if m.File == "" {
		m.Name = ""
	}
	builds.Lock()
	defer builds.Unlock()
	if path, ok := builds.made[m.Name]; ok {
		return path
	}
	dir := filepath.Join(shared.Dir(), "faulty"+m.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	flags := []string{"-tags=faultpoints", "-ldflags=-s -w"}
	if m.File != "" {
		flags = append(flags, "-overlay="+overlay(t, dir, m))
	}
	path, err := operator.Build(t.Context(), dir, os.Stderr, flags...)
	if err != nil {
		t.Fatal(err)
	}
	if builds.made == nil {
		builds.made = map[string]string{}
	}
	builds.made[m.Name] = path
	return path
}

// overlay writes what go build reads in the place of a file. The file itself is left alone.
func overlay(t *testing.T, dir string, m mistakes.Mistake) string {
	t.Helper()
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(root, m.File)
	text, err := m.Make(root)
	if err != nil {
		t.Fatal(err)
	}
	mutated := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lone are the arguments of an operator that nobody competes with: it need not wait for the lease of one that was killed.
func lone() []string { return append(quick(), "--leader-elect=false") }

// doomed runs an operator that is told to crash or to pause, and does not wait until it is ready.
func (l *lab) doomed(binary, order string, args ...string) *operator.Process {
	l.Helper()
	l.processes++
	p, err := operator.Run(l.ctx, l.Cluster, operator.Options{
		Binary: binary, Args: args, Env: []string{order}, Name: fmt.Sprintf("-%d", l.processes), Doomed: true,
	})
	if err != nil {
		l.Fatal(err)
	}
	return p
}

// runs runs an operator that is told nothing.
func (l *lab) runs(binary string, args ...string) *operator.Process {
	l.Helper()
	l.processes++
	p, err := operator.Run(l.ctx, l.Cluster, operator.Options{Binary: binary, Args: args, Name: fmt.Sprintf("-%d", l.processes)})
	if err != nil {
		l.Fatal(err)
	}
	return p
}

// crashesAt runs an operator until it crashes at the n-th pass through a point.
func (l *lab) crashesAt(point string, n int) {
	l.Helper()
	p := l.doomed(faulty(l.T, mistakes.Mistake{}), fmt.Sprintf("CLEANER_CRASH_AT=%s:%d", point, n), lone()...)
	select {
	case <-p.Exited():
		if code := p.ExitCode(); code != 137 {
			l.Fatalf("at %q it ended with %d instead of a crash; its log is %s:\n%s", point, code, p.LogPath, tail(p.LogPath))
		}
	case <-time.After(patience):
		l.Fatalf("%q was not passed %d times; the log is %s:\n%s", point, n, p.LogPath, tail(p.LogPath))
	}
}

// stopsAt runs an operator that pauses at the n-th pass through a point, and returns when it does.
func (l *lab) stopsAt(binary, point string, n int, args ...string) *operator.Process {
	l.Helper()
	p := l.doomed(binary, fmt.Sprintf("CLEANER_STOP_AT=%s:%d", point, n), args...)
	l.eventually(fmt.Sprintf("it pauses at %q", point), func() string {
		select {
		case <-p.Exited():
			l.Fatalf("it ended before; its log is %s:\n%s", p.LogPath, tail(p.LogPath))
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

// deletedOnce checks that each object of a resource whose deletion was granted was deleted once.
func (l *lab) deletedOnce() {
	l.Helper()
	granted := map[string][]cluster.Event{}
	for _, d := range l.deletes() {
		if pre, err := d.Preconditions(); err == nil && pre.UID != nil && d.Code() < 300 {
			granted[string(*pre.UID)] = append(granted[string(*pre.UID)], d)
		}
	}
	for uid, all := range granted {
		if len(all) > 1 {
			l.Errorf("%s was deleted %d times: %v", uid, len(all), all)
		}
	}
}
