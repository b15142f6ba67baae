// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/controllers/jsontrim"
)

var (
	_ metav1.Object  = (*Object)(nil)
	_ runtime.Object = (*Object)(nil)
)

// Object is what a watch of a kind that is sent in protobuf tells of: its metadata, and a way to the rest. Much of what
// happens in a cluster is over before anybody looks, so that the rest is put into maps when it is first read, if ever. An
// object that is too large to be read is one too, of any kind.
type Object struct {
	// PartialObjectMetadata is the metadata, without managedFields.
	metav1.PartialObjectMetadata
	// Content gives the whole object, as it would have been read from JSON, but without managedFields. All callers get the same maps, and
	// must not change them.
	Content func() (map[string]any, error)
	// Size is how many bytes were sent of it.
	Size int
	// typed is the whole object where it was sent in protobuf.
	typed typed
}

// DeepCopyObject copies the metadata. The rest never changes, and is shared.
func (o *Object) DeepCopyObject() runtime.Object {
	return &Object{PartialObjectMetadata: *o.PartialObjectMetadata.DeepCopy(), Content: o.Content, Size: o.Size}
}

// newTooLargeObject returns what a watch tells of an object whose rest is not read.
func newTooLargeObject(metadata *metav1.PartialObjectMetadata) *Object {
	metadata.ManagedFields = nil
	return &Object{PartialObjectMetadata: *metadata, Content: func() (map[string]any, error) { return nil, errTooLarge }}
}

// unreadKey is where an object of a list that was not read has the reason, as an error. No object that was read has one.
const unreadKey = "\x00unread"

// UnreadReason returns why only the metadata of an object can be relied on; nil if the whole object was read.
func UnreadReason(u *unstructured.Unstructured) error {
	if err, _ := u.Object[unreadKey].(error); err != nil {
		return err
	}
	return jsontrim.CheckWhole(u.Object)
}

// newUnreadItem returns an object of a list with nothing but its metadata, and the reason.
func newUnreadItem(metadata *metav1.PartialObjectMetadata, reason error) (*unstructured.Unstructured, error) {
	metadata.ManagedFields = nil
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(metadata)
	if err != nil {
		return nil, err
	}
	content[unreadKey] = reason
	return &unstructured.Unstructured{Object: content}, nil
}
