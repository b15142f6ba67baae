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
	"unicode"
)

var link = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)

func TestLinks(t *testing.T) {
	found := 0
	for _, p := range pages(t) {
		code := func(s string) string { // what looks like a link in code is none
			if strings.Contains(s, "](") {
				return ""
			}
			return s
		}
		for _, m := range link.FindAllStringSubmatch(span.ReplaceAllStringFunc(p.text, code), -1) {
			text, target := m[1], m[2]
			if strings.HasPrefix(target, "https://") {
				continue
			}
			found++
			file, anchor, _ := strings.Cut(target, "#")
			name := p.name
			if file != "" {
				name = path.Join(path.Dir(p.name), file)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil || strings.HasPrefix(name, "..") {
				t.Errorf("%s: [%s](%s) leads nowhere", p.name, text, target)
				continue
			}
			if anchor != "" && !anchors(readPage(t, name))[anchor] {
				t.Errorf("%s: [%s](%s): %s has no such heading", p.name, text, target, name)
			}
			if test := strings.Trim(text, "`"); isTest(test) && !strings.Contains(readFile(t, name), "func "+test+"(") {
				t.Errorf("%s: %s has no %s", p.name, name, test)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d links were found", found)
	}
}

// The index of docs/ has all pages of it.
func TestIndex(t *testing.T) {
	const index = "docs/README.md"
	listed := map[string]bool{index: true}
	for _, m := range link.FindAllStringSubmatch(readPage(t, index).text, -1) {
		listed[path.Join("docs", m[2])] = true
	}
	for _, p := range pages(t) {
		if strings.HasPrefix(p.name, "docs/") && !listed[p.name] {
			t.Errorf("%s does not list %s", index, p.name)
		}
	}
}

// maxClicks is how many links a reader follows from the index to any page.
const maxClicks = 2

// Each page of the repository is near the index.
func TestPagesAreNear(t *testing.T) {
	links := map[string][]string{}
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			file, _, _ := strings.Cut(m[2], "#")
			links[p.name] = append(links[p.name], path.Join(path.Dir(p.name), file))
		}
	}
	near := findNear(links, "docs/README.md", maxClicks)
	for _, p := range pages(t) {
		if !near[p.name] && !strings.Contains(p.name, "/testdata/") {
			t.Errorf("%s is more than %d links away from docs/README.md", p.name, maxClicks)
		}
	}
}

// findNear returns the pages that are at most so many links away.
func findNear(links map[string][]string, from string, clicks int) map[string]bool {
	near, edge := map[string]bool{from: true}, []string{from}
	for range clicks {
		var next []string
		for _, name := range edge {
			for _, to := range links[name] {
				if !near[to] {
					near[to] = true
					next = append(next, to)
				}
			}
		}
		edge = next
	}
	return near
}

func TestFindNear(t *testing.T) {
	links := map[string][]string{"a": {"b"}, "b": {"a", "c"}, "c": {"d"}}
	for clicks, want := range map[int]string{0: "a", 1: "ab", 2: "abc", 3: "abcd"} {
		near, got := findNear(links, "a", clicks), ""
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if near[name] {
				got += name
			}
		}
		if got != want {
			t.Errorf("after %d links it finds %s, not %s", clicks, got, want)
		}
	}
}

// The index answers the questions that readers come with, each by a link.
func TestQuestionsAreAnswered(t *testing.T) {
	questions := 0
	for _, row := range readPage(t, "docs/README.md").rows() {
		if !strings.HasSuffix(row[0], "?") {
			continue
		}
		if questions++; !link.MatchString(row[len(row)-1]) {
			t.Errorf("%q has no link to its answer", row[0])
		}
	}
	if questions < 25 {
		t.Errorf("only %d questions are answered", questions)
	}
}

// anchors are the headings of a page as links name them.
func anchors(p page) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(p.text) {
		heading := strings.TrimLeft(line, "#")
		if heading == line {
			continue
		}
		all[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(heading))] = true
	}
	return all
}

var testName = regexp.MustCompile(`^Test[A-Z]\w*$`)

func isTest(name string) bool { return testName.MatchString(name) }

// Each test that is named is there, also where it is named without a link.
func TestTestsExist(t *testing.T) {
	code := tests(t)
	found := 0
	for _, p := range pages(t) {
		for _, name := range spans(p.text) {
			if !isTest(name) {
				continue
			}
			found++
			if !strings.Contains(code, "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("%s: there is no test %s", p.name, name)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d tests are named", found)
	}
}

// tests is the text of all test files.
func tests(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	files := os.DirFS(root)
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(files, path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}

var (
	pathSpan   = regexp.MustCompile(`^(api|celenv|cmd|config|controllers|docs|hack|test)(/[\w.-]+)+$`)
	makeSpan   = regexp.MustCompile(`^make ([a-z-]+)`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// Each folder, file and make target that is named is there.
func TestPathsAndTargetsExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(readFile(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	named := 0
	for _, p := range pages(t) {
		names := spans(p.text)
		for _, b := range p.blocks {
			for line := range strings.Lines(b.text) {
				names = append(names, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
			}
		}
		for _, name := range names {
			if m := makeSpan.FindStringSubmatch(name); m != nil {
				named++
				if !targets[m[1]] {
					t.Errorf("%s: there is no target for %q", p.name, name)
				}
			}
			if !pathSpan.MatchString(name) {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
				t.Errorf("%s: there is no %s", p.name, name)
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d make commands were found", named)
	}
}
