// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cachedcleaners lists the Cleaners and ClusterCleaners that the cache knows: whether they are ready, and those of a shard. It decides
// nothing, and changes none.
package cachedcleaners

import (
	"context"
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/shards"
)

// ListReadiness returns of each Cleaner and ClusterCleaner that this process owns whether it is ready, and whether its sink accepts its event, by its
// status. Other processes say it of the others.
func ListReadiness(ctx context.Context, c client.Reader, owned shards.Ownership) ([]metrics.Readiness, error) {
	var out []metrics.Readiness
	err := visitCleaners(ctx, c, func(owner v1alpha1.Owner) {
		if !owned.FindTenure(client.ObjectKeyFromObject(owner)).Exists() {
			return
		}
		known, sent := apimeta.FindStatusCondition(owner.State().Conditions, v1alpha1.ConditionReady), apimeta.FindStatusCondition(owner.State().Conditions, v1alpha1.ConditionDelivered)
		r := metrics.Readiness{Namespace: owner.GetNamespace(), Name: owner.GetName(), Unaccepted: sent != nil && sent.Reason == v1alpha1.ReasonDeliveryFailed}
		if known != nil {
			r.Reason, r.Ready = known.Reason, known.Status != metav1.ConditionFalse
		}
		out = append(out, r)
	})
	return out, err
}

// WakeShards wakes the Cleaners and ClusterCleaners of shards whose owner has changed. If the cache is not there yet, all are reconciled when it is.
func WakeShards(ctx context.Context, c client.Reader, changed []int, wake func(types.NamespacedName)) {
	var keys []types.NamespacedName
	if err := visitCleaners(ctx, c, func(owner v1alpha1.Owner) {
		if key := client.ObjectKeyFromObject(owner); slices.Contains(changed, shards.FindShard(key)) {
			keys = append(keys, key)
		}
	}); err != nil {
		logf.FromContext(ctx).Error(err, "Cannot list the Cleaners of shards", "shards", changed)
	}
	for _, key := range keys {
		wake(key)
	}
}

// visitCleaners calls a function with each Cleaner and ClusterCleaner, which it must not change.
func visitCleaners(ctx context.Context, c client.Reader, visit func(v1alpha1.Owner)) error {
	for _, list := range []client.ObjectList{&v1alpha1.CleanerList{}, &v1alpha1.ClusterCleanerList{}} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("cannot list Cleaners: %w", err)
		}
		if err := apimeta.EachListItem(list, func(o apiruntime.Object) error {
			owner, ok := o.(v1alpha1.Owner)
			if !ok {
				return fmt.Errorf("a %T is no Cleaner", o)
			}
			visit(owner)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
