// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parse reads a Go file by its path in the repository.
func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, readFile(t, name), 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// The table of flags in docs/operations.md has the manager's flags, and no others.
func TestFlags(t *testing.T) {
	want := map[string]bool{}
	ast.Inspect(parse(t, "cmd/manager/flags.go"), func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		short := strings.HasSuffix(method.Sel.Name, "VarP")
		if !short && !strings.HasSuffix(method.Sel.Name, "Var") {
			return true
		}
		want["--"+text(t, call.Args[1])] = true
		if short {
			want["-"+text(t, call.Args[2])] = true
		}
		return true
	})
	if len(want) < 10 {
		t.Fatalf("flags.go has only the flags %v", want)
	}
	got := map[string]bool{}
	for _, row := range readPage(t, "docs/operations.md").rows() {
		if !strings.HasPrefix(row[0], "`-") {
			continue
		}
		for _, flag := range spans(row[0]) {
			got[flag] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-code +page):\n%s", diff)
	}
}

// The table of metrics in docs/operations.md has the collectors' names, and no others.
func TestMetrics(t *testing.T) {
	want := map[string]bool{}
	for _, file := range []string{"metrics.go", "readiness.go"} {
		ast.Inspect(parse(t, "controllers/internal/metrics/"+file), func(n ast.Node) bool {
			field, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			key, isIdent := field.Key.(*ast.Ident)
			name, isLiteral := field.Value.(*ast.BasicLit)
			if isIdent && isLiteral && key.Name == "Name" {
				want[text(t, name)] = true
			}
			return true
		})
	}
	if len(want) < 10 || !want["cleaner_ready"] {
		t.Fatalf("the package has only the metrics %v", want)
	}
	got := map[string]bool{}
	for _, row := range readPage(t, "docs/operations.md").rows() {
		if strings.HasPrefix(row[0], "`cleaner_") {
			got[spans(row[0])[0]] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-code +page):\n%s", diff)
	}
}

// text is what a string literal says.
func text(t *testing.T, e ast.Expr) string {
	t.Helper()
	literal, ok := e.(*ast.BasicLit)
	if !ok {
		t.Fatalf("%v is no literal", e)
	}
	s, err := strconv.Unquote(literal.Value)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The table of reasons in docs/troubleshooting.md has each reason that the operator can give, and no others.
func TestReasons(t *testing.T) {
	names := map[string]string{} // by constant
	ast.Inspect(parse(t, "api/v1alpha1/conditions.go"), func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Reason") {
			names[spec.Names[0].Name] = text(t, spec.Values[0])
		}
		return true
	})
	given := map[string]bool{}
	for _, constant := range reasonsInUse(t) {
		given[names[constant]] = true
	}
	if len(given) < 20 {
		t.Fatalf("the operator gives only %v", given)
	}
	documented := map[string]bool{}
	inTable := false
	for _, row := range readPage(t, "docs/troubleshooting.md").rows() {
		if len(row) != 3 {
			inTable = false
			continue
		}
		if row[0] == "Reason" || inTable {
			inTable = row[0] == "Reason" || row[0] == "" || strings.HasPrefix(row[0], "`") && !strings.HasPrefix(row[0], "`-")
		}
		if inTable {
			for _, reason := range spans(row[0]) {
				documented[reason] = true
			}
		}
	}
	if diff := cmp.Diff(given, documented); diff != "" {
		t.Errorf("reasons (-code +page):\n%s", diff)
	}
}

// reasonsInUse are the constants that the operator's code names.
func reasonsInUse(t *testing.T) []string {
	t.Helper()
	var used []string
	err := filepath.WalkDir(filepath.Join(root, "controllers"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "v1alpha1" && strings.HasPrefix(s.Sel.Name, "Reason") {
				used = append(used, s.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// The tables of imports in docs/architecture.md are those that the code is held to.
func TestImportTables(t *testing.T) {
	file := parse(t, "controllers/imports_test.go")
	rows := readPage(t, "docs/architecture.md").rows()
	for function, heading := range map[string]string{"allowed": "May import", "doors": "Door"} {
		want := tableOf(t, file, function)
		got := map[string][]string{}
		for _, row := range section(rows, heading) {
			name := spans(row[0])
			if len(name) != 1 {
				t.Fatalf("%q names no package", row[0])
			}
			got[name[0]] = spans(row[1])
			slices.Sort(got[name[0]])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-code +docs):\n%s", function, diff)
		}
	}
}

// section is the rows of the table of two columns whose second one has the heading.
func section(rows [][]string, heading string) [][]string {
	var in [][]string
	found := false
	for _, row := range rows {
		switch {
		case len(row) == 2 && row[1] == heading:
			found = true
		case found && !strings.HasPrefix(row[0], "`"):
			return in
		case found:
			in = append(in, row)
		}
	}
	return in
}

// tableOf reads the map literal that a function returns.
func tableOf(t *testing.T, file *ast.File, function string) map[string][]string {
	t.Helper()
	table := map[string][]string{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			entry, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			var values []string
			list, ok := entry.Value.(*ast.CompositeLit)
			if !ok {
				t.Fatalf("%s: an entry is no list", function)
			}
			for _, e := range list.Elts {
				values = append(values, text(t, e))
			}
			slices.Sort(values)
			table[text(t, entry.Key)] = values
			return false
		})
	}
	if len(table) == 0 {
		t.Fatalf("there is no table %s", function)
	}
	return table
}

var packageLine = regexp.MustCompile("(?m)^\\| `([a-z0-9/-]+)` \\| ")

// Each package of the product has a line in the table of rooms.
func TestRooms(t *testing.T) {
	rooms := map[string]bool{}
	before, _, _ := strings.Cut(readPage(t, "docs/architecture.md").text, "## Who may import whom")
	for _, m := range packageLine.FindAllStringSubmatch(before, -1) {
		rooms[m[1]] = true
	}
	for pkg := range tableOf(t, parse(t, "controllers/imports_test.go"), "allowed") {
		if !rooms[pkg] {
			t.Errorf("docs/architecture.md does not say what %s is", pkg)
		}
	}
}

var functionsInFile = regexp.MustCompile("((?:`[A-Za-z]+`(?: and )?)+) in `([a-z0-9_/]+\\.go)`")

// A reader follows a deletion of either life in ten steps, through at most 25 files, and finds each function where it is said to be.
func TestDeletionsAreFollowedThroughFewFiles(t *testing.T) {
	p := readPage(t, "docs/architecture.md")
	for _, heading := range []string{"### How a Recurring Cleaner deletes", "### How a Once Cleaner deletes"} {
		files, steps := map[string]bool{}, p.part(t, heading).rows()[1:]
		for _, step := range steps {
			places := functionsInFile.FindAllStringSubmatch(step[2], -1)
			for _, place := range places {
				files[place[2]] = true
				for _, function := range spans(place[1]) {
					if !declares(parse(t, place[2]), function) {
						t.Errorf("%s, step %s: %s declares no function %s", heading, step[0], place[2], function)
					}
				}
			}
			if len(places) == 0 || len(places) != strings.Count(step[2], ".go`") {
				t.Errorf("%s, step %s: it names a file without a function, or none", heading, step[0])
			}
		}
		if len(steps) != 10 || len(files) > 25 {
			t.Errorf("%s: %d steps, %d files", heading, len(steps), len(files))
		}
	}
}

// declares reports whether a file declares a function or a method of a name.
func declares(file *ast.File, name string) bool {
	return slices.ContainsFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Name.Name == name
	})
}
