// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// missingUnitTests are packages with fewer lines of unit tests than of code: how many lines of a hundred are missing. No number here may
// rise.
func missingUnitTests() exceptions {
	return exceptions{}
}

// controlPlanes are what starts a control plane. A test that needs one of these is no unit test.
func controlPlanes() []string {
	return []string{"test/cluster", "test/cluster/clustertest", "test/helmtest"}
}

// tested is how many lines of code a package has, and of unit tests.
type tested struct{ code, tests int }

// countTests counts the lines of each package below controllers.
func countTests(t *testing.T) map[string]tested {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	all, tests := map[string]tested{}, map[string]map[string][]byte{}
	err := fs.WalkDir(root, "controllers", func(file string, d fs.DirEntry, err error) error {
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
		pkg := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") {
			if tests[pkg] == nil {
				tests[pkg] = map[string][]byte{}
			}
			tests[pkg][file] = text
			return nil
		}
		n := all[pkg]
		n.code += countLines(text)
		all[pkg] = n
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, files := range tests {
		n := all[pkg]
		if n.tests, err = countUnitTests(files); err != nil {
			t.Fatal(err)
		}
		all[pkg] = n
	}
	return all
}

// declared is what a test file declares at its top.
type declared struct {
	file  string
	lines int
	// names are what others call it by, and uses all names in it.
	names []string
	uses  map[string]bool
	live  bool
}

// countUnitTests counts the lines of a package's test files, without what needs a control plane, by whatever way.
func countUnitTests(files map[string][]byte) (lines int, err error) {
	var all []*declared
	for name, text := range files {
		found, err := readDeclarations(name, text)
		if err != nil {
			return 0, err
		}
		all = append(all, found...)
	}
	spreadLive(all)
	alive, units := map[string]int{}, map[string]bool{}
	for _, d := range all {
		if d.live {
			alive[d.file] += d.lines
		} else {
			units[d.file] = true
		}
	}
	for name, text := range files {
		if units[name] {
			lines += countLines(text) - alive[name]
		}
	}
	return lines, nil
}

// spreadLive has whatever uses what needs a control plane need one too.
func spreadLive(all []*declared) {
	names := map[string]bool{}
	for changed := true; changed; {
		changed = false
		for _, d := range all {
			for name := range d.uses {
				d.live = d.live || names[name]
			}
			if !d.live {
				continue
			}
			for _, name := range d.names {
				changed = changed || !names[name]
				names[name] = true
			}
		}
	}
}

// readDeclarations reads what a file declares, and whether it needs a control plane by itself.
func readDeclarations(name string, text []byte) ([]*declared, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, 0)
	if err != nil {
		return nil, err
	}
	planes := map[string]bool{}
	for _, i := range file.Imports {
		from, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		for _, plane := range controlPlanes() {
			if strings.HasSuffix(from, "/"+plane) {
				planes[path.Base(from)] = true
			}
		}
	}
	var all []*declared
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		start, end := fset.Position(d.Pos()).Offset, fset.Position(d.End()).Offset
		one := &declared{file: name, lines: countLines(text[start:end]), names: nameDeclaration(d), uses: map[string]bool{}}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // what is selected is of another package, or a field or a method
				ast.Inspect(n.X, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						one.uses[id.Name] = true
						one.live = one.live || planes[id.Name]
					}
					return true
				})
				return false
			case *ast.Ident:
				one.uses[n.Name] = true
			}
			return true
		})
		all = append(all, one)
	}
	return all, nil
}

// nameDeclaration gives what others call a declaration by. A method goes with its type.
func nameDeclaration(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name != "TestMain" {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// A package below controllers has at least as many lines of unit tests as of code.
func TestPackagesHaveUnitTests(t *testing.T) {
	missing := map[string]int{}
	for pkg, n := range countTests(t) {
		if n.code > 0 {
			missing[pkg] = max(0, 100-100*n.tests/n.code)
		}
		t.Logf("%s has %d lines of code, and %d of unit tests", pkg, n.code, n.tests)
	}
	check(t, "lines of unit tests that are missing for a hundred lines of code", missing, 0, missingUnitTests())
}

// What needs a control plane, by itself, by a function, a type or a variable, is no unit test.
func TestCountUnitTests(t *testing.T) {
	files := map[string][]byte{
		"live_test.go": []byte("package p\n\nimport \"example.com/x/test/cluster\"\n\nvar shared *cluster.Cluster\n\nfunc TestMain() {\n\tshared = cluster.New()\n}\n"),
		"a_test.go": []byte("package p\n\nimport \"testing\"\n\ntype world struct{ c any }\n\nfunc newWorld() world { return world{shared} }\n\nfunc (w world) look() {}\n\n" +
			"func TestLive(t *testing.T) {\n\tw := newWorld()\n\tw.look()\n}\n\n" +
			"// Of a field that is called alike.\nfunc TestUnit(t *testing.T) {\n\tx.shared = 1\n\tt.Log()\n}\n"),
		"b_test.go": []byte("package p\n\nfunc helper() {}\n"),
	}
	got, err := countUnitTests(files)
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 + 2 + 4 + 2; got != want { // the first lines, the type with its method, TestUnit, and the helper with its package
		t.Errorf("%d lines are of unit tests, want %d", got, want)
	}
}
