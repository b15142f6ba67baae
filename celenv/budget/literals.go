// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
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
}

// newMeteredLiteral makes a literal that pays of an expression, and of its parts as they are planned.
func newMeteredLiteral(e ast.Expr, parts []interpreter.InterpretableV2, m *Meter) *meteredLiteral {
	l := &meteredLiteral{id: e.ID(), isMap: e.Kind() == ast.MapKind, parts: parts, optional: map[int]bool{}, m: m}
	n := int64(len(parts))
	if l.isMap {
		l.size = ValueSize + entrySize*n/2 // keys and values
		for i, entry := range e.AsMap().Entries() {
			l.optional[2*i+1] = entry.AsMapEntry().IsOptional()
		}
		return l
	}
	l.size = ValueSize * (1 + n)
	for _, i := range e.AsList().OptionalIndices() {
		l.optional[int(i)] = true
	}
	return l
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
	if l.isMap {
		return l.makeMap(f)
	}
	return l.makeList(f)
}

func (l *meteredLiteral) makeList(f *interpreter.ExecutionFrame) ref.Val {
	values := make([]ref.Val, 0, len(l.parts))
	for i := range l.parts {
		switch v := l.evaluatePart(f, i); {
		case v == nil:
		case types.IsUnknownOrError(v):
			return v
		default:
			values = append(values, v)
		}
	}
	return types.NewRefValList(NewAdapter(l.m), values)
}

func (l *meteredLiteral) makeMap(f *interpreter.ExecutionFrame) ref.Val {
	entries := make(map[ref.Val]ref.Val, len(l.parts)/2)
	for i := 0; i < len(l.parts); i += 2 {
		key := l.parts[i].Exec(f)
		if types.IsUnknownOrError(key) {
			return key
		}
		l.m.payReading(MeasureText(key))
		switch v := l.evaluatePart(f, i+1); {
		case v == nil:
			delete(entries, key)
		case types.IsUnknownOrError(v):
			return v
		default:
			entries[key] = v
		}
	}
	return types.NewRefValMap(NewAdapter(l.m), entries)
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
