// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"math"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/resource"
	kubernetes "k8s.io/apiserver/pkg/cel"
)

// Arithmetic is what operators and sum do not do by themselves. A program finds it if its bindings went through ExtendBinding.
//
//	<duration> * <int> -> <duration>             // duration("30m") * 3, and 3 * duration("30m")
//	<list of quantities>.sum() -> <quantity>     // claims.items.map(c, quantity(c.spec.resources.requests.storage)).sum()
func Arithmetic() cel.EnvOption { return cel.Lib(arithmeticLibrary{}) }

type arithmeticLibrary struct{}

func (arithmeticLibrary) LibraryName() string { return "cleaner.arithmetic" }

func (arithmeticLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function(operators.Multiply,
			cel.Overload("multiply_duration_int64", []*cel.Type{cel.DurationType, cel.IntType}, cel.DurationType),
			cel.Overload("multiply_int64_duration", []*cel.Type{cel.IntType, cel.DurationType}, cel.DurationType)),
		cel.Function("sum",
			cel.MemberOverload("list_quantity_sum_quantity", []*cel.Type{cel.ListType(kubernetes.QuantityType)}, kubernetes.QuantityType, cel.UnaryBinding(sumQuantities))),
	}
}

func (arithmeticLibrary) ProgramOptions() []cel.ProgramOption { return nil }

// ExtendBinding gives what is called instead of a function of CEL or Kubernetes, by its name or an overload of it: the same, unless the function
// lacks something.
func ExtendBinding(o *functions.Overload) *functions.Overload {
	switch extended := *o; o.Operator {
	case operators.Multiply:
		extended.OperandTrait = 0
		extended.Binary = func(a, b ref.Val) ref.Val { return multiply(a, b, o) }
		return &extended
	case "sum": // of a list whose elements have no type before they are there
		extended.Unary = func(list ref.Val) ref.Val { return sumByElement(list, o) }
		return &extended
	default:
		return o
	}
}

// multiply multiplies a duration and a whole number, and has cel-go multiply all else.
func multiply(a, b ref.Val, otherwise *functions.Overload) ref.Val {
	n, isNumber := a.(types.Int)
	d, isDuration := b.(types.Duration)
	if !isNumber && !isDuration {
		n, isNumber = b.(types.Int)
		d, isDuration = a.(types.Duration)
	}
	switch {
	case isNumber && isDuration:
		return multiplyDuration(d, n)
	case a.Type().HasTrait(otherwise.OperandTrait):
		return otherwise.Binary(a, b)
	default:
		return types.NewErr("no such overload: %s * %s", a.Type().TypeName(), b.Type().TypeName())
	}
}

func multiplyDuration(d types.Duration, n types.Int) ref.Val {
	product := int64(d.Duration) * int64(n)
	if n != 0 && (product/int64(n) != int64(d.Duration) || n == -1 && d.Duration == math.MinInt64) {
		return types.NewErr("%s * %d is longer than a duration can be (292 years)", d.Duration, n)
	}
	return types.Duration{Duration: time.Duration(product)}
}

// sumByElement adds up quantities, durations or numbers, as the first element is one.
func sumByElement(list ref.Val, otherwise *functions.Overload) ref.Val {
	elements, ok := list.(traits.Lister)
	if !ok || elements.Size() == types.IntZero {
		return otherwise.Function(list)
	}
	switch first := elements.Get(types.IntZero); first.(type) {
	case types.Uint, types.Double, types.Duration:
		return addElements(elements)
	default:
		if IsQuantity(first) {
			return sumQuantities(list)
		}
		return otherwise.Function(list)
	}
}

// addElements adds up the elements of a list that is not empty.
func addElements(elements traits.Lister) (sum ref.Val) {
	for it := elements.Iterator(); it.HasNext() == types.True; {
		element := it.Next()
		adder, canAdd := sum.(traits.Adder)
		switch {
		case sum == nil:
			sum = element
		case !canAdd: // an error of the addition before
			return sum
		default:
			sum = adder.Add(element)
		}
	}
	return sum
}

// IsQuantity says that a value is a quantity.
func IsQuantity(v ref.Val) bool {
	_, ok := v.Value().(*resource.Quantity)
	return ok
}

// sumQuantities adds up quantities. There is no other way than to add one after the other to a copy.
func sumQuantities(list ref.Val) ref.Val {
	sum := resource.Quantity{}
	for it := list.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		element := it.Next()
		q, ok := element.Value().(*resource.Quantity)
		if !ok {
			return types.NewErr("sum: %s is among quantities, and is none: wrap it in quantity()", quoteValue(element))
		}
		sum.Add(*q)
	}
	return kubernetes.Quantity{Quantity: &sum}
}
