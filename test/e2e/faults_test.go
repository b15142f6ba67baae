// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vtex/cleaner/test/e2e/mistakes"
	"github.com/vtex/cleaner/test/operator"
)

// builds are the operators that tests have built besides the product, by what they are.
var builds struct {
	sync.Mutex
	made map[string]string
}

// faulty builds the operator with the points at which it can be told to crash or to pause; and, if given, with a mistake.
func faulty(t *testing.T, m mistakes.Mistake) string {
	t.Helper()
	if m.File == "" {
		m.Name = ""
	}
	builds.Lock()
	defer builds.Unlock()
	if path, ok := builds.made[m.Name]; ok {
		return path
	}
	dir := filepath.Join(shared.Dir(), "faulty"+m.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	flags := []string{"-tags=faultpoints", "-ldflags=-s -w"}
	if m.File != "" {
		flags = append(flags, "-overlay="+overlay(t, dir, m))
	}
	path, err := operator.Build(t.Context(), dir, os.Stderr, flags...)
	if err != nil {
		t.Fatal(err)
	}
	if builds.made == nil {
		builds.made = map[string]string{}
	}
	builds.made[m.Name] = path
	return path
}

// overlay writes what go build reads in the place of a file. The file itself is left alone.
func overlay(t *testing.T, dir string, m mistakes.Mistake) string {
	t.Helper()
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(root, m.File)
	text, err := m.Make(root)
	if err != nil {
		t.Fatal(err)
	}
	mutated := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
