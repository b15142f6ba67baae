// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bundle makes bundle/, from which OLM installs the operator, of config/manifests: in the layout and with the names
// of operator-sdk, which it does not need. It writes nothing that a file of config/ does not say, but what the formats ask
// for, and fails on a kind of object that it does not know how OLM installs.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vtex/cleaner/hack/kustomize"
)

// versionFile says which version is released.
const versionFile = "cmd/internal/version/VERSION"

// release is what the bundle is a bundle of.
type release struct {
	version, image string
	icon           []byte
}

func main() {
	config := pflag.String("config", "config/manifests", "folder that the bundle is made of")
	out := pflag.String("output", "bundle", "folder that is written; what is in it is removed")
	image := pflag.String("image", "", "image of the operator, which a release names by its digest (default: the one of the version)")
	pflag.Parse()
	if err := run(*config, *out, *image); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

// run makes the bundle.
func run(config, out, image string) error {
	objects, err := kustomize.Build(config)
	if err != nil {
		return err
	}
	icon, err := os.ReadFile(filepath.Join(config, "bases", "icon.svg"))
	if err != nil {
		return fmt.Errorf("cannot read the icon: %w", err)
	}
	version, err := os.ReadFile(versionFile)
	if err != nil {
		return fmt.Errorf("cannot read the version: %w", err)
	}
	r := release{version: strings.TrimSpace(string(version)), image: image, icon: icon}
	if r.image == "" {
		r.image = "ghcr.io/vtex/cleaner:" + r.version
	}
	b, err := sort(objects)
	if err != nil {
		return err
	}
	files, err := b.files(r)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("cannot remove the bundle that there is: %w", err)
	}
	for name, text := range files {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("cannot write the bundle: %w", err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return fmt.Errorf("cannot write the bundle: %w", err)
		}
	}
	return nil
}
