// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package house holds the code to a size that a reader can take in: few methods on a type, few lines in a package, and
// functions whose names say what they do. What a linter can say is in .golangci.yml.
package house

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxMethods = 20
	maxLines   = 3000
	maxFiles   = 16
	// maxOneWord is the percentage of functions whose name is a single word, and fewFunctions how many a package has at least
	// for this to mean something.
	maxOneWord   = 33
	fewFunctions = 10
)

// exceptions are what is larger than it should be. No number here may rise, and one that is not needed any more is an error.
type exceptions map[string]int

func moreLines() exceptions {
	return exceptions{}
}

func moreFiles() exceptions {
	return exceptions{}
}

// check says which of what was counted is too large, and which exceptions say more than they must.
func check(t *testing.T, what string, counted map[string]int, most int, except exceptions) {
	t.Helper()
	for name, n := range counted {
		limit, isException := except[name]
		switch {
		case !isException && n > most:
			t.Errorf("%s: %s: %d, and at most %d are allowed", what, name, n, most)
		case isException && n > limit:
			t.Errorf("%s: %s: %d, and there must not be more than %d", what, name, n, limit)
		case isException && n <= most:
			t.Errorf("%s: %s has %d now: take it off the exceptions", what, name, n)
		}
	}
	for name := range except {
		if _, there := counted[name]; !there {
			t.Errorf("%s: the exception %s does not exist", what, name)
		}
	}
}

// house is what was counted: methods by type, and the rest by package.
type house struct {
	methods, lines, files, functions, oneWord map[string]int
}

func newHouse() house {
	return house{map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}}
}

var (
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	word      = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)
)

// product is where the code of the product is.
func product() []string { return []string{"api", "celenv", "cmd", "config", "controllers", "webhooks"} }

// count reads the code of the product: what is neither a test nor generated. Of tests and tools it counts methods.
func count(t *testing.T) house {
	t.Helper()
	h := newHouse()
	for _, top := range append(product(), "hack", "test") {
		root := os.DirFS(filepath.Join("..", ".."))
		err := fs.WalkDir(root, top, func(file string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(file, ".go"):
				return nil
			}
			text, err := fs.ReadFile(root, file)
			if err != nil || generated.Match(text) {
				return err
			}
			if slices.Contains(product(), top) && !strings.HasSuffix(file, "_test.go") {
				if err := h.countFile(path.Dir(file), file, text); err != nil {
					return err
				}
			}
			return h.countMethods(path.Dir(file), file, text)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h house) countFile(pkg, name string, text []byte) error {
	h.lines[pkg] += countLines(text)
	h.files[pkg]++
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		h.functions[pkg]++
		if len(word.FindAllString(f.Name.Name, -1)) == 1 {
			h.oneWord[pkg]++
		}
	}
	return nil
}

// countMethods counts the methods of a type wherever they stand: those that a test adds to a type of the product are its methods too.
func (h house) countMethods(dir, name string, text []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	if err != nil {
		return err
	}
	if strings.HasSuffix(file.Name.Name, "_test") { // a package of its own in the same folder
		dir += "_test"
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
			h.methods[dir+"."+receiver(f.Recv.List[0].Type)]++
		}
	}
	return nil
}

// countLines counts the lines with code: neither empty nor only a comment.
func countLines(text []byte) int {
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return ""
	}
}

func TestTypesHaveFewMethods(t *testing.T) {
	check(t, "methods of a type", count(t).methods, maxMethods, exceptions{})
}

func TestPackagesHaveFewLines(t *testing.T) {
	check(t, "lines of code", count(t).lines, maxLines, moreLines())
}

func TestPackagesHaveFewFiles(t *testing.T) {
	check(t, "files", count(t).files, maxFiles, moreFiles())
}

// A function is a verb and its object. Go's own verbs are one word: New, Get, Start, String.
func TestNamesSayWhatIsDone(t *testing.T) {
	h := count(t)
	percent := map[string]int{}
	for pkg, n := range h.functions {
		if n >= fewFunctions {
			percent[pkg] = 100 * h.oneWord[pkg] / n
		}
	}
	check(t, "percentage of names of one word", percent, maxOneWord, exceptions{})
}

func TestCountFile(t *testing.T) {
	h := newHouse()
	text := "// A comment.\npackage p\n\nfunc (t *T[K]) do() {}\nfunc (T) readURL() {\n\t// nothing\n}\nfunc New() {}\nfunc ID() {}\nfunc parseTwoWords() {}\n"
	if err := h.countFile("p", "p.go", []byte(text)); err != nil {
		t.Fatal(err)
	}
	if h.lines["p"] != 7 || h.files["p"] != 1 || h.functions["p"] != 5 || h.oneWord["p"] != 3 {
		t.Errorf("counted %+v", h)
	}
}

// A type has the methods of all files of its package, and a test package of the same folder has other types.
func TestCountMethods(t *testing.T) {
	h := newHouse()
	for name, text := range map[string]string{
		"p.go":      "package p\n\nfunc (t *T[K]) do() {}\nfunc (T[K]) read() {}\nfunc (*U[K, V]) do() {}\nfunc New() {}\n",
		"a_test.go": "package p\n\nfunc (t T[K]) look() {}\n",
		"b_test.go": "package p_test\n\nfunc (t T) look() {}\n",
	} {
		if err := h.countMethods("p", name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int{"p.T": 3, "p.U": 1, "p_test.T": 1}; !maps.Equal(h.methods, want) {
		t.Errorf("counted %v, want %v", h.methods, want)
	}
}
