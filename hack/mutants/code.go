// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// code is a package that was read.
type code struct {
	room
	path     string // import path
	fset     *token.FileSet
	files    []*file
	info     *types.Info
	types    *types.Package
	importer types.Importer
}

// file is a file of a package.
type file struct {
	name         string // from the root of the module
	absolute     string
	source       []byte
	syntax       *ast.File
	declarations []declaration
}

// declaration is one at the top of a file, by offsets.
type declaration struct {
	name       string
	start, end int
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// readPackages reads the packages of a list, in its order. Root is the folder of the module.
func readPackages(ctx context.Context, root string, rooms []room) ([]*code, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, r := range rooms {
		args = append(args, "./"+r.Path)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	folders, exports := map[string]listed{}, map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot read what go list says: %w", err)
		}
		folders[l.Dir], exports[l.ImportPath] = l, l.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	packages := make([]*code, 0, len(rooms))
	for _, r := range rooms {
		l, ok := folders[filepath.Join(root, filepath.FromSlash(r.Path))]
		if !ok {
			return nil, fmt.Errorf("%s is no package of this module", r.Path)
		}
		c := &code{room: r, path: l.ImportPath, fset: fset, importer: imports}
		if err := c.read(l); err != nil {
			return nil, err
		}
		packages = append(packages, c)
	}
	return packages, nil
}

// read reads the files of a package.
func (c *code) read(l listed) error {
	var all []*ast.File
	for _, name := range l.GoFiles {
		f := &file{name: c.Path + "/" + name, absolute: filepath.Join(l.Dir, name)}
		var err error
		if f.source, err = os.ReadFile(f.absolute); err != nil {
			return err
		}
		if f.syntax, err = parser.ParseFile(c.fset, f.absolute, f.source, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return err
		}
		f.declarations = c.declarations(f.syntax)
		c.files, all = append(c.files, f), append(all, f.syntax)
	}
	c.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	for _, name := range c.Except {
		if !slices.Contains(l.GoFiles, name) {
			return fmt.Errorf("%s has no file %s", c.Path, name)
		}
	}
	var err error
	if c.types, err = (&types.Config{Importer: c.importer}).Check(c.path, c.fset, all, c.info); err != nil {
		return fmt.Errorf("%s does not compile: %w", c.Path, err)
	}
	return nil
}

// declarations are those at the top of a file, but imports.
func (c *code) declarations(f *ast.File) []declaration {
	var out []declaration
	add := func(name string, n ast.Node) {
		out = append(out, declaration{name: name, start: c.offset(n.Pos()), end: c.offset(n.End())})
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(nameFunction(d), d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					add(s.Names[0].Name, s)
				case *ast.TypeSpec:
					add(s.Name.Name, s)
				}
			}
		}
	}
	return out
}

// nameFunction is Name, or Type.Name.
func nameFunction(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
	of, _, _ = strings.Cut(of, "[")
	return of + "." + d.Name.Name
}

// offset is where a position lies in its file.
func (c *code) offset(p token.Pos) int { return c.fset.PositionFor(p, false).Offset }

// compiles says that a package with a mutant in it does.
func (c *code) compiles(m *mutant) bool {
	fset := token.NewFileSet()
	all := make([]*ast.File, 0, len(c.files))
	for _, f := range c.files {
		source := f.source
		if f == m.file {
			source = m.source()
		}
		syntax, err := parser.ParseFile(fset, f.absolute, source, parser.SkipObjectResolution)
		if err != nil {
			return false
		}
		all = append(all, syntax)
	}
	_, err := (&types.Config{Importer: c.importer}).Check(c.path, fset, all, nil)
	return err == nil
}

// findMutants are all mutants of a package that the operators make. Some of them do not compile.
func findMutants(c *code) []*mutant {
	var out []*mutant
	for _, f := range c.files {
		if ast.IsGenerated(f.syntax) || slices.Contains(c.Except, filepath.Base(f.name)) {
			continue
		}
		for _, d := range f.syntax.Decls {
			if g, is := d.(*ast.GenDecl); is && g.Tok != token.VAR {
				continue
			}
			v := &finder{code: c, file: f}
			ast.Inspect(d, func(n ast.Node) bool {
				if n != nil {
					v.enter(n)
				}
				return n != nil && v.visit(n)
			})
			out = append(out, v.out...)
		}
	}
	return out
}

// logs says that a call writes to a log.
func (c *code) logs(n *ast.CallExpr) bool {
	s, is := n.Fun.(*ast.SelectorExpr)
	if !is {
		return false
	}
	t := c.info.TypeOf(s.X)
	return t != nil && (strings.HasSuffix(t.String(), "logr.Logger") || strings.HasSuffix(t.String(), "slog.Logger"))
}

// saysZero says that an element of a struct gives a field the value that it has anyway.
func (c *code) saysZero(e ast.Expr) bool {
	pair, is := e.(*ast.KeyValueExpr)
	if !is {
		return false
	}
	if key, is := pair.Key.(*ast.Ident); !is || !c.isField(key) {
		return false
	}
	value := c.info.Types[pair.Value]
	if value.Value == nil {
		return value.IsNil()
	}
	switch value.Value.Kind() {
	case constant.Bool:
		return !constant.BoolVal(value.Value)
	case constant.String:
		return constant.StringVal(value.Value) == ""
	default:
		return constant.Sign(value.Value) == 0
	}
}

func (c *code) isField(n *ast.Ident) bool {
	o, is := c.info.Uses[n].(*types.Var)
	return is && o.IsField()
}
