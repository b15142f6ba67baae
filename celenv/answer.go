// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
)

// wantedType is what an expression has to give.
type wantedType int

const (
	wantAny wantedType = iota
	wantBool
	wantJSON
	wantList
	wantString
	wantNames
	wantDuration
	wantInt
	wantOrder
	wantObject
	wantMap
	wantOperations
)

// describeRequirement says it of an expression, such as "when".
func (w wantedType) describeRequirement() string {
	switch w {
	case wantBool:
		return "must be true or false"
	case wantJSON:
		return "must be a value that JSON can hold"
	case wantList:
		return "must be a list"
	case wantString:
		return "must be a string"
	case wantNames:
		return "must be a string, or a list of strings"
	case wantDuration:
		return `must be a duration, or a string such as "40s"`
	case wantInt:
		return "must be a whole number"
	case wantOrder:
		return "must be a string, a number, a bool, a timestamp or a duration"
	case wantObject:
		return "must be an object of a target"
	case wantMap:
		return "must be a map"
	case wantOperations:
		return "must be a list of {op, path, value}, as its type is JSON"
	default:
		return "may be anything"
	}
}

// acceptsKind says whether a value of this kind can be it.
func (w wantedType) acceptsKind(kind types.Kind) bool {
	switch w {
	case wantBool:
		return kind == types.BoolKind
	case wantJSON:
		return !slices.Contains([]types.Kind{types.TypeKind, types.OpaqueKind, types.StructKind}, kind)
	case wantList, wantOperations:
		return kind == types.ListKind
	case wantString:
		return kind == types.StringKind
	case wantNames:
		return kind == types.StringKind || kind == types.ListKind
	case wantDuration:
		return kind == types.DurationKind || kind == types.StringKind
	case wantInt:
		return kind == types.IntKind || kind == types.UintKind
	case wantOrder:
		return slices.Contains([]types.Kind{
			types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind, types.DurationKind,
		}, kind)
	case wantObject, wantMap:
		return kind == types.MapKind
	default:
		return true
	}
}

// isOneOf says whether a type is of one of these kinds.
func isOneOf(t *types.Type, kinds ...types.Kind) bool { return slices.Contains(kinds, t.Kind()) }

// suggestOptionalFix says what to write where an expression gives an optional value instead.
func (w wantedType) suggestOptionalFix(got *types.Type) string {
	switch {
	case got.TypeName() != types.OptionalType.TypeName():
		return ""
	case w != wantBool:
		return "add .orValue(...)"
	case got.IsExactType(types.NewOptionalType(types.BoolType)):
		return "add .orValue(false)"
	}
	return ""
}

// suggestFix says what to write where an expression gives this type instead.
func (w wantedType) suggestFix(got *types.Type) string {
	if fix := w.suggestOptionalFix(got); fix != "" {
		return fix
	}
	switch w {
	case wantBool:
		if isOneOf(got, types.ListKind, types.MapKind) {
			return "ask something of it, with exists, all or size"
		}
		return "compare it with something, as in ... == ..."
	case wantJSON:
		return hintJSON
	case wantList:
		if isOneOf(got, types.MapKind) {
			return "write x.items for the objects of a target x, or x.transformList(k, v, v) for the values of a map"
		}
	case wantMap:
		if isOneOf(got, types.ListKind) {
			return "a list of operations is a patch of type: JSON"
		}
	case wantString, wantNames:
		if isOneOf(got, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind, types.DurationKind) {
			return "wrap in string()"
		}
	case wantDuration:
		if isOneOf(got, types.IntKind, types.UintKind, types.DoubleKind) {
			return `a number has no unit: write seconds(x), or a string such as "40s"`
		}
	case wantInt:
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

// suggestLibraryFix says what to write instead of what cel-go itself found wrong. Empty when that is not known.
func suggestLibraryFix(message string) string {
	switch {
	case strings.Contains(message, "token recognition error at: '="):
		return "to compare, write =="
	case strings.HasPrefix(message, "invalid duration"):
		return `write it with the units h, m, s and ms; parseDuration("15d") knows days and weeks too`
	case strings.HasPrefix(message, "invalid timestamp"):
		return `write it as in timestamp("2006-01-02T15:04:05Z")`
	case strings.Contains(message, "nesting limit"):
		return fmt.Sprintf("at most %d loops may stand in one another: make a map with indexBy, groupBy or toSet instead", maxLoopNesting)
	case strings.HasPrefix(message, "found no matching overload for '_"):
		return "both sides must be of one type: convert one, with int(), double(), string() or timestamp()"
	}
	return ""
}
