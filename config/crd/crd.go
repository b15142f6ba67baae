// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd holds the CustomResourceDefinitions of Cleaner's own kinds, as they are applied to a cluster, for programs
// that check manifests without one.
//
// It only reads what is generated into bases.
package crd

import (
	"embed"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed bases/*.yaml
var bases embed.FS

// Definitions returns a copy of the definitions of all kinds. The caller may change it.
func Definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	paths, err := fs.Glob(bases, "bases/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("cannot list the definitions: %w", err)
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(paths))
	for _, path := range paths {
		text, err := bases.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, d); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		all = append(all, d)
	}
	return all, nil
}
