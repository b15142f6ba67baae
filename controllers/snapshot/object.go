// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/releaseitem"
)

// FromUnstructured returns what decisions see of a whole object. It shares the content of u, which must not change afterwards.
func FromUnstructured(gvr schema.GroupVersionResource, u *unstructured.Unstructured) observed.Object {
	o := fromObjectMeta(gvr, u.GetKind(), u)
	o.Value = withoutManagedFields(u.Object)
	return o
}

// FromMetadata returns what decisions see of an object whose metadata alone was read: that does not say its kind.
func FromMetadata(gvr schema.GroupVersionResource, kind string, m *metav1.PartialObjectMetadata) observed.Object {
	return fromObjectMeta(gvr, kind, m)
}

// FromReleaseItem returns what decisions see of a revision of a Helm release. The Value has what is read of its item; nil reads are all.
func FromReleaseItem(gvr schema.GroupVersionResource, item map[string]any, reads *Reads) observed.Object {
	u := &unstructured.Unstructured{Object: item}
	o := fromObjectMeta(gvr, u.GetKind(), u)
	o.OfRelease, o.Unreadable = true, releaseitem.FindProblem(item)
	o.Value = reads.KeepParts(item)
	return o
}

// FromAnswer returns what decisions see of an object that an API server has sent whole, which they have seen before.
func FromAnswer(before *observed.Object, u *unstructured.Unstructured) observed.Object {
	if before.OfRelease {
		return FromReleaseItem(before.Resource, releaseitem.MakeItem(u.Object, nil), nil)
	}
	now := FromUnstructured(before.Resource, u)
	now.Kind = before.Kind
	return now
}

func fromObjectMeta(gvr schema.GroupVersionResource, kind string, m metav1.Object) observed.Object {
	labels := m.GetLabels()
	return observed.Object{
		Ref: observed.Ref{
			Resource: gvr, Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
		},
		Labels:      labels,
		Protected:   labels[v1alpha1.ProtectKey] == "true" || m.GetAnnotations()[v1alpha1.ProtectKey] == "true",
		Generation:  m.GetGeneration(),
		Terminating: m.GetDeletionTimestamp() != nil,
		OutOfGrace:  m.GetDeletionTimestamp() != nil && ptr.Deref(m.GetDeletionGracePeriodSeconds(), 1) == 0,
		Finalizers:  m.GetFinalizers(),
	}
}

// withoutManagedFields copies as little as it can, because the caller may still hold the object.
func withoutManagedFields(content map[string]any) map[string]any {
	meta, ok := content["metadata"].(map[string]any)
	if !ok {
		return content
	}
	if _, ok := meta["managedFields"]; !ok {
		return content
	}
	out := make(map[string]any, len(content))
	for k, v := range content {
		out[k] = v
	}
	slim := make(map[string]any, len(meta))
	for k, v := range meta {
		if k != "managedFields" {
			slim[k] = v
		}
	}
	out["metadata"] = slim
	return out
}
