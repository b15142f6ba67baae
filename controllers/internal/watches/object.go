// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// convert reads what a client returned.
func convert(gvr schema.GroupVersionResource, obj any) (plan.Object, error) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
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
