// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// AssetsEnv names the environment variable with a folder of ready-made programs, to be used instead of building them.
const AssetsEnv = "KUBEBUILDER_ASSETS"

// Binaries are the paths of the programs of a control plane.
type Binaries struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	Kubectl           string
}

// program is one executable, and the package of test/controlplane it is built from.
type program struct{ name, pkg string }

func programs() []program {
	return []program{
		{"etcd", "go.etcd.io/etcd/server/v3"},
		{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
		{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
		{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	}
}

// FindBinaries returns the programs of the control plane, and builds those that are not in the cache yet: about ten
// minutes on two cores the first time, told on progress (which may be nil). Several processes may call it at once.
func FindBinaries(ctx context.Context, progress io.Writer) (Binaries, error) {
	progress = discardNil(progress)
	if dir := os.Getenv(AssetsEnv); dir != "" {
		if missing := missingIn(dir); len(missing) > 0 {
			return Binaries{}, fmt.Errorf("cannot use %s=%q: %s not there (unset it to build the programs instead)", AssetsEnv, dir, names(missing))
		}
		return binariesIn(dir), nil
	}

	source, err := sourceDir(ctx, "test", "controlplane")
	if err != nil {
		return Binaries{}, err
	}
	ldflags, err := versionFlags(ctx, source)
	if err != nil {
		return Binaries{}, err
	}
	dir, err := cacheDir(ctx, source, ldflags)
	if err != nil {
		return Binaries{}, err
	}
	if len(missingIn(dir)) == 0 {
		return binariesIn(dir), nil
	}

	unlock, err := lock(ctx, filepath.Join(dir, "lock"), progress)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	missing := missingIn(dir) // again: another process may have built them while this one waited
	for i, p := range missing {
		task := fmt.Sprintf("building %s (%d of %d)", p.name, i+1, len(missing))
		if err := build(ctx, source, ldflags, p.pkg, filepath.Join(dir, p.name), task, progress); err != nil {
			return Binaries{}, fmt.Errorf("cannot build %s: %w", p.name, err)
		}
	}
	return binariesIn(dir), nil
}

// build links one package into path. The file appears there whole or not at all.
func build(ctx context.Context, source, ldflags, pkg, path, task string, progress io.Writer) error {
	tmp := path + ".tmp" // the lock is held: no other process writes here
	defer os.Remove(tmp)
	done := report(progress, task)
	_, err := goCommand(ctx, source, "build", "-mod=readonly", "-ldflags", ldflags, "-o", tmp, pkg)
	done()
	if err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// report tells at intervals that a task is still going on, until the returned function is called.
func report(w io.Writer, task string) (done func()) {
	start := time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	fmt.Fprintf(w, "%s\n", task)
	go func() {
		defer close(stopped)
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(w, "%s, %s so far\n", task, time.Since(start).Round(time.Second))
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		fmt.Fprintf(w, "%s took %s\n", task, time.Since(start).Round(time.Second))
	}
}

// versionFlags returns the linker flags that tell the programs their version, which Kubernetes' own build does and a plain
// go build does not; kube-apiserver does not start without.
func versionFlags(ctx context.Context, source string) (string, error) {
	version, err := requiredVersion(ctx, source, "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("cannot read the version of k8s.io/kubernetes: %q", version)
	}
	return strings.Join([]string{
		"-s -w",
		"-X k8s.io/component-base/version.gitVersion=" + version,
		"-X k8s.io/component-base/version.gitMajor=" + parts[0],
		"-X k8s.io/component-base/version.gitMinor=" + parts[1],
		"-X k8s.io/client-go/pkg/version.gitVersion=" + version,
	}, " "), nil
}

// cacheDir returns the folder for programs built from exactly these inputs, and makes it.
func cacheDir(ctx context.Context, source, ldflags string) (string, error) {
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("cannot read the module of the control plane: %w", err)
		}
		fmt.Fprintf(hash, "%d\n%s", len(content), content)
	}
	toolchain, err := goCommand(ctx, source, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	fmt.Fprintf(hash, "%s\n%s", ldflags, toolchain)

	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a place for the programs of the control plane: %w", err)
	}
	dir := filepath.Join(base, "cleaner", "controlplane", hex.EncodeToString(hash.Sum(nil))[:16])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make a place for the programs of the control plane: %w", err)
	}
	return dir, nil
}

// lock waits until this process alone holds the lock on path. The system gives a lock back when its holder dies.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock of the build: %w", err)
	}
	told := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("cannot lock %q: %w", path, err)
		}
		if !told {
			fmt.Fprintln(progress, "waiting for another process that builds the control plane")
			told = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("cannot lock %q: %w", path, ctx.Err())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func binariesIn(dir string) Binaries {
	return Binaries{
		Etcd:              filepath.Join(dir, "etcd"),
		APIServer:         filepath.Join(dir, "kube-apiserver"),
		ControllerManager: filepath.Join(dir, "kube-controller-manager"),
		Kubectl:           filepath.Join(dir, "kubectl"),
	}
}

func missingIn(dir string) []program {
	var missing []program
	for _, p := range programs() {
		if _, err := os.Stat(filepath.Join(dir, p.name)); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}

func names(ps []program) string {
	var list []string
	for _, p := range ps {
		list = append(list, p.name)
	}
	return strings.Join(list, ", ")
}
