// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// A container daemon is sent each file that the operator is built from: .dockerignore leaves none of them out.
func TestDockerignore(t *testing.T) {
	list, err := os.Open("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	patterns, err := ignorefile.ReadAll(list)
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	leftOut := func(file string) bool {
		t.Helper()
		out, err := ignored.MatchesOrParentMatches(file)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,GoFiles,EmbedFiles,Module", "./cmd/manager")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"go.mod", "go.sum"}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir                 string
			GoFiles, EmbedFiles []string
			Module              *struct{ Main bool }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		dir, err := filepath.Rel(root, p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(p.GoFiles, p.EmbedFiles...) {
			files = append(files, filepath.Join(dir, name))
		}
	}
	if len(files) < 50 {
		t.Fatalf("the operator is built from %v only", files)
	}
	for _, file := range files {
		if leftOut(file) {
			t.Errorf("%s is left out, and the operator is built from it", file)
		}
	}
	for _, file := range []string{"README.md", "bin/manager", "test/cluster/cluster.go", "controllers/imports_test.go"} {
		if !leftOut(file) {
			t.Errorf("%s is sent too", file)
		}
	}
}
