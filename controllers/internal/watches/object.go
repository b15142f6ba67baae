// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// object is one that an informer holds. It never changes.
type object struct {
	plan.Object
	// later gives the Value of a whole object that came without.
	later func() (map[string]any, error)
}

// whole says that there is more of it than metadata.
func (o *object) whole() bool { return o.Value != nil || o.later != nil }

// read is the object with its Value, if it is whole.
func (o *object) read() (plan.Object, error) {
	out := o.Object
	if o.later == nil {
		return out, nil
	}
	var err error
	if out.Value, err = o.later(); err != nil {
		return plan.Object{}, unreadable(o.Resource.GroupResource(), o.Namespace, o.Name, err)
	}
	return out, nil
}

// unreadable says of which object something cannot be read.
func unreadable(resource schema.GroupResource, namespace, name string, err error) error {
	return fmt.Errorf("cannot read %s: %w", snapshot.Where(resource, namespace != "", namespace, name), err)
}

// matches says that it is what a query of its resource asks for. One whose fields cannot be read is, so that who asks hears
// of that.
func (o *object) matches(q *snapshot.Query, namespaced bool, f snapshot.FieldLabels) bool {
	if o.later == nil || !snapshot.NeedsValue(q.Fields) {
		return matches(q, namespaced, f, &o.Object)
	}
	but := *q
	but.Fields = fields.Everything()
	if !matches(&but, namespaced, f, &o.Object) {
		return false
	}
	whole, err := o.read()
	return err != nil || f.Selects(q.Fields, &whole)
}

// take is what an informer holds of what a client returned.
func take(gvr schema.GroupVersionResource, obj any) (*object, error) {
	switch o := obj.(type) {
	case *wire.Object:
		return &object{snapshot.FromMetadata(gvr, &o.PartialObjectMetadata), o.Content}, nil
	case *unstructured.Unstructured:
		if problem := wire.Unread(o); problem != nil { // which is told to who needs more than the metadata
			known := snapshot.FromUnstructured(gvr, o)
			known.Value = nil
			return &object{known, func() (map[string]any, error) { return nil, problem }}, nil //nolint:nilerr // whoever reads it is told
		}
	}
	o, err := convert(gvr, obj)
	return &object{Object: o}, err
}

// convert reads what a client returned, if it is all of it.
func convert(gvr schema.GroupVersionResource, obj any) (plan.Object, error) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		if err := wire.Unread(o); err != nil {
			return plan.Object{}, unreadable(gvr.GroupResource(), o.GetNamespace(), o.GetName(), err)
		}
		return snapshot.FromUnstructured(gvr, o), nil
	case *metav1.PartialObjectMetadata:
		return snapshot.FromMetadata(gvr, o), nil
	default:
		return plan.Object{}, fmt.Errorf("cannot read a %T as %s", obj, plan.ResourceName(gvr))
	}
}

// dropManagedFields makes what a client returned smaller while a list is still arriving.
func dropManagedFields(obj any) (any, error) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	case *metav1.PartialObjectMetadata:
		o.ManagedFields = nil
	}
	return obj, nil
}
