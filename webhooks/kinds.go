// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
)

// kindDiscovery lists the resources that the API server serves in one version of a group. client-go's discovery client implements it.
type kindDiscovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// findServedKinds looks up the kind of each target in the API server, with one request for each version of a group. A kind that
// is not served is no error.
func (v *validator) findServedKinds(ctx context.Context, targets []v1alpha1.ClusterTarget) ([]validation.ServedKind, error) {
	asked := map[schema.GroupVersion][]metav1.APIResource{}
	out := make([]validation.ServedKind, len(targets))
	for i := range targets {
		r := &targets[i].Reference
		if r.Kind == v1alpha1.AnyKind { // each kind is reviewed by itself
			continue
		}
		gv := schema.GroupVersion{Group: r.APIGroup, Version: r.Version}
		if _, ok := asked[gv]; !ok {
			list, err := v.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
			if err == nil && len(list.APIResources) == 0 {
				// client-go returns an empty list if the core group is forbidden, so an empty list proves nothing.
				err = errors.New("the API server returned an empty list of resources")
			}
			switch {
			case apierrors.IsNotFound(err):
				asked[gv] = nil
			case err != nil:
				return nil, fmt.Errorf("cannot determine whether kind %q of %s is served: %w", r.Kind, gv, err)
			default:
				asked[gv] = list.APIResources
			}
		}
		if found := v1alpha1.FindKind(r.Kind, asked[gv]); found != nil {
			out[i] = validation.ServedKind{Resource: found.Name, Namespaced: found.Namespaced}
		}
	}
	return out, nil
}
