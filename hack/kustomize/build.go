// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kustomize reads what a folder of config/ declares, as `kubectl apply -k` would apply it. It never asks a cluster,
// and runs no plugins.
package kustomize

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Build returns the objects of a folder, in the order in which its kustomization.yaml names them.
func Build(dir string) ([]*unstructured.Unstructured, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("cannot build %s: %w", dir, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("cannot write %s of %s: %w", resource.CurId(), dir, err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			return nil, fmt.Errorf("cannot read %s of %s: %w", resource.CurId(), dir, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
