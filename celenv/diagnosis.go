// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// diagnosis says in words that help what the checker found wrong with an expression.
type diagnosis struct {
	scope *scope
	tree  *expr.Tree
	// unknown are the calls of functions that there are not.
	unknown map[int64]bool
}

// convertCheckErrors says what the checker found in words that help. A misspelled macro makes a mistake of its own loop
// variables too; those are left out.
func (d *diagnosis) convertCheckErrors(issues *cel.Issues) []*expr.Error {
	var problems []*expr.Error
	t := d.tree
	all := sortIssues(issues)
	for _, issue := range all {
		e := t.Nodes[issue.ExprID].Expr
		if e != nil && e.Kind() == ast.CallKind && !d.scope.env.HasFunction(d.functionName(e)) {
			d.unknown[e.ID()] = true
		}
	}
	for _, issue := range all {
		if len(problems) == maxProblems {
			break
		}
		at := t.Nodes[issue.ExprID]
		problem := &expr.Error{Kind: expr.Invalid, Message: expr.TruncateText(issue.Message, 512)}
		switch {
		case at.Expr == nil:
			return append(problems, convertSyntaxErrors(t.Source, issues)...)
		case d.unknown[issue.ExprID]:
			name := d.functionName(at.Expr)
			problem.Message = fmt.Sprintf("there is no function %q", name)
			if problem.Hint = expr.SuggestForeign(name); problem.Hint == "" {
				problem.Hint = expr.SuggestName(name, d.listFunctions())
			}
		case at.Expr.Kind() == ast.IdentKind && d.isUnknown(at):
			if t.IsInside(at, d.unknown) {
				continue
			}
			d.describeUnknown(problem, at)
		case at.Expr.Kind() == ast.CallKind:
			problem.Hint = cmp.Or(d.suggestMethod(at.Expr), d.suggestOperandFix(at.Expr))
		}
		if problem.Hint == "" {
			problem.Hint = expr.SuggestLibraryFix(issue.Message, maxLoopNesting)
		}
		problems = append(problems, t.LocateError(problem, issue.ExprID))
	}
	return problems
}

// maxProblems is how many problems of one expression are reported: the next ones show when these are fixed.
const maxProblems = 16

// sortIssues gives what was found in the order of the source.
func sortIssues(issues *cel.Issues) []*cel.Error {
	all := slices.Clone(issues.Errors())
	slices.SortStableFunc(all, func(a, b *cel.Error) int {
		return cmp.Or(cmp.Compare(a.Location.Line(), b.Location.Line()), cmp.Compare(a.Location.Column(), b.Location.Column()))
	})
	return all
}

// functionName is the name of the called function, with the namespace that stands before it: json.valid.
func (d *diagnosis) functionName(e ast.Expr) string {
	call := e.AsCall()
	if !call.IsMemberFunction() {
		return call.FunctionName()
	}
	namespace, ok := expr.FormatPath(call.Target())
	if !ok || !d.isFunctionNamespace(namespace) {
		return call.FunctionName()
	}
	return namespace + "." + call.FunctionName()
}

// isFunctionNamespace says whether functions have names that begin so.
func (d *diagnosis) isFunctionNamespace(name string) bool {
	if _, isTarget := d.scope.targets[name]; isTarget {
		return false
	}
	for function := range d.scope.env.Functions() {
		if strings.HasPrefix(function, name+".") {
			return true
		}
	}
	return false
}

// listFunctions gives the names that a call may have.
func (d *diagnosis) listFunctions() []string {
	var names []string
	for name := range d.scope.env.Functions() {
		if !strings.ContainsAny(name, "@_") {
			names = append(names, name)
		}
	}
	for _, macro := range d.scope.env.Macros() {
		names = append(names, macro.Function())
	}
	return names
}

// isUnknown says whether a name means nothing where it stands.
func (d *diagnosis) isUnknown(at expr.Node) bool {
	name := at.Expr.AsIdent()
	if expr.IsBound(name, at.Loops) {
		return false
	}
	return !slices.Contains(d.listNames(), name)
}

// listNames gives those that an expression can read.
func (d *diagnosis) listNames() []string {
	var names []string
	for _, v := range d.scope.env.Variables() {
		if _, hidden := d.scope.hidden[v.Name()]; !hidden && v.Type().Kind() != types.TypeKind { // the names of types are no help here
			names = append(names, v.Name())
		}
	}
	return names
}

func (d *diagnosis) describeUnknown(problem *expr.Error, at expr.Node) {
	name := at.Expr.AsIdent()
	if name == strings.TrimSuffix(prefixVariables, ".") {
		d.describeVariable(problem, at.Parent)
		return
	}
	if included, isTarget := d.scope.targets[name]; isTarget && !included {
		problem.Message = fmt.Sprintf("the target %q has includeWhenEvaluating: false, so expressions do not see it", name)
		return
	}
	candidates := d.listNames()
	for _, loop := range at.Loops {
		candidates = append(candidates, loop.AsComprehension().IterVar())
	}
	problem.Message = fmt.Sprintf("there is no target or variable %q", name)
	if problem.Hint = cmp.Or(expr.SuggestConstant(name), expr.SuggestName(name, candidates)); problem.Hint == "" {
		problem.Hint = fmt.Sprintf("add a target of this name, or write params.%s if it is a parameter", name)
	}
}

// describeVariable says what is wrong where the word variables is not the beginning of the name of one.
func (d *diagnosis) describeVariable(problem *expr.Error, parent ast.Expr) {
	name := ""
	switch {
	case parent == nil:
	case parent.Kind() == ast.SelectKind:
		name = parent.AsSelect().FieldName()
	case parent.Kind() == ast.CallKind && parent.AsCall().FunctionName() == operators.OptSelect:
		if field, ok := parent.AsCall().Args()[1].AsLiteral().(types.String); ok {
			name = string(field)
		}
	}
	switch _, declared := d.scope.variables[prefixVariables+name]; {
	case name == "":
		problem.Message, problem.Hint = "variables are read one by one", "write variables.x for the variable x"
	case declared:
		problem.Message = fmt.Sprintf("the variable %q is always there", name)
		problem.Hint = fmt.Sprintf("write variables.%s, or ask for a part of it: has(variables.%s.x), variables.%s.?x", name, name, name)
	default:
		var candidates []string
		for known := range d.scope.variables {
			candidates = append(candidates, strings.TrimPrefix(known, prefixVariables))
		}
		problem.Message = fmt.Sprintf("there is no variable %q", name)
		if problem.Hint = expr.SuggestName(name, candidates); problem.Hint == "" {
			problem.Hint = "add it to variables, before what reads it"
		}
	}
}

// suggestMethod says what to write where a function that is called on a value, as in x.trim(), is called without one.
func (d *diagnosis) suggestMethod(e ast.Expr) string {
	function, isGlobal := d.scope.env.Functions()[e.AsCall().FunctionName()], func(o *decls.OverloadDecl) bool { return !o.IsMemberFunction() }
	if e.AsCall().IsMemberFunction() || function == nil || slices.ContainsFunc(function.OverloadDecls(), isGlobal) {
		return ""
	}
	return expr.SuggestMethod(function.Name())
}

// suggestOperandFix says what to write where the two operands of a call do not fit.
func (d *diagnosis) suggestOperandFix(e ast.Expr) string {
	operands := expr.ListChildren(e)
	if len(operands) != 2 {
		return ""
	}
	return expr.SuggestTimeFix(d.guessType(operands[0]), d.guessType(operands[1]))
}

// guessType gives the type of an expression as far as it shows: the checker keeps no types of what it refused.
func (d *diagnosis) guessType(e ast.Expr) *types.Type {
	switch e.Kind() {
	case ast.LiteralKind:
		return budget.TypeOf(e.AsLiteral())
	case ast.IdentKind:
		if e.AsIdent() == nameTime {
			return types.TimestampType
		}
	case ast.CallKind:
		function, ok := d.scope.env.Functions()[d.functionName(e)]
		if !ok {
			return types.DynType
		}
		if e.AsCall().FunctionName() == operators.Subtract && d.guessType(e.AsCall().Args()[0]).Kind() == types.TimestampKind {
			return types.DurationType // or a timestamp: the hint is the same
		}
		var result *types.Type
		for _, overload := range function.OverloadDecls() {
			if result != nil && !result.IsExactType(overload.ResultType()) {
				return types.DynType
			}
			result = overload.ResultType()
		}
		return result
	}
	return types.DynType
}
