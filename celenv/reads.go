// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// ListUnprovenTargets names the targets that RuleEvaluation.ListUnprovenTargets names for a rule.
func (p *Programs) ListUnprovenTargets(rule int) []string {
	return slices.Clone(p.rules[rule].unprovenTargets)
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
	all := p.listDecisive()
	for _, c := range p.confirm {
		all = append(all, c.name, c.namespace)
	}
	return all
}

// listDecisive gives the expressions of a rule that decide on items, and what is done with them; those that it leaves out are nil.
func (p *ruleProgram) listDecisive() []*expression {
	all := []*expression{p.forEach, p.when, p.forExpression, p.forKey, p.groupBy, p.keep.expression, p.leave.expression, p.unless, p.key, p.reason}
	for _, o := range p.orderBy {
		all = append(all, o.expression)
	}
	for _, a := range p.actions {
		all = append(all, a.when, a.object, a.patch)
	}
	return all
}

// findUnprovenTargets finds the targets on which a rule's decision depends and that its confirm does not name: they are proved as a whole. Which
// objects rules claim that are decided earlier decides too, and with `leave` how many other rules delete. The target of the rule's items needs no proof where the decision on one does not
// depend on others: a request carries the version of its item.
func findUnprovenTargets(spec *v1alpha1.Work, index int, programs []*ruleProgram) (unproven []string) {
	rule, p := &spec.Rules[index], programs[index]
	named := make(map[string]bool, len(rule.Confirm))
	for _, c := range rule.Confirm { // one object of a target says nothing of how many there are
		named[c.Target] = named[c.Target] || c.Name == "" || !slices.Contains(p.forEach.targets, c.Target)
	}
	unproven = slices.DeleteFunc(slices.Clone(p.decisive), func(target string) bool {
		return named[target] || named[v1alpha1.ConfirmAll] && slices.Contains(p.joinedTargets, target)
	})
	for i, r := range programs {
		switch after := rule.IsDecidedAfter(&spec.Rules[i], i < index); {
		case after && rule.Leave != nil:
			unproven = slices.Concat(unproven, r.own, r.decisive)
		case after && mayClaim(spec, i, index, programs):
			others := slices.DeleteFunc(slices.Clone(r.own), func(target string) bool { return slices.Contains(p.own, target) })
			unproven = slices.Concat(unproven, r.decisive, others)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(unproven)))
}

// claimed are the targets that have the objects that a rule acts on, but to report them, which claims nothing. It is false if any target may.
func (p *ruleProgram) claimed(rule *v1alpha1.Rule) (targets []string, known bool) {
	for i, a := range rule.Actions {
		switch {
		case a.Report != nil:
		case p.actions[i].object != nil:
			targets = append(targets, p.actions[i].object.targets...)
		case p.forEach == nil || p.own == nil:
			return nil, false
		case p.forEach.listsObjects:
			targets = append(targets, p.own...)
		default:
			targets = append(targets, p.forEach.targets...)
		}
	}
	return targets, true
}

// mayClaim says that a rule may act on an object that another one acts on, too: two targets of one kind may both have it.
func mayClaim(spec *v1alpha1.Work, rule, other int, programs []*ruleProgram) bool {
	claimed, known := programs[rule].claimed(&spec.Rules[rule])
	others, alsoKnown := programs[other].claimed(&spec.Rules[other])
	return !known || !alsoKnown || slices.ContainsFunc(claimed, func(target string) bool {
		a := &spec.Targets[spec.FindTarget(target)].Reference.Reference
		return slices.ContainsFunc(others, func(target string) bool {
			return mayBeOneKind(a, &spec.Targets[spec.FindTarget(target)].Reference.Reference)
		})
	})
}

// mayBeOneKind says that two references may be to one kind: by its name, or by the name of its resource, in the singular or the plural.
func mayBeOneKind(a, b *v1alpha1.Reference) bool {
	if a.Kind == v1alpha1.AnyKind || b.Kind == v1alpha1.AnyKind {
		return true
	}
	ofA, oneA := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: a.APIGroup, Kind: a.Kind})
	ofB, oneB := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: b.APIGroup, Kind: b.Kind})
	return oneA == oneB || ofA == oneB || oneA == ofB
}

// findDecisiveTargets finds the targets on which the decision on an item depends besides the item.
func (s *scope) findDecisiveTargets(rule *v1alpha1.Rule, p *ruleProgram) (decisive []string) {
	alone := rule.GroupBy == "" && rule.Keep == nil && rule.Leave == nil && rule.Key == "" && p.forEach != nil && p.forEach.listsObjects &&
		!slices.ContainsFunc(rule.Actions, func(a v1alpha1.RuleAction) bool { return a.Object != "" })
	for _, x := range slices.DeleteFunc(p.listDecisive(), func(x *expression) bool { return x == nil }) {
		for _, target := range x.targets {
			if x != p.forEach || !alone || !slices.Contains(p.own, target) || slices.Contains(x.repeated, target) {
				decisive = append(decisive, target)
			}
		}
	}
	return decisive
}

// FindReadings says for each target that expressions see what they read of an object of it, besides what identifies it. All callers get the
// same map, and must not change it.
func (p *Programs) FindReadings() map[string]usage.Reading {
	all, _ := p.readings()
	return all
}

// CheckFields says which fields expressions read that no object of the targets has, and which values they compare fields with that these never
// have: errors, and what is only likely wrong. It knows nothing of targets that are not among kinds. It waits for an evaluation that runs.
func (p *Programs) CheckFields(root *field.Path, kinds map[string]usage.Kind) (errs field.ErrorList, warnings []expr.Warning) {
	p.turn <- struct{}{} // places are found once for each tree
	defer func() { <-p.turn }()
	problems, complete := usage.FindProblems(p.makeUsageSpec(kinds))
	if !complete {
		warnings = append(warnings, expr.WarnUnchecked("they take too much work: use fewer or simpler expressions"))
	}
	for _, problem := range problems {
		e := problem.Tree.LocateError(&expr.Error{Kind: expr.Invalid, Path: problem.Path, Message: problem.Message, Hint: problem.Hint}, problem.Node)
		if problem.Likely {
			warnings = append(warnings, expr.Warning{Path: e.Path, Line: e.Line, Column: e.Column, Message: e.Message, Snippet: e.Snippet, Hint: e.Hint})
		} else {
			errs = append(errs, makeFieldError(e, root.Child(problem.Path), problem.Tree.Source))
		}
	}
	return errs, warnings
}

func (p *Programs) findReadings() (map[string]usage.Reading, *usage.Place) {
	return usage.FindReadings(p.makeUsageSpec(nil))
}

// makeUsageSpec gives all expressions as package usage has them.
func (p *Programs) makeUsageSpec(kinds map[string]usage.Kind) *usage.Spec {
	spec := &usage.Spec{Kinds: kinds, Targets: p.targets, Variables: listVariables(p.variables)}
	for _, c := range p.conditions {
		spec.Others = append(spec.Others, c.usedFor(usage.ForScalar))
	}
	if p.data != nil {
		spec.Others = append(spec.Others, p.data.usedFor(usage.ForAll))
	}
	for _, r := range p.rules {
		spec.Rules = append(spec.Rules, r.listUses())
	}
	return spec
}

// checkReadings says that expressions read what objects are read without, also those of targets of all kinds; nil if they do not.
func (p *Programs) checkReadings(root *field.Path, spec *v1alpha1.Work) field.ErrorList {
	all, missing := p.readings()
	if missing == nil {
		return usage.CheckMetadata(root, spec.ListAnyKind(), all)
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
	add(usage.ForScalar, p.when, p.forExpression, p.forKey, p.keep.expression, p.leave.expression, p.unless, p.key, p.reason)
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
