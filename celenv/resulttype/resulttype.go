// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resulttype says what types of values expressions may give, and what to write where one gives another. Pure: it sees types, and never a value.
package resulttype

import (
	"math"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// HintJSON is what to write where a value has no JSON form.
const HintJSON = "give null, bools, numbers, strings, timestamps and durations, or lists and maps with string keys of these; string(x) makes a string of most others"

// Type is what an expression has to give.
type Type int

// Any may be anything. The others are called after what DescribeRequirement says of them.
const (
	Any Type = iota
	Bool
	JSON
	List
	String
	Names
	Duration
	Int
	Order
	Object
	Map
	Operations
)

// DescribeRequirement says it of an expression, such as "when".
func (t Type) DescribeRequirement() string {
	switch t {
	case Bool:
		return "must be true or false"
	case JSON:
		return "must be a value that JSON can hold"
	case List:
		return "must be a list"
	case String:
		return "must be a string"
	case Names:
		return "must be a string, or a list of strings"
	case Duration:
		return `must be a duration, or a string such as "40s"`
	case Int:
		return "must be a whole number"
	case Order:
		return "must be a string, a number, a bool, a timestamp or a duration"
	case Object:
		return "must be an object of a target"
	case Map:
		return "must be a map"
	case Operations:
		return "must be a list of {op, path, value}, as its type is JSON"
	default:
		return "may be anything"
	}
}

// AcceptsKind says whether a value of this kind can be it.
func (t Type) AcceptsKind(kind types.Kind) bool {
	switch t {
	case Bool:
		return kind == types.BoolKind
	case JSON:
		return !slices.Contains([]types.Kind{types.TypeKind, types.OpaqueKind, types.StructKind}, kind)
	case List, Operations:
		return kind == types.ListKind
	case String:
		return kind == types.StringKind
	case Names:
		return kind == types.StringKind || kind == types.ListKind
	case Duration:
		return kind == types.DurationKind || kind == types.StringKind
	case Int:
		return kind == types.IntKind || kind == types.UintKind
	case Order:
		return slices.Contains([]types.Kind{
			types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind, types.DurationKind,
		}, kind)
	case Object, Map:
		return kind == types.MapKind
	default:
		return true
	}
}

// isOneOf says whether a type is of one of these kinds.
func isOneOf(t *types.Type, kinds ...types.Kind) bool { return slices.Contains(kinds, t.Kind()) }

// suggestOptionalFix says what to write where an expression gives an optional value instead.
func (t Type) suggestOptionalFix(got *types.Type) string {
	switch {
	case got.TypeName() != types.OptionalType.TypeName():
		return ""
	case t != Bool:
		return "add .orValue(...)"
	case got.IsExactType(types.NewOptionalType(types.BoolType)):
		return "add .orValue(false)"
	}
	return ""
}

// SuggestFix says what to write where an expression gives this type instead.
func (t Type) SuggestFix(got *types.Type) string {
	if fix := t.suggestOptionalFix(got); fix != "" {
		return fix
	}
	switch t {
	case Bool:
		if isOneOf(got, types.ListKind, types.MapKind) {
			return "ask something of it, with exists, all or size"
		}
		return "compare it with something, as in ... == ..."
	case JSON:
		return HintJSON
	case List:
		if isOneOf(got, types.MapKind) {
			return "write x.items for the objects of a target x, or x.transformList(k, v, v) for the values of a map"
		}
	case Map:
		if isOneOf(got, types.ListKind) {
			return "a list of operations is a patch of type: JSON"
		}
	case String, Names:
		if isOneOf(got, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind, types.DurationKind) {
			return "wrap in string()"
		}
	case Duration:
		if isOneOf(got, types.IntKind, types.UintKind, types.DoubleKind) {
			return `a number has no unit: write seconds(x), or a string such as "40s"`
		}
	case Int:
		return suggestIntFix(got)
	}
	return ""
}

// suggestIntFix says what to write where a number is wanted.
func suggestIntFix(got *types.Type) string {
	switch {
	case isOneOf(got, types.StringKind, types.DoubleKind):
		return "wrap in int()"
	case isOneOf(got, types.ListKind, types.MapKind):
		return "add .size()"
	}
	return ""
}

// ConvertToCount gives a whole number as Go has it, at most the largest one; not ok for what is none.
func ConvertToCount(v ref.Val) (n int, ok bool) {
	switch v := v.(type) {
	case types.Int:
		return int(v), true
	case types.Uint:
		return int(min(v, math.MaxInt)), true
	default:
		return 0, false
	}
}
