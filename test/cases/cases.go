// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cases reads tables of cases, which are files in YAML. It knows nothing of what is in them.
package cases

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Load reads the tables of a folder, by the name of their file. A field that a case does not have is an error.
func Load[Case any](dir string) (map[string][]Case, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("cannot find the cases in %q: %w", dir, err)
	}
	out := map[string][]Case{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the cases: %w", err)
		}
		var table []Case
		if err := yaml.UnmarshalStrict(text, &table); err != nil {
			return nil, fmt.Errorf("cannot read the cases in %q: %w", path, err)
		}
		out[filepath.Base(path)] = table
	}
	return out, nil
}
