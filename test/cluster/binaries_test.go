// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFindBinariesInAssets(t *testing.T) {
	cases := map[string]struct {
		reason  string
		present []string
		err     string
	}{
		"All":  {reason: "a folder with all programs is used as it is", present: []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}},
		"Some": {reason: "envtest's folders have no kube-controller-manager", present: []string{"etcd", "kube-apiserver", "kubectl"}, err: "kube-controller-manager not there"},
		"None": {reason: "never build when told where the programs are", err: "etcd, kube-apiserver, kube-controller-manager, kubectl not there"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(AssetsEnv, dir)
			for _, file := range tc.present {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want := Binaries{}
			if tc.err == "" {
				want = binariesIn(dir)
			}
			got, err := FindBinaries(t.Context(), nil)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: want error %q, got %v", tc.reason, tc.err, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFindBinariesBuildsOnce(t *testing.T) {
	c, _ := needCluster(t)
	if os.Getenv(AssetsEnv) != "" {
		t.Skip("nothing is built where " + AssetsEnv + " is set")
	}
	var progress bytes.Buffer
	got, err := FindBinaries(t.Context(), &progress)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.binaries, got); diff != "" {
		t.Errorf("the same inputs give the same programs (-want +got):\n%s", diff)
	}
	if progress.Len() > 0 {
		t.Errorf("nothing is left to build, but: %s", &progress)
	}
}

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	write := func(name, content string) {
		t.Helper()
		if err := os.MkdirAll(source, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(source, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.test/p\n\ngo 1.26.0\n")
	write("main.go", "package main\n\nfunc main() { undefined() }\n")
	t.Setenv("GOFLAGS", "-mod=vendor") // must not reach the build
	var progress bytes.Buffer
	path := filepath.Join(dir, "p")

	err := build(t.Context(), source, "-s -w", ".", path, "building p", &progress)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("want what the compiler said, got %v", err)
	}
	write("main.go", "package main\n\nfunc main() {}\n")
	if err := build(t.Context(), source, "-s -w", ".", path, "building p", &progress); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "p*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{path}, files); diff != "" {
		t.Errorf("the program and nothing else is left (-want +got):\n%s", diff)
	}
	if n := strings.Count(progress.String(), "building p took"); n != 2 {
		t.Errorf("want two ends told, got %d in:\n%s", n, &progress)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path, &progress); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lock that another holds: want to wait until the deadline, got %v", err)
	}
	if !strings.Contains(progress.String(), "waiting") {
		t.Errorf("want the user told about the waiting, got %q", &progress)
	}
	unlock()
	unlock, err = lock(t.Context(), path, &progress)
	if err != nil {
		t.Fatalf("a lock given back: %v", err)
	}
	unlock()
}

func TestVersionFlags(t *testing.T) {
	cases := map[string]struct {
		reason string
		mod    string
		want   string
		err    string
	}{
		"Version": {
			reason: "all four variables, from go.mod",
			mod:    "require k8s.io/kubernetes v1.36.3 // indirect",
			want: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1" +
				" -X k8s.io/component-base/version.gitMinor=36 -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3",
		},
		"NoRequirement": {reason: "without a version nothing starts", err: "cannot find k8s.io/kubernetes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.test/p\n\n"+tc.mod+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := versionFlags(t.Context(), dir)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: want error %q, got %v", tc.reason, tc.err, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
