// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compilecost

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// What the expressions of one spec may be together. cel-go's checker cannot be interrupted, so what it is given is bounded:
// a spec of the greatest weight takes it about a second.
const (
	// maxWeight is how much all expressions may weigh, and maxExpressionWeight one of them. A node weighs about 4.
	maxWeight           = 200_000
	maxExpressionWeight = 50_000
	// MaxFootprint is how many bytes of memory the compiled expressions of one spec may take together.
	MaxFootprint = 8 << 20
)

// Scale knows what expressions of one environment cost.
type Scale struct {
	// typeParameters are how many types each function leaves open.
	typeParameters map[string]int64
	calls          *budget.Calls
}

// NewScale makes the scale of an environment, whose functions are called so.
func NewScale(env *cel.Env, calls *budget.Calls) *Scale {
	return &Scale{typeParameters: countTypeParameters(env), calls: calls}
}

// Allowance is what the expressions of a spec may still cost together.
type Allowance struct {
	scale *Scale
	// weight is how long the checker may take for them.
	weight int64
	// room is how many bytes of memory what is compiled of them may take.
	room int64
}

// NewAllowance makes the allowance of a spec.
func (s *Scale) NewAllowance() *Allowance {
	return &Allowance{scale: s, weight: maxWeight, room: MaxFootprint}
}

// UsedRoom says about how many bytes of memory what was compiled so far takes.
func (a *Allowance) UsedRoom() int64 { return MaxFootprint - a.room }

// ReserveWeight subtracts the weight of a parsed expression from what its spec has left. It returns an error if that is too little.
func (a *Allowance) ReserveWeight(t *expr.Tree, parsed *ast.AST) *expr.Error {
	most := min(maxExpressionWeight, a.weight)
	w := &weigher{scale: a.scale, left: most}
	w.weighExpression(parsed.Expr(), nil)
	if w.left < 0 {
		return t.LocateError(&expr.Error{
			Kind: expr.Invalid, Message: "the expression is too involved to be checked, by itself or together with those before it",
			Hint: "use fewer empty lists and maps, and fewer cel.bind and optMap in one another; put parts into variables, or several Cleaners",
		}, t.Root.ID())
	}
	a.weight -= most - w.left
	return nil
}

// ReserveRoom takes bytes off what the spec has left. It is an error if that is too little.
func (a *Allowance) ReserveRoom(t *expr.Tree, bytes int64) *expr.Error {
	if bytes > a.room {
		return t.LocateError(&expr.Error{
			Kind:    expr.Invalid,
			Message: fmt.Sprintf("the expressions up to this one would take more than %d MiB of memory once they are compiled", MaxFootprint>>20),
			Hint:    "write shorter expressions: take long lists from an object or a parameter, put what occurs often into a variable, or use several Cleaners",
		}, t.Root.ID())
	}
	a.room -= bytes
	return nil
}
