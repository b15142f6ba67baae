// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// leaseClient reads and writes the Leases of one operator.
type leaseClient struct {
	coordinationclient.LeaseInterface
	opts Options
}

func (c leaseClient) nameReplica(place int) string {
	return fmt.Sprintf("%s-replica-%d", c.opts.Name, place)
}
func (c leaseClient) nameShard(shard int) string {
	return fmt.Sprintf("%s-shard-%d", c.opts.Name, shard)
}

// setHolder changes the holder of a Lease, and when it was renewed.
func (c leaseClient) setHolder(l *coordinationv1.Lease, holder string) {
	now := metav1.NewMicroTime(c.opts.Clock.Now())
	if old := ptr.Deref(l.Spec.HolderIdentity, ""); old != holder {
		l.Spec.AcquireTime = &now
		if old != "" && holder != "" {
			l.Spec.LeaseTransitions = ptr.To(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
		}
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &holder, &now, ptr.To(int32(expiresAfter/time.Second))
}

// getLease reads a Lease.
func (c leaseClient) getLease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return c.Get(ctx, name, metav1.GetOptions{})
}

// writeLease creates a Lease, or updates it at the version that was read.
func (c leaseClient) writeLease(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	write := func() (*coordinationv1.Lease, error) { return c.Update(ctx, l, metav1.UpdateOptions{}) }
	if l.ResourceVersion == "" {
		write = func() (*coordinationv1.Lease, error) { return c.Create(ctx, l, metav1.CreateOptions{}) }
	}
	written, err := write()
	if err != nil {
		return nil, fmt.Errorf("cannot write the Lease %s: %w", l.Name, err)
	}
	return written, nil
}

// leases are the Leases of replicas and shards as a listing showed them.
type leases struct {
	listing
	blank coordinationv1.Lease
	read  map[string]*coordinationv1.Lease
}

// find returns a Lease with a name: one that can be created if it does not exist.
func (l *leases) find(name string) *coordinationv1.Lease {
	if found := l.read[name]; found != nil {
		return found
	}
	made := l.blank.DeepCopy()
	made.Name = name
	return made
}

// listLeases reads the Leases of replicas and shards, in one consistent version.
func (c leaseClient) listLeases(ctx context.Context) (*leases, error) {
	out := &leases{
		blank: coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.opts.Namespace}},
		read:  map[string]*coordinationv1.Lease{},
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	out.sent = c.opts.Clock.Now()
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list Leases: %w", err)
	}
	out.answered = c.opts.Clock.Now()
	for i := range list.Items {
		item := &list.Items[i]
		n, err := strconv.Atoi(item.Name[strings.LastIndex(item.Name, "-")+1:])
		if err != nil || n < 0 || n >= Count {
			continue // not one of ours
		}
		record := lease{ptr.Deref(item.Spec.HolderIdentity, ""), item.ResourceVersion}
		switch item.Name {
		case c.nameReplica(n):
			out.replicas[n] = record
		case c.nameShard(n):
			out.shards[n] = record
		default:
			continue
		}
		out.read[item.Name] = item
	}
	return out, nil
}
