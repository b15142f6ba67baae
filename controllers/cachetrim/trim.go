// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cachetrim keeps of our kinds, for the manager's cache and its reads, what the operator reads, and says how much a status shows. It
// decides nothing.
package cachetrim

import (
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/jsontrim"
)

const (
	// maxCachedAnnotation is how many bytes of an annotation of ours are kept: an author has no more.
	maxCachedAnnotation = 64 << 10
	// MaxCachedFinalizers is how many finalizers are kept.
	MaxCachedFinalizers = 16
)

// LimitMetadata has clients of a configuration drop most of the metadata that TrimObject drops before they decode it: decoded it takes
// several times its text, in lists, in events of watches and in live reads. A client of objects that Cleaners select must not do so: they
// may be Cleaners, selected by their labels. All finalizers of a single object are read, because a patch replaces them.
func LimitMetadata(config *rest.Config) {
	jsontrim.LimitMetadata(config, jsontrim.Kept{
		Group: v1alpha1.GroupVersion.Group, Annotations: v1alpha1.CleanerAnnotations(), Finalizers: MaxCachedFinalizers, Finalizer: v1alpha1.Finalizer,
	})
}

// TrimObject keeps of the metadata of an object that the manager's cache takes only what the operator reads: who may write an object
// may fill its labels and annotations, and no webhook is asked. (The API server bounds generateName, which the signature of an author
// may name.) Specs and records stay whole, and of reports what the operator writes itself. Nothing that is written may take the
// place of the metadata as a whole, nor of finalizers: see completeFinalizers.
func TrimObject(object any) (any, error) {
	if c, ok := object.(v1alpha1.Owner); ok {
		trimMetadata(c)
		trimReport(c.State())
		return object, nil
	}
	if t, ok := object.(*v1alpha1.CleanerTemplate); ok {
		trimMetadata(t)
		return object, nil
	}
	if o, err := apimeta.Accessor(object); err == nil { // else it is not an object, but says that one is gone
		o.SetManagedFields(nil)
	}
	return object, nil
}

func trimMetadata(o metav1.Object) {
	o.SetLabels(nil)
	o.SetOwnerReferences(nil)
	o.SetManagedFields(nil)
	o.SetFinalizers(trimFinalizers(o.GetFinalizers()))
	o.SetAnnotations(trimAnnotations(o.GetAnnotations()))
}

func trimAnnotations(all map[string]string) map[string]string {
	var out map[string]string
	for _, name := range v1alpha1.CleanerAnnotations() {
		if value, ok := all[name]; ok {
			if out == nil {
				out = map[string]string{}
			}
			if len(value) > maxCachedAnnotation {
				value = strings.Clone(value[:maxCachedAnnotation]) // or all of it would be kept. It is none that means something, so that its last character may be cut, too
			}
			out[name] = value
		}
	}
	return out
}

// trimFinalizers keeps ours, and the first of others.
func trimFinalizers(all []string) []string {
	if len(all) <= MaxCachedFinalizers {
		return all
	}
	out := slices.Clone(all[:MaxCachedFinalizers])
	if slices.Contains(all, v1alpha1.Finalizer) && !slices.Contains(out, v1alpha1.Finalizer) {
		out[MaxCachedFinalizers-1] = v1alpha1.Finalizer
	}
	return out
}
