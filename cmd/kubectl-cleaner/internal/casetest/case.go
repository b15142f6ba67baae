// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package casetest runs cases: folders with a Cleaner, the objects of a cluster, and the plan to expect. It reads only regular files
// below the folders that it is given, writes nothing but plan.yaml and the JUnit report, and never asks a cluster.
package casetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
)

// The files of a case.
const (
	FileCleaner      = "cleaner.yaml"
	FilePatch        = "patch.yaml"
	FileObjects      = "objects.yaml"
	FilePlan         = "plan.yaml"
	FileAt           = "at"
	FileAllowedKinds = "allow-protected-kinds"
)

// Case is the folder of a case.
type Case struct {
	folder *manifests.Folder
	// name is the path of the case in the folder.
	name string
}

// DisplayDir returns the path of the case for messages.
func (e Case) DisplayDir() string { return e.folder.DisplayPath(e.name) }

// displayPath returns the path of a file of the case for messages.
func (e Case) displayPath(file string) string { return filepath.Join(e.DisplayDir(), file) }

// readFile reads an optional file of the case.
func (e Case) readFile(file string) (text []byte, there bool, err error) {
	name := filepath.Join(e.name, file)
	if there, err = e.folder.HasFile(name); !there || err != nil {
		return nil, there, err
	}
	text, err = e.folder.ReadFile(name)
	return text, true, err
}

// FindCases returns the cases below the folders. A Cleaner without a case is an error, and so is a symbolic link: both would look
// tested.
func FindCases(folders []*manifests.Folder) ([]Case, error) {
	var (
		cases []Case
		paths []string
	)
	for _, f := range folders {
		paths = append(paths, f.Path)
		var cleaners []string
		found := len(cases)
		err := f.WalkFiles(func(name string, mode fs.FileMode) error {
			switch filepath.Base(name) {
			case FileObjects:
				cases = append(cases, Case{f, filepath.Dir(name)})
			case FileCleaner:
				cleaners = append(cleaners, filepath.Dir(name))
			}
			return f.CheckRegular(name, mode)
		})
		if err != nil {
			return nil, err
		}
		for _, dir := range cleaners {
			below := func(e Case) bool {
				return dir == "." || e.name == dir || strings.HasPrefix(e.name, dir+string(filepath.Separator))
			}
			if !slices.ContainsFunc(cases[found:], below) {
				return nil, fmt.Errorf("%s has no test cases: add one to %s, as a folder with %s and %s", f.DisplayPath(filepath.Join(dir, FileCleaner)), f.DisplayPath(filepath.Join(dir, "testdata")), FileObjects, FilePlan)
			}
		}
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("found no case in %s: a case is a folder with %s and %s, and with %s there or in a folder above", strings.Join(paths, ", "), FileObjects, FilePlan, FileCleaner)
	}
	return cases, nil
}

// readCleaner reads cleaner.yaml of the case's folder or of the nearest folder above, which may be above the one that the command line
// names. It follows no symbolic link.
func (e Case) readCleaner() (path string, documents []*manifests.Document, err error) {
	whole, err := filepath.Abs(e.DisplayDir())
	if err != nil {
		return "", nil, err
	}
	for at, up := e.DisplayDir(), whole; ; at, up = filepath.Join(at, ".."), filepath.Dir(up) {
		above, err := manifests.OpenFolder(at)
		if err != nil {
			return "", nil, err
		}
		there, err := above.HasFile(FileCleaner)
		if there && err == nil {
			documents, err = above.ReadDocuments(FileCleaner)
		}
		above.Close()
		if there || err != nil {
			return above.DisplayPath(FileCleaner), documents, err
		}
		if up == filepath.Dir(up) {
			return "", nil, fmt.Errorf("%s has no %s, and no folder above it has one", e.DisplayDir(), FileCleaner)
		}
	}
}

// applyPatch applies the case's patch.yaml to its Cleaner.
func (e Case) applyPatch(own *manifests.Document) error {
	text, there, err := e.readFile(FilePatch)
	if !there || err != nil {
		return err
	}
	path := e.displayPath(FilePatch)
	patch, err := yaml.YAMLToJSONStrict(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not YAML: %w", path, err)
	case !bytes.HasPrefix(patch, []byte("{")):
		return fmt.Errorf("%s is not a merge patch: write the fields that differ, such as spec: {mode: DryRun}", path)
	}
	before, err := json.Marshal(own.Object)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return fmt.Errorf("cannot apply %s: %w", path, err)
	}
	return own.DecodeJSON(after)
}

// readTimes reads the time of the case's decision, and since when its conditions hold.
func (e Case) readTimes() (planning.Times, error) {
	m := planning.Times{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	m.Since = m.At
	text, there, err := e.readFile(FileAt)
	if !there || err != nil {
		return m, err
	}
	path := e.displayPath(FileAt)
	lines := strings.Fields(string(text))
	if len(lines) == 0 || len(lines) > 2 {
		return planning.Times{}, fmt.Errorf("%s has %d times: write the time of the decision and, optionally, below it the time since which all conditions hold", path, len(lines))
	}
	for i, into := range []*time.Time{&m.At, &m.Since}[:len(lines)] {
		if *into, err = time.Parse(time.RFC3339, lines[i]); err != nil {
			return planning.Times{}, fmt.Errorf("%s: %s is not a time: write one such as 2026-01-01T00:00:00Z", path, lines[i])
		}
	}
	if len(lines) == 1 {
		m.Since = m.At
	}
	return m, nil
}
