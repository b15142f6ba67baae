// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// FindLeadingTargets finds the targets whose objects a list is about: those that it begins with, whatever is called on it, and on both sides of
// a +. There are none where that does not show. Sorted. isTarget says that a name is a target, and findVariable gives the tree of a variable, nil
// for another name.
func FindLeadingTargets(list ast.Expr, isTarget func(name string) bool, findVariable func(name string) *Tree) []string {
	l := &leadingTargets{isTarget: isTarget, findVariable: findVariable, bound: map[string]ast.Expr{}, seen: map[ast.Expr]bool{}, found: map[string]bool{}}
	l.addTargets(list)
	return slices.Sorted(maps.Keys(l.found))
}

// leadingTargets collects the targets that a list begins with. Each expression is looked at once, however often others name it.
type leadingTargets struct {
	isTarget     func(name string) bool
	findVariable func(name string) *Tree
	// bound are the names that stand for other expressions.
	bound map[string]ast.Expr
	seen  map[ast.Expr]bool
	found map[string]bool
}

// addTargets adds those of a list.
func (l *leadingTargets) addTargets(list ast.Expr) {
	e := FindBase(list)
	if l.seen[e] {
		return
	}
	l.seen[e] = true
	switch e.Kind() {
	case ast.CallKind:
		switch call := e.AsCall(); {
		case call.IsMemberFunction():
			l.addTargets(call.Target())
		case call.FunctionName() == operators.Add:
			l.addTargets(call.Args()[0])
			l.addTargets(call.Args()[1])
		}
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		if r := loop.IterRange(); r.Kind() != ast.ListKind || len(r.AsList().Elements()) > 0 {
			l.addTargets(r)
			return
		}
		l.bound[loop.AccuVar()] = loop.AccuInit() // cel.bind, and what is made of it, such as sortBy
		l.addTargets(loop.Result())
	case ast.IdentKind:
		l.addNamed(e.AsIdent())
	}
}

// addNamed adds what a name stands for.
func (l *leadingTargets) addNamed(name string) {
	if value, ok := l.bound[name]; ok {
		delete(l.bound, name) // in the value itself it is another one
		defer func() { l.bound[name] = value }()
		l.addTargets(value)
		return
	}
	if l.isTarget(name) {
		l.found[name] = true
		return
	}
	if tree := l.findVariable(name); tree != nil {
		outer := l.bound
		defer func() { l.bound = outer }()
		l.bound = map[string]ast.Expr{}
		l.addTargets(tree.Root)
	}
}
