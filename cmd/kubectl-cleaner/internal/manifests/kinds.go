// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// AddBuiltinKinds serves the built-in kinds that can be listed.
func AddBuiltinKinds(objects *snapshot.Objects) {
	known := scheme.Scheme
	for gvk := range known.AllKnownTypes() {
		list := gvk.GroupVersion().WithKind(gvk.Kind + "List")
		if gvk.Version == runtime.APIVersionInternal || !known.Recognizes(list) || gvk.Kind == "APIGroup" { // which discovery alone serves
			continue
		}
		objects.AddKind(gvk.GroupVersion(), guessResource(gvk, !validation.IsClusterScoped(gvk.Group, gvk.Kind)))
	}
	extensions := apiextensionsv1.SchemeGroupVersion
	objects.AddKind(extensions, guessResource(extensions.WithKind("CustomResourceDefinition"), false))
	objects.AddKind(schema.GroupVersion{Group: "apiregistration.k8s.io", Version: "v1"}, guessResource(schema.GroupVersionKind{Kind: "APIService"}, false))
}

// guessResource guesses the resource of a kind by the usual rules for plurals.
func guessResource(gvk schema.GroupVersionKind, namespaced bool) metav1.APIResource {
	plural, singular := meta.UnsafeGuessKindToResource(gvk)
	return metav1.APIResource{Name: plural.Resource, SingularName: singular.Resource, Kind: gvk.Kind, Namespaced: namespaced}
}

// addCRDKinds serves the kind of a CustomResourceDefinition in its served versions.
func addCRDKinds(objects *snapshot.Objects, d *apiextensionsv1.CustomResourceDefinition) {
	names := d.Spec.Names
	singular := names.Singular
	if singular == "" {
		singular = strings.ToLower(names.Kind)
	}
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		var paths []string
		for _, f := range v.SelectableFields {
			paths = append(paths, f.JSONPath)
		}
		objects.AddKind(schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}, metav1.APIResource{
			Name: names.Plural, SingularName: singular, Kind: names.Kind, Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped,
		}, paths...)
	}
}
