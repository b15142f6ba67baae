// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The plots of docs/scale.md are those of the figures that are kept.
func TestPlotsAreThoseOfTheFigures(t *testing.T) {
	folder := t.TempDir()
	if err := drawAll("../bench/figures.json", folder); err != nil {
		t.Fatal(err)
	}
	for _, f := range frames() {
		name := "scale-" + f.name + ".svg"
		drawn, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(filepath.Join("../../docs/pictures", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(drawn, kept) {
			t.Errorf("docs/pictures/%s is not what the figures give: run make bench ARGS=--pages", name)
		}
	}
}

// A plot without points is an error, not an empty picture.
func TestPlotsWithoutPoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	if err := os.WriteFile(path, []byte(`[{"figures":[{"what":"a"}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := drawAll(path, t.TempDir()); err == nil {
		t.Error("a plot without points was drawn")
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", 0.001: "0.001"} {
		if got := number(value); got != want {
			t.Errorf("number(%v) = %q, want %q", value, got, want)
		}
	}
}
