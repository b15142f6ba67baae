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
	// loadValue gives the Value of a whole object that came without.
	loadValue func() (map[string]any, error)
}

// isWhole says that there is more of it than metadata.
func (o *object) isWhole() bool { return o.Value != nil || o.loadValue != nil }

// readWhole returns the object with its Value, if it is whole.
func (o *object) readWhole() (plan.Object, error) {
	out := o.Object
	if o.loadValue == nil {
		return out, nil
	}
	var err error
	if out.Value, err = o.loadValue(); err != nil {
		return plan.Object{}, newUnreadableError(o.Resource.GroupResource(), o.Namespace, o.Name, err)
	}
	return out, nil
}

// newUnreadableError says of which object something cannot be read.
func newUnreadableError(resource schema.GroupResource, namespace, name string, err error) error {
	return fmt.Errorf("cannot read %s: %w", snapshot.DescribeScope(resource, namespace != "", namespace, name), err)
}

// matchesQuery says that it is what a query of its resource asks for. One whose fields cannot be read is, so that who asks hears
// of that.
func (o *object) matchesQuery(q *snapshot.Query, namespaced bool, f snapshot.FieldLabels) bool {
	if o.loadValue == nil || !snapshot.NeedsValue(q.Fields) {
		return matchesResolved(q, namespaced, f, &o.Object)
	}
	but := *q
	but.Fields = fields.Everything()
	if !matchesResolved(&but, namespaced, f, &o.Object) {
		return false
	}
	whole, err := o.readWhole()
	return err != nil || f.MatchesObject(q.Fields, &whole)
}

// newObject returns what an informer holds of what a client returned.
func newObject(gvr schema.GroupVersionResource, obj any) (*object, error) {
	switch o := obj.(type) {
	case *wire.Object:
		return &object{snapshot.FromMetadata(gvr, &o.PartialObjectMetadata), o.Content}, nil
	case *unstructured.Unstructured:
		if problem := wire.UnreadReason(o); problem != nil { // which is told to who needs more than the metadata
			known := snapshot.FromUnstructured(gvr, o)
			known.Value = nil
			return &object{known, func() (map[string]any, error) { return nil, problem }}, nil //nolint:nilerr // whoever reads it is told
		}
	}
	o, err := convertObject(gvr, obj)
	return &object{Object: o}, err
}

// convertObject reads what a client returned, if it is all of it.
func convertObject(gvr schema.GroupVersionResource, obj any) (plan.Object, error) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		if err := wire.UnreadReason(o); err != nil {
			return plan.Object{}, newUnreadableError(gvr.GroupResource(), o.GetNamespace(), o.GetName(), err)
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
