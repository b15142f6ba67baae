// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The chart is as `make chart` makes it of config/ and of its values: nothing is old, missing or left over.
func TestIsCurrent(t *testing.T) {
	dir := t.TempDir()
	generator := filepath.Join(dir, "chart")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", generator, "../../hack/chart")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, folder := range []string{"config", "charts"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join("../..", folder))); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.CommandContext(t.Context(), generator)
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, got := texts(t, filepath.Join(dir, "charts/cleaner")), texts(t, path)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("run make chart: files (-made +there):\n%s", diff)
	}
	for name := range want {
		if want[name] != got[name] {
			t.Errorf("run make chart: %s is not as it is made", name)
		}
	}
}

// texts are the files of a folder.
func texts(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
