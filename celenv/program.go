// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	kubernetes "k8s.io/apiserver/pkg/cel/library"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/hoist"
	"github.com/vtex/cleaner/celenv/library"
	"github.com/vtex/cleaner/celenv/resulttype"
	"github.com/vtex/cleaner/celenv/timedependence"
	"github.com/vtex/cleaner/celenv/usage"
)

// MaxData is how many bytes the value of cloudEventData may have as JSON.
const MaxData = 8 << 10

// Programs are the compiled expressions of one spec. They are safe for concurrent use: evaluations take turns.
type Programs struct {
	limits     budget.Limits
	targets    map[string]bool      // those that expressions see, and whether each is one object
	variables  map[string]*variable // of the spec, by variables.x
	slots      int                  // how many these are
	conditions []*expression
	data       *expression // spec.cloudEventData; nil if there is none
	rules      []*ruleProgram
	warnings   []expr.Warning
	footprint  int64 // about how many bytes of memory they take
	readings   func() (map[string]usage.Reading, *usage.Place)
	// turn holds one token while an evaluation uses the meters.
	turn             chan struct{}
	meter, explainer *budget.Meter
	lookout          *timedependence.Lookout // of the programs that look ahead
	// fixed are the values of the parts that an evaluation evaluates once, and fixedParts how many there are. Programs that look ahead have values
	// of their own, so that no answer depends on what a prediction has used up.
	fixed, fixedAhead hoist.Values
	fixedParts        int
}

// Input is what expressions see.
type Input struct {
	// Targets are the included targets by name: an object as a map, a list of them as {"items": [...]}, or nil for null.
	// They are read, never changed.
	Targets map[string]any
	// Params are the parameters.
	Params map[string]any
	// Time is the moment of the evaluation.
	Time time.Time
	// Memory is what the evaluation shares with others; nil: nothing.
	Memory Memory
	// Kept is what another evaluation has found out; nil: nothing is known.
	Kept *Kept
}

// Memory is what evaluations share.
type Memory = budget.Memory

// Result is the answer to one condition.
type Result struct {
	// Value is the answer when Err is nil.
	Value bool
	// Err says why there is none.
	Err *expr.Error
	// Cost is the steps and the bytes that the answer took.
	Cost int64
}

// EvaluateConditions evaluates all conditions in an Evaluation of their own.
func (p *Programs) EvaluateConditions(ctx context.Context, in Input) []Result {
	e, interrupted := p.BeginEvaluation(ctx, in)
	if interrupted == nil {
		defer e.Close()
		return e.EvaluateConditions()
	}
	results := make([]Result, len(p.conditions))
	for i := range results {
		results[i].Err = interrupted.WithPath(p.conditions[i].path)
	}
	return results
}

// EvaluateData evaluates cloudEventData in an Evaluation of its own.
func (p *Programs) EvaluateData(ctx context.Context, in Input) (string, *expr.Error) {
	if p.data == nil {
		return "", nil
	}
	e, interrupted := p.BeginEvaluation(ctx, in)
	if interrupted != nil {
		return "", interrupted.WithPath(p.data.path)
	}
	defer e.Close()
	return e.EvaluateData()
}

// Warnings are what compiles and will likely go wrong. In the order of the spec: lookups of labels and annotations without a guard, targets
// taken for lists, and names sought among keys. A lookup can be missing among them, or be guarded in a way that is not understood. Then expressions whose changes cannot be predicted,
// or that change every second.
func (p *Programs) Warnings() []expr.Warning { return slices.Clone(p.warnings) }

func (in Input) collectVariables() map[string]any {
	variables := make(map[string]any, len(in.Targets)+2)
	maps.Copy(variables, in.Targets)
	if variables[nameParams] = in.Params; in.Params == nil {
		variables[nameParams] = map[string]any{}
	}
	variables[nameTime] = in.Time.UTC().Round(0)
	return variables
}

// encodeJSON writes a value as an event carries it.
func (x *expression) encodeJSON(out ref.Val) (string, *expr.Error) {
	// A value can be too large to be written down, such as a list that occurs in a list many times. Whatever size counts
	// more than this for is longer than MaxData as JSON.
	const far = 64 * MaxData
	text, err := "", error(nil)
	large := budget.MeasureValue(out, far) > far
	if !large {
		text, err = library.EncodeJSON(out)
		large = len(text) > MaxData
	}
	switch {
	case err != nil:
		return "", x.locateError(&expr.Error{Kind: expr.Runtime, Message: expr.TruncateText(err.Error(), 512), Hint: resulttype.HintJSON})
	case large:
		return "", x.locateError(&expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("the value has more than %d bytes as JSON", MaxData), Hint: "give less: the names of objects, say, and not the objects"})
	}
	return text, nil
}

// locateError makes an error one of the expression as a whole.
func (x *expression) locateError(e *expr.Error) *expr.Error {
	return x.tree.LocateError(e, x.tree.Root.ID()).WithPath(x.path)
}

// evaluateIn runs the expression, paid from a budget.
func (x *expression) evaluateIn(e *Evaluation, from *budget.Budget) (ref.Val, *expr.Error) {
	if e.abortReason != nil {
		return nil, e.abortReason
	}
	out, failure, problem := x.attemptIn(e, from)
	if problem != nil && e.abortReason == nil && e.p.meter.CheckAbort(e.answerSteps) != nil {
		e.abortReason = problem.WithPath(x.path)
	}
	if e.abortReason != nil {
		return nil, e.abortReason
	}
	if failure != nil {
		var of *variableError
		if errors.As(failure, &of) {
			problem = x.tree.LocateError(&expr.Error{Kind: expr.Runtime, Message: of.Error(), Object: of.problem.Object, Hint: of.problem.Hint}, failure.NodeID())
		} else {
			problem = x.explanation.explainError(e, failure)
		}
	}
	if problem != nil {
		return nil, problem.WithPath(x.path)
	}
	if x.want != resulttype.JSON && !x.want.AcceptsKind(budget.TypeOf(out).Kind()) { // who writes JSON finds more than the kind
		problem = &expr.Error{Kind: expr.Runtime, Message: fmt.Sprintf("%s, and this gave a %s", x.describeRequirement(), out.Type().TypeName())}
		if x.want != resulttype.Bool {
			problem.Hint = x.want.SuggestFix(budget.TypeOf(out))
		}
		return nil, x.locateError(problem)
	}
	return out, nil
}

// attemptIn runs the expression. What it gives for an error of the expression itself has yet to be explained.
func (x *expression) attemptIn(e *Evaluation, from *budget.Budget) (ref.Val, *types.Err, *expr.Error) {
	return e.p.attemptProgram(x.program, (*activation)(e), from)
}

// attemptProgram runs a program, paid from a budget.
func (p *Programs) attemptProgram(program *program, variables interpreter.Activation, from *budget.Budget) (ref.Val, *types.Err, *expr.Error) {
	m := p.meter
	if over := m.CheckAbort(*from.AllSteps); over != nil {
		return nil, nil, over
	}
	paying := m.Budget
	m.Budget, m.Stopped = from, nil
	out, err := runProgram(program, variables)
	m.Budget = paying
	if err == nil {
		return out, nil, nil
	}
	var cancelled interpreter.EvalCancelledError
	var value *types.Err
	switch {
	case errors.As(err, &cancelled) && m.Stopped != nil:
		return nil, nil, m.Stopped
	case errors.As(err, &value):
		return nil, value, nil
	default:
		return nil, nil, &expr.Error{Kind: expr.Internal, Message: expr.TruncateText(err.Error(), 512)}
	}
}

// program is an expression that is ready to run.
type program struct{ root interpreter.InterpretableV2 }

// planProgram makes a program of what was checked, optimized if it is to give answers. It does what cel-go's own Program does, but
// that each of those keeps a table of all functions, which is most of what it takes in memory.
func (c *Compiler) planProgram(env *cel.Env, a *cel.Ast, m *budget.Meter, optimized bool, decorators ...interpreter.InterpretableDecoratorV2) (*program, error) {
	provider, values := env.CELTypeProvider(), budget.NewAdapter(m)
	attributes := budget.NewAttributes(interpreter.NewAttributeFactory(env.Container, values, provider), m)
	planner := interpreter.NewInterpreter(c.functions, env.Container, provider, values, attributes)
	options := []interpreter.PlannerOption{interpreter.CustomDecoratorV2(library.MakeLazy)}
	for _, d := range decorators {
		options = append(options, interpreter.CustomDecoratorV2(d))
	}
	patterns := []*interpreter.RegexOptimization{kubernetes.FindRegexOptimization, kubernetes.FindAllRegexOptimization}
	if optimized {
		options = append(options, interpreter.Optimize())
		patterns = append(patterns, interpreter.MatchesRegexOptimization)
	}
	root, err := planner.NewInterpretable(a.NativeRep(), append(options, interpreter.CompileRegexConstants(patterns...))...)
	if err != nil {
		return nil, err
	}
	return &program{root}, nil
}

// runProgram evaluates a program. A panic anywhere below it is an error; the meter's, that the evaluation is cancelled, is its own.
func runProgram(p *program, variables interpreter.Activation) (out ref.Val, err error) {
	frame, err := interpreter.NewExecutionFrame(variables)
	if err != nil {
		return nil, err
	}
	defer frame.Close()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interpreter.EvalCancelledError:
			err = r
		default:
			err = fmt.Errorf("the evaluation panicked: %v", r)
		}
	}()
	out = p.root.Exec(frame)
	if failure, failed := out.(*types.Err); failed {
		return out, failure
	}
	return out, nil
}
