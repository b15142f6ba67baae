// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/hack/kustomize"
)

// What is written into the folder of a release besides the files that are put there.
const (
	installName   = "install.yaml"
	templatesName = "templates.yaml"
	checksumsName = "checksums.txt"
)

// placeholderImage is the image of the operator in config/default.
const placeholderImage = "controller:latest"

// files writes the folder of a release: the manifests of the operator, which run an image, those of the templates, copies of other files, and
// the checksums of all. A file of an earlier release stays nowhere: the folder must not exist or be empty.
func (b *builder) files(to, image string, others []string, out io.Writer) error {
	if to == "" || b.version == "" {
		return errors.New("--out and --version are needed:\n" + usage)
	}
	if image == "" || image == placeholderImage || strings.ContainsAny(image, " \t\n\"'") {
		return fmt.Errorf("--image %q is no image that a cluster can pull: write such as registry.example.com/cleaner:0.1.0", image)
	}
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		return fmt.Errorf("--out %s is not empty: remove it first", to)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	all := map[string][]byte{}
	var err error
	if all[installName], err = b.manifest("config/default", image); err != nil {
		return err
	}
	if all[templatesName], err = b.manifest("config/templates", ""); err != nil {
		return err
	}
	for _, path := range others {
		name := filepath.Base(path)
		if _, twice := all[name]; twice || name == checksumsName {
			return fmt.Errorf("%s: a release has a file of this name already", path)
		}
		if all[name], err = os.ReadFile(path); err != nil {
			return err
		}
	}
	all[checksumsName] = checksums(all)
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%s: version %s, %d files, for the image %s\n", to, b.version, len(all), image)
	return err
}

// manifest returns what a folder of config/ declares, with an image in place of the placeholder; empty: it has none.
func (b *builder) manifest(folder, image string) ([]byte, error) {
	objects, err := kustomize.Build(filepath.Join(b.root, folder))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	placed := 0
	for _, o := range objects {
		if o.GetKind() == "Deployment" && image != "" {
			n, err := placeImage(o, image)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", o.GetName(), folder, err)
			}
			placed += n
		}
		content, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("cannot write %s %s of %s: %w", o.GetKind(), o.GetName(), folder, err)
		}
		text.WriteString("---\n")
		text.Write(content)
	}
	if image != "" && placed == 0 {
		return nil, fmt.Errorf("%s has no container with the image %s", folder, placeholderImage)
	}
	return text.Bytes(), nil
}

// placeImage puts an image in place of the placeholder, and returns how often.
func placeImage(o *unstructured.Unstructured, image string) (int, error) {
	containers, found, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || !found {
		return 0, errors.Join(errors.New("it has no containers"), err)
	}
	n := 0
	for _, c := range containers {
		if c, ok := c.(map[string]any); ok && c["image"] == placeholderImage {
			c["image"] = image
			n++
		}
	}
	return n, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
}
