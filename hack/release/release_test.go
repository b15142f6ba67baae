// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testVersion = "0.1.2-test"
	testCommit  = "0123456789abcdef0123456789abcdef01234567"
)

// host is what tests build for in earnest: what they need is compiled already.
func host() platform { return platform{runtime.GOOS, runtime.GOARCH} }

// testBuilder builds without -trimpath, so that what other tests have compiled need not be compiled again.
func testBuilder() *builder {
	return &builder{root: "../..", version: testVersion, commit: testCommit, date: time.Unix(1_700_000_000, 0).UTC(), progress: io.Discard}
}

// programs are built once.
var programs = struct {
	sync.Mutex
	dir   string
	paths map[string]string
}{paths: map[string]string{}}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cleaner-release-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// built is a program of cmd for this machine.
func built(t *testing.T, program string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs: not with -short")
	}
	programs.Lock()
	defer programs.Unlock()
	if path, ok := programs.paths[program]; ok {
		return path
	}
	path := filepath.Join(programs.dir, program)
	if err := testBuilder().build(t.Context(), program, host(), path); err != nil {
		t.Fatal(err)
	}
	programs.paths[program] = path
	return path
}

// tiny is a program for another platform that takes no time to build.
func tiny(t *testing.T, p platform) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/tiny\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, binaryName(p))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// output is what a program prints.
func output(t *testing.T, path string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, out)
	}
	return string(out)
}

// The linker says nothing of a variable that is not there, so whoever stamps programs has to name those that are.
func TestStamps(t *testing.T) {
	want := []string{stamps + ".commit", stamps + ".stamped", clientStamps + ".gitVersion", componentStamps + ".gitCommit", componentStamps + ".gitVersion"}
	text, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, m := range regexp.MustCompile(`-X (\S+?)=`).FindAllStringSubmatch(string(text), -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	if !slices.Equal(named, want) {
		t.Errorf("the Makefile stamps %v, not %v", named, want)
	}
	from := fmt.Sprintf("%s (commit %s, %s, %s)\n", testVersion, testCommit, runtime.Version(), host())
	if got := output(t, built(t, "manager"), "--version"); got != "cleaner "+from {
		t.Errorf("manager --version says %q", got)
	}
	if got := output(t, built(t, pluginName), "version", "--client"); got != "Client: "+from {
		t.Errorf("kubectl-cleaner version says %q", got)
	}
	// The scheduler says which kube-scheduler it is: that of the control plane that it is tested with.
	tested, err := os.ReadFile("../../test/controlplane/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`).FindStringSubmatch(string(tested))
	if got := output(t, built(t, schedulerName), "--version"); len(version) != 2 || got != "Kubernetes "+version[1]+"+cleaner."+testVersion+"\n" {
		t.Errorf("cleaner-scheduler --version says %q, and it is tested with %v", got, version)
	}
}

func TestCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"": "--date", "--date=1": "--version", "--date=1 --version=1.0.0 --out=x": "one thing to make",
		"--date=now image": "git log", "--date=1 --version=1.0.0 --out=x image": "--platforms is missing",
		"--date=1 --version=1.0.0 --out=x --platforms=linux/amd64 --of=kubectl-cleaner image": `write manager or cleaner-scheduler`,
		"--date=1 --version=1.0.0 --out=x --platforms=linux image":                            `"linux" is no platform`,
		"--date=1 --version=1.0.0 --out=x --platforms=linux/amd64 plugin":                     "--url is missing",
		"--date=1 --version=1.0.0 --out=x --platforms=linux/amd64 everything":                 `"everything" is nothing to make`,
		"push x": "--from", "push --from=nowhere x:1": "make image", "push --from=nowhere X": "is no reference",
	} {
		err := run(context.WithoutCancel(t.Context()), strings.Fields(line), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, which has no %q", line, err, want)
		}
	}
}
