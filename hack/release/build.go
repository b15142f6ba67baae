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
	"strings"
	"time"
)

const (
	module = "github.com/vtex/cleaner"
	// stamps is the package that the linker tells the version and the commit.
	stamps = module + "/cmd/internal/version"
	// componentStamps and clientStamps are those packages of what is built from Kubernetes.
	componentStamps = "k8s.io/component-base/version"
	clientStamps    = "k8s.io/client-go/pkg/version"
)

// Programs that are built.
const (
	managerName   = "manager"
	pluginName    = "kubectl-cleaner"
	schedulerName = "cleaner-scheduler"
)

// product is a program.
type product struct {
	// folder is the folder of its module. Its package is in cmd, under its name.
	folder string
	// title and description are what an image of it says of itself.
	title, description string
}

func products() map[string]product {
	return map[string]product{
		managerName:   {".", "cleaner", "Kubernetes operator that cleans up by rules that its users can read"},
		pluginName:    {".", pluginName, "kubectl plugin that plans, checks and tests Cleaners"},
		schedulerName: {"scheduler", schedulerName, "kube-scheduler that keeps Pods from Nodes without an address for them"},
	}
}

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

// build builds a program for a platform.
func (b *builder) build(ctx context.Context, program string, p platform, path string) error {
	fmt.Fprintf(b.progress, "Building %s for %s\n", program, p)
	folder := filepath.Join(b.root, products()[program].folder)
	stamp, err := b.stamp(ctx, program, folder)
	if err != nil {
		return err
	}
	args := append([]string{"build", "-buildvcs=false", "-ldflags", "-s -w " + stamp, "-o", path}, b.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/"+program)...)
	cmd.Dir = folder
	// What the environment says of builds would make them differ from machine to machine.
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stdout, cmd.Stderr = b.progress, b.progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot build %s for %s: %w", program, p, err)
	}
	return nil
}

// stamp has the linker tell a program its version. The scheduler says which version of kube-scheduler it is, and of what
// Cleaner: v1.36.3+cleaner.0.1.0.
func (b *builder) stamp(ctx context.Context, program, folder string) (string, error) {
	if program != schedulerName {
		return "-X " + stamps + ".stamped=" + b.version + " -X " + stamps + ".commit=" + b.commit, nil
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Dir, cmd.Stderr = folder, b.progress
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot find out which kube-scheduler %s is: %w", program, err)
	}
	version := strings.TrimSpace(string(out)) + "+cleaner." + b.version
	return "-X " + componentStamps + ".gitVersion=" + version + " -X " + componentStamps + ".gitCommit=" + b.commit + " -X " + clientStamps + ".gitVersion=" + version, nil
}
