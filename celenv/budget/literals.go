// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"reflect"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/compact"
	"github.com/vtex/cleaner/celenv/library"
)

// meteredLiteral is a list or a map with parts that are evaluated. cel-go's own hashes keys for nothing, and writes a value that is no
// optional into its error, however large the value is.
type meteredLiteral struct {
	id       int64
	isMap    bool
	parts    []interpreter.InterpretableV2 // of a map: each key, and the value after it
	optional map[int]bool                  // the parts that must be optional values
	m        *Meter
	size     int64

	// keyOf is the function for which a list is made of one key, only to be added to the others; empty: it is another list.
	keyOf string
	// names are the keys of a map that has the same texts each time, sorted, and places says where each of the text's is there. Nil: it is another map.
	names  []ref.Val
	places []int
}

// literal is a list or a map in an expression.
type literal struct {
	ast.Expr
	// isPassing says that a loop makes it only to add what it has to its result, which pays for that.
	isPassing bool
	// keyOf is the function for which it has one key; empty: it is something else.
	keyOf string
}

// findLiterals finds the literals of an expression, by their IDs.
func findLiterals(root ast.Expr) map[int64]*literal {
	all := map[int64]*literal{}
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ListKind, ast.MapKind:
			all[e.ID()] = &literal{Expr: e}
		case ast.ComprehensionKind:
			if l := all[findAddition(e.AsComprehension().LoopStep())]; l != nil {
				l.isPassing = true
			}
		case ast.CallKind:
			if function, key, ok := library.FindKey(e.AsCall()); ok && all[key.ID()] != nil {
				all[key.ID()].keyOf = function
			}
		}
	}))
	return all
}

// findAddition finds the ID of what a step of a loop adds to the result, perhaps under a condition; 0 if it adds nothing.
func findAddition(step ast.Expr) int64 {
	if step.Kind() == ast.CallKind && step.AsCall().FunctionName() == operators.Conditional {
		step = step.AsCall().Args()[1]
	}
	if step.Kind() != ast.CallKind {
		return 0
	}
	call := step.AsCall()
	if name := call.FunctionName(); name != operators.Add && name != "cel.@mapInsert" {
		return 0
	}
	return call.Args()[len(call.Args())-1].ID()
}

// newMeteredLiteral makes a literal that pays, of its parts as they are planned.
func newMeteredLiteral(of *literal, parts []interpreter.InterpretableV2, m *Meter) *meteredLiteral {
	l := &meteredLiteral{id: of.ID(), isMap: of.Kind() == ast.MapKind, parts: parts, optional: map[int]bool{}, keyOf: of.keyOf, m: m}
	if l.isMap {
		for i, entry := range of.AsMap().Entries() {
			l.optional[2*i+1] = entry.AsMapEntry().IsOptional()
		}
		l.findNames()
	} else {
		for _, i := range of.AsList().OptionalIndices() {
			l.optional[int(i)] = true
		}
	}
	l.size = l.measureSize(of.isPassing)
	return l
}

// measureSize measures how many bytes the literal builds.
func (l *meteredLiteral) measureSize(isPassing bool) int64 {
	const listSize, recordSize, mapSize, partSize = 48, 48, 128, 40 // a part has its place, and may be small
	n := int64(len(l.parts))
	switch {
	case l.keyOf != "":
		return 0 // its list pays for it
	case isPassing && l.isMap:
		return ValueSize + entrySize*n/2
	case isPassing:
		return ValueSize + ValueSize*n
	case l.names != nil:
		return recordSize + partSize*n/2
	case l.isMap:
		return mapSize + (partSize+entrySize)*n/2
	default:
		return listSize + partSize*n
	}
}

// findNames finds the keys of a map that has the same texts each time.
func (l *meteredLiteral) findNames() {
	written := make([]ref.Val, 0, len(l.parts)/2)
	for i := 0; i < len(l.parts); i += 2 {
		constant, isConstant := l.parts[i].(interpreter.InterpretableConst)
		if !isConstant || l.optional[i+1] {
			return
		}
		name, isText := constant.Value().(types.String)
		if !isText || slices.Contains(written, ref.Val(name)) {
			return
		}
		written = append(written, name)
	}
	l.names = slices.SortedFunc(slices.Values(written), compact.CompareTexts)
	for _, name := range written {
		l.places = append(l.places, slices.Index(l.names, name))
	}
}

// ID returns the ID of the expression.
func (l *meteredLiteral) ID() int64 { return l.id }

// Eval pays, and makes the list or the map.
func (l *meteredLiteral) Eval(a interpreter.Activation) ref.Val {
	return l.Exec(interpreter.AsFrame(a))
}

// Exec pays, and makes the list or the map.
func (l *meteredLiteral) Exec(f *interpreter.ExecutionFrame) ref.Val {
	l.m.payBuilding(l.size)
	switch {
	case l.names != nil:
		return l.makeRecord(f)
	case l.isMap:
		return l.makeMap(f)
	default:
		return l.makeList(f)
	}
}

// makeRecord makes a map with known keys. The values are evaluated in the order of the text, as cel-go does, so that the first error is the same.
func (l *meteredLiteral) makeRecord(f *interpreter.ExecutionFrame) ref.Val {
	values := make([]ref.Val, len(l.names))
	for i := 1; i < len(l.parts); i += 2 {
		v := l.parts[i].Exec(f)
		if types.IsUnknownOrError(v) {
			return v
		}
		values[l.places[i/2]] = v
	}
	return compact.NewRecord(l.names, values)
}

func (l *meteredLiteral) makeList(f *interpreter.ExecutionFrame) ref.Val {
	values := make([]ref.Val, 0, len(l.parts))
	for i := range l.parts {
		switch v := l.evaluatePart(f, i); {
		case v == nil:
		case types.IsUnknownOrError(v):
			return v
		case l.keyOf != "" && library.CheckKey(l.keyOf, v) != nil:
			return types.LabelErrNode(l.id, library.CheckKey(l.keyOf, v))
		default:
			values = append(values, v)
		}
	}
	return types.NewRefValList(NewAdapter(l.m), values)
}

func (l *meteredLiteral) makeMap(f *interpreter.ExecutionFrame) ref.Val {
	var keys, values []ref.Val
	for i := 0; i < len(l.parts); i += 2 {
		key := l.parts[i].Exec(f)
		if types.IsUnknownOrError(key) {
			return key
		}
		if !reflect.TypeOf(key).Comparable() {
			return types.LabelErrNode(l.id, types.NewErr("a key of a map cannot be a %s", TypeOf(key).TypeName()))
		}
		l.m.payReading(MeasureText(key))
		switch v := l.evaluatePart(f, i+1); {
		case v == nil: // nor has the map the key before it, as in cel-go
			l.m.PaySteps(int64(len(keys)))
			for at := slices.Index(keys, key); at >= 0; at = slices.Index(keys, key) {
				l.m.PaySteps(int64(len(keys)))
				keys, values = slices.Delete(keys, at, at+1), slices.Delete(values, at, at+1)
			}
		case types.IsUnknownOrError(v):
			return v
		default:
			keys, values = append(keys, key), append(values, v)
		}
	}
	return compact.NewMap(keys, values)
}

// evaluatePart gives the value of a part; nil if it is optional and has none.
func (l *meteredLiteral) evaluatePart(f *interpreter.ExecutionFrame, i int) ref.Val {
	v := l.parts[i].Exec(f)
	if !l.optional[i] || types.IsUnknownOrError(v) {
		return v
	}
	o, ok := v.(*types.Optional)
	switch {
	case !ok:
		return types.LabelErrNode(l.id, types.NewErr("what follows the ? must be an optional value, and this is a %s", TypeOf(v).TypeName()))
	case !o.HasValue():
		return nil
	default:
		return o.GetValue()
	}
}
