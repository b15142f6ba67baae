// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package objectschema

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// OfBuiltIn returns the schema of a kind whose Go type a scheme has. It is nil if the scheme does not have the kind.
func OfBuiltIn(scheme *runtime.Scheme, gvk schema.GroupVersionKind) *Schema {
	for kind, t := range scheme.KnownTypes(gvk.GroupVersion()) {
		if standsFor(gvk.Kind, kind) {
			gvk.Kind = kind
			return OfGoType(t).finishKind(gvk)
		}
	}
	return nil
}
