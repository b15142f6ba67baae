// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/compilecost"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/hoist"
	"github.com/vtex/cleaner/celenv/library"
	"github.com/vtex/cleaner/celenv/lookups"
	"github.com/vtex/cleaner/celenv/resulttype"
	"github.com/vtex/cleaner/celenv/timedependence"
)

// maxCompilations is how many specs are compiled at a time.
const maxCompilations = 2

// Compile makes Programs of the expressions of a spec: its variables, its conditions, cloudEventData, and its rules. It
// gives either Programs or what is wrong, never a part of them; and neither if the context ends first.
func (c *Compiler) Compile(ctx context.Context, spec *v1alpha1.Work) (*Programs, field.ErrorList) {
	if errs := checkSourceSize(spec); len(errs) > 0 {
		return nil, errs
	}
	if !c.acquirePlace(ctx.Done()) {
		return nil, nil
	}
	defer func() { <-c.places }()
	b := &builder{ctx: ctx, compiler: c, root: field.NewPath("spec"), unforeseen: map[*expression][]expr.Warning{}, programs: &Programs{
		limits: c.limits, turn: make(chan struct{}, 1), meter: &budget.Meter{Limits: c.limits}, explainer: &budget.Meter{Limits: c.limits}, lookout: &timedependence.Lookout{},
	}}
	b.programs.readings = sync.OnceValues(b.programs.findReadings)
	s := b.buildScope(spec)
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	p := b.programs
	p.targets, p.variables, p.slots = map[string]bool{}, s.variables, len(spec.Variables)
	for i := range spec.Targets {
		if t := &spec.Targets[i]; t.IsIncluded() {
			p.targets[t.Name] = t.Reference.Name != ""
		}
	}
	b.compileVariables(s, "", spec.Variables, nil)
	for i, source := range spec.Conditions {
		p.conditions = append(p.conditions, b.compileExpression(s, expr.PathOfCondition(i), source, resulttype.Bool))
	}
	markHolding(p.conditions...)
	if spec.CloudEventData != "" {
		p.data = b.compileExpression(s, expr.PathCloudEventData, spec.CloudEventData, resulttype.JSON)
	}
	for i := range spec.Rules {
		p.rules = append(p.rules, b.compileRule(s, i, &spec.Rules[i]))
	}
	switch {
	case b.interrupted:
		return nil, nil
	case len(b.errs) > 0:
		return nil, b.errs
	}
	p.warnings = append(p.warnings, b.collectUnforeseen()...)
	for i, r := range p.rules {
		r.unprovenTargets = findUnprovenTargets(spec, i, p.rules)
	}
	if errs := p.checkReadings(b.root, spec); len(errs) > 0 {
		return nil, errs
	}
	p.footprint = s.left.UsedRoom() + b.measureFindings() + budget.MultiplyCapped(footprintOfName, int64(len(s.targets)+len(s.hidden)+len(s.variables)))
	return p, nil
}

// measureFindings says about how many bytes what was found out about the expressions takes: the targets of each, and what is warned of.
func (b *builder) measureFindings() int64 {
	const name, warning = 16, 128 // besides the text
	bytes := int64(name * b.dependencies)
	for _, w := range b.programs.warnings {
		bytes += warning + int64(len(w.Path)+len(w.Message)+len(w.Snippet)+len(w.Hint))
	}
	return bytes
}

// checkSourceSize says that a spec has more source than is compiled; nil if it has not.
func checkSourceSize(spec *v1alpha1.Work) field.ErrorList {
	if n := spec.ExpressionBytes(); n > v1alpha1.MaxExpressionBytes {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, fmt.Sprintf(
			"the expressions are %d bytes long together; at most %d are allowed: shorten them, or use several Cleaners", n, v1alpha1.MaxExpressionBytes))}
	}
	return nil
}

// acquirePlace takes one of the places for compilations. It is false when the context ends before there is one.
func (c *Compiler) acquirePlace(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
	}
	select {
	case c.places <- struct{}{}:
		return true
	case <-done:
		return false
	}
}

// builder makes the Programs of one spec.
type builder struct {
	ctx         context.Context
	interrupted bool // some expressions were not looked at
	compiler    *Compiler
	root        *field.Path
	programs    *Programs
	errs        field.ErrorList
	// dependencies are how many names of targets the expressions hold.
	dependencies int
	// unforeseen are the warnings of changes that cannot be predicted, by the expression.
	unforeseen map[*expression][]expr.Warning
}

func (b *builder) addInvalid(path, value, detail string) {
	b.errs = append(b.errs, field.Invalid(b.root.Child(path), value, detail))
}

// buildScope makes what the conditions of a spec can name, before any of its variables.
func (b *builder) buildScope(spec *v1alpha1.Work) *scope {
	s := &scope{left: b.compiler.scale.NewAllowance(), targets: map[string]bool{}, lists: map[string]bool{}, variables: map[string]*variable{}, hidden: map[string]string{
		nameItem: hiddenItem, nameObject: hiddenItem, nameItems: hiddenItems,
	}, parameters: spec.Declared, sure: expr.SureLookups{}}
	var names []string
	for i := range spec.Targets {
		target := &spec.Targets[i]
		if isReserved(target.Name) {
			b.addInvalid(fmt.Sprintf("targets[%d].name", i), target.Name, "is a built-in name of expressions: choose another name")
			continue
		}
		s.targets[target.Name], s.sure[target.Name] = target.IsIncluded(), expr.LookUpMetadata(target.ListSureLabels(), target.ListSureAnnotations())
		if target.IsIncluded() {
			names, s.lists[target.Name] = append(names, target.Name), target.Reference.Name == ""
		}
	}
	b.declareVariables(s, "", spec.Variables, nil, &names)
	for i := range spec.Rules {
		b.declareVariables(s, expr.PathOfRule(i)+".", spec.Rules[i].Variables, spec.Variables, &names)
	}
	var err error
	if s.env, err = b.compiler.envs.extendEnv(names); err != nil {
		b.errs = append(b.errs, field.InternalError(b.root.Child("targets"), fmt.Errorf("cannot declare the targets and variables: %w", err)))
	}
	return s
}

var variableName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// declareVariables adds the names of variables. None can be read yet.
func (b *builder) declareVariables(s *scope, path string, variables, outer []v1alpha1.Variable, names *[]string) {
	for i, v := range variables {
		at := fmt.Sprintf("%svariables[%d].name", path, i)
		same := func(other v1alpha1.Variable) bool { return other.Name == v.Name }
		switch {
		case !variableName.MatchString(v.Name):
			b.addInvalid(at, v.Name, "is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit")
		case slices.ContainsFunc(variables[:i], same):
			b.addInvalid(at, v.Name, "another variable has this name: rename one of them")
		case slices.ContainsFunc(outer, same):
			b.addInvalid(at, v.Name, "a variable of the spec has this name, and a rule's own would hide it: choose another one")
		}
		name := prefixVariables + v.Name
		*names = append(*names, name)
		s.hidden[name] = hiddenLater
		if path != "" {
			s.hidden[name] = hiddenOfRule
		}
	}
}

// compileVariables compiles variables and adds them to the scope. Each sees those before it.
func (b *builder) compileVariables(s *scope, path string, variables []v1alpha1.Variable, rule *ruleProgram) {
	for i, v := range variables {
		made := &variable{name: prefixVariables + v.Name, slot: i, rule: rule}
		made.expression = b.compileExpression(s, fmt.Sprintf("%svariables[%d].expression", path, i), v.Expression, resulttype.Any)
		s.variables[made.name] = made
		delete(s.hidden, made.name)
	}
}

// compileExpression compiles one expression. It gives nil for one that does not compile.
func (b *builder) compileExpression(s *scope, path, source string, w resulttype.Type) *expression {
	if b.interrupted = b.interrupted || b.ctx.Err() != nil; b.interrupted {
		return nil
	}
	made, problems := b.compiler.compileExpression(s, path, source, w, b.programs)
	for _, problem := range problems {
		b.errs = append(b.errs, makeFieldError(problem, b.root.Child(path), source))
	}
	if made != nil {
		b.dependencies += len(made.targets)
		b.programs.warnings = append(b.programs.warnings, made.tree.FindMistakes(path, expr.Names{Sure: s.sure, IsList: b.programs.isList, FindVariable: s.findVariable})...)
		if warnings := made.movement.DescribeUnforeseen(made.tree, path); len(warnings) > 0 {
			b.unforeseen[made] = warnings
		}
		made.tree.Nodes = nil // half of what it takes; an explanation finds them again
	}
	return made
}

// compileOptional is compileExpression for an expression that may be left out.
func (b *builder) compileOptional(s *scope, path, source string, w resulttype.Type) *expression {
	if source == "" {
		return nil
	}
	return b.compileExpression(s, path, source, w)
}

// makeFieldError gives an error as the API server and the webhook report it.
func makeFieldError(e *expr.Error, at *field.Path, source string) *field.Error {
	if e.Kind == expr.Internal {
		return field.InternalError(at, e)
	}
	return field.Invalid(at, expr.TruncateText(source, 64), e.Describe())
}

// scope is what an expression can name.
type scope struct {
	env *cel.Env
	// left is what the expressions of the spec may still cost.
	left *compilecost.Allowance
	// targets are all targets, and whether expressions see them. lists says so of those with many objects.
	targets, lists map[string]bool
	// variables are those that can be read, by variables.x.
	variables map[string]*variable
	// hidden are names that the environment declares and that cannot be read here, and why.
	hidden map[string]string
	// parameters are those of the template; nil where there is none, so that any may be given.
	parameters []string
	// sure are the lookups that never err, because all objects have what they look up.
	sure expr.SureLookups
}

// Why a name cannot be read.
const (
	hiddenItem   = "only expressions about an item of a rule see it"
	hiddenItems  = "only keep, leave and patch.expression, which are about several items, see it"
	hiddenLater  = "a variable sees only those before it"
	hiddenOfRule = "it is a variable of a rule, and only expressions about an item of that rule see it"
	hiddenGroup  = " is about a whole group: ask items"
)

// clone is a scope that can be changed.
func (s *scope) clone() *scope {
	return &scope{left: s.left, env: s.env, targets: s.targets, lists: s.lists, variables: maps.Clone(s.variables), hidden: maps.Clone(s.hidden), parameters: s.parameters, sure: s.sure}
}

// findVariable gives the tree of a variable that can be read; nil for another name.
func (s *scope) findVariable(name string) *expr.Tree {
	if v := s.variables[name]; v != nil && v.expression != nil {
		return v.expression.tree
	}
	return nil
}

// expression is one expression of a spec, ready to run.
type expression struct {
	path    string
	want    resulttype.Type
	tree    *expr.Tree
	ast     *cel.Ast
	program *program
	// names are the names that it reads itself.
	names map[string]expr.Reads
	// targets are the targets that its answer depends on, through variables too, sorted. repeated are those that are read at more than one place.
	targets, repeated []string
	// listsObjects says that it gives objects of targets as they are, each for itself.
	listsObjects bool
	// readsTime says that its answer can change although what it reads stays as it is.
	readsTime bool
	// holds says that its answer says what holds, and for how long it has to: a condition, or what comes in a rule before its actions matter.
	holds bool
	// fixed are the parts that are evaluated once in an evaluation, and firstFixed is the place of the first of them.
	fixed      []int64
	firstFixed int
	// movement and ahead serve to predict when the result changes; only for an expression that reads the time.
	movement timedependence.Analysis
	ahead    *aheadProgram
	// explanation is the same program with eyes.
	explanation *explanation
	env         *cel.Env
}

// markHolding marks expressions, if there are any, as those that say what holds.
func markHolding(all ...*expression) {
	for _, x := range all {
		if x != nil {
			x.holds = true
		}
	}
}

// variable is a value that expressions read by its name.
type variable struct {
	name       string // variables.x
	slot       int    // where its value is kept
	rule       *ruleProgram
	expression *expression
	pieces     lookups.Pieces // if a rule looks up its entries
}

// listsObjects says that its value is a list of objects of targets as they are. It is false without a variable.
func (v *variable) listsObjects() bool {
	return v != nil && v.expression != nil && v.expression.listsObjects
}

// compileExpression makes one expression. Whatever an author writes, it gives errors and never panics.
func (c *Compiler) compileExpression(s *scope, path, source string, w resulttype.Type, p *Programs) (_ *expression, problems []*expr.Error) {
	defer func() {
		if r := recover(); r != nil {
			problems = []*expr.Error{{Kind: expr.Internal, Message: fmt.Sprintf("the compiler failed: %v", r)}}
		}
		for _, problem := range problems {
			problem.Path = path
		}
	}()
	parsed, issues := s.env.Parse(source)
	if len(issues.Errors()) > 0 { // Err would write all of them down, each with its line
		return nil, convertSyntaxErrors(source, issues)
	}
	t := expr.NewTree(source, parsed.NativeRep())
	if problem := s.left.ReserveWeight(t, parsed.NativeRep()); problem != nil {
		return nil, []*expr.Error{problem}
	}
	footprint := c.scale.EstimateFootprint(source, parsed.NativeRep())
	if problem := s.left.ReserveRoom(t, footprint); problem != nil {
		return nil, []*expr.Error{problem}
	}
	checked, issues := s.env.Check(parsed)
	if len(issues.Errors()) > 0 {
		d := &diagnosis{scope: s, tree: t, unknown: map[int64]bool{}}
		return nil, d.convertCheckErrors(issues)
	}
	library.DispatchConversions(s.env, checked.NativeRep())
	t = expr.NewTree(source, checked.NativeRep())
	made := &expression{path: path, want: w, tree: t, ast: checked, env: s.env, names: t.CollectReads()}
	if problems := slices.Concat(s.checkHiddenNames(made), s.checkParameters(made), c.calls.CheckPatterns(t)); len(problems) > 0 {
		return nil, problems
	}
	if problem := made.checkType(checked.OutputType()); problem != nil {
		return nil, []*expr.Error{problem}
	}
	if s.hidden[nameItem] == "" || s.hidden[nameItems] == "" { // it is evaluated for each item
		made.fixed, made.firstFixed = hoist.FindFixedParts(t.Root, s.varies), p.fixedParts
		p.fixedParts += len(made.fixed)
	}
	var err error
	if made.program, err = c.planProgram(s.env, checked, p.meter, true, c.calls.MeterProgram(checked, p.meter), p.fixed.KeepValues(made.fixed, made.firstFixed, p.meter)); err != nil {
		return nil, []*expr.Error{convertPlanError(t, err)}
	}
	s.resolveDependencies(made)
	made.listsObjects = expr.IsListOfObjects(t.Root, func(name string) bool { return s.targets[name] }, func(name string) bool { return s.variables[name].listsObjects() })
	if made.readsTime {
		if problem := s.left.ReserveRoom(t, footprint/2); problem != nil { // the program that looks ahead
			return nil, []*expr.Error{problem}
		}
		made.movement = timedependence.Analyze(checked.NativeRep(), findPurpose(w), s.findMovingType)
		made.ahead = &aheadProgram{compiler: c, x: made, programs: p}
	}
	made.explanation = &explanation{compiler: c, expression: made, meter: p.explainer, limits: c.limits}
	return made, nil
}

// findPurpose says what becomes of a value of a type.
func findPurpose(w resulttype.Type) timedependence.Purpose {
	switch w {
	case resulttype.Order:
		return timedependence.Order
	case resulttype.Any:
		return timedependence.Variable
	default:
		return timedependence.Answer
	}
}

func convertSyntaxErrors(source string, issues *cel.Issues) []*expr.Error {
	var problems []*expr.Error
	for _, issue := range sortIssues(issues) {
		if len(problems) == maxProblems {
			break
		}
		problem := &expr.Error{Kind: expr.Invalid, Message: expr.TruncateText(issue.Message, 256)}
		if line, column := issue.Location.Line(), issue.Location.Column(); line > 0 && column >= 0 {
			problem.Line, problem.Column = line, column+1
			problem.Snippet = expr.MakeSnippet(source, line, column+1)
			problem.Hint = expr.SuggestSyntax(source, line, column)
		}
		if problem.Hint == "" {
			problem.Hint = expr.SuggestLibraryFix(issue.Message, maxLoopNesting)
		}
		problems = append(problems, problem)
	}
	return problems
}

// checkHiddenNames says what an expression reads that it cannot see.
func (s *scope) checkHiddenNames(x *expression) []*expr.Error {
	var problems []*expr.Error
	for _, name := range slices.Sorted(maps.Keys(x.names)) {
		if why, hidden := s.hidden[name]; hidden {
			problems = append(problems, x.tree.LocateError(&expr.Error{Kind: expr.Invalid, Message: fmt.Sprintf("%s cannot be read here: %s", name, why)}, x.names[name].First))
		}
	}
	return problems
}

// describeRequirement says what the expression must give, in words.
func (x *expression) describeRequirement() string {
	switch {
	case x.path == expr.PathCloudEventData:
		return "an event carries JSON"
	case strings.HasPrefix(x.path, "conditions["):
		return "a condition " + x.want.DescribeRequirement()
	}
	return x.formatName() + " " + x.want.DescribeRequirement()
}

// formatName says what the expression is called in a sentence.
func (x *expression) formatName() string {
	name := x.path
	if strings.HasSuffix(name, ".patch.expression") {
		name = "the patch"
	}
	name = strings.TrimSuffix(name, ".expression")
	name = name[strings.LastIndexByte(name, '.')+1:]
	name, _, _ = strings.Cut(name, "[")
	return name
}

// checkType says that an expression can never give what it must.
func (x *expression) checkType(result *types.Type) *expr.Error {
	switch result.Kind() {
	case types.DynKind, types.AnyKind, types.TypeParamKind:
		return nil
	}
	if x.want.AcceptsKind(result.Kind()) {
		return nil
	}
	return x.tree.LocateError(&expr.Error{
		Kind: expr.Invalid, Message: fmt.Sprintf("%s, and this is of type %s", x.describeRequirement(), cel.FormatCELType(result)), Hint: x.want.SuggestFix(result),
	}, x.tree.Root.ID())
}

// convertPlanError says what cel-go found when it evaluated the constant parts of an expression.
func convertPlanError(t *expr.Tree, err error) *expr.Error {
	problem := &expr.Error{Kind: expr.Invalid, Message: expr.TruncateText(err.Error(), 512)}
	var value *types.Err
	if errors.As(err, &value) {
		return t.LocateError(problem, value.NodeID())
	}
	return problem
}

// resolveDependencies finds out what an expression depends on. A variable stands for its own expression.
func (s *scope) resolveDependencies(x *expression) {
	for name, reads := range x.names {
		var targets []string
		if s.targets[name] {
			targets = []string{name}
		}
		x.readsTime = x.readsTime || name == nameTime
		if v := s.variables[name]; v != nil && v.expression != nil {
			targets, x.repeated = v.expression.targets, append(x.repeated, v.expression.repeated...)
			x.readsTime = x.readsTime || v.expression.readsTime
		}
		x.targets = append(x.targets, slices.Repeat(targets, min(reads.Count, 2))...)
	}
	slices.Sort(x.targets)
	for i, target := range x.targets {
		if i > 0 && target == x.targets[i-1] {
			x.repeated = append(x.repeated, target)
		}
	}
	x.targets = slices.Compact(x.targets)
	x.repeated = slices.Clip(slices.Compact(slices.Sorted(slices.Values(x.repeated))))
}

// findMovingType gives the type of a value that can change as time passes, while an expression reads it; nil if it cannot.
func (s *scope) findMovingType(name string) *types.Type {
	switch v := s.variables[name]; {
	case name == nameTime:
		return types.TimestampType
	case v != nil && v.expression != nil && v.expression.movement.Result:
		return v.expression.ast.OutputType()
	default:
		return nil
	}
}

// varies says that a variable has different values in one evaluation, or that time can change its value.
func (s *scope) varies(name string) bool {
	switch name {
	case nameTime, nameItem, nameObject, nameItems:
		return true
	}
	v := s.variables[name]
	return v != nil && (v.rule != nil || v.expression == nil || v.expression.readsTime)
}
