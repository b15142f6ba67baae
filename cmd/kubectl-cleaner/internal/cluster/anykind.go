// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/progress"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// errMetadataOnly is why no more is known of an object of a target of kind "*".
var errMetadataOnly = errors.New("of the objects of kind \"*\" only the metadata is read")

// NameKinds returns the kinds that a target of kind "*" stands for, as far as its reference tells, and at most so many as the operator reviews.
func NameKinds(kinds []anykind.Kind, t *v1alpha1.ClusterTarget) []validation.NamedResource {
	request := anykind.NewRequest(t)
	within, _ := new(anykind.Bound).Take(anykind.SelectKinds(kinds, request), request)
	return rights.NameKinds(within)
}

// listKinds returns all kinds of the cluster that targets of kind "*" may select.
func (c *Client) listKinds() ([]anykind.Kind, error) {
	kinds, _, err := anykind.ListServed(c.discovery.ServerPreferredResources())
	return kinds, err
}

// addAnyKinds reads the metadata of the objects of the targets of kind "*", but of kinds that are read whole.
func (c *Client) addAnyKinds(ctx context.Context, world *snapshot.Objects, of *manifests.Cleaner, done map[schema.GroupVersionResource]bool, shown *progress.Line) error {
	if len(of.Work.ListAnyKind()) == 0 {
		return nil
	}
	kinds, err := c.listKinds()
	if err != nil {
		return err
	}
	for i := range kinds {
		k := &kinds[i]
		selected := slices.ContainsFunc(of.Work.Targets, func(t v1alpha1.ClusterTarget) bool {
			return t.IsOfAnyKind() && len(anykind.SelectKinds(kinds[i:i+1], anykind.NewRequest(&t))) > 0
		})
		if !selected || done[k.GroupVersionResource] {
			continue
		}
		world.AddKind(k.GroupVersion(), metav1.APIResource{Name: k.Resource, Kind: k.Kind, Namespaced: k.Namespaced})
		if err := c.addMetadata(ctx, world, k, shown); err != nil {
			return err
		}
	}
	return nil
}

// addMetadata reads the metadata of the objects of a kind. One that cannot be read is skipped, as the operator does.
func (c *Client) addMetadata(ctx context.Context, world *snapshot.Objects, k *anykind.Kind, shown *progress.Line) error {
	scope := snapshot.DescribeScope(k.GroupResource(), k.Namespaced, "", "")
	shown.BeginStage("Reading %s", scope)
	list, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.metadata.Resource(k.GroupVersionResource).List(ctx, o)
	}).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		world.SetFailure(k.GroupResource(), observed.Forbidden, "you are not allowed to list "+scope)
		return nil
	case err != nil:
		world.SetFailure(k.GroupResource(), observed.Failed, fmt.Sprintf("cannot list %s: %v", scope, err))
		return nil
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(item)
		if err != nil {
			return fmt.Errorf("cannot read the metadata of %s: %w", scope, err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion(k.GroupVersion().String())
		u.SetKind(k.Kind)
		return world.AddUnread(u, errMetadataOnly)
	})
}
