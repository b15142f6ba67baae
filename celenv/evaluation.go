// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/hoist"
	"github.com/vtex/cleaner/celenv/lookups"
)

// Evaluation is one look of all expressions at one Input. A variable is computed when an expression first reads it, and kept for the
// others.
//
// It is for one goroutine, has its Programs for itself from BeginEvaluation to Close, and is invalid afterwards, like its results, except
// plain Go values and what KeepValues returns. Do not wait for anything else in between.
type Evaluation struct {
	p            *Programs
	values       map[string]any // the targets, params and time
	memos        []memo         // of the spec's variables, by slot
	sharedBudget budget.Budget
	// answerSteps is what is left of Limits.AllSteps for results, and extraSteps for predictions and explanations.
	answerSteps, extraSteps int64
	// abortReason is why the evaluation was aborted, with the expression at which that was found; nil while it continues.
	abortReason *expr.Error
	retained    int64 // bytes
	memory      Memory
	closed      bool
	// explanations are those that have been made.
	explanations []*explanation

	// rule is whose expression runs, or was the last one; nil before.
	rule *ruleProgram
	// item is the one that expressions are about; nil when there is none, or more than one.
	item       *Item
	itemMemos  []memo        // of the rule's variables for this item
	itemBudget budget.Budget // what is left to it
	items      ref.Val
	object     map[string]any // what a patch is about
	// recording is where lookups are recorded; nil: nowhere.
	recording *lookups.Record
	// changed and pieces are what has changed since another evaluation, as the values of variables show it, and as objects do; nil: it was not asked for.
	changed, pieces *lookups.Changes
	nested          int64          // bytes of variables that were computed for the one that is computed
	paying          *budget.Budget // for variables of the spec

	ahead foreseer
}

// memo is a variable that has been read: a value, an error, or the reason why the evaluation stopped there.
type memo struct {
	value   ref.Val
	failure *variableError
	stopped *expr.Error
	bytes   int64 // about how many the value takes, without those of variables that it reads
}

// variableError is an error of a variable, where it is read.
type variableError struct {
	name    string
	problem *expr.Error
}

func (e *variableError) Error() string {
	return expr.TruncateText(fmt.Sprintf("%s has no value: %s (%s)", e.name, e.problem.Message, e.problem.FormatPlace()), 1024)
}

// BeginEvaluation waits for the other evaluations of these Programs to end, and begins one. The caller must Close it.
func (p *Programs) BeginEvaluation(ctx context.Context, in Input) (*Evaluation, *expr.Error) {
	return p.beginWithin(ctx, in, p.limits.Wall, p.limits.AllSteps)
}

// beginSearch begins an Evaluation that only looks for a moment. It has less of everything: a decision is made already.
func (p *Programs) beginSearch(ctx context.Context, in Input) (*Evaluation, *expr.Error) {
	return p.beginWithin(ctx, in, p.limits.SearchWall, p.limits.AllSteps/2)
}

func (p *Programs) beginWithin(ctx context.Context, in Input, wall time.Duration, steps int64) (*Evaluation, *expr.Error) {
	waiting, cancel := context.WithTimeoutCause(ctx, p.limits.Wall, budget.ErrWall)
	defer cancel()
	if ctx.Err() == nil {
		select {
		case p.turn <- struct{}{}:
			p.meter.StartClock(ctx, wall)
			if !p.meter.Held.ShareMemory(in.Memory) {
				p.meter.ReleaseContext()
				<-p.turn
				return nil, budget.NewMemoryError()
			}
			e := &Evaluation{p: p, values: in.collectVariables(), memos: make([]memo, p.slots), answerSteps: steps, extraSteps: steps / 2, memory: in.Memory}
			e.sharedBudget = p.limits.NewSharedBudget(&e.answerSteps)
			e.paying = &e.sharedBudget
			p.fixed.BeginEvaluation(p.fixedParts, &e.sharedBudget)
			if in.Kept != nil {
				copy(e.memos, in.Kept.memos)
				p.fixed.RestoreValues(in.Kept.fixed)
			}
			p.fixedAhead.BeginEvaluation(p.fixedParts, &e.ahead.sharedBudget)
			e.ahead.of = e
			e.ahead.resetForesight()
			return e, nil
		case <-waiting.Done():
		}
	}
	problem := (&budget.Clock{Ctx: waiting, Wall: p.limits.Wall}).NewContextError()
	problem.Hint = "" // it has not begun
	return nil, problem
}

// AbortReason returns why the evaluation was aborted, and at which expression that was found: a limit of all expressions together is used
// up, or the caller's context has ended. It is nil while the evaluation continues. After an abort, earlier results are no basis for a
// decision.
func (e *Evaluation) AbortReason() *expr.Error { return e.abortReason }

// RetainBytes counts bytes that the caller holds on to, on behalf of an expression, until all answers are there. It is false once
// they are more than Limits.Retained, or than the Memory of the Input has: then AbortReason says so.
func (e *Evaluation) RetainBytes(path string, bytes int) bool {
	if e.abortReason != nil {
		return false
	}
	if e.retained += int64(bytes); e.retained > e.p.limits.Retained {
		e.abortReason = &expr.Error{Kind: expr.Exhausted, Path: path, Message: fmt.Sprintf("what the rules want takes more than %d bytes of memory", e.p.limits.Retained),
			Hint: "act on fewer items at once, or give shorter keys, reasons and patches"}
	} else if !e.p.meter.Held.TakeRetained(int64(bytes)) {
		e.abortReason = budget.NewMemoryError().WithPath(path)
	}
	return e.abortReason == nil
}

// Close ends the evaluation and lets the next one begin.
func (e *Evaluation) Close() {
	if e.closed {
		return
	}
	e.closed = true
	for _, x := range e.explanations {
		x.releaseProgram()
	}
	e.p.fixed.EndEvaluation()
	e.p.fixedAhead.EndEvaluation()
	e.p.meter.ReleaseContext()
	if e.memory != nil {
		e.memory.KeepBytes(e.retained)
	}
	<-e.p.turn
}

// EvaluateConditions evaluates all conditions, in the order of the spec, each with what the earlier ones have left of the
// Limits. An error in one does not keep the others from being evaluated.
func (e *Evaluation) EvaluateConditions() []Result {
	results := make([]Result, len(e.p.conditions))
	for i, c := range e.p.conditions {
		before := e.sharedBudget.SumCost()
		out, problem := e.evaluateAndForesee(c, &e.sharedBudget)
		results[i] = Result{Value: problem == nil && out == types.True, Err: problem, Cost: e.sharedBudget.SumCost() - before}
	}
	return results
}

// EvaluateData evaluates cloudEventData, with Limits of its own, and gives its value as JSON: keys sorted, integers as they are,
// at most MaxData bytes. It is empty without the expression.
func (e *Evaluation) EvaluateData() (string, *expr.Error) {
	if e.p.data == nil {
		return "", nil
	}
	own := e.p.limits.NewSharedBudget(&e.answerSteps)
	out, problem := e.p.data.evaluateIn(e, &own)
	if problem != nil {
		return "", problem
	}
	return e.p.data.encodeJSON(out)
}

// activation is an Evaluation as programs see it.
type activation Evaluation

// Parent is nil: there are no other variables.
func (a *activation) Parent() interpreter.Activation { return nil }

// ResolveName gives the value of a variable: as it is, or as an error of whatever reads it.
func (a *activation) ResolveName(name string) (any, bool) {
	e := (*Evaluation)(a)
	switch name {
	case nameItem:
		if e.item == nil {
			return types.NewErr("there is no item here: several share this patch, and it sees items"), true
		}
		return e.item.value, true
	case nameObject:
		switch {
		case e.object != nil:
			return e.object, true
		case e.item == nil || !budget.IsObject(e.item.value):
			return types.NewErr("this item is no object"), true
		}
		return e.item.value, true
	case nameItems:
		return e.items, true
	}
	if value, ok := e.values[name]; ok {
		return value, true
	}
	if v := e.p.variables[name]; v != nil {
		return e.recordValue(v, e.readVariable(v, &e.memos[v.slot], e.paying)), true
	}
	if e.rule == nil {
		return nil, false
	}
	v := e.rule.variables[name]
	switch {
	case v == nil:
		return nil, false
	case e.item == nil:
		return types.NewErr("%s is computed for each item, and several share this patch: it sees items", name), true
	}
	return e.readVariable(v, &e.itemMemos[v.slot], &e.itemBudget), true
}

// readVariable returns the value of a variable, and computes it the first time. A limit that ends this evaluation also ends the one that
// reads the variable.
func (e *Evaluation) readVariable(v *variable, m *memo, from *budget.Budget) any {
	e.computeVariable(v, m, from)
	switch {
	case m.failure != nil:
		return types.WrapErr(m.failure) // a new one: cel-go writes into it where it was read
	case m.stopped != nil:
		e.p.meter.StopEvaluation(m.stopped)
	}
	return m.value
}

// computeVariable computes the value of a variable, the first time.
func (e *Evaluation) computeVariable(v *variable, m *memo, from *budget.Budget) {
	if m.value != nil || m.failure != nil || m.stopped != nil {
		return
	}
	if recording := e.recording; v.rule == nil { // it is for other items, too
		e.recording = nil
		defer func() { e.recording = recording }()
	}
	held, others := e.p.meter.Held.CountLasting(), e.nested
	e.nested = 0
	out, problem := v.expression.evaluateIn(e, from)
	all := e.p.meter.Held.CountLasting() - held
	switch own := all - e.nested; {
	case problem == nil:
		m.value, m.bytes = out, own
	case problem.Kind == expr.Runtime:
		m.failure = &variableError{name: v.name, problem: problem}
	default:
		m.stopped = &expr.Error{Kind: problem.Kind, Message: (&variableError{name: v.name, problem: problem}).Error(), Hint: problem.Hint}
	}
	e.nested = others + all
}

// Kept is what an evaluation has found out that does not change with the time, for another one of the same Programs.
type Kept struct {
	memos []memo
	fixed hoist.Kept
	older int64 // bytes of values that an older evaluation has found
}

// CountBytes is about how much memory it takes.
func (k *Kept) CountBytes() (bytes int64) {
	if k == nil {
		return 0
	}
	bytes = k.fixed.CountBytes()
	for i := range k.memos {
		bytes += k.memos[i].bytes
	}
	return bytes
}

// CountOlder is about how much of that an older evaluation has found.
func (k *Kept) CountOlder() int64 { return k.older }

// KeepValues returns what the evaluation has found out, and about how many bytes that takes. It serves evaluations that see the same values in
// all targets that a variable or a fixed part has read.
func (e *Evaluation) KeepValues() (*Kept, int64) {
	k := &Kept{memos: append([]memo(nil), e.memos...), fixed: e.p.fixed.KeptValues()}
	for _, v := range e.p.variables {
		if m := &k.memos[v.slot]; v.expression.readsTime || m.value == nil {
			*m = memo{}
		}
	}
	return k, e.p.meter.Held.CountLasting()
}

// KeepLookups returns no more of what is kept than the values of variables in which rules look up entries, as they serve to find changes. Those of
// an older evaluation stand where there are none; the older one may be nil.
func (k *Kept) KeepLookups(p *Programs, older *Kept) *Kept {
	out := &Kept{memos: make([]memo, len(k.memos))}
	for _, r := range p.rules {
		for _, v := range r.lookups.variables {
			m := &out.memos[v.slot]
			switch {
			case m.value != nil:
			case k.memos[v.slot].value != nil: // it may have what variables have that it reads
				*m = k.memos[v.slot]
				m.bytes = k.sumBytes(p, v, map[string]bool{})
			case older != nil:
				*m = older.memos[v.slot]
				out.older += m.bytes
			}
		}
	}
	return out
}

// sumBytes sums up what the values of a variable and of those that it reads take, each once.
func (k *Kept) sumBytes(p *Programs, v *variable, done map[string]bool) (bytes int64) {
	if v == nil || done[v.name] {
		return 0
	}
	done[v.name], bytes = true, k.memos[v.slot].bytes
	for name := range v.expression.names {
		bytes += k.sumBytes(p, p.variables[name], done)
	}
	return bytes
}

// KeepWithout returns what is kept of variables that read none of some targets; nil if none is.
func (p *Programs) KeepWithout(k *Kept, targets []string) *Kept {
	if k == nil || len(targets) == 0 {
		return k
	}
	return &Kept{memos: k.dropReaders(p, targets)} // a fixed part does not say what it reads
}

// dropReaders returns the values of variables that read none of some targets.
func (k *Kept) dropReaders(p *Programs, targets []string) []memo {
	memos := slices.Clone(k.memos)
	for _, v := range p.variables {
		if slices.ContainsFunc(v.expression.targets, func(target string) bool { return slices.Contains(targets, target) }) {
			memos[v.slot] = memo{}
		}
	}
	return memos
}

// KeepInPieces is KeepWithout that also keeps the values for which FindChangedPieces has found what has changed.
func (k *Kept) KeepInPieces(e *Evaluation, targets []string) *Kept {
	out := e.p.KeepWithout(k, targets)
	if out == nil || out == k {
		return out
	}
	for slot := range out.memos {
		if e.pieces.Knows(slot) {
			out.memos[slot] = k.memos[slot]
		}
	}
	return out
}
