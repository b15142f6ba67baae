// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parts watches what the parts of an expression give while it runs, and lists those that show a reader why the whole gave what it
// did.
//
// It never changes what an expression gives, other than its errors, and it bounds all texts that it makes.
package parts

import (
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// Watcher follows an expression while it runs.
type Watcher interface {
	// BeginNode comes before a part is evaluated.
	BeginNode(id int64)
	// NoteValue comes after a part is evaluated. It returns the value itself, or, for an error, one that says more.
	NoteValue(vars interpreter.Activation, id int64, out ref.Val) ref.Val
	// NoteLookup comes after a field or an index was read from an object. It returns the error itself, or one that says more.
	NoteLookup(vars interpreter.Activation, id int64, object any, err error) error
}

// WatchNodes has a program tell a Watcher of each of its parts.
func WatchNodes(w Watcher) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		switch node := i.(type) {
		case *watchedNode, *watchedAttribute, interpreter.InterpretableConst:
			return i, nil
		case interpreter.InterpretableAttribute: // what selects from it must still find an attribute
			return &watchedAttribute{InterpretableAttribute: node, watcher: w}, nil
		default:
			return &watchedNode{InterpretableV2: node, watcher: w}, nil
		}
	}
}

// watchedNode is any part but an attribute.
type watchedNode struct {
	interpreter.InterpretableV2
	watcher Watcher
}

func (w *watchedNode) Eval(a interpreter.Activation) ref.Val { return w.Exec(interpreter.AsFrame(a)) }

func (w *watchedNode) Exec(f *interpreter.ExecutionFrame) ref.Val {
	id := w.ID()
	w.watcher.BeginNode(id)
	return w.watcher.NoteValue(f, id, w.InterpretableV2.Exec(f))
}

// watchedAttribute is a variable with its fields and indexes.
type watchedAttribute struct {
	interpreter.InterpretableAttribute
	watcher Watcher
}

func (w *watchedAttribute) Eval(a interpreter.Activation) ref.Val {
	return w.Exec(interpreter.AsFrame(a))
}

func (w *watchedAttribute) Exec(f *interpreter.ExecutionFrame) ref.Val {
	return w.watcher.NoteValue(f, w.ID(), w.InterpretableAttribute.Exec(f))
}

// AddQualifier adds a field or an index, and watches it.
func (w *watchedAttribute) AddQualifier(q interpreter.Qualifier) (interpreter.Attribute, error) {
	var step interpreter.Qualifier = &watchedQualifier{Qualifier: q, watcher: w.watcher}
	if constant, ok := q.(interpreter.ConstantQualifier); ok {
		step = &watchedConstant{watchedQualifier{Qualifier: q, watcher: w.watcher}, constant.Value()}
	}
	_, err := w.InterpretableAttribute.AddQualifier(step)
	return w, err
}

type watchedQualifier struct {
	interpreter.Qualifier
	watcher Watcher
}

func (w *watchedQualifier) Qualify(vars interpreter.Activation, object any) (any, error) {
	value, err := w.Qualifier.Qualify(vars, object)
	return value, w.watcher.NoteLookup(vars, w.ID(), object, err)
}

func (w *watchedQualifier) QualifyIfPresent(vars interpreter.Activation, object any, presenceOnly bool) (any, bool, error) {
	value, present, err := w.Qualifier.QualifyIfPresent(vars, object, presenceOnly)
	return value, present, w.watcher.NoteLookup(vars, w.ID(), object, err)
}

// watchedConstant is a step that is known before the evaluation, which the interpreter tells apart by its value.
type watchedConstant struct {
	watchedQualifier
	value ref.Val
}

func (w *watchedConstant) Value() ref.Val { return w.value }
