// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// FindListMistakes finds where an expression takes a target with many objects for the list of them, which is its field items: it goes through the
// target, counts it, or looks up an object by its place. That is never an error, and never what is meant.
func (t *Tree) FindListMistakes(path string, isList func(target string) bool) []Warning {
	var found []Warning
	ast.PreOrderVisit(t.Root, ast.NewExprVisitor(func(e ast.Expr) {
		at, known := t.Nodes[e.ID()]
		if !known || len(found) == maxUnguarded || e.Kind() != ast.IdentKind || at.Parent == nil || IsBound(e.AsIdent(), at.Loops) || !isList(e.AsIdent()) || !takesList(at.Parent, e) {
			return
		}
		name := e.AsIdent()
		w := Warning{
			Path:    path,
			Message: TruncateText(fmt.Sprintf("%s is no list: it has the objects in its field items", name), maxShown),
			Hint:    TruncateText(fmt.Sprintf("write %s.items", name), maxShown),
		}
		w.Line, w.Column = t.FindPlace(e.ID())
		w.Snippet = MakeSnippet(t.Source, w.Line, w.Column)
		found = append(found, w)
	}))
	return found
}

// takesList says that what is around a value uses it as a list.
func takesList(around, value ast.Expr) bool {
	switch around.Kind() {
	case ast.ComprehensionKind:
		loop := around.AsComprehension()
		return loop.IterRange() == value || loop.AccuInit() == value && strings.HasPrefix(loop.AccuVar(), "@") // of a macro such as indexBy
	case ast.CallKind:
		switch call := around.AsCall(); call.FunctionName() {
		case "size":
			return true
		case operators.Index, operators.OptIndex:
			return call.Args()[0] == value && call.Args()[1].Kind() == ast.LiteralKind && call.Args()[1].AsLiteral().Type().TypeName() == "int"
		}
	}
	return false
}
