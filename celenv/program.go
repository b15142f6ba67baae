// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/library"
)

// MaxData is how many bytes the value of cloudEventData may have as JSON.
const MaxData = 8 << 10

// hintJSON is what to write where a value has no JSON form.
const hintJSON = "give null, bools, numbers, strings, timestamps and durations, or lists and maps with string keys of these; string(x) makes a string of most others"

// Programs are the compiled expressions of one spec. They are safe for concurrent use: evaluations take turns.
type Programs struct {
	conditions []*condition
	data       *condition // spec.cloudEventData; nil if there is none
	// turn holds one token while an evaluation uses the meters.
	turn             chan struct{}
	meter, explainer *meter
}

// Input is what conditions see.
type Input struct {
	// Targets are the included targets by name: an object as a map, a list of them as {"items": [...]}, or nil for null.
	// They are read, never changed.
	Targets map[string]any
	// Params are the parameters.
	Params map[string]any
	// Time is the moment of the evaluation.
	Time time.Time
}

// Result is the answer to one condition.
type Result struct {
	// Value is the answer when Err is nil.
	Value bool
	// Err says why there is none.
	Err *Error
	// Cost is the steps and the bytes that the answer took.
	Cost int64
}

// Conditions evaluates all conditions, in the order of the spec, each with what the earlier ones have left of the
// Limits. An error in one does not keep the others from being evaluated.
func (p *Programs) Conditions(ctx context.Context, in Input) []Result {
	results := make([]Result, len(p.conditions))
	interrupted := p.alone(ctx, func() {
		variables := in.variables()
		for i, c := range p.conditions {
			before := p.meter.cost()
			value, err := c.evaluate(p.meter, variables)
			results[i] = Result{Value: value, Err: err, Cost: p.meter.cost() - before}
		}
	})
	if interrupted != nil {
		for i := range results {
			_, results[i].Err = p.conditions[i].failed(interrupted)
		}
	}
	return results
}

// Data evaluates cloudEventData, with Limits of its own, and gives its value as JSON: keys sorted, integers as they are,
// at most MaxData bytes. It is empty without the expression.
func (p *Programs) Data(ctx context.Context, in Input) (text string, problem *Error) {
	if p.data == nil {
		return "", nil
	}
	interrupted := p.alone(ctx, func() { text, problem = p.data.json(p.meter, in.variables()) })
	if interrupted != nil {
		_, problem = p.data.failed(interrupted)
	}
	return text, problem
}

// alone does something with a full meter when it is this caller's turn, or says why the turn did not come.
func (p *Programs) alone(ctx context.Context, do func()) *Error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.meter.limits.Wall, errWall)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return (&meter{ctx: ctx, limits: p.meter.limits}).interruption()
	}
	p.meter.refill(ctx)
	defer p.meter.release()
	do()
	return nil
}

// Reads names the targets that a condition refers to, sorted.
func (p *Programs) Reads(condition int) []string { return slices.Clone(p.conditions[condition].reads) }

// Warnings are what compiles and will likely go wrong, in the order of the conditions, then of
// cloudEventData: today the lookups of labels and
// annotations without a guard. One can be missing, or be about a lookup that is guarded in a way that is not understood.
func (p *Programs) Warnings() []Warning {
	var all []Warning
	for _, c := range p.conditions {
		all = append(all, c.warnings...)
	}
	if p.data != nil {
		all = append(all, p.data.warnings...)
	}
	return all
}

func (in Input) variables() map[string]any {
	variables := make(map[string]any, len(in.Targets)+2)
	for name, value := range in.Targets {
		variables[name] = value
	}
	params := in.Params
	if params == nil {
		params = map[string]any{}
	}
	variables[variableParams] = params
	variables[variableTime] = in.Time.UTC().Round(0)
	return variables
}

// evaluate answers the condition.
func (c *condition) evaluate(m *meter, variables map[string]any) (bool, *Error) {
	out, err := c.value(m, variables)
	if err != nil {
		return false, err
	}
	answer, ok := out.(types.Bool)
	if !ok {
		return c.failed(c.tree.locate(&Error{Kind: Runtime, Message: fmt.Sprintf("a condition must be true or false, and this gave a %s", out.Type().TypeName())}, c.tree.root.ID()))
	}
	return bool(answer), nil
}

// json is the value of the expression as JSON.
func (c *condition) json(m *meter, variables map[string]any) (string, *Error) {
	out, problem := c.value(m, variables)
	if problem != nil {
		return "", problem
	}
	// A value can be too large to be written down, such as a list that occurs in a list many times. Whatever size counts
	// more than this for is longer than MaxData as JSON.
	const far = 64 * MaxData
	text, err := "", error(nil)
	large := size(out, far) > far
	if !large {
		text, err = library.Marshal(out)
		large = len(text) > MaxData
	}
	switch {
	case err != nil:
		problem = &Error{Kind: Runtime, Message: cut(err.Error(), 512), Hint: hintJSON}
	case large:
		problem = &Error{Kind: Exhausted, Message: fmt.Sprintf("the value has more than %d bytes as JSON", MaxData), Hint: "give less: the names of objects, say, and not the objects"}
	default:
		return text, nil
	}
	_, problem = c.failed(c.tree.locate(problem, c.tree.root.ID()))
	return "", problem
}

// value runs the expression.
func (c *condition) value(m *meter, variables map[string]any) (ref.Val, *Error) {
	var problem *Error
	out, value, err := c.attempt(m, variables)
	switch {
	case err != nil:
		problem = err
	case value != nil:
		problem = c.explain.of(m.ctx, variables, value)
	default:
		return out, nil
	}
	_, problem = c.failed(problem)
	return nil, problem
}

// attempt runs the expression. What it gives for an error of the expression itself has yet to be explained.
func (c *condition) attempt(m *meter, variables map[string]any) (ref.Val, *types.Err, *Error) {
	if m.ctx.Err() != nil {
		return nil, nil, m.interruption()
	}
	m.stopped = nil
	out, err := run(c.program, variables)
	var cancelled interpreter.EvalCancelledError
	var value *types.Err
	switch {
	case errors.As(err, &cancelled) && m.stopped != nil:
		return nil, nil, m.stopped
	case errors.As(err, &value):
		return nil, value, nil
	case err != nil:
		return nil, nil, &Error{Kind: Internal, Message: cut(err.Error(), 512)}
	}
	return out, nil, nil
}

// failed says of which expression an error is.
func (c *condition) failed(err *Error) (bool, *Error) {
	of := *err
	of.Condition = c.index
	return false, &of
}

// run evaluates a program. A panic anywhere below it is an error.
func run(program cel.Program, variables map[string]any) (out ref.Val, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the evaluation panicked: %v", r)
		}
	}()
	out, _, err = program.Eval(variables)
	return out, err
}
