// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/releaseitem"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Filter is what selects the objects of a watch for targets of all kinds, or of Helm releases. Its zero value selects all objects, for other targets.
type Filter struct {
	// Labels is the label selector that the API server is asked for.
	Labels string
	// Fields is the field selector that the API server is asked for.
	Fields string
	// Annotations are keys, joined by commas: each object must have one of them. No API server selects by annotations.
	Annotations string
	// ofAnyKind and ofReleases tell it from the zero value.
	ofAnyKind, ofReleases bool
}

// ofReleases selects the Secrets of all Helm releases: whatever targets select of them shares a watch.
var ofReleases = Filter{ //nolint:gochecknoglobals // it never changes
	Labels:     labels.Set{v1alpha1.ReleaseOwnerLabel: v1alpha1.ReleaseOwner}.String(),
	Fields:     fields.OneTermEqualSelector("type", v1alpha1.ReleaseSecretType).String(),
	ofReleases: true,
}

// FilterOf returns the filter of a query.
func FilterOf(q *snapshot.Query) Filter {
	switch {
	case q.OfReleases:
		return ofReleases
	case !q.OfAnyKind:
		return Filter{}
	}
	return Filter{Labels: q.Labels.String(), Annotations: q.Annotations, ofAnyKind: true}
}

// NewObject is the function NewObject for a watch with the filter: for targets of all kinds the Value of an object is its metadata, and one
// that the filter does not select is LeftOut.
func (f Filter) NewObject(gvr schema.GroupVersionResource, kind string, obj any, reads *snapshot.Reads) (*Object, error) {
	switch {
	case f.ofReleases:
		return newRelease(gvr, kind, obj, reads)
	case !f.ofAnyKind:
		return NewObject(gvr, kind, obj, reads)
	}
	if made, ok := obj.(*Object); ok {
		return made, nil
	}
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("cannot read a %T as the metadata of %s", obj, observed.ResourceName(gvr))
	}
	if !f.selects(m) {
		return &Object{LeftOut: true, Object: observed.Object{Ref: snapshot.FromMetadata(gvr, kind, m).Ref}}, nil
	}
	o, err := ConvertMetadata(gvr, kind, m)
	o.Annotations, o.Content = f.Annotations, contents.Add(1)
	return &Object{Object: o, Large: spendOnValues(o.Value, fewValues) < 0}, err
}

// newRelease makes what an informer holds of the Secret of a Helm release: what reads say of its item, without the record. Metadata alone stays that.
func newRelease(gvr schema.GroupVersionResource, kind string, obj any, reads *snapshot.Reads) (*Object, error) {
	switch obj.(type) {
	case *Object, *metav1.PartialObjectMetadata:
		return NewObject(gvr, kind, obj, reads)
	}
	item, err := MakeReleaseItem(gvr, obj)
	if err != nil {
		return nil, err
	}
	o := snapshot.FromReleaseItem(gvr, item, nil)
	o.Value, o.Content = reads.Projection().ApplyToMap(item), contents.Add(1)
	return &Object{Object: o, Large: spendOnValues(o.Value, fewValues) < 0, Bytes: len(o.Unreadable)}, nil
}

// MakeReleaseItem returns the item of a client's Secret. One that could not be read has an item, too.
func MakeReleaseItem(gvr schema.GroupVersionResource, obj any) (map[string]any, error) {
	switch o := obj.(type) {
	case *wire.Object:
		secret, unread := o.KeepParts(releaseitem.ListSources())
		if unread == nil {
			return releaseitem.MakeItem(secret, nil), nil
		}
		metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.PartialObjectMetadata)
		return releaseitem.MakeItem(metadata, unread), err
	case *unstructured.Unstructured:
		return releaseitem.MakeItem(o.Object, wire.UnreadReason(o)), nil
	default:
		return nil, fmt.Errorf("cannot read a %T as %s", obj, observed.ResourceName(gvr))
	}
}

// ConvertSelected returns those of the objects of a list that the filter selects.
func (f Filter) ConvertSelected(gvr schema.GroupVersionResource, kind string, m *metav1.PartialObjectMetadata) (o observed.Object, selected bool, err error) {
	if !f.selects(m) {
		return o, false, nil
	}
	o, err = ConvertMetadata(gvr, kind, m)
	o.Annotations = f.Annotations
	return o, true, err
}

// selects reports whether an object has one of the annotations. The API server has selected by labels.
func (f Filter) selects(m *metav1.PartialObjectMetadata) bool {
	return snapshot.HasAnnotation(m.Annotations, f.Annotations)
}

// ConvertMetadata returns an object whose Value has apiVersion, kind and metadata alone.
func ConvertMetadata(gvr schema.GroupVersionResource, kind string, m *metav1.PartialObjectMetadata) (observed.Object, error) {
	o := snapshot.FromMetadata(gvr, kind, m)
	slim := metav1.PartialObjectMetadata{ObjectMeta: m.ObjectMeta}
	slim.ManagedFields = nil
	value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&slim)
	if err != nil {
		return observed.Object{}, newUnreadableError(o.Ref, err)
	}
	o.Value = value
	o.Value["apiVersion"], o.Value["kind"] = gvr.GroupVersion().String(), kind
	return o, nil
}
