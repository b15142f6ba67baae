// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// Order is what orderBy gave for an item.
type Order struct{ values []ref.Val }

// Size is how many bytes it takes.
func (o Order) Size() int {
	n := 0
	for _, v := range o.values {
		n += 2*budget.ValueSize + int(budget.MeasureText(v))
	}
	return n
}

// EvaluateOrder evaluates orderBy.
func (i *Item) EvaluateOrder() (Order, *expr.Error) {
	p := i.rule.p
	if len(p.orderBy) == 0 {
		return Order{}, nil
	}
	values := make([]ref.Val, len(p.orderBy))
	for k := range p.orderBy {
		x := p.orderBy[k].expression
		value, problem := i.evaluateExpression(x)
		if problem == nil {
			problem = x.checkLength(value, maxOrder)
		}
		if problem != nil {
			return Order{}, problem
		}
		if text, ok := value.(types.String); ok {
			value = types.String(strings.Clone(string(text))) // a part of a longer text would hold on to all of it
		}
		values[k] = value
	}
	return Order{values: values}, nil
}

// CompareOrders says by its sign which of two items of the rule comes first: a when it is negative. It is 0 where orderBy does
// not tell them apart, and an error where it gave what cannot be compared.
func (r *RuleEvaluation) CompareOrders(a, b Order) (int, *expr.Error) {
	for k, o := range r.p.orderBy {
		result := types.NoSuchOverloadErr()
		if left, ok := a.values[k].(traits.Comparer); ok {
			result = left.Compare(b.values[k])
		}
		n, ok := result.(types.Int)
		switch {
		case !ok:
			return 0, o.locateError(&expr.Error{
				Kind: expr.Runtime, Message: fmt.Sprintf("the items give values that cannot be compared: %s and %s", a.values[k].Type().TypeName(), b.values[k].Type().TypeName()),
				Hint: "give all of them one type",
			})
		case n == 0:
			continue
		case o.descending:
			return int(-n), nil
		default:
			return int(n), nil
		}
	}
	return 0, nil
}
