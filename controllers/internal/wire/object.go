// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	_ metav1.Object  = (*Object)(nil)
	_ runtime.Object = (*Object)(nil)
)

// Object is what a watch of a kind that is sent in protobuf tells of: its metadata, and a way to the rest. Much of what
// happens in a cluster is over before anybody looks, so that the rest is put into maps when it is first read, if ever.
type Object struct {
	// PartialObjectMetadata is the metadata, without managedFields.
	metav1.PartialObjectMetadata
	// Content gives the whole object, as it would have been read from JSON, but without managedFields. Whoever asks gets the
	// same maps, and must not change them.
	Content func() (map[string]any, error)
}

// DeepCopyObject copies the metadata. The rest never changes, and is shared.
func (o *Object) DeepCopyObject() runtime.Object {
	return &Object{*o.PartialObjectMetadata.DeepCopy(), o.Content}
}
