// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lookups

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/expr"
)

// Pieces says that an expression makes a map in which the entries of several objects are those that it makes of each object alone, put together: an
// object that changes concerns no other keys than those that are made of it.
type Pieces struct {
	// Targets are the targets whose objects these are, sorted; none: it makes no such map, or that cannot be told.
	Targets []string
	// Counts says that an entry tells how many objects have its key, or that one has: it is the same if as many have.
	Counts bool
}

// Names is what FindPieces has to know of the names in an expression.
type Names struct {
	// IsList says that a name is a target with many objects.
	IsList func(name string) bool
	// FindVariable returns the expression of a variable; nil if the name is of none.
	FindVariable func(name string) ast.Expr
	// ListTargets lists the targets that a name reads.
	ListTargets func(name string) []string
}

// FindPieces says whether an expression makes its map in pieces: by indexBy, groupBy, countBy or toSet, of lists of objects that are filtered, mapped,
// flattened, added up, or searched by refs.
func FindPieces(root ast.Expr, names Names) Pieces {
	p := &pieces{names: names, of: map[string]bool{}, read: map[string]bool{}}
	counts, ok := p.visitMap(root)
	if !ok {
		return Pieces{}
	}
	for name := range p.read { // what is read for each object must not be of others
		if slices.ContainsFunc(names.ListTargets(name), func(target string) bool { return p.of[target] }) {
			return Pieces{}
		}
	}
	return Pieces{Targets: slices.Sorted(maps.Keys(p.of)), Counts: counts}
}

// pieces goes through an expression.
type pieces struct {
	names Names
	// of are the targets whose objects are its pieces, and read is what is read for each of them.
	of, read map[string]bool
}

// visitMap visits what makes the map.
func (p *pieces) visitMap(e ast.Expr) (counts, ok bool) {
	switch e.Kind() {
	case ast.ComprehensionKind: // of a macro such as indexBy
		return p.visitKeyed(e.AsComprehension())
	case ast.CallKind:
		args := expr.ListChildren(e)
		switch e.AsCall().FunctionName() {
		case "toSet":
			return true, p.visitList(args[0])
		case operators.Conditional: // of a target that may not be there
			one, other := args[1], args[2]
			if isEmptyMap(one) {
				one, other = other, one
			}
			if counts, ok = p.visitMap(one); ok && isEmptyMap(other) {
				return counts, p.isTestOfList(args[0])
			}
		}
	}
	return false, false
}

// visitKeyed visits what a macro makes of a list and of the list of its keys.
func (p *pieces) visitKeyed(loop ast.ComprehensionExpr) (counts, ok bool) {
	made := loop.Result()
	if made.Kind() != ast.CallKind || !isEmptyList(loop.IterRange()) {
		return false, false
	}
	function, args := made.AsCall().FunctionName(), expr.ListChildren(made)
	switch {
	case !slices.Contains([]string{"@indexBy", "@groupBy", "@countBy"}, function):
		return false, false
	case !isIdent(args[0], loop.AccuVar()), args[1].Kind() != ast.ComprehensionKind:
		return false, false
	}
	keys := args[1].AsComprehension()
	if !isIdent(keys.IterRange(), loop.AccuVar()) || !p.visitEach(keys) {
		return false, false
	}
	return function == "@countBy", p.visitList(loop.AccuInit())
}

// visitList visits what makes a list. Each of its elements is made of one object.
func (p *pieces) visitList(e ast.Expr) (ok bool) {
	if name, ok := expr.FindListed(e); ok {
		return p.addTarget(strings.TrimPrefix(name, "."))
	}
	switch e.Kind() {
	case ast.IdentKind:
		v := p.names.FindVariable(nameOf(e))
		return v != nil && p.visitList(v)
	case ast.ListKind:
		return isEmptyList(e)
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		return p.visitEach(loop) && p.visitList(loop.IterRange())
	case ast.CallKind:
		return p.visitCall(e)
	default:
		return false
	}
}

// visitCall is visitList for a call.
func (p *pieces) visitCall(e ast.Expr) (ok bool) {
	args := expr.ListChildren(e)
	switch e.AsCall().FunctionName() {
	case operators.Add:
		return p.visitList(args[0]) && p.visitList(args[1])
	case operators.Conditional:
		return p.isTestOfList(args[0]) && p.visitList(args[1]) && p.visitList(args[2])
	case "flatten":
		return len(args) == 1 && p.visitList(args[0])
	case "refs":
		p.readPart(args[1])
		return p.visitSearched(args[0])
	default:
		return false
	}
}

// visitSearched visits what refs searches: targets as they are, lists of objects, and lists of both.
func (p *pieces) visitSearched(e ast.Expr) (ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return p.addTarget(nameOf(e)) || p.visitList(e)
	case ast.ListKind:
		return !slices.ContainsFunc(e.AsList().Elements(), func(of ast.Expr) bool { return !p.visitSearched(of) })
	default:
		return p.visitList(e)
	}
}

// addTarget adds a target, if it is one with many objects.
func (p *pieces) addTarget(name string) (ok bool) {
	if ok = p.names.IsList(name); ok {
		p.of[name] = true
	}
	return ok
}

// visitEach visits a loop that makes a list, and says whether each of its elements is made of one of the range, as by map and filter.
func (p *pieces) visitEach(loop ast.ComprehensionExpr) (ok bool) {
	if loop.HasIterVar2() || !isEmptyList(loop.AccuInit()) || !isIdent(loop.Result(), loop.AccuVar()) {
		return false
	}
	if always := loop.LoopCondition(); always.Kind() != ast.LiteralKind || always.AsLiteral() != types.True {
		return false
	}
	step := loop.LoopStep()
	if args, ok := findArgs(step, operators.Conditional); ok {
		if !isIdent(args[2], loop.AccuVar()) {
			return false
		}
		p.readPart(args[0])
		step = args[1]
	}
	args, ok := findArgs(step, operators.Add)
	if !ok || !isIdent(args[0], loop.AccuVar()) || args[1].Kind() != ast.ListKind {
		return false
	}
	p.readPart(args[1])
	return true
}

// readPart notes the names in a part that is evaluated for each object, also those of its loops.
func (p *pieces) readPart(e ast.Expr) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			p.read[nameOf(e)] = true
		}
	}))
}

// isTestOfList says that a condition tests whether a target with many objects is there, which no change of an object changes.
func (p *pieces) isTestOfList(e ast.Expr) bool {
	args, ok := findArgs(e, operators.Equals)
	if !ok {
		args, ok = findArgs(e, operators.NotEquals)
	}
	if !ok {
		return false
	}
	target, null := args[0], args[1]
	if target.Kind() != ast.IdentKind {
		target, null = null, target
	}
	return target.Kind() == ast.IdentKind && p.names.IsList(nameOf(target)) && null.Kind() == ast.LiteralKind && null.AsLiteral() == types.NullValue
}

// findArgs returns the arguments of a call of a function.
func findArgs(e ast.Expr, function string) (args []ast.Expr, ok bool) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != function {
		return nil, false
	}
	return expr.ListChildren(e), true
}

func nameOf(ident ast.Expr) string { return strings.TrimPrefix(ident.AsIdent(), ".") }

func isIdent(e ast.Expr, name string) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }

func isEmptyList(e ast.Expr) bool {
	return e.Kind() == ast.ListKind && len(e.AsList().Elements()) == 0
}

func isEmptyMap(e ast.Expr) bool {
	return e.Kind() == ast.MapKind && len(e.AsMap().Entries()) == 0
}
