// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Tree answers questions about the source of one expression.
type Tree struct {
	Source string
	info   *ast.SourceInfo
	Root   ast.Expr
	Nodes  map[int64]Node // nil once the expression is compiled
	// found are nodes that were sought since.
	found map[int64]ast.Expr
}

// Node is where an expression stands in its tree.
type Node struct {
	Expr   ast.Expr
	Parent ast.Expr
	// Loops are the comprehensions around it whose variables it sees, the innermost first.
	Loops []ast.Expr
}

// NewTree makes the tree of an expression that was parsed or checked.
func NewTree(source string, a *ast.AST) *Tree {
	t := &Tree{Source: source, info: a.SourceInfo(), Root: a.Expr(), Nodes: map[int64]Node{}}
	t.addNode(t.Root, nil, nil)
	return t
}

func (t *Tree) addNode(e, parent ast.Expr, loops []ast.Expr) {
	t.Nodes[e.ID()] = Node{Expr: e, Parent: parent, Loops: loops}
	if e.Kind() == ast.ComprehensionKind {
		loop := e.AsComprehension()
		t.addNode(loop.IterRange(), e, loops)
		t.addNode(loop.AccuInit(), e, loops)
		inside := slices.Insert(slices.Clone(loops), 0, e)
		t.addNode(loop.LoopCondition(), e, inside)
		t.addNode(loop.LoopStep(), e, inside)
		t.addNode(loop.Result(), e, inside)
		return
	}
	for _, child := range ListChildren(e) {
		t.addNode(child, e, loops)
	}
}

// ListChildren gives the parts of an expression that is no comprehension, in order.
func ListChildren(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.CallKind:
		if call := e.AsCall(); call.IsMemberFunction() {
			return slices.Insert(slices.Clone(call.Args()), 0, call.Target())
		}
		return e.AsCall().Args()
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return parts
	case ast.StructKind:
		var parts []ast.Expr
		for _, f := range e.AsStruct().Fields() {
			parts = append(parts, f.AsStructField().Value())
		}
		return parts
	default:
		return nil
	}
}

// Reads says how often an expression reads a variable, and which node is the first that does so in the order of the source.
type Reads struct {
	First int64
	Count int
}

// CollectReads gives the variables that the expression reads, other than those of its own loops.
func (t *Tree) CollectReads() map[string]Reads {
	all := map[string]Reads{}
	for id, at := range t.Nodes {
		if at.Expr.Kind() != ast.IdentKind {
			continue
		}
		name, global := strings.CutPrefix(at.Expr.AsIdent(), ".") // the checker's mark where a loop has a variable of that name
		if !global && IsBound(name, at.Loops) {
			continue
		}
		known, found := all[name]
		if !found || t.IsBefore(id, known.First) {
			known.First = id
		}
		known.Count++
		all[name] = known
	}
	return all
}

// IsBefore says whether a node stands before another one in the source.
func (t *Tree) IsBefore(one, other int64) bool {
	a, b := t.info.GetStartLocation(one), t.info.GetStartLocation(other)
	return cmp.Or(cmp.Compare(a.Line(), b.Line()), cmp.Compare(a.Column(), b.Column()), cmp.Compare(one, other)) < 0
}

// IsBound says whether the name is a variable of one of the comprehensions.
func IsBound(name string, loops []ast.Expr) bool {
	return slices.ContainsFunc(loops, func(e ast.Expr) bool {
		loop := e.AsComprehension()
		return name == loop.IterVar() || name == loop.IterVar2() || name == loop.AccuVar()
	})
}

// IsInside says whether the node stands in a call that is marked.
func (t *Tree) IsInside(at Node, marked map[int64]bool) bool {
	for at.Parent != nil {
		if marked[at.Parent.ID()] {
			return true
		}
		at = t.Nodes[at.Parent.ID()]
	}
	return false
}

// FindPlace gives the line and the column of a node, counted from 1, and 0 when they are not known.
func (t *Tree) FindPlace(id int64) (line, column int) {
	at := t.info.GetStartLocation(id)
	if at.Line() < 1 || at.Column() < 0 {
		return 0, 0
	}
	return at.Line(), t.findNameColumn(id, at.Line(), at.Column())
}

// findNameColumn moves a column, counted from 0, from the "." of a field or the "(" of a call to the name, and counts it
// from 1.
func (t *Tree) findNameColumn(id int64, line, column int) int {
	e := t.findNode(id)
	lines := strings.Split(t.Source, "\n")
	if e == nil || line > len(lines) {
		return column + 1
	}
	text := []rune(lines[line-1])
	switch e.Kind() {
	case ast.SelectKind, ast.IdentKind: // variables.x is one name once it is checked
		if column < len(text) && text[column] == '.' {
			return column + 2
		}
	case ast.CallKind:
		name := []rune(e.AsCall().FunctionName())
		if i := slices.Index(name, '.'); i >= 0 {
			name = name[i+1:] // a qualified name: the position is its last part's
		}
		if start := column - len(name); column < len(text) && text[column] == '(' && start >= 0 && slices.Equal(text[start:column], name) {
			return start + 1
		}
	}
	return column + 1
}

// findNode finds the node of an id; nil if there is none.
func (t *Tree) findNode(id int64) ast.Expr {
	if t.Nodes != nil {
		return t.Nodes[id].Expr
	}
	if e, known := t.found[id]; known {
		return e
	}
	var found ast.Expr
	ast.PreOrderVisit(t.Root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() == id {
			found = e
		}
	}))
	if t.found == nil {
		t.found = map[int64]ast.Expr{}
	}
	t.found[id] = found
	return found
}

// LocateError fills in where an Error is.
func (t *Tree) LocateError(e *Error, id int64) *Error {
	e.Line, e.Column = t.FindPlace(id)
	e.Snippet = MakeSnippet(t.Source, e.Line, e.Column)
	return e
}

// maxPathParts is how many parts a path may have: each part that is asked for writes a path as long as the expression.
const maxPathParts = 32

// FormatPath writes an expression as its author may have, if it is a variable with few fields and literal indexes.
func FormatPath(e ast.Expr) (string, bool) {
	left := maxPathParts
	return formatPath(e, &left)
}

func formatPath(e ast.Expr, left *int) (string, bool) {
	if *left--; *left < 0 {
		return "", false
	}
	switch e.Kind() {
	case ast.IdentKind:
		name := e.AsIdent()
		return name, !strings.ContainsAny(name, "@#")
	case ast.SelectKind:
		operand, ok := formatPath(e.AsSelect().Operand(), left)
		return operand + "." + e.AsSelect().FieldName(), ok && !e.AsSelect().IsTestOnly()
	case ast.CallKind:
		operand, key, ok := splitIndex(e)
		if !ok {
			return "", false
		}
		text, ok := formatPath(operand, left)
		if !ok {
			return "", false
		}
		inside, ok := formatKey(key, left)
		return text + "[" + inside + "]", ok
	default:
		return "", false
	}
}

// splitIndex takes operand[key] apart.
func splitIndex(e ast.Expr) (operand, key ast.Expr, ok bool) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
		return nil, nil, false
	}
	args := e.AsCall().Args()
	return args[0], args[1], true
}

// formatKey writes a literal or a path as a key in brackets.
func formatKey(key ast.Expr, left *int) (string, bool) {
	if key.Kind() != ast.LiteralKind {
		return formatPath(key, left)
	}
	switch v := key.AsLiteral().(type) {
	case types.String:
		return strconv.Quote(string(v)), true
	case types.Int:
		return strconv.FormatInt(int64(v), 10), true
	default:
		return "", false
	}
}

// FindBase finds the expression that a chain of fields and indexes begins with.
func FindBase(e ast.Expr) ast.Expr {
	for {
		switch e.Kind() {
		case ast.SelectKind:
			e = e.AsSelect().Operand()
		case ast.CallKind:
			switch call := e.AsCall(); call.FunctionName() {
			case operators.Index, operators.OptIndex, operators.OptSelect:
				e = call.Args()[0]
			default:
				return e
			}
		default:
			return e
		}
	}
}
