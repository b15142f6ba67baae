// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/controllers/shards"
)

// LeaseName is the name of the Lease by which earlier versions elect a leader.
const LeaseName = "cleaner.vtex.dev"

// FindOwner returns which process owns the Cleaners of a namespace: empty if none does. A process that was killed owns them until its Lease expires.
func FindOwner(ctx context.Context, c client.Reader, namespace string) (string, error) {
	owners, err := ListOwners(ctx, c)
	return owners[shards.FindShard(types.NamespacedName{Namespace: namespace})], err
}

// ListOwners returns which process owns each shard that is owned.
func ListOwners(ctx context.Context, c client.Reader) (map[int]string, error) {
	leases := &unstructured.UnstructuredList{} // clients of some tests do not know Leases
	leases.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("LeaseList"))
	if err := c.List(ctx, leases, client.InNamespace(Namespace)); err != nil {
		return nil, fmt.Errorf("cannot list Leases: %w", err)
	}
	holders := map[string]string{}
	renews, owners := map[string]bool{}, map[int]string{}
	for i := range leases.Items {
		name := leases.Items[i].GetName()
		holder, _, err := unstructured.NestedString(leases.Items[i].Object, "spec", "holderIdentity")
		if err != nil {
			return nil, fmt.Errorf("cannot read the Lease %s: %w", name, err)
		}
		holders[name] = holder
		if strings.HasPrefix(name, LeaseName+"-replica-") && holder != "" {
			renews[holder] = true
		}
	}
	for shard := range shards.Count {
		if holder := holders[fmt.Sprintf("%s-shard-%d", LeaseName, shard)]; renews[holder] {
			owners[shard] = holder
		}
	}
	return owners, nil
}
