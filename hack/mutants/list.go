// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// list is what mutants.yaml says.
type list struct {
	// Seed decides which mutants are planted.
	Seed int64 `json:"seed"`
	// Percent is how many of a hundred mutants must be caught.
	Percent int `json:"percent"`
	// Packages are where mutants are planted.
	Packages []room `json:"packages"`
	// Always are mistakes that every run plants and a test must catch.
	Always []edit `json:"always,omitempty"`
	// Known are mutants that live.
	Known []edit `json:"known,omitempty"`
}

// room is a package in which mutants are planted.
type room struct {
	// Path is the package's folder, from the root of the module.
	Path string `json:"path"`
	// Mutants is how many are planted.
	Mutants int `json:"mutants"`
	// Tests are the other packages whose tests are run if those of this one catch nothing.
	Tests []string `json:"tests,omitempty"`
	// Except are files of the package in which nothing is planted.
	Except []string `json:"except,omitempty"`
	// Skip is a regular expression for tests that are not run: they take too long to be run for each mutant.
	Skip string `json:"skip,omitempty"`
}

// edit is a change of one function, or of another declaration at the top of a file.
type edit struct {
	// In is the declaration: Name, or Type.Name for a method.
	In string `json:"in"`
	// Was is text that occurs once in the declaration.
	Was string `json:"was"`
	// Now replaces it.
	Now string `json:"now"`
	// Why says what the mutant would do, or why it may live.
	Why string `json:"why"`
}

// readList reads a list, and checks that nothing in it is missing.
func readList(path string) (*list, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l := &list{}
	if err := yaml.UnmarshalStrict(data, l); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if len(l.Packages) == 0 {
		return nil, fmt.Errorf("%s lists no packages", path)
	}
	for i, p := range l.Packages {
		if p.Path == "" || p.Mutants < 1 {
			return nil, fmt.Errorf("%s: packages[%d] needs a path, and mutants of at least 1", path, i)
		}
	}
	for name, edits := range map[string][]edit{"always": l.Always, "known": l.Known} {
		for i, e := range edits {
			if e.In == "" || e.Was == "" || e.Why == "" || e.Was == e.Now {
				return nil, fmt.Errorf("%s: %s[%d] needs in, was, why, and a now that differs from was", path, name, i)
			}
		}
	}
	return l, nil
}

// find makes the mutant that an edit describes. The declaration may stand in any of the packages, so that an entry stays
// good when a file moves.
func (e edit) find(packages []*code) (*mutant, error) {
	var found []*mutant
	seen := 0
	for _, c := range packages {
		for _, f := range c.files {
			for _, d := range f.declarations {
				if d.name != e.In {
					continue
				}
				seen++
				text := f.source[d.start:d.end]
				if bytes.Count(text, []byte(e.Was)) != 1 {
					continue
				}
				at := d.start + bytes.Index(text, []byte(e.Was))
				found = append(found, &mutant{code: c, file: f, in: d, start: at, end: at + len(e.Was), text: e.Now, operator: "listed"})
			}
		}
	}
	switch {
	case seen == 0:
		return nil, fmt.Errorf("no package of the list declares %s", e.In)
	case len(found) != 1:
		return nil, fmt.Errorf("%q must occur once in %s, and occurs in %d declarations of that name once", e.Was, e.In, len(found))
	}
	return found[0], nil
}
