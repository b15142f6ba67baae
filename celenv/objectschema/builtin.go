// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package objectschema

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// OfBuiltIn returns the schema of a kind whose Go type a scheme has. It is nil if the scheme does not have the kind.
func OfBuiltIn(scheme *runtime.Scheme, gvk schema.GroupVersionKind) *Schema {
	object, err := scheme.New(gvk)
	if err != nil {
		return nil
	}
	return OfGoType(reflect.TypeOf(object)).finishKind(gvk)
}
