// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/lookups"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/celenv/timedependence"
)

// Reuse says on what the result of a rule's `when` depends, so that a caller can tell whether it is still valid.
type Reuse struct {
	// Own is the target whose objects are the items of the rule, in their order. `when` reads one of them as its item.
	Own string
	// Joined are the targets that `when` reads besides its item, sorted. LookedUp are those of them that it reads only by looking up entries of
	// variables: a change of one concerns the items that have looked up what has changed.
	Joined, LookedUp []string
	// Ordering are the targets that orderBy reads, in any order.
	Ordering []string
	// Impossible says why that cannot be told; then the other fields are empty.
	Impossible string
}

// FindReuse says on what the result of a rule's `when` depends. A result that does not read the time is valid until the item or a joined
// target changes; one that does, also no longer than LastForesight says. The metadata.resourceVersion of an object is not a part of what it
// depends on.
func (p *Programs) FindReuse(rule int) Reuse {
	r := p.rules[rule]
	own, ok := expr.FindListed(r.forEach.tree.Root)
	if !ok || !p.isList(own) {
		return Reuse{Impossible: "forEach is not just a target's items"}
	}
	if slices.Contains(r.when.targets, own) {
		return Reuse{Impossible: fmt.Sprintf("when reads all objects of target %q for each item", own)}
	}
	readings := p.FindReadings()
	for _, target := range append([]string{own}, r.when.targets...) {
		switch reading := readings[target]; {
		case reading.WholeFor != "":
			return Reuse{Impossible: fmt.Sprintf("%s reads target %q as a whole", reading.WholeFor, target)}
		case reading.Projection.Covers(versionOfObject):
			return Reuse{Impossible: fmt.Sprintf("the expressions read metadata.resourceVersion of target %q", target)}
		}
	}
	found := Reuse{Own: own, Joined: r.when.targets, LookedUp: r.lookups.targets}
	for _, o := range r.orderBy {
		found.Ordering = append(found.Ordering, o.targets...)
	}
	return found
}

// versionOfObject is the metadata.resourceVersion of an object.
var versionOfObject = &projection.Projection{Fields: map[string]*projection.Projection{ //nolint:gochecknoglobals // it never changes
	"metadata": {Fields: map[string]*projection.Projection{"resourceVersion": {Scalar: true}}},
}}

// isList says that a name is a target with many objects.
func (p *Programs) isList(name string) bool {
	single, seen := p.targets[name]
	return seen && !single
}

// ruleLookups are the variables of the spec in which a rule's `when` only looks up entries.
type ruleLookups struct {
	variables []*variable
	targets   []string // that nothing else of `when` reads, sorted
}

// findLookups finds what `when` looks up. Until when an answer is valid depends on no more than the answer: it is found in the same steps.
func (p *ruleProgram) findLookups(s *scope) {
	if p.when == nil {
		return
	}
	used, otherwise := map[string]bool{}, map[string]bool{}
	p.addUses(p.when, used, otherwise)
	var whole []string
	for name := range used {
		switch v := s.variables[name]; {
		case s.targets[name]:
			whole = append(whole, name)
		case v == nil || v.rule != nil || v.expression == nil || len(v.expression.targets) == 0:
		case otherwise[name] || v.expression.readsTime:
			whole = append(whole, v.expression.targets...)
		default:
			v.pieces = lookups.FindPieces(v.expression.tree.Root, s.listNames())
			p.lookups.variables, p.lookups.targets = append(p.lookups.variables, v), append(p.lookups.targets, v.expression.targets...)
		}
	}
	slices.SortFunc(p.lookups.variables, func(a, b *variable) int { return a.slot - b.slot })
	slices.Sort(p.lookups.targets)
	p.lookups.targets = slices.DeleteFunc(slices.Compact(p.lookups.targets), func(target string) bool { return slices.Contains(whole, target) })
	if len(p.lookups.targets) == 0 {
		p.lookups = ruleLookups{}
	}
}

// listNames says what names are in expressions of the spec's variables.
func (s *scope) listNames() lookups.Names {
	return lookups.Names{
		IsList: func(name string) bool { return s.lists[name] },
		FindVariable: func(name string) ast.Expr {
			if v := s.variables[name]; v != nil && v.rule == nil && v.expression != nil {
				return v.expression.tree.Root
			}
			return nil
		},
		ListTargets: func(name string) []string {
			if v := s.variables[name]; v != nil && v.expression != nil {
				return v.expression.targets
			}
			return []string{name}
		},
	}
}

// addUses adds the names that an expression uses, also through variables of the rule, and those that it uses otherwise than to look up entries.
func (p *ruleProgram) addUses(x *expression, used, otherwise map[string]bool) {
	lookups.FindOtherUses(x.tree.Root, x.fixed, func(name string) { otherwise[name] = true })
	for name := range x.names {
		if used[name] {
			continue
		}
		used[name] = true
		if v := p.variables[name]; v != nil && v.expression != nil {
			p.addUses(v.expression, used, otherwise)
		}
	}
}

// ListLookedUp lists the targets that rules read only by looking up entries, sorted.
func ListLookedUp(p *Programs) (all []string) {
	for _, r := range p.rules {
		all = append(all, r.lookups.targets...)
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// RecordLookups has EvaluateWhen record what it looks up, for LastLookups.
func (r *RuleEvaluation) RecordLookups() {
	if len(r.p.lookups.variables) > 0 {
		r.recorded = &lookups.Record{}
	}
}

// LastLookups returns what the last EvaluateWhen has looked up. They are valid until the next one.
func (r *RuleEvaluation) LastLookups() []lookups.Key {
	if r.recorded == nil {
		return nil
	}
	return r.recorded.ListKeys()
}

// recordValue returns the value of a variable so that lookups in it are recorded, if an expression of a rule reads it that only looks up entries.
func (e *Evaluation) recordValue(v *variable, value any) any {
	if e.recording == nil || !slices.Contains(e.rule.lookups.variables, v) {
		return value
	}
	of, _ := value.(ref.Val)
	return e.recording.RecordValue(v.slot, of)
}

// FindChangedLookups returns what has changed of what the rule may look up since an evaluation of the same Programs, which is the same one for all rules.
// It is not ok if that cannot be found out.
func (r *RuleEvaluation) FindChangedLookups(before *Kept) (changes *lookups.Changes, ok bool) {
	e := r.e
	if e.changed == nil {
		e.changed = lookups.NewChanges()
	}
	defer payApart(e)()
	for _, v := range r.p.lookups.variables {
		now := &e.memos[v.slot]
		if before == nil || before.memos[v.slot].value == nil {
			return nil, false
		}
		if e.computeVariable(v, now, e.paying); now.value == nil {
			e.dropStopped()
			return nil, false
		}
		if !e.changed.AddVariable(v.slot, before.memos[v.slot].value, now.value) {
			return nil, false
		}
	}
	return e.changed, true
}

// FindChangedPieces is FindChangedLookups where it is known which objects have changed. Changed are their targets, and before and now have the values of
// those that are lists, with these objects alone, as they were and as they are. It is not ok if it takes more than those objects.
func (r *RuleEvaluation) FindChangedPieces(kept *Kept, changed []string, before, now map[string]any) (changes *lookups.Changes, ok bool) {
	e := r.e
	if e.pieces == nil {
		e.pieces = lookups.NewChanges()
	}
	for _, v := range r.p.lookups.variables {
		reads := slices.DeleteFunc(slices.Clone(v.expression.targets), func(target string) bool { return !slices.Contains(changed, target) })
		switch {
		case len(reads) == 0 || e.pieces.Knows(v.slot):
			continue
		case kept == nil || kept.memos[v.slot].value == nil:
			return nil, false
		case slices.ContainsFunc(reads, func(target string) bool { return !slices.Contains(v.pieces.Targets, target) }):
			return nil, false
		}
		was, is := v.evaluatePieces(e, before), v.evaluatePieces(e, now)
		if was == nil || is == nil || !e.pieces.AddPieces(v.slot, v.pieces, kept.memos[v.slot].value, was, is) {
			return nil, false
		}
	}
	return e.pieces, true
}

// evaluatePieces evaluates the variable of some objects alone, given by the lists that have any. Nil: it has no value.
func (v *variable) evaluatePieces(e *Evaluation, of map[string]any) ref.Val {
	values, memos, recording := e.values, e.memos, e.recording
	defer func() { e.values, e.memos, e.recording = values, memos, recording }()
	e.values, e.recording = maps.Clone(values), nil
	for _, target := range v.pieces.Targets {
		if e.values[target] = of[target]; of[target] == nil {
			e.values[target] = map[string]any{"items": []any{}}
		}
	}
	e.memos = (&Kept{memos: memos}).dropReaders(e.p, v.pieces.Targets)
	defer payApart(e)()
	out, problem := v.expression.evaluateIn(e, e.paying)
	if problem != nil {
		return nil
	}
	return out
}

// payApart has variables be paid from what no answer depends on, until it is ended.
func payApart(e *Evaluation) (end func()) {
	extra := e.p.limits.NewSharedBudget(&e.extraSteps)
	e.paying = &extra
	return func() { e.paying = &e.sharedBudget }
}

// dropStopped forgets the variables that a limit has stopped.
func (e *Evaluation) dropStopped() {
	for i := range e.memos {
		if e.memos[i].stopped != nil {
			e.memos[i] = memo{}
		}
	}
}

// LastForesight returns until when the result of the last expression is valid, of those that Foresight counts.
func (r *RuleEvaluation) LastForesight() Foresight { return r.e.readLookout(r.e.ahead.last) }

// AssumeForesight has Foresight and HoldForesight count a result of `when` that the caller has from before, and that is valid until a moment.
// Zero: time does not change it.
func (r *RuleEvaluation) AssumeForesight(until time.Time) {
	if until.IsZero() {
		return
	}
	l := timedependence.Lookout{Until: int64(until.Sub(r.e.getTime()))}
	r.e.ahead.found.Merge(l)
	r.e.ahead.ofRule.Merge(l)
	r.e.ahead.holding.Merge(l)
}
