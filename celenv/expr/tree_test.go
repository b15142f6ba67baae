// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/go-cmp/cmp"
)

// parse makes the tree of an expression of the standard language.
func parse(t *testing.T, source string) *Tree {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes())
	if err != nil {
		t.Fatal(err)
	}
	parsed, issues := env.Parse(source)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	return NewTree(source, parsed.NativeRep())
}

// find gives the first node, in the order of the source, that is written so.
func find(t *testing.T, tree *Tree, path string) ast.Expr {
	t.Helper()
	ids := slices.SortedFunc(maps.Keys(tree.Nodes), func(a, b int64) int {
		if tree.IsBefore(a, b) {
			return -1
		}
		return 1
	})
	for _, id := range ids {
		if text, ok := FormatPath(tree.Nodes[id].Expr); ok && text == path {
			return tree.Nodes[id].Expr
		}
	}
	t.Fatalf("%s is not in %s", path, tree.Source)
	return nil
}

func TestCollectReads(t *testing.T) {
	cases := map[string]struct {
		source string
		want   []string
	}{
		"Literal":          {`1 + 2`, nil},
		"Field":            {`a.b.c`, []string{"a"}},
		"Several":          {`a.x == b[c]`, []string{"a", "b", "c"}},
		"Loop's variable":  {`a.filter(x, x.y == b)`, []string{"a", "b"}},
		"Name of a loop":   {`x.filter(x, x.y)`, []string{"x"}},
		"Loop in a loop":   {`a.all(x, x.all(y, y == x && z))`, []string{"a", "z"}},
		"Call":             {`size(a) > 0 ? b : c`, []string{"a", "b", "c"}},
		"List and map":     {`[a, {b: c}]`, []string{"a", "b", "c"}},
		"Optional":         {`a.?b[?c].orValue(d)`, []string{"a", "c", "d"}},
		"Twice is one":     {`a + a + a`, []string{"a"}},
		"After its loop":   {`a.all(x, x) && x`, []string{"a", "x"}},
		"Message's fields": {`google.protobuf.Int32Value{value: a}`, []string{"a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			reads := parse(t, tc.source).CollectReads()
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(reads))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A variable that is read several times is found where the source reads it first.
func TestCollectReadsFindsTheFirst(t *testing.T) {
	tree := parse(t, "b.x == 1 ||\n a.y && a.z")
	reads := tree.CollectReads()
	if reads["a"].Count != 2 || reads["b"].Count != 1 {
		t.Errorf("the variables are read %d and %d times, want 2 and 1", reads["a"].Count, reads["b"].Count)
	}
	for name, want := range map[string][2]int{"b": {1, 1}, "a": {2, 2}} {
		if line, column := tree.FindPlace(reads[name].First); line != want[0] || column != want[1] {
			t.Errorf("%s is at %d:%d, want %d:%d", name, line, column, want[0], want[1])
		}
	}
}

func TestFormatPath(t *testing.T) {
	cases := map[string]struct {
		source, want string // no want: it is none
	}{
		"Variable":       {"a", "a"},
		"Fields":         {"a.b.c", "a.b.c"},
		"Text index":     {`a["x/y"].b`, `a["x/y"].b`},
		"Number index":   {"a[0].b", "a[0].b"},
		"Path as index":  {"a[b.c]", "a[b.c]"},
		"Sum as index":   {"a[b + 1]", ""},
		"Double index":   {"a[1.5]", ""},
		"Call":           {"a.f().b", ""},
		"Presence":       {"has(a.b)", ""},
		"Literal":        {"1", ""},
		"List":           {"[a]", ""},
		"Index of a sum": {"(a + b)[0]", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text, ok := FormatPath(parse(t, tc.source).Root)
			if ok != (tc.want != "") || ok && text != tc.want {
				t.Errorf("got %q, %t, want %q", text, ok, tc.want)
			}
		})
	}
}

func TestFindBase(t *testing.T) {
	for source, want := range map[string]string{"a": "a", "a.b[0].c": "a", "a.?b[?0].c": "a", "a.b[c.d].e": "a"} {
		if got, ok := FormatPath(FindBase(parse(t, source).Root)); !ok || got != want {
			t.Errorf("%s begins with %q, want %q", source, got, want)
		}
	}
	if base := FindBase(parse(t, "f(a).b").Root); base.Kind() != ast.CallKind || base.AsCall().FunctionName() != "f" {
		t.Errorf("f(a).b begins with %v, want the call", base)
	}
}

// The place of a node is that of the name that its author looks for.
func TestFindPlace(t *testing.T) {
	cases := map[string]struct {
		source, path string
		line, column int
	}{
		"Variable":      {"a && b", "b", 1, 6},
		"Field":         {"a && b.cd", "b.cd", 1, 8},
		"Second line":   {"a &&\n  b.cd", "b.cd", 2, 5},
		"After a rune":  {"'ü' == b", "b", 1, 8},
		"In a loop":     {"a.all(x, x.y)", "x.y", 1, 12},
		"Index's base":  {`a && b["k"]`, "b", 1, 6},
		"Nested fields": {"a.b.c.d", "a.b.c", 1, 5},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tree := parse(t, tc.source)
			line, column := tree.FindPlace(find(t, tree, tc.path).ID())
			if line != tc.line || column != tc.column {
				t.Errorf("%s is at %d:%d, want %d:%d", tc.path, line, column, tc.line, tc.column)
			}
		})
	}
}

func TestFindPlaceOfACall(t *testing.T) {
	for source, want := range map[string]int{"a.size()": 3, "a && size(b)": 6, "a.b.exists_one(x, x).size()": 22} {
		tree, calls := parse(t, source), 0
		for id, at := range tree.Nodes {
			if at.Expr.Kind() != ast.CallKind || at.Expr.AsCall().FunctionName() != "size" {
				continue
			}
			calls++
			if line, column := tree.FindPlace(id); line != 1 || column != want {
				t.Errorf("the call in %s is at %d:%d, want 1:%d", source, line, column, want)
			}
		}
		if calls != 1 {
			t.Errorf("%s has %d calls", source, calls)
		}
	}
}

// A tree finds the nodes of a compiled expression too, which keeps no list of them.
func TestPlacesAreFoundWithoutTheList(t *testing.T) {
	tree := parse(t, "a.b.c == d")
	id := find(t, tree, "a.b.c").ID()
	line, column := tree.FindPlace(id)
	tree.Nodes = nil
	for range 2 {
		if l, c := tree.FindPlace(id); l != line || c != column {
			t.Errorf("it is at %d:%d, and was at %d:%d", l, c, line, column)
		}
	}
	if l, c := tree.FindPlace(1 << 40); l != 0 || c != 0 {
		t.Errorf("what is not there is at %d:%d", l, c)
	}
}

func TestIsInside(t *testing.T) {
	tree := parse(t, "f(a.g(b)) && c")
	marked := map[int64]bool{}
	for id, at := range tree.Nodes {
		if at.Expr.Kind() == ast.CallKind && at.Expr.AsCall().FunctionName() == "f" {
			marked[id] = true
		}
	}
	for path, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if got := tree.IsInside(tree.Nodes[find(t, tree, path).ID()], marked); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
}

func TestLoops(t *testing.T) {
	tree := parse(t, "a.all(x, b.all(y, x == y))")
	y := tree.Nodes[find(t, tree, "y").ID()]
	if len(y.Loops) != 2 || !IsBound("x", y.Loops) || !IsBound("y", y.Loops) || IsBound("a", y.Loops) {
		t.Errorf("y sees %d loops", len(y.Loops))
	}
	if b := tree.Nodes[find(t, tree, "b").ID()]; len(b.Loops) != 1 || IsBound("y", b.Loops) {
		t.Errorf("b sees %d loops", len(b.Loops))
	}
}

func TestLocateError(t *testing.T) {
	tree := parse(t, "a &&\n\tb.cd")
	e := tree.LocateError(&Error{Message: "no"}, find(t, tree, "b.cd").ID())
	if want := "  | \tb.cd\n  | \t  ^"; e.Line != 2 || e.Column != 4 || e.Snippet != want {
		t.Errorf("got %d:%d\n%s\nwant 2:4\n%s", e.Line, e.Column, e.Snippet, want)
	}
}
