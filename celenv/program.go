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
)

// Programs are the compiled conditions of one spec. They are safe for concurrent use: evaluations take turns.
type Programs struct {
	conditions []*condition
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
	ctx, cancel := context.WithTimeoutCause(ctx, p.meter.limits.Wall, errWall)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		for i := range results {
			results[i].Err = (&meter{ctx: ctx, limits: p.meter.limits}).interruption()
			results[i].Err.Condition = i
		}
		return results
	}

	p.meter.refill(ctx)
	defer p.meter.release()
	variables := in.variables()
	for i, c := range p.conditions {
		before := p.meter.cost()
		value, err := c.evaluate(p.meter, variables)
		results[i] = Result{Value: value, Err: err, Cost: p.meter.cost() - before}
	}
	return results
}

// Reads names the targets that a condition refers to, sorted.
func (p *Programs) Reads(condition int) []string { return slices.Clone(p.conditions[condition].reads) }

// Warnings are what compiles and will likely go wrong, in the order of the conditions: today the lookups of labels and
// annotations without a guard. One can be missing, or be about a lookup that is guarded in a way that is not understood.
func (p *Programs) Warnings() []Warning {
	var all []Warning
	for _, c := range p.conditions {
		all = append(all, c.warnings...)
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
	if m.ctx.Err() != nil {
		return c.failed(m.interruption())
	}
	m.stopped = nil
	out, err := run(c.program, variables)
	var cancelled interpreter.EvalCancelledError
	var value *types.Err
	switch {
	case errors.As(err, &cancelled) && m.stopped != nil:
		return c.failed(m.stopped)
	case errors.As(err, &value):
		return c.failed(c.explain.of(m.ctx, variables, value))
	case err != nil:
		return c.failed(&Error{Kind: Internal, Message: cut(err.Error(), 512)})
	}
	answer, ok := out.(types.Bool)
	if !ok {
		return c.failed(c.tree.locate(&Error{Kind: Runtime, Message: fmt.Sprintf("a condition must be true or false, and this gave a %s", out.Type().TypeName())}, c.tree.root.ID()))
	}
	return bool(answer), nil
}

func (c *condition) failed(err *Error) (bool, *Error) {
	err.Condition = c.index
	return false, err
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
