// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
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
