// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the folder of the repository.
const root = "../.."

// page is a file of documentation.
type page struct {
	// name is its path in the repository.
	name string
	// text is all but fenced blocks, so that an example is not taken for what the page says of the product.
	text   string
	blocks []block
}

// block is a fenced block.
type block struct {
	line     int
	language string
	text     string
}

// pages reads README.md and docs/.
func pages(t *testing.T) []page {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(names) < 3 {
		t.Fatalf("the pages are not where they should be: %v, %v", names, err)
	}
	var all []page
	for _, path := range append([]string{filepath.Join(root, "README.md")}, names...) {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, readPage(t, filepath.ToSlash(name)))
	}
	return all
}

// templatePages reads the pages of the templates that are shipped.
func templatePages(t *testing.T) []page {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "config", "templates", "*", "README.md"))
	if err != nil || len(paths) < 5 {
		t.Fatalf("the pages of the templates are not where they should be: %v, %v", paths, err)
	}
	all := make([]page, len(paths))
	for i, path := range paths {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = readPage(t, filepath.ToSlash(name))
	}
	return all
}

// readPage reads one page by its path in the repository.
func readPage(t *testing.T, name string) page {
	t.Helper()
	p := page{name: name}
	var text strings.Builder
	var open *block
	for i, line := range strings.Split(readFile(t, name), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{line: i + 1, language: fence}
		case isFence:
			p.blocks, open = append(p.blocks, *open), nil
		case open != nil:
			open.text += line + "\n"
		default:
			text.WriteString(line + "\n")
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block has no end", name, open.line)
	}
	p.text = text.String()
	return p
}

// readFile reads a file by its path in the repository.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rows are the rows of all tables, as their cells; the lines below the headings are not among them.
func (p page) rows() [][]string {
	var rows [][]string
	for line := range strings.Lines(p.text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		rows = append(rows, cells(line))
	}
	return rows
}

// cells parts a row of a table. A | in a cell is written as \|.
func cells(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(line, `\|`, bar)
	parts := strings.Split(strings.Trim(line, "|"), "|")
	for i := range parts {
		parts[i] = strings.TrimSpace(strings.ReplaceAll(parts[i], bar, "|"))
	}
	return parts
}

var span = regexp.MustCompile("`([^`]+)`")

// spans are the texts in `backticks`.
func spans(text string) []string {
	var found []string
	for _, m := range span.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
