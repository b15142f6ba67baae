// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/resulttype"
	"github.com/vtex/cleaner/celenv/timedependence"
)

// Foresight is until when results are valid if nothing but the time changes.
type Foresight struct {
	// Until is the first moment at which one may be another; before it none is. Zero: there is no such moment within the
	// next decades.
	Until time.Time
	// Unknown means that at least one result may also change before Until, at a moment that cannot be predicted.
	Unknown bool
}

// foreseer determines until when the results of an Evaluation are valid. For that, it evaluates expressions that read the time once more,
// with programs of their own: a result never depends on a prediction, and if the two disagree, nothing is predicted.
type foreseer struct {
	of   *Evaluation
	time *timedependence.Value // of the evaluation; nil before the first look
	// memos are the spec's variables that read the time, itemMemos the rule's for currentItem.
	memos, itemMemos         []aheadMemo
	currentItem              *Item
	sharedBudget, itemBudget budget.Budget          // as much as the answers have
	found, holding           timedependence.Lookout // of all answers, and of those that say what holds
	ofRule                   timedependence.Lookout // of those of the rule that was selected last
	last                     timedependence.Lookout // of the last answer
	// slopes are how fast the values of orderBy move, by the expression.
	slopes map[*expression]int64
}

// aheadMemo is a variable that has been read, and until when it is what it is.
type aheadMemo struct {
	value   ref.Val
	failure error
	stopped *expr.Error
	timedependence.Lookout
}

// Foresight returns until when all results so far are valid. cloudEventData and the reasons of rules do not count: they only describe
// what was done.
func (e *Evaluation) Foresight() Foresight { return e.readLookout(e.ahead.found) }

// HoldForesight is Foresight for the expressions that say what holds, and for how long, which is what a rule's `for` counts by:
// conditions, forEach, when, for, forKey and key.
func (e *Evaluation) HoldForesight() Foresight { return e.readLookout(e.ahead.holding) }

// Foresight is Foresight of an Evaluation for the rule alone. It must be called before another rule is selected.
func (r *RuleEvaluation) Foresight() Foresight { return r.e.readLookout(r.e.ahead.ofRule) }

// readLookout gives what was noted as moments.
func (e *Evaluation) readLookout(l timedependence.Lookout) Foresight {
	f := Foresight{Unknown: l.Unknown}
	if l.Until != timedependence.Never {
		f.Until = e.getTime().Add(time.Duration(l.Until))
	}
	return f
}

// getTime gives the time that expressions see.
func (e *Evaluation) getTime() time.Time {
	now, _ := e.values[nameTime].(time.Time)
	return now
}

// resetForesight drops all predictions.
func (f *foreseer) resetForesight() {
	nothing := timedependence.Lookout{Until: timedependence.Never}
	*f = foreseer{of: f.of, found: nothing, holding: nothing, ofRule: nothing}
}

// beginRule has what is noted from now on count for another rule.
func (f *foreseer) beginRule() { f.ofRule = timedependence.Lookout{Until: timedependence.Never} }

// evaluateAndForesee evaluates an expression, and finds out until when its answer holds.
func (e *Evaluation) evaluateAndForesee(x *expression, from *budget.Budget) (ref.Val, *expr.Error) {
	out, problem := x.evaluateIn(e, from)
	e.ahead.last = timedependence.Lookout{Until: timedependence.Never}
	if x.readsTime {
		e.ahead.foreseeAnswer(x, from, out, problem == nil || problem.Kind == expr.Runtime)
	}
	return out, problem
}

// foreseeAnswer records until when a result is valid; out is nil if it is an error. Without a result there is nothing to predict.
func (f *foreseer) foreseeAnswer(x *expression, from *budget.Budget, out ref.Val, answered bool) {
	l, value := timedependence.Lookout{Unknown: true, Until: timedependence.Never}, ref.Val(nil)
	if answered && x.ahead.ensureProgram() && f.of.p.meter.Clock.HasSpareTime() {
		l, value = f.lookAhead(x, f.selectBudget(from), out)
	}
	if x.want == resulttype.Order && !l.Unknown {
		f.foreseeOrder(x, value, &l)
	}
	f.last = l
	f.found.Merge(l)
	f.ofRule.Merge(l)
	if x.holds {
		f.holding.Merge(l)
	}
}

// selectBudget gives the budget for looking ahead that belongs to one for answers.
func (f *foreseer) selectBudget(from *budget.Budget) *budget.Budget {
	switch e := f.of; from {
	case &e.sharedBudget:
		if f.sharedBudget.MaxSteps == 0 {
			f.sharedBudget = e.p.limits.NewSharedBudget(&e.extraSteps)
		}
		return &f.sharedBudget
	case &e.itemBudget:
		if f.currentItem != e.item || f.itemBudget.MaxSteps == 0 {
			f.currentItem, f.itemBudget = e.item, e.p.limits.NewItemBudget(1, &e.extraSteps)
			clear(f.itemMemos)
		}
		return &f.itemBudget
	default:
		own := budget.NewBudget(from.Owner, from.MaxSteps, from.MaxGrowth, &e.extraSteps)
		own.Passing = from.Passing
		return &own
	}
}

// lookAhead evaluates an expression with the time moving.
func (f *foreseer) lookAhead(x *expression, from *budget.Budget, out ref.Val) (found timedependence.Lookout, value ref.Val) {
	p := f.of.p
	l, m := p.lookout, p.meter
	before, stopped := *l, m.Stopped
	*l = timedependence.Lookout{Until: timedependence.Never}
	defer func() { *l, m.Stopped = before, stopped }()
	f.selectBudget(&f.of.sharedBudget) // which pays for fixed parts
	if !f.moveTime() {
		return timedependence.Lookout{Until: timedependence.Never, Unknown: true}, nil
	}
	value, failure, problem := p.attemptProgram(x.ahead.program, (*aheadActivation)(f), from)
	if failure == nil && problem == nil && x.movement.Result && x.want != resulttype.Order {
		value, problem = f.freezeAnswer(value, from)
	}
	if problem != nil || (failure != nil) != (out == nil) || failure == nil && !isSameValue(out, value) {
		l.NoteUnknown()
	}
	return *l, value
}

// moveTime has the time move. It is false for a time that is too far away.
func (f *foreseer) moveTime() bool {
	if f.time == nil {
		now, ok := timedependence.NewTime(f.of.getTime(), f.of.p.lookout)
		if !ok {
			return false
		}
		f.time = now
	}
	return true
}

// freezeAnswer gives what an answer is now: it is looked at from here on.
func (f *foreseer) freezeAnswer(value ref.Val, from *budget.Budget) (now ref.Val, problem *expr.Error) {
	m := f.of.p.meter
	paying := m.Budget
	m.Budget, m.Stopped = from, nil
	defer func() {
		m.Budget = paying
		if recover() != nil { // it was stopped
			now, problem = value, &expr.Error{Kind: expr.Exhausted, Message: "the value is too large"}
		}
	}()
	now, _ = f.of.p.lookout.FreezeValue(value, m)
	return now, nil
}

// isSameValue says that two values are equal, as far as that is cheap to say.
func isSameValue(a, b ref.Val) bool {
	switch a.(type) {
	case types.Bool, types.Int, types.Uint, types.Double, types.String, types.Timestamp, types.Duration:
		return a.Equal(timedependence.NowOf(b)) == types.True
	default:
		return budget.TypeOf(a).Kind() == budget.TypeOf(b).Kind()
	}
}

// foreseeOrder records a value of orderBy. Values that all change at the same speed keep their order.
func (f *foreseer) foreseeOrder(x *expression, value ref.Val, l *timedependence.Lookout) {
	slope := int64(0)
	if m, ok := value.(*timedependence.Value); ok {
		if m.IsStepwise() {
			noted := f.of.p.lookout
			*noted = timedependence.Lookout{Until: timedependence.Never}
			m.NoteNextStep()
			l.Merge(*noted)
			return
		}
		slope = m.Slope
	}
	known, ok := f.slopes[x]
	switch {
	case !ok && f.slopes == nil:
		f.slopes = map[*expression]int64{x: slope}
	case !ok:
		f.slopes[x] = slope
	case known != slope:
		l.NoteUnknown()
	}
}

// readAhead is the value of a variable that reads the time, with the time moving. Until when it is that counts for
// everybody who reads it.
func (f *foreseer) readAhead(v *variable, known *aheadMemo, from *budget.Budget) any {
	if known.value == nil && known.failure == nil && known.stopped == nil {
		f.computeAhead(v, known, from)
	}
	f.of.p.lookout.Merge(known.Lookout)
	switch {
	case known.stopped != nil:
		f.of.p.meter.StopEvaluation(known.stopped)
	case known.failure != nil:
		return types.WrapErr(known.failure) // as in readVariable
	}
	return known.value
}

func (f *foreseer) computeAhead(v *variable, made *aheadMemo, from *budget.Budget) {
	if !v.expression.ahead.ensureProgram() {
		made.stopped = &expr.Error{Kind: expr.Internal, Message: v.name + " cannot be predicted"}
		return
	}
	p := f.of.p
	l := p.lookout
	before := *l
	*l = timedependence.Lookout{Until: timedependence.Never}
	value, failure, problem := p.attemptProgram(v.expression.ahead.program, (*aheadActivation)(f), from)
	made.value, made.stopped, made.Lookout = value, problem, *l
	if failure != nil {
		made.failure = errors.New(failure.Error())
	}
	*l = before
}

// aheadActivation is an Evaluation as programs see it that look ahead.
type aheadActivation foreseer

// Parent is nil: there are no other variables.
func (a *aheadActivation) Parent() interpreter.Activation { return nil }

// ResolveName gives the value of a variable. What the time does not change is what answers rest on.
func (a *aheadActivation) ResolveName(name string) (any, bool) {
	f := (*foreseer)(a)
	e := f.of
	if name == nameTime {
		return f.time, true
	}
	if v := e.p.variables[name]; v != nil && v.expression.readsTime {
		if f.memos == nil {
			f.memos = make([]aheadMemo, e.p.slots)
		}
		return f.readAhead(v, &f.memos[v.slot], f.selectBudget(&e.sharedBudget)), true
	}
	if e.rule == nil || e.item == nil {
		return (*activation)(e).ResolveName(name)
	}
	if v := e.rule.variables[name]; v != nil && v.expression.readsTime {
		own := f.selectBudget(&e.itemBudget)
		if len(f.itemMemos) < e.rule.slots {
			f.itemMemos = make([]aheadMemo, e.rule.slots)
		}
		return f.readAhead(v, &f.itemMemos[v.slot], own), true
	}
	return (*activation)(e).ResolveName(name)
}

// aheadProgram is an expression's program that looks ahead. It is compiled when it is first used: most specs are only checked.
type aheadProgram struct {
	compiler *Compiler
	x        *expression
	programs *Programs
	planned  bool
	program  *program // nil if changes cannot be predicted
}

// ensureProgram says whether there is a program.
func (a *aheadProgram) ensureProgram() bool {
	if a.planned {
		return a.program != nil
	}
	a.planned = true
	if a.x.movement.Blind {
		return false
	}
	follow, complete := timedependence.FollowCalls(&a.x.movement, a.compiler.calls, a.programs.lookout, a.programs.meter)
	program, err := a.compiler.planProgram(a.x.env, a.x.ast, a.programs.meter, true, follow, a.compiler.calls.MeterProgram(a.x.ast, a.programs.meter),
		a.programs.fixedAhead.KeepValues(a.x.fixed, a.x.firstFixed, a.programs.meter))
	if err == nil && complete() == nil {
		a.program = program
	}
	return a.program != nil
}

// collectUnforeseen collects the warnings of the expressions whose changes count, and of the variables that these read.
func (b *builder) collectUnforeseen() (found []expr.Warning) {
	p, seen := b.programs, map[*expression]bool{}
	var visit func(x *expression, own map[string]*variable)
	visit = func(x *expression, own map[string]*variable) {
		if x == nil || seen[x] {
			return
		}
		seen[x] = true
		found = append(found, b.unforeseen[x]...)
		for _, name := range slices.Sorted(maps.Keys(x.names)) {
			if v := cmp.Or(own[name], p.variables[name]); v != nil {
				visit(v.expression, own)
			}
		}
	}
	for _, c := range p.conditions {
		visit(c, nil)
	}
	for _, r := range p.rules {
		for _, x := range r.listExpressions() {
			if x != r.reason && x != nil && x.want != resulttype.Map && x.want != resulttype.Operations { // a patch may say when it is made
				visit(x, r.variables)
			}
		}
	}
	return found
}

// maxFlips bounds how many moments FindFlip looks at.
const maxFlips = 32

// FindFlip looks for the first moment after in.Time, and not after limit, at which a condition has another result if nothing but the time
// changes. An error is a result too, and all errors are equal. Zero: there is no such moment. It is exact unless changes cannot be
// predicted, or are too close to each other too often: then it is a moment up to which the results are known to be valid.
//
// first is the prediction at in.Time. Wherever results may change, the conditions are evaluated as of then, and so on, within one set of
// Limits.
func (p *Programs) FindFlip(ctx context.Context, in Input, results []Result, first Foresight, limit time.Time) (at time.Time, exact bool) {
	beyond := func(f Foresight) bool { return f.Until.IsZero() || f.Until.After(limit) }
	switch {
	case first.Unknown:
		return first.Until, false
	case beyond(first):
		return time.Time{}, true
	}
	at = first.Until
	e, interrupted := p.beginSearch(ctx, in)
	if interrupted != nil {
		return at, false
	}
	defer e.Close()
	for range maxFlips {
		e.setTime(at)
		flipped, known := e.haveFlipped(results)
		next := e.Foresight()
		switch {
		case !known:
			return at, false
		case flipped:
			return at, true
		case next.Unknown:
			return at, false
		case beyond(next):
			return time.Time{}, true
		}
		at = next.Until
	}
	return at, false
}

// haveFlipped says whether a condition that reads the time gives another answer than before. It is not known if one is stopped.
func (e *Evaluation) haveFlipped(results []Result) (flipped, known bool) {
	for i, c := range e.p.conditions {
		if !c.readsTime {
			continue
		}
		out, failure, problem := c.attemptIn(e, &e.sharedBudget)
		if problem != nil {
			return false, false
		}
		_, isBool := out.(types.Bool)
		failed := failure != nil || !isBool
		if failed != (results[i].Err != nil) || !failed && (out == types.True) != results[i].Value {
			return true, true
		}
		e.ahead.foreseeAnswer(c, &e.sharedBudget, out, true)
	}
	return false, true
}
