// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// module is the module whose checkout holds test/controlplane and test/thirdparty.
const module = "github.com/vtex/cleaner"

// sourceDir returns a folder of the checkout that the working directory lies in.
func sourceDir(ctx context.Context, elem ...string) (string, error) {
	out, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", fmt.Errorf("cannot find the checkout of %s from the working directory: %w", module, err)
	}
	dir := filepath.Join(append([]string{strings.TrimSpace(string(out))}, elem...)...)
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return "", fmt.Errorf("cannot find the nested module: %w", err)
	}
	return dir, nil
}

// requiredVersion returns the version of a module that the go.mod in dir requires. It reads that file and nothing else.
func requiredVersion(ctx context.Context, dir, path string) (string, error) {
	out, err := goCommand(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", fmt.Errorf("cannot read go.mod in %q: %w", dir, err)
	}
	for _, r := range mod.Require {
		if r.Path == path {
			return r.Version, nil
		}
	}
	return "", fmt.Errorf("cannot find %s among the requirements of go.mod in %q", path, dir)
}

// goCommand runs the go command in dir and returns what it printed. What the user set for other builds (GOFLAGS, a
// workspace, another platform) does not reach it: the programs are for this machine, and equal for everybody.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "CGO_ENABLED=0", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	// An interrupt, unlike a kill, lets the go command end its compilers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cannot run go %s: %w\n%s", strings.Join(args, " "), err, lastLines(stderr.Bytes(), 20))
	}
	return stdout.Bytes(), nil
}

// lastLines returns the last n lines of text.
func lastLines(text []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}

// discardNil returns w, or a writer that drops everything.
func discardNil(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
