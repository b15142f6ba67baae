// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// DefinitionsGroup is the group of CustomResourceDefinitions.
const DefinitionsGroup = "apiextensions.k8s.io"

// IsCustom says that a CustomResourceDefinition, or another API server, may define a kind: what its objects are at a version depends on that.
func (r Resource) IsCustom() bool {
	return !wire.IsKnown(r.GVR.GroupVersion()) && r.GVR.Group != DefinitionsGroup && r.GVR.Group != "apiregistration.k8s.io"
}

// NewDefinitionQuery asks for the metadata of a CustomResourceDefinition, or of all without a name.
func NewDefinitionQuery(name string) snapshot.Query {
	return snapshot.Query{
		Group: DefinitionsGroup, Version: "v1", Kind: "CustomResourceDefinition", Name: name,
		Labels: labels.Everything(), Fields: fields.Everything(), MetadataOnly: true,
	}
}

// DefinitionState says which state of a CustomResourceDefinition an object is, as far as objects are served by it: its status is left out.
func DefinitionState(definition *observed.Object) string {
	return fmt.Sprintf("%s, generation %d", definition.UID, definition.Generation)
}

// ReadDefinitionState reads the DefinitionState of a resource; "" if it has no definition. It is false if that cannot be read.
func ReadDefinitionState(ctx context.Context, r snapshot.Reader, of schema.GroupResource) (state string, ok bool) {
	read := r.Read(ctx, NewDefinitionQuery(of.String()))
	if len(read.Objects) > 0 {
		state = DefinitionState(&read.Objects[0])
	}
	return state, read.State == observed.Complete
}

// ReadDefinedFields reads which fields the definition of a custom kind makes selectable, or says why it cannot. A kind without a definition, which
// another API server serves, has those of its metadata.
func ReadDefinedFields(ctx context.Context, c dynamic.Interface, r Resource) (f snapshot.FieldLabels, problem string) {
	definitions := schema.GroupVersionResource{Group: DefinitionsGroup, Version: "v1", Resource: "customresourcedefinitions"}
	crd, err := c.Resource(definitions).Get(ctx, r.GVR.GroupResource().String(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return snapshot.BuiltinFieldLabels(r.GVR.GroupResource()), ""
	case err != nil:
		return snapshot.BuiltinFieldLabels(r.GVR.GroupResource()), fmt.Sprintf("cannot find out by which fields %s may be selected: %v", r.GVR.GroupResource(), err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var paths []string
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if version["name"] != r.GVR.Version {
			continue
		}
		selectable, _, _ := unstructured.NestedSlice(version, "selectableFields")
		for _, s := range selectable {
			if path, ok, _ := unstructured.NestedString(s.(map[string]any), "jsonPath"); ok {
				paths = append(paths, path)
			}
		}
	}
	return snapshot.CustomFieldLabels(r.Namespaced, paths), ""
}
