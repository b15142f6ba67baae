// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/config/crd"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// NewOfflineObjects returns a cluster with the objects of documents and no others. It serves the built-in kinds, ours, those that
// CustomResourceDefinitions in documents or definitions define, and the kinds of the objects.
func NewOfflineObjects(documents, definitions []*Document) (*snapshot.Objects, error) {
	world := snapshot.NewObjects()
	objects, err := listAllItems(documents)
	if err != nil {
		return nil, err
	}
	defined, err := listAllItems(definitions)
	if err != nil {
		return nil, err
	}
	for _, i := range slices.Concat(defined, objects) {
		if err := addItemKinds(world, i); err != nil {
			return nil, err
		}
	}
	own, err := crd.Definitions()
	if err != nil {
		return nil, err
	}
	for _, d := range own {
		addCRDKinds(world, d)
	}
	AddBuiltinKinds(world)
	addObjectKinds(world, objects)
	for _, i := range objects {
		if err := i.checkName(); err != nil {
			return nil, err
		}
		if err := world.AddObject(i.Unstructured); err != nil {
			return nil, errors.New(i.newProblem("", err.Error()).String())
		}
	}
	return world, world.SortObjects()
}

// item is an object and its place in a document.
type item struct {
	*unstructured.Unstructured
	document *Document
	// path is empty, or the path of an item of a list.
	path string
}

// newProblem returns a problem of a field of the object.
func (i item) newProblem(field, message string) Problem {
	switch {
	case i.path == "":
		return i.document.NewProblem(field, message)
	case field == "":
		return i.document.NewProblem(i.path, message)
	}
	return i.document.NewProblem(i.path+"."+field, message)
}

// checkName returns an error if the object has no name, or one that YAML does not read as a string.
func (i item) checkName() error {
	for _, field := range []string{"name", "namespace"} {
		meta, _ := i.Object["metadata"].(map[string]any)
		value, there := meta[field]
		if _, ok := value.(string); ok || (!there && field == "namespace") {
			continue
		}
		p := i.newProblem("metadata."+field, "is missing: write it")
		if there {
			p.message = "must be a string"
			if node := i.document.findNode(p.field); node != nil {
				p.message += suggestValue("string", node, nil)
			}
		}
		return errors.New(p.String())
	}
	return nil
}

// listAllItems returns the objects of documents.
func listAllItems(documents []*Document) ([]item, error) {
	var all []item
	for _, d := range documents {
		found, err := d.listItems()
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// listItems returns the objects of a document: itself, or the items of a list.
func (d *Document) listItems() ([]item, error) {
	one := item{Unstructured: &unstructured.Unstructured{Object: d.Object}, document: d}
	list, ok := d.Object["items"].([]any)
	if !ok || !strings.HasSuffix(one.GetKind(), "List") || one.GetName() != "" { // a custom kind may be called AllowList
		return []item{one}, one.checkKind()
	}
	all := make([]item, 0, len(list))
	for i, entry := range list {
		object, _ := entry.(map[string]any)
		one := item{Unstructured: &unstructured.Unstructured{Object: object}, document: d, path: fmt.Sprintf("items[%d]", i)}
		if err := one.checkKind(); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// checkKind returns an error if the object has no apiVersion or kind.
func (i item) checkKind() error {
	if i.GetAPIVersion() == "" || i.GetKind() == "" {
		return errors.New(i.newProblem("", "is not a Kubernetes object: write apiVersion and kind").String())
	}
	return nil
}

// addItemKinds serves the kinds that an object defines if it is a CustomResourceDefinition.
func addItemKinds(world *snapshot.Objects, u item) error {
	d, err := u.decodeDefinition()
	if d != nil {
		addCRDKinds(world, d)
	}
	return err
}

// decodeDefinition returns the CustomResourceDefinition that an object is; nil if it is none.
func (i item) decodeDefinition() (*apiextensionsv1.CustomResourceDefinition, error) {
	if i.GroupVersionKind() != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		return nil, nil
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(i.Object, d); err != nil {
		return nil, errors.New(i.newProblem("", "cannot read the CustomResourceDefinition: "+err.Error()).String())
	}
	return d, nil
}

// addObjectKinds serves the kinds of objects. A kind is namespaced if one of its objects has a namespace.
func addObjectKinds(world *snapshot.Objects, objects []item) {
	namespaced := map[schema.GroupVersionKind]bool{}
	for _, u := range objects {
		gvk := u.GroupVersionKind()
		namespaced[gvk] = namespaced[gvk] || u.GetNamespace() != ""
	}
	for _, u := range objects {
		gvk := u.GroupVersionKind()
		world.AddKind(gvk.GroupVersion(), guessResource(gvk, namespaced[gvk]))
	}
}
