// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"text/template"

	"github.com/vtex/cleaner/test/operator"
)

// figuresFile keeps the figures from which pages and plots are made, so that a part of them can be measured again.
const figuresFile = "hack/bench/figures.json"

// measured is what one measurement found, in one run.
type measured struct {
	Name    string   `json:"name"`
	Figures []figure `json:"figures"`
}

//go:embed performance.md.tmpl
var performancePage string

//go:embed scale.md.tmpl
var scalePage string

// publish replaces the figures of what was measured, and makes pages and plots of all.
func publish(ctx context.Context, news []measured) error {
	root, err := operator.Root()
	if err != nil {
		return err
	}
	path := filepath.Join(root, figuresFile)
	all, err := readFigures(path)
	if err != nil {
		return err
	}
	all = replace(all, news)
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return fmt.Errorf("cannot write the figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("cannot write the figures: %w", err)
	}
	for name, page := range map[string]string{"performance.md": performancePage, "scale.md": scalePage} {
		text, err := render(page, all)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, "docs", name), text, 0o644); err != nil {
			return fmt.Errorf("cannot write a page: %w", err)
		}
	}
	draw := exec.CommandContext(ctx, "go", "run", ".", path, filepath.Join(root, "docs", "pictures"))
	draw.Dir, draw.Stdout, draw.Stderr = filepath.Join(root, "hack", "plots"), os.Stdout, os.Stderr
	if err := draw.Run(); err != nil {
		return fmt.Errorf("cannot draw the plots: %w", err)
	}
	return nil
}

// readFigures reads the figures of earlier runs, if there are any.
func readFigures(path string) ([]measured, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the figures: %w", err)
	}
	var all []measured
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("cannot read the figures of %s: %w", path, err)
	}
	return all, nil
}

// replace returns the figures with those of the latest run, in the order of the measurements.
func replace(all, news []measured) []measured {
	var out []measured
	for _, name := range names() {
		for _, from := range [][]measured{news, all} {
			if i := slices.IndexFunc(from, func(m measured) bool { return m.Name == name }); i >= 0 {
				out = append(out, from[i])
				break
			}
		}
	}
	return out
}

// render makes a page of its template, which has tables of measurements.
func render(page string, all []measured) ([]byte, error) {
	table := func(names ...string) (string, error) {
		var b bytes.Buffer
		fmt.Fprint(&b, "| What | Value | Aim |\n|---|---|---|\n")
		for _, name := range names {
			i := slices.IndexFunc(all, func(m measured) bool { return m.Name == name })
			if i < 0 {
				return "", fmt.Errorf("there are no figures of %q: measure it too", name)
			}
			for _, f := range all[i].Figures {
				aim := f.Aim
				if aim == "" {
					aim = "–"
				}
				fmt.Fprintf(&b, "| %s | %s | %s |\n", f.What, f.Value, aim)
			}
		}
		return b.String(), nil
	}
	t, err := template.New("page").Funcs(template.FuncMap{"table": table}).Parse(page)
	if err != nil {
		return nil, fmt.Errorf("cannot read the template of a page: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, nil); err != nil {
		return nil, fmt.Errorf("cannot make a page: %w", err)
	}
	return b.Bytes(), nil
}
