// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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

// newOfflineObjects returns a cluster that has the objects of these documents and no others. It serves the API server's own kinds, ours,
// those that the documents or the definitions define, and those of which there are objects.
func newOfflineObjects(documents, definitions []*document) (*snapshot.Objects, error) {
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
	addBuiltinKinds(world)
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

// item is an object, and where it stands.
type item struct {
	*unstructured.Unstructured
	document *document
	// path is where it stands in the document: empty, or that of an item of a list.
	path string
}

// newProblem makes a problem of a field of the object.
func (i item) newProblem(field, message string) problem {
	switch {
	case i.path == "":
		return i.document.newProblem(field, message)
	case field == "":
		return i.document.newProblem(i.path, message)
	}
	return i.document.newProblem(i.path+"."+field, message)
}

// checkName errs on an object without a name, or with one that YAML does not read as text.
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
				p.message += i.document.suggestValue("string", node)
			}
		}
		return errors.New(p.String())
	}
	return nil
}

// listAllItems returns the objects of documents.
func listAllItems(documents []*document) ([]item, error) {
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
func (d *document) listItems() ([]item, error) {
	one := item{Unstructured: &unstructured.Unstructured{Object: d.object}, document: d}
	list, ok := d.object["items"].([]any)
	if !ok || !strings.HasSuffix(one.GetKind(), "List") {
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

// checkKind errs on what does not say which kind it is of.
func (i item) checkKind() error {
	if i.GetAPIVersion() == "" || i.GetKind() == "" {
		return errors.New(i.newProblem("", "is no Kubernetes object: write apiVersion and kind").String())
	}
	return nil
}

// addItemKinds serves what an object defines, if it is a definition.
func addItemKinds(world *snapshot.Objects, u item) error {
	if u.GroupVersionKind() != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		return nil
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return errors.New(u.newProblem("", "cannot read the definition: "+err.Error()).String())
	}
	addCRDKinds(world, d)
	return nil
}

// addObjectKinds makes kinds known of which there are objects. Whether they live in namespaces is seen by the objects.
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
