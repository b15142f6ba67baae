// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cachedobjects has the objects that informers hold, in the order of their names, compares them with queries, and says what has changed in
// them. It never asks an API server, and an object never changes.
package cachedobjects

import (
	"errors"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Object is an object that an informer holds. It never changes.
type Object struct {
	observed.Object
	// LoadValue returns the Value of a whole object that is held without it.
	LoadValue func() (map[string]any, error)
	// LeftOut says that a filter does not select it: an informer with that filter does not hold it.
	LeftOut bool
	// Large objects are too large to compare their fields at each change.
	Large bool
	// Bytes is about how much memory it takes, besides what it shares with others. Who stores it may add to it before.
	Bytes int
}

const (
	// fewBytes is the largest message whose fields are compared at each change.
	fewBytes = 32 << 10
	// fewValues is how many values such an object has at most. Each fewBytes/fewValues bytes of text count as one more.
	fewValues = 1024
)

// errNotKept is the error of fields that are not kept for matching.
var errNotKept = errors.New("its fields are not kept")

// LabelsOf returns the labels of an object, which may be nil.
func LabelsOf(o *Object) map[string]string {
	if o == nil {
		return nil
	}
	return o.Labels
}

// KeepForMatching returns what to keep of a changed object until it is matched. It has no fields if no query compares them or if there
// are too many: then it matches any field selector.
func (o *Object) KeepForMatching(fields bool) *Object {
	if o == nil || !o.IsWhole() || fields && !o.Large {
		return o
	}
	kept := &Object{Object: o.Object, LoadValue: func() (map[string]any, error) { return nil, errNotKept }}
	kept.Value = nil
	return kept
}

// spendOnValues subtracts the number of values in v from left, and stops below 0.
func spendOnValues(v any, left int) int {
	left--
	switch v := v.(type) {
	case string:
		return left - len(v)/(fewBytes/fewValues)
	case map[string]any:
		for k, item := range v {
			if left = spendOnValues(item, left-len(k)/(fewBytes/fewValues)); left < 0 {
				return left
			}
		}
	case []any:
		for _, item := range v {
			if left = spendOnValues(item, left); left < 0 {
				return left
			}
		}
	}
	return left
}

// IsWhole reports whether the object has more than metadata.
func (o *Object) IsWhole() bool { return o.Value != nil || o.LoadValue != nil }

// ReadWhole returns the object with its Value, if it is whole.
func (o *Object) ReadWhole() (observed.Object, error) {
	out := o.Object
	if o.LoadValue == nil {
		return out, nil
	}
	var err error
	if out.Value, err = o.LoadValue(); err != nil {
		return observed.Object{}, newUnreadableError(o.Ref, err)
	}
	return out, nil
}

// newUnreadableError returns an error that names the object.
func newUnreadableError(ref observed.Ref, err error) error {
	return fmt.Errorf("cannot read %s: %w", ref, err)
}

// MatchesQuery reports whether a query of the object's resource selects it. An object whose fields cannot be read matches, so that the
// caller gets the error.
func (o *Object) MatchesQuery(q *snapshot.Query, namespaced bool, f snapshot.FieldLabels) bool {
	if o.LoadValue == nil || !snapshot.NeedsValue(q.Fields) {
		return matchesResolved(q, namespaced, f, &o.Object)
	}
	but := *q
	but.Fields = fields.Everything()
	if !matchesResolved(&but, namespaced, f, &o.Object) {
		return false
	}
	whole, err := o.ReadWhole()
	return err != nil || f.MatchesObject(q.Fields, &whole)
}

// NewObject turns a client's object into what an informer holds: of its content, what reads say. Its content has a number of its own. One that
// it has made already it returns.
func NewObject(gvr schema.GroupVersionResource, kind string, obj any, reads *snapshot.Reads) (*Object, error) {
	if made, ok := obj.(*Object); ok {
		return made, nil
	}
	o, err := newObject(gvr, kind, obj, reads)
	o.Content = contents.Add(1)
	return o, err
}

// contents counts the contents of objects of this process.
var contents atomic.Uint64 //nolint:gochecknoglobals // a number must never come again, whoever asks

func newObject(gvr schema.GroupVersionResource, kind string, obj any, reads *snapshot.Reads) (*Object, error) {
	switch o := obj.(type) {
	case *wire.Object:
		return newWatched(gvr, kind, o, reads), nil
	case *unstructured.Unstructured:
		if problem := wire.UnreadReason(o); problem != nil { // an error for callers that need more than metadata
			known := snapshot.FromUnstructured(gvr, o)
			known.Kind, known.Value = kind, nil
			return &Object{Object: known, LoadValue: func() (map[string]any, error) { return nil, problem }}, nil //nolint:nilerr // ReadWhole returns it
		}
	}
	o, err := ConvertObject(gvr, kind, obj)
	if o.Value != nil {
		o.Value = reads.Projection().ApplyToMap(o.Value)
	}
	return &Object{Object: o, Large: spendOnValues(o.Value, fewValues) < 0}, err
}

// newWatched is NewObject for an object of a watch. If less than all is kept of it, that is done at once: all would take more.
func newWatched(gvr schema.GroupVersionResource, kind string, o *wire.Object, reads *snapshot.Reads) *Object {
	out := &Object{Object: snapshot.FromMetadata(gvr, kind, &o.PartialObjectMetadata), LoadValue: o.Content, Large: o.Size > fewBytes, Bytes: o.Size}
	if reads == nil {
		return out
	}
	value, err := o.KeepParts(reads.Projection())
	if err != nil {
		out.LoadValue = func() (map[string]any, error) { return nil, err }
		return out
	}
	out.Value, out.LoadValue, out.Large, out.Bytes = value, nil, spendOnValues(value, fewValues) < 0, 0
	return out
}

// ConvertObject converts a client's object. An object that is not complete is an error.
func ConvertObject(gvr schema.GroupVersionResource, kind string, obj any) (observed.Object, error) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		if err := wire.UnreadReason(o); err != nil {
			return observed.Object{}, newUnreadableError(observed.Ref{Resource: gvr, Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}, err)
		}
		whole := snapshot.FromUnstructured(gvr, o)
		whole.Kind = kind // which all objects of the kind share
		return whole, nil
	case *metav1.PartialObjectMetadata:
		return snapshot.FromMetadata(gvr, kind, o), nil
	default:
		return observed.Object{}, fmt.Errorf("cannot read a %T as %s", obj, observed.ResourceName(gvr))
	}
}
