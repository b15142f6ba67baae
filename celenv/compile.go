// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Compile makes Programs of the expressions of a spec: its conditions, and cloudEventData. It gives either Programs or
// what is wrong, never a part of them.
func (c *Compiler) Compile(spec *v1alpha1.Work) (*Programs, field.ErrorList) {
	root := field.NewPath("spec")
	s := scope{targets: map[string]bool{}}
	var errs field.ErrorList
	var variables []string
	for i := range spec.Targets {
		target := &spec.Targets[i]
		if target.Name == variableParams || target.Name == variableTime {
			errs = append(errs, field.Invalid(root.Child("targets").Index(i).Child("name"), target.Name, "means something else in expressions"))
			continue
		}
		s.targets[target.Name] = target.Included()
		if target.Included() {
			variables = append(variables, target.Name)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	var err error
	if s.env, err = c.with(variables); err != nil {
		return nil, field.ErrorList{field.InternalError(root.Child("targets"), fmt.Errorf("cannot declare the targets: %w", err))}
	}

	p := &Programs{turn: make(chan struct{}, 1), meter: &meter{limits: c.limits}, explainer: &meter{limits: c.limits}}
	for i, source := range spec.Conditions {
		at := root.Child("conditions").Index(i)
		condition, problems := c.compile(s, i, source, p)
		for _, problem := range problems {
			errs = append(errs, problem.field(at, source))
		}
		p.conditions = append(p.conditions, condition)
	}
	if source := spec.CloudEventData; source != "" {
		data, problems := c.compile(s, CloudEventData, source, p)
		for _, problem := range problems {
			errs = append(errs, problem.field(root.Child("cloudEventData"), source))
		}
		p.data = data
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return p, nil
}

// with is the environment in which these variables are declared too. Specs with the same ones share it: most of what a
// compiled spec takes in memory is its environment.
func (c *Compiler) with(variables []string) (*cel.Env, error) {
	slices.Sort(variables)
	variables = slices.Compact(variables) // validation refuses a name that occurs twice
	key := strings.Join(variables, " ")
	if known, ok := c.envs.Get(key); ok {
		return known.(*cel.Env), nil
	}
	declared := make([]cel.EnvOption, len(variables))
	for i, name := range variables {
		declared[i] = cel.Variable(name, cel.DynType)
	}
	env, err := c.env.Extend(declared...)
	if err != nil {
		return nil, err
	}
	c.envs.Add(key, env)
	return env, nil
}

// field is the error as the API server and the webhook report it.
func (e *Error) field(at *field.Path, source string) *field.Error {
	if e.Kind == Internal {
		return field.InternalError(at, e)
	}
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", e.Line, e.Column)
	}
	b.WriteString(e.Message)
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	if e.Snippet != "" {
		fmt.Fprintf(&b, "\n%s", e.Snippet)
	}
	return field.Invalid(at, cut(source, 64), b.String())
}

// scope is what the expressions of one spec can name.
type scope struct {
	env *cel.Env
	// targets are all targets, and whether expressions see them.
	targets map[string]bool
}

// condition is one of spec.conditions, or spec.cloudEventData, ready to run.
type condition struct {
	index    int // or CloudEventData
	tree     *tree
	ast      *cel.Ast
	program  cel.Program
	reads    []string
	warnings []Warning
	// readsTime says that its answer can change although what it reads stays as it is.
	readsTime bool
	// explain is the same program with eyes: made when the first one fails.
	explain *explanation
	env     *cel.Env
}

// compile makes one condition. Whatever an author writes, it gives errors and never panics.
func (c *Compiler) compile(s scope, index int, source string, p *Programs) (_ *condition, problems []*Error) {
	defer func() {
		if r := recover(); r != nil {
			problems = []*Error{{Kind: Internal, Condition: index, Message: fmt.Sprintf("the compiler failed: %v", r)}}
		}
		for _, problem := range problems {
			problem.Condition = index
		}
	}()
	parsed, issues := s.env.Parse(source)
	if issues.Err() != nil {
		return nil, syntaxErrors(source, issues)
	}
	t := newTree(source, parsed.NativeRep())
	checked, issues := s.env.Check(parsed)
	if issues.Err() != nil {
		return nil, s.checkErrors(t, issues)
	}
	t = newTree(source, checked.NativeRep())
	if problems := c.patternErrors(t); len(problems) > 0 {
		return nil, problems
	}
	if problem := resultError(t, index, checked.OutputType()); problem != nil {
		return nil, []*Error{problem}
	}
	program, err := s.env.Program(checked, cel.EvalOptions(cel.OptOptimize), c.metered(checked, p.meter))
	if err != nil {
		return nil, []*Error{planError(t, err)}
	}
	made := &condition{index: index, tree: t, ast: checked, program: program, env: s.env, reads: s.reads(t), warnings: t.unguarded(index), readsTime: t.names(variableTime)}
	made.explain = &explanation{compiler: c, condition: made, meter: p.explainer}
	return made, nil
}

func syntaxErrors(source string, issues *cel.Issues) []*Error {
	var problems []*Error
	for _, issue := range issues.Errors() {
		problem := &Error{Kind: Invalid, Message: cut(issue.Message, 256), Hint: libraryHint(issue.Message)}
		if line, column := issue.Location.Line(), issue.Location.Column(); line > 0 && column >= 0 {
			problem.Line, problem.Column = line, column+1
			problem.Snippet = snippet(source, line, column+1)
		}
		problems = append(problems, problem)
	}
	return problems
}

// checkErrors says what the checker found in words that help. A misspelled macro makes a mistake of its own loop
// variables too; those are left out.
func (s scope) checkErrors(t *tree, issues *cel.Issues) []*Error {
	var problems []*Error
	unknown := map[int64]bool{}
	for _, issue := range issues.Errors() {
		e := t.nodes[issue.ExprID].expr
		if e != nil && e.Kind() == ast.CallKind && !s.env.HasFunction(s.functionName(e)) {
			unknown[e.ID()] = true
		}
	}
	for _, issue := range issues.Errors() {
		at := t.nodes[issue.ExprID]
		problem := &Error{Kind: Invalid, Message: cut(issue.Message, 512)}
		switch {
		case at.expr == nil:
			return append(problems, syntaxErrors(t.source, issues)...)
		case unknown[issue.ExprID]:
			name := s.functionName(at.expr)
			problem.Message = fmt.Sprintf("there is no function %q", name)
			problem.Hint = didYouMean(name, s.functions())
		case at.expr.Kind() == ast.IdentKind && s.unknown(at):
			if t.inside(at, unknown) {
				continue
			}
			s.describeUnknown(problem, at)
		case at.expr.Kind() == ast.CallKind:
			problem.Hint = s.operandHint(at.expr)
		}
		if problem.Hint == "" {
			problem.Hint = libraryHint(issue.Message)
		}
		problems = append(problems, t.locate(problem, issue.ExprID))
	}
	return problems
}

// functionName is the name of the called function, with the namespace that stands before it: json.valid.
func (s scope) functionName(e ast.Expr) string {
	call := e.AsCall()
	if !call.IsMemberFunction() {
		return call.FunctionName()
	}
	namespace, ok := path(call.Target())
	if !ok || !s.namespace(namespace) {
		return call.FunctionName()
	}
	return namespace + "." + call.FunctionName()
}

// namespace says whether functions have names that begin so.
func (s scope) namespace(name string) bool {
	if _, isTarget := s.targets[name]; isTarget {
		return false
	}
	for function := range s.env.Functions() {
		if strings.HasPrefix(function, name+".") {
			return true
		}
	}
	return false
}

// functions are the names that a call may have.
func (s scope) functions() []string {
	var names []string
	for name := range s.env.Functions() {
		if !strings.ContainsAny(name, "@_") {
			names = append(names, name)
		}
	}
	for _, macro := range s.env.Macros() {
		names = append(names, macro.Function())
	}
	return names
}

// unknown says whether a name means nothing where it stands.
func (s scope) unknown(at node) bool {
	name := at.expr.AsIdent()
	if bound(name, at.loops) {
		return false
	}
	return !slices.ContainsFunc(s.variables(), func(v string) bool { return v == name })
}

func (s scope) variables() []string {
	var names []string
	for _, v := range s.env.Variables() {
		if v.Type().Kind() != types.TypeKind { // the names of types are no help here
			names = append(names, v.Name())
		}
	}
	return names
}

func (s scope) describeUnknown(problem *Error, at node) {
	name := at.expr.AsIdent()
	if included, isTarget := s.targets[name]; isTarget && !included {
		problem.Message = fmt.Sprintf("the target %q has includeWhenEvaluating: false, so expressions do not see it", name)
		return
	}
	candidates := s.variables()
	for _, loop := range at.loops {
		candidates = append(candidates, loop.AsComprehension().IterVar())
	}
	problem.Message = fmt.Sprintf("there is no target or variable %q", name)
	if problem.Hint = didYouMean(name, candidates); problem.Hint == "" {
		problem.Hint = fmt.Sprintf("add a target of this name, or write params.%s if it is a parameter", name)
	}
}

// inside says whether the node stands in a call that is marked.
func (t *tree) inside(at node, marked map[int64]bool) bool {
	for at.parent != nil {
		if marked[at.parent.ID()] {
			return true
		}
		at = t.nodes[at.parent.ID()]
	}
	return false
}

// operandHint says what to write where the two operands of a call do not fit.
func (s scope) operandHint(e ast.Expr) string {
	operands := children(e)
	if len(operands) != 2 {
		return ""
	}
	return timeHint(s.guess(operands[0]), s.guess(operands[1]))
}

// guess is the type of an expression as far as it shows: the checker keeps no types of what it refused.
func (s scope) guess(e ast.Expr) *types.Type {
	switch e.Kind() {
	case ast.LiteralKind:
		return typeOf(e.AsLiteral())
	case ast.IdentKind:
		if e.AsIdent() == variableTime {
			return types.TimestampType
		}
	case ast.CallKind:
		function, ok := s.env.Functions()[s.functionName(e)]
		if !ok {
			return types.DynType
		}
		if e.AsCall().FunctionName() == operators.Subtract && s.guess(e.AsCall().Args()[0]).Kind() == types.TimestampKind {
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

// resultError says that an expression is no condition, or has no value that an event can carry.
func resultError(t *tree, index int, result *types.Type) *Error {
	if index == CloudEventData {
		switch result.Kind() {
		case types.TypeKind, types.OpaqueKind, types.StructKind:
			problem := &Error{Kind: Invalid, Message: fmt.Sprintf("an event carries JSON, and this is of type %s", cel.FormatCELType(result)), Hint: hintJSON}
			if result.TypeName() == types.OptionalType.TypeName() {
				problem.Hint = "add .orValue(...)"
			}
			return t.locate(problem, t.root.ID())
		}
		return nil
	}
	switch result.Kind() {
	case types.BoolKind, types.DynKind, types.TypeParamKind:
		return nil
	}
	problem := &Error{Kind: Invalid, Message: fmt.Sprintf("a condition must be true or false, and this is of type %s", cel.FormatCELType(result))}
	switch {
	case result.IsExactType(types.NewOptionalType(types.BoolType)):
		problem.Hint = "add .orValue(false)"
	case result.Kind() == types.ListKind, result.Kind() == types.MapKind:
		problem.Hint = "ask something of it, with exists, all or size"
	default:
		problem.Hint = "compare it with something, as in ... == ..."
	}
	return t.locate(problem, t.root.ID())
}

// patternErrors finds the literal regular expressions that are none, or too large to be compiled.
func (c *Compiler) patternErrors(t *tree) []*Error {
	var problems []*Error
	ast.PreOrderVisit(t.root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || c.charges[e.AsCall().FunctionName()].match == nil {
			return
		}
		args := children(e)
		if len(args) <= patternArgument || args[patternArgument].Kind() != ast.LiteralKind {
			return
		}
		pattern, ok := args[patternArgument].AsLiteral().(types.String)
		if !ok {
			return
		}
		if err := checkPattern(string(pattern)); err != nil {
			problems = append(problems, t.locate(&Error{Kind: Invalid, Message: err.Error()}, args[patternArgument].ID()))
		}
	}))
	return problems
}

// planError says what cel-go found when it evaluated the constant parts of an expression.
func planError(t *tree, err error) *Error {
	problem := &Error{Kind: Invalid, Message: cut(err.Error(), 512)}
	var value *types.Err
	if errors.As(err, &value) {
		return t.locate(problem, value.NodeID())
	}
	return problem
}

// reads are the targets that an expression names, sorted.
func (s scope) reads(t *tree) []string {
	var names []string
	for name, included := range s.targets {
		if included && t.names(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
