// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actionlog

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/metrics"
)

// ListReadiness returns whether each Cleaner and ClusterCleaner is ready, and whether its sink accepts its event, by its status as the cache knows it.
func ListReadiness(ctx context.Context, c client.Reader) ([]metrics.Readiness, error) {
	var out []metrics.Readiness
	for _, list := range []client.ObjectList{&v1alpha1.CleanerList{}, &v1alpha1.ClusterCleanerList{}} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("cannot list what is ready: %w", err)
		}
		if err := apimeta.EachListItem(list, func(o apiruntime.Object) error {
			owner, ok := o.(v1alpha1.Owner)
			if !ok {
				return fmt.Errorf("cannot say whether a %T is ready", o)
			}
			known, sent := apimeta.FindStatusCondition(owner.State().Conditions, v1alpha1.ConditionReady), apimeta.FindStatusCondition(owner.State().Conditions, v1alpha1.ConditionDelivered)
			r := metrics.Readiness{Namespace: owner.GetNamespace(), Name: owner.GetName(), Unaccepted: sent != nil && sent.Reason == v1alpha1.ReasonDeliveryFailed}
			if known != nil {
				r.Reason, r.Ready = known.Reason, known.Status != metav1.ConditionFalse
			}
			out = append(out, r)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}
