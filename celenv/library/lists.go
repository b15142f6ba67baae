// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// Shorthands are macros for what takes several functions otherwise. They cost, and change with time, as these functions do.
//
//	<list>.take(<int>) -> <list>            // pods.items.take(3): the first 3, or all if there are fewer
//	<list>.minBy(x, <key>) -> <optional>    // pods.items.minBy(p, p.metadata.creationTimestamp): an element with the least key
//	<list>.maxBy(x, <key>) -> <optional>    // an element with the greatest key
//	<string>.glob(<literal>) -> <bool>      // pod.metadata.name.glob("preview-*"): * stands for any characters, and ? for one
func Shorthands() cel.EnvOption { return cel.Lib(shorthandLibrary{}) }

type shorthandLibrary struct{}

func (shorthandLibrary) LibraryName() string { return "cleaner.shorthands" }

func (shorthandLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{cel.Macros(
		cel.ReceiverMacro("take", 1, expandTake), cel.ReceiverMacro("glob", 1, expandGlob),
		cel.ReceiverMacro("minBy", 2, newOutermostMacro("first")), cel.ReceiverMacro("maxBy", 2, newOutermostMacro("last")),
	)}
}

func (shorthandLibrary) ProgramOptions() []cel.ProgramOption { return nil }

// expandTake expands list.take(n) to list.slice(0, the least of n and the size of list), with the list evaluated once.
func expandTake(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	const input = "@taken"
	list := f.NewIdent(input)
	size := f.NewCall(overloads.Size, f.Copy(list))
	call := f.NewMemberCall("slice", f.Copy(list), f.NewLiteral(types.IntZero), f.NewCall("math.@min", size, args[0]))
	return f.NewComprehension(f.NewList(), "#unused", input, target, f.NewLiteral(types.False), list, call), nil
}

// newOutermostMacro expands list.f(x, key) to list.sortBy(x, key).end().
func newOutermostMacro(end string) cel.MacroFactory {
	sort := newKeyedMacro("@sortByAssociatedKeys")
	return func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
		sorted, err := sort(f, target, args)
		if err != nil {
			return nil, err
		}
		return f.NewMemberCall(end, sorted), nil
	}
}

// expandGlob expands text.glob("a*") to text.matches("(?s)^a.*$").
func expandGlob(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	if args[0].Kind() == ast.LiteralKind {
		if pattern, ok := args[0].AsLiteral().(types.String); ok {
			return f.NewMemberCall("matches", target, f.NewLiteral(types.String(translateGlob(string(pattern))))), nil
		}
	}
	return nil, f.NewError(args[0].ID(), `glob needs its pattern as text, such as "preview-*": compute others with matches`)
}

// translateGlob returns the regular expression of a pattern.
func translateGlob(pattern string) string {
	var out strings.Builder
	out.WriteString("(?s)^")
	for _, r := range pattern {
		switch r {
		case '*':
			out.WriteString(".*")
		case '?':
			out.WriteByte('.')
		default:
			out.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	return out.String() + "$"
}
