// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// MakeLazy has a.or(b) and a.orValue(b) evaluate b only where a has no value. cel-go's optionals have no other
// implementation of these two; its Programs bring one like this along.
func MakeLazy(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return i, nil
	}
	unwraps := call.Function() == "orValue"
	overload := "optional_or_optional"
	if unwraps {
		overload = "optional_orValue_value"
	}
	if !unwraps && call.Function() != "or" || call.OverloadID() != "" && call.OverloadID() != overload {
		return i, nil
	}
	return &lazyAlternative{id: call.ID(), first: call.Args()[0], other: call.Args()[1], unwraps: unwraps}, nil
}

// lazyAlternative is one of the two.
type lazyAlternative struct {
	id           int64
	first, other interpreter.InterpretableV2
	unwraps      bool // gives the value of first, not the optional
}

func (a *lazyAlternative) ID() int64 { return a.id }

func (a *lazyAlternative) Eval(v interpreter.Activation) ref.Val {
	return a.Exec(interpreter.AsFrame(v))
}

func (a *lazyAlternative) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	switch first := a.first.Exec(frame).(type) {
	case *types.Err, *types.Unknown:
		return first
	case *types.Optional:
		switch {
		case !first.HasValue():
			return a.other.Exec(frame)
		case a.unwraps:
			return first.GetValue()
		default:
			return first
		}
	default:
		return types.NoSuchOverloadErr()
	}
}

// maxCopied is how many nodes a macro may copy. Each copy is as large as what it copies, so that a chain of them doubles with each link.
const maxCopied = 64

// BoundCopies gives the macros of a library that copy what they are called on, with a bound. A macro that is declared later stands for an
// earlier one of its name.
func BoundCopies(of cel.EnvOption) []cel.Macro {
	env, err := cel.NewCustomEnv(of)
	if err != nil {
		panic(fmt.Sprintf("cannot read the macros of a library: %s", err)) // whatever is compiled
	}
	var out []cel.Macro
	for _, m := range env.Macros() {
		if m.Function() != "optMap" && m.Function() != "optFlatMap" {
			continue
		}
		out = append(out, cel.ReceiverMacro(m.Function(), m.ArgCount(), func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
			if countNodes(target) > maxCopied {
				return nil, f.NewError(target.ID(), fmt.Sprintf("%s is called on too large an expression: write that into a variable, and call it on the variable", m.Function()))
			}
			return m.Expander()(f, target, args)
		}))
	}
	return out
}

// countNodes counts the nodes of an expression.
func countNodes(e ast.Expr) (n int) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(ast.Expr) { n++ }))
	return n
}
