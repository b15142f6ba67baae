// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"io/fs"
	"os"
	"path"
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
	// file is the name under which the line before shows it; empty if it has none.
	file string
}

// pages reads all pages of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || len(name) > 1 && strings.HasPrefix(name, ".")):
			return fs.SkipDir
		case !d.IsDir() && path.Ext(name) == ".md":
			p := readPage(t, name)
			if strings.HasPrefix(name, "charts/") {
				p.blocks = nil // test/chart holds its values, and installs by Helm's library
			}
			all = append(all, p)
		}
		return nil
	})
	if err != nil || len(all) < 20 {
		t.Fatalf("the pages are not where they should be: %d, %v", len(all), err)
	}
	return all
}

// fileName ends the line before a block that is a file: what is shown can be saved, and commands of the page name it.
var fileName = regexp.MustCompile("`([\\w.-]+\\.yaml)`:$")

// readPage reads one page by its path in the repository.
func readPage(t *testing.T, name string) page {
	t.Helper()
	p := page{name: name}
	var text strings.Builder
	var open *block
	before := "" // the last line that is not blank
	for i, line := range strings.Split(readFile(t, name), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{line: i + 1, language: fence}
			if m := fileName.FindStringSubmatch(before); m != nil {
				open.file = m[1]
			}
		case isFence:
			p.blocks, open, before = append(p.blocks, *open), nil, ""
		case open != nil:
			open.text += line + "\n"
		default:
			text.WriteString(line + "\n")
			if line != "" {
				before = line
			}
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

// Each table is one: a line of dashes is below its heading, and all its rows have as many cells.
func TestTables(t *testing.T) {
	dashes := regexp.MustCompile(`^\|( ?:?-+:? ?\|)+$`)
	for _, p := range pages(t) {
		lines := strings.Split(p.text, "\n")
		for i, line := range lines {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			isHeading := i == 0 || !strings.HasPrefix(lines[i-1], "|")
			if isHeading && (i+1 == len(lines) || !dashes.MatchString(lines[i+1])) {
				t.Errorf("%s: no line of dashes is below %q", p.name, line)
			}
			if !isHeading && len(cells(line)) != len(cells(lines[i-1])) {
				t.Errorf("%s: the row has %d cells, and the one above has %d: %s", p.name, len(cells(line)), len(cells(lines[i-1])), line)
			}
		}
	}
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
