// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/usage"
)

// ListConditionTargets names the targets that a condition depends on, through variables too, sorted.
func (p *Programs) ListConditionTargets(condition int) []string {
	return slices.Clone(p.conditions[condition].targets)
}

// ListRuleTargets names the targets that any expression of a rule depends on, through variables too, sorted.
func (p *Programs) ListRuleTargets(rule int) []string {
	return collectTargets(p.rules[rule].listExpressions()...)
}

func collectTargets(expressions ...*expression) []string {
	var all []string
	for _, x := range expressions {
		if x != nil {
			all = append(all, x.targets...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// listExpressions gives all of a rule's; those that it leaves out are nil.
func (p *ruleProgram) listExpressions() []*expression {
	all := []*expression{p.forEach, p.when, p.forExpression, p.forKey, p.groupBy, p.keepExpression, p.unless, p.key, p.reason}
	for _, o := range p.orderBy {
		all = append(all, o.expression)
	}
	for _, c := range p.confirm {
		all = append(all, c.name, c.namespace)
	}
	for _, a := range p.actions {
		all = append(all, a.when, a.object, a.patch)
	}
	return all
}

// findUnprovenTargets finds the targets on which a rule's decision depends and that its confirm does not name, other than the one of its
// items, and warns of them: they are confirmed as a whole. The target of its items needs no other proof: a request carries the version
// that was decided on. Items of several targets may be compared with each other anywhere but in forEach itself.
func (b *builder) findUnprovenTargets(s *scope, rule *v1alpha1.Rule, p *ruleProgram) {
	own := s.findIteratedTargets(p.forEach)
	known := map[string]bool{}
	if len(own) == 1 {
		known[own[0]] = true
	}
	for _, c := range rule.Confirm {
		known[c.Target] = true
	}
	if known[v1alpha1.ConfirmAll] {
		return
	}
	for _, x := range []*expression{p.forEach, p.when, p.keepExpression, p.unless} {
		if x == nil {
			continue
		}
		for _, target := range x.targets {
			if known[target] || x == p.forEach && slices.Contains(own, target) {
				continue
			}
			known[target] = true
			p.unprovenTargets = append(p.unprovenTargets, target)
			w := expr.Warning{
				Path:    x.path,
				Message: fmt.Sprintf("rule %q joins target %q without confirm", rule.Name, target),
				Hint:    fmt.Sprintf("all of it is read live before anything is done: add {target: %s, name: ...} to confirm, to read only what an item rests on", target),
			}
			w.Line, w.Column = x.tree.FindPlace(s.findTargetNode(x, target))
			w.Snippet = expr.MakeSnippet(x.tree.Source, w.Line, w.Column)
			b.programs.warnings = append(b.programs.warnings, w)
		}
	}
}

// findTargetNode finds the first node of an expression that depends on a target.
func (s *scope) findTargetNode(x *expression, target string) int64 {
	found := x.tree.Root.ID()
	for i, name := range slices.Sorted(maps.Keys(x.names)) {
		v := s.variables[name]
		if name != target && (v == nil || v.expression == nil || !slices.Contains(v.expression.targets, target)) {
			continue
		}
		if id := x.names[name]; i == 0 || found == x.tree.Root.ID() || x.tree.IsBefore(id, found) {
			found = id
		}
	}
	return found
}

// findIteratedTargets finds the targets whose objects a forEach is about: those that the list begins with, whatever is called on it, and
// on both sides of a +. There are none where that does not show. Sorted.
func (s *scope) findIteratedTargets(x *expression) []string {
	if x == nil {
		return nil
	}
	l := &leadingTargets{scope: s, bound: map[string]ast.Expr{}, seen: map[ast.Expr]bool{}, found: map[string]bool{}}
	l.addTargets(x.tree.Root)
	return slices.Sorted(maps.Keys(l.found))
}

// leadingTargets collects the targets that a list begins with. Each expression is looked at once, however often others name it.
type leadingTargets struct {
	scope *scope
	// bound are the names that stand for other expressions.
	bound map[string]ast.Expr
	seen  map[ast.Expr]bool
	found map[string]bool
}

// addTargets adds those of a list.
func (l *leadingTargets) addTargets(list ast.Expr) {
	e := expr.FindBase(list)
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
	if l.scope.targets[name] {
		l.found[name] = true
		return
	}
	if v := l.scope.variables[name]; v != nil && v.expression != nil {
		outer := l.bound
		defer func() { l.bound = outer }()
		l.bound = map[string]ast.Expr{}
		l.addTargets(v.expression.tree.Root)
	}
}

// FindReadings says for each target that expressions see what they read of an object of it, besides what identifies it. All callers get the
// same map, and must not change it.
func (p *Programs) FindReadings() map[string]usage.Reading {
	all, _ := p.readings()
	return all
}

func (p *Programs) findReadings() (map[string]usage.Reading, *usage.Place) {
	spec := usage.Spec{Targets: p.targets, Variables: listVariables(p.variables)}
	for _, c := range p.conditions {
		spec.Others = append(spec.Others, c.usedFor(usage.ForScalar))
	}
	if p.data != nil {
		spec.Others = append(spec.Others, p.data.usedFor(usage.ForAll))
	}
	for _, r := range p.rules {
		spec.Rules = append(spec.Rules, r.listUses())
	}
	return usage.FindReadings(&spec)
}

// checkReadings says that expressions read what objects are read without; nil if they do not.
func (p *Programs) checkReadings(root *field.Path) field.ErrorList {
	_, missing := p.readings()
	if missing == nil {
		return nil
	}
	problem := missing.Tree.LocateError(&expr.Error{
		Kind: expr.Invalid, Message: "objects are read without metadata.managedFields, so it would always be missing",
		Hint: "read a label, an annotation or an owner that the manager sets",
	}, missing.Node)
	return field.ErrorList{makeFieldError(problem, root.Child(missing.Path), missing.Tree.Source)}
}

// listVariables gives variables in the order in which they see each other.
func listVariables(of map[string]*variable) []usage.Variable {
	all := make([]usage.Variable, 0, len(of))
	bySlot := make([]*variable, 0, len(of))
	for _, v := range of {
		bySlot = append(bySlot, v)
	}
	slices.SortFunc(bySlot, func(a, b *variable) int { return cmp.Compare(a.slot, b.slot) })
	for _, v := range bySlot {
		all = append(all, usage.Variable{Name: v.name, Expression: v.expression.usedFor(usage.ForAll)})
	}
	return all
}

// listUses gives the expressions of a rule.
func (p *ruleProgram) listUses() usage.Rule {
	r := usage.Rule{ForEach: p.forEach.usedFor(usage.ForAll), Variables: listVariables(p.variables)}
	add := func(purpose usage.Purpose, all ...*expression) {
		for _, x := range all {
			if x != nil {
				r.Others = append(r.Others, x.usedFor(purpose))
			}
		}
	}
	add(usage.ForScalar, p.when, p.forExpression, p.forKey, p.keepExpression, p.unless, p.key, p.reason)
	add(usage.ForAll, p.groupBy)
	for _, o := range p.orderBy {
		add(usage.ForScalar, o.expression)
	}
	for _, c := range p.confirm {
		add(usage.ForAll, c.name)
		add(usage.ForScalar, c.namespace)
	}
	for _, a := range p.actions {
		add(usage.ForScalar, a.when)
		add(usage.ForObject, a.object)
		if a.patch != nil {
			r.Patches = append(r.Patches, a.patch.usedFor(usage.ForAll))
		}
	}
	return r
}

// usedFor is the expression as package usage has it.
func (x *expression) usedFor(purpose usage.Purpose) usage.Expression {
	return usage.Expression{Path: x.path, Tree: x.tree, AST: x.ast.NativeRep(), For: purpose}
}
