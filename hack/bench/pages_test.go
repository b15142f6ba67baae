// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The pages have the figures that are kept, and no others.
func TestPagesAreThoseOfTheFigures(t *testing.T) {
	all, err := readFigures("figures.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range map[string]string{"performance.md": performancePage, "scale.md": scalePage} {
		want, err := render(page, all)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("docs/%s is not what its template and hack/bench/figures.json give: run make bench ARGS=--pages", name)
		}
	}
	for _, m := range all {
		if len(m.Figures) == 0 {
			t.Errorf("there are no figures of %q", m.Name)
		}
	}
}

// What is measured again replaces what was measured before, in the order of the measurements.
func TestReplace(t *testing.T) {
	old := []measured{{"reaction", []figure{{What: "old"}}}, {"one", []figure{{What: "old"}}}, {"gone", nil}}
	latest := []measured{{"one", []figure{{What: "new"}}}, {"many", []figure{{What: "new"}}}}
	want := []measured{{"reaction", []figure{{What: "old"}}}, {"many", []figure{{What: "new"}}}, {"one", []figure{{What: "new"}}}}
	if got := replace(old, latest); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A page without figures is an error, and one with figures has them and their aims.
func TestRender(t *testing.T) {
	if _, err := render(`{{table "one"}}`, nil); err == nil || !strings.Contains(err.Error(), `no figures of "one"`) {
		t.Errorf("got the error %v", err)
	}
	got, err := render(`{{table "one"}}`, []measured{{"one", []figure{{What: "ratio", Value: "0.97", Aim: "at least 0.95"}, {What: "speed", Value: "1"}}}})
	if want := "| What | Value | Aim |\n|---|---|---|\n| ratio | 0.97 | at least 0.95 |\n| speed | 1 | – |\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
