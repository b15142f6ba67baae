// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

const (
	module = "github.com/vtex/cleaner"
	// stamps is the package that the linker tells the version and the commit.
	stamps = module + "/cmd/internal/version"
)

// builder builds programs of one commit.
type builder struct {
	version, commit string
	// date is when the commit was made: no file of a release is newer.
	date time.Time
	// root is the folder of the repository.
	root string
	// flags are given to go build besides those that every build needs.
	flags    []string
	progress io.Writer
}

// build builds a program of cmd for a platform.
func (b *builder) build(ctx context.Context, program string, p platform, path string) error {
	fmt.Fprintf(b.progress, "Building %s for %s\n", program, p)
	args := append([]string{"build", "-buildvcs=false", "-ldflags", "-s -w -X " + stamps + ".stamped=" + b.version + " -X " + stamps + ".commit=" + b.commit, "-o", path}, b.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/"+program)...)
	cmd.Dir = b.root
	// What the environment says of builds would make them differ from machine to machine.
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stdout, cmd.Stderr = b.progress, b.progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot build %s for %s: %w", program, p, err)
	}
	return nil
}
