// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// Names says what the names that an expression reads stand for.
type Names struct {
	// Sure are the lookups that need no guard.
	Sure SureLookups
	// IsList says that a name is a target with many objects.
	IsList func(name string) bool
	// FindVariable gives the expression of a variable; nil for another name.
	FindVariable func(name string) *Tree
}

// FindMistakes finds what compiles and will likely go wrong: lookups without a guard, targets taken for lists, and names sought among keys.
func (t *Tree) FindMistakes(path string, names Names) []Warning {
	return slices.Concat(t.findUnguarded(path, names.Sure), t.findListMistakes(path, names.IsList), t.findNamesAmongKeys(path, names.FindVariable))
}

// findListMistakes finds where an expression takes a target with many objects for the list of them, which is its field items: it goes through the
// target, counts it, or looks up an object by its place. That is never an error, and never what is meant.
func (t *Tree) findListMistakes(path string, isList func(target string) bool) []Warning {
	var found []Warning
	ast.PreOrderVisit(t.Root, ast.NewExprVisitor(func(e ast.Expr) {
		at, known := t.Nodes[e.ID()]
		if !known || len(found) == maxUnguarded || e.Kind() != ast.IdentKind || at.Parent == nil || IsBound(e.AsIdent(), at.Loops) || !isList(e.AsIdent()) || !takesList(at.Parent, e) {
			return
		}
		name := e.AsIdent()
		found = append(found, t.warnAt(e, path, name+" is no list: it has the objects in its field items", fmt.Sprintf("write %s.items", name)))
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

// findNamesAmongKeys finds where an expression looks for the name of an object in what refs gives. These are keys, and the key of an object in a
// namespace is not its name: so it is not found, and seems to be in use nowhere. An expression that also looks for a key means both: what has no
// namespace may refer to a name alone.
func (t *Tree) findNamesAmongKeys(path string, findVariable func(name string) *Tree) []Warning {
	var found []Warning
	looksForKey := false
	ast.PreOrderVisit(t.Root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.In || len(found) == maxUnguarded || !givesRefs(e.AsCall().Args()[1], findVariable) {
			return
		}
		sought := e.AsCall().Args()[0]
		looksForKey = looksForKey || sought.Kind() == ast.CallKind && sought.AsCall().FunctionName() == "key"
		if object, is := splitName(sought); is {
			found = append(found, t.warnAt(sought, path, "refs gives keys, such as shop/settings: the name of an object in a namespace is never one of them, also if the object is in use",
				fmt.Sprintf("write key(%s)", object)))
		}
	}))
	if looksForKey {
		return nil
	}
	return found
}

// givesRefs says that an expression gives what refs gives: the list or the set of it, part of it, or more, also in a variable.
func givesRefs(e ast.Expr, findVariable func(name string) *Tree) bool {
	switch e.Kind() {
	case ast.IdentKind:
		t := findVariable(e.AsIdent())
		return t != nil && givesRefs(t.Root, findVariable)
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case "refs":
			return true
		case "toSet":
			return call.IsMemberFunction() && givesRefs(call.Target(), findVariable)
		case operators.Add:
			return givesRefs(call.Args()[0], findVariable) && givesRefs(call.Args()[1], findVariable)
		}
	case ast.ComprehensionKind:
		return isFilter(e.AsComprehension()) && givesRefs(e.AsComprehension().IterRange(), findVariable)
	}
	return false
}

// splitName gives the object of an expression that reads the metadata.name of one, as its author wrote it.
func splitName(e ast.Expr) (object string, is bool) {
	path, ok := FormatPath(e)
	object, is = strings.CutSuffix(path, ".metadata.name")
	return object, is && ok
}

// warnAt makes a warning of a part of the expression.
func (t *Tree) warnAt(e ast.Expr, path, message, hint string) Warning {
	w := Warning{Path: path, Message: TruncateText(message, maxShown), Hint: TruncateText(hint, maxShown)}
	w.Line, w.Column = t.FindPlace(e.ID())
	w.Snippet = MakeSnippet(t.Source, w.Line, w.Column)
	return w
}
