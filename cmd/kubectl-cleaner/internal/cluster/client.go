// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster reads a cluster with the rights of the user: the kinds that it serves, and the objects that targets may select. It never
// changes anything.
package cluster

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/progress"
	"github.com/vtex/cleaner/controllers/jsontrim"
	"github.com/vtex/cleaner/controllers/kindschemas"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Client reads one cluster.
type Client struct {
	// Dynamic reads objects of any kind, and Schemas what fields they have.
	Dynamic dynamic.Interface
	Schemas kindschemas.Source

	discovery discovery.DiscoveryInterface
	metadata  metadata.Interface
	// resourceLists caches the served resources by group and version; nil if none are served.
	resourceLists map[schema.GroupVersion]*metav1.APIResourceList
}

// NewClient returns a client of the cluster that the configuration names.
func NewClient(config *rest.Config) (*Client, error) {
	c := &Client{resourceLists: map[schema.GroupVersion]*metav1.APIResourceList{}}
	var err error
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, err
	}
	c.Schemas = kindschemas.NewReader(c.discovery.RESTClient(), clock.RealClock{})
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	c.Dynamic, err = dynamic.NewForConfig(config)
	return c, err
}

// listResources returns the resources that are served in one version of a group; nil if none are.
func (c *Client) listResources(gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	if list, ok := c.resourceLists[gv]; ok {
		return list, nil
	}
	list, err := c.discovery.ServerResourcesForGroupVersion(gv.String())
	switch {
	case apierrors.IsNotFound(err):
		list = nil
	case err != nil:
		return nil, fmt.Errorf("cannot list the kinds that the cluster serves: %w", err)
	}
	c.resourceLists[gv] = list
	return list, nil
}

// FindServedKinds looks up the kinds of targets in the cluster. Its result has one entry for each target.
func (c *Client) FindServedKinds(targets []v1alpha1.ClusterTarget) ([]validation.ServedKind, error) {
	out := make([]validation.ServedKind, len(targets))
	for i := range targets {
		r := &targets[i].Reference
		if targets[i].IsOfAnyKind() {
			kinds, err := c.listKinds()
			if err != nil {
				return nil, err
			}
			out[i].Kinds = NameKinds(kinds, &targets[i])
			continue
		}
		list, err := c.listResources(schema.GroupVersion{Group: r.APIGroup, Version: r.Version})
		if err != nil {
			return nil, err
		}
		if list == nil {
			continue
		}
		if found := v1alpha1.FindKind(r.Kind, list.APIResources); found != nil {
			out[i] = validation.ServedKind{Resource: found.Name, Namespaced: found.Namespaced}
		}
	}
	return out, nil
}

// FetchObjects reads all objects that a Cleaner's targets may select, and shows how far it is.
func (c *Client) FetchObjects(ctx context.Context, of *manifests.Cleaner, shown *progress.Line) (*snapshot.Objects, error) {
	world := snapshot.NewObjects()
	var kinds []schema.GroupVersionKind
	for i := range of.Work.Targets {
		r := &of.Work.Targets[i].Reference
		if of.Work.Targets[i].IsOfAnyKind() {
			continue
		}
		kinds = append(kinds, schema.GroupVersionKind{Group: r.APIGroup, Version: r.Version, Kind: r.Kind})
		if r.NamespaceSelector != nil {
			kinds = append(kinds, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
		}
	}
	done := map[schema.GroupVersionResource]bool{}
	for _, gvk := range kinds {
		list, err := c.listResources(gvk.GroupVersion())
		if err != nil {
			return nil, err
		}
		if list == nil {
			continue
		}
		r := v1alpha1.FindKind(gvk.Kind, list.APIResources)
		if r == nil {
			continue
		}
		gvr := gvk.GroupVersion().WithResource(r.Name)
		if done[gvr] {
			continue
		}
		done[gvr] = true
		paths, err := c.readSelectableFields(ctx, gvr)
		if err != nil {
			return nil, err
		}
		world.AddKind(gvk.GroupVersion(), *r, paths...)
		if err := c.addObjects(ctx, world, of, gvr, r.Namespaced, shown); err != nil {
			return nil, err
		}
	}
	if err := c.addAnyKinds(ctx, world, of, done, shown); err != nil {
		return nil, err
	}
	return world, world.SortObjects()
}

// readSelectableFields returns the paths of the selectableFields of a custom kind.
func (c *Client) readSelectableFields(ctx context.Context, gvr schema.GroupVersionResource) ([]string, error) {
	if !strings.Contains(gvr.Group, ".") {
		return nil, nil
	}
	definitions := c.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	d, err := definitions.Get(ctx, gvr.GroupResource().String(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // an aggregated API serves it, or the user may not read CRDs
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the CustomResourceDefinition of %s: %w", gvr.GroupResource(), err)
	}
	versions, _, err := unstructured.NestedSlice(d.Object, "spec", "versions")
	if err != nil {
		return nil, fmt.Errorf("cannot read CustomResourceDefinition %q: %w", d.GetName(), err)
	}
	var paths []string
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if version["name"] != gvr.Version {
			continue
		}
		selectable, _, _ := unstructured.NestedSlice(version, "selectableFields")
		for _, f := range selectable {
			field, _ := f.(map[string]any)
			path, _ := field["jsonPath"].(string)
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// addObjects reads the objects of a kind, in the Cleaner's namespace or, for a ClusterCleaner, in all namespaces.
func (c *Client) addObjects(ctx context.Context, world *snapshot.Objects, of *manifests.Cleaner, gvr schema.GroupVersionResource, namespaced bool, shown *progress.Line) error {
	namespace := ""
	if namespaced {
		namespace = of.Owner.GetNamespace()
	}
	in, read := c.Dynamic.Resource(gvr).Namespace(namespace), 0
	shown.BeginStage("Reading %s", snapshot.DescribeScope(gvr.GroupResource(), namespaced, namespace, ""))
	list, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page, err := in.List(ctx, o)
		if err != nil {
			return nil, err
		}
		read += len(page.Items)
		shown.Count(read, read+int(ptr.Deref(page.GetRemainingItemCount(), 0)))
		return page, nil
	}).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		world.SetFailure(gvr.GroupResource(), observed.Forbidden, "you are not allowed to list "+snapshot.DescribeScope(gvr.GroupResource(), namespaced, namespace, ""))
		return nil
	case err != nil:
		return fmt.Errorf("cannot list %s: %w", snapshot.DescribeScope(gvr.GroupResource(), namespaced, namespace, ""), err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("cannot read a %T", item)
		}
		if reason := jsontrim.CheckWhole(u.Object); reason != nil {
			return world.AddUnread(u, reason)
		}
		return world.AddObject(u)
	})
}

// ListAll lists the objects of a resource.
func ListAll(ctx context.Context, in dynamic.ResourceInterface, what string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return in.List(ctx, o) })
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if u, ok := o.(*unstructured.Unstructured); ok {
			all = append(all, u)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", what, err)
	}
	return all, nil
}
